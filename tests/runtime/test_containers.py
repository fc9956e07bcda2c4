"""Containers keep their type and what else they carry, whatever their constructor and methods allow."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NoReturn

import pytest
import torch
from crosstrain.utils.nested import convert_to_fp32, recursively_apply, send_to_device


class Output(OrderedDict[str, torch.Tensor]):
    """Like the outputs of the models of transformers: made from fields, and never updated."""

    loss: torch.Tensor

    def update(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError("an output is not updated")


def output() -> Output:
    made = Output()
    made["logits"] = torch.ones(2, dtype=torch.float16)
    made.loss = torch.zeros(())
    return made


@pytest.mark.parametrize(
    "convert",
    [
        convert_to_fp32,
        lambda data: recursively_apply(torch.Tensor.float, data),
        lambda data: send_to_device(convert_to_fp32(data), "cpu"),
    ],
    ids=["map_tensors", "recursively_apply", "send_to_device"],
)
def test_the_output_of_a_model_stays_one(convert: Any) -> None:
    given = output()
    got = convert(given)
    assert type(got) is Output and got.loss is given.loss
    assert got["logits"].dtype is torch.float32 and given["logits"].dtype is torch.float16
