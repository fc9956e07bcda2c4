"""What a batch is made of comes to the device, and stays what it is."""

from collections import OrderedDict, UserDict
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from crosstrain.comm.placement import Placer
from crosstrain.utils.nested import convert_to_fp32, leaves
from crosstrain.utils.operations import send_to_device
from torch import Tensor

from tests.runtime.test_data_one_process import Pair


@dataclass(frozen=True)
class Sample:
    x: Tensor
    name: str


class Bag(UserDict):  # type: ignore[type-arg]
    """A mapping whose constructor takes something else."""

    def __init__(self, owner: int) -> None:
        super().__init__()
        self.owner = owner


class Mover:
    def __init__(self) -> None:
        self.where = "host"

    def to(self, device: torch.device) -> "Mover":
        moved = Mover()
        moved.where = str(device)
        return moved


def test_placement_moves_every_tensor_and_keeps_every_container() -> None:
    bag = Bag(7)
    bag["x"] = torch.ones(2)
    batch = {
        "pair": Pair(torch.ones(2), "y"),
        "list": [torch.ones(1), 3, None],
        "ordered": OrderedDict(a=torch.ones(1)),
        "bag": bag,
        "sample": Sample(torch.ones(1), "n"),
        "mover": Mover(),
        "packed": torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]),
        "text": ["a", "b"],
    }
    assert len(leaves(batch)) == 7  # two of the packed sequence, none of the bag's owner or the texts
    placed = Placer(torch.device("meta"))(batch)
    assert type(placed["pair"]) is Pair and placed["pair"].x.is_meta and placed["pair"].y == "y"
    assert placed["list"][0].is_meta and placed["list"][1:] == [3, None]
    assert type(placed["ordered"]) is OrderedDict and placed["ordered"]["a"].is_meta
    assert type(placed["bag"]) is Bag and placed["bag"].owner == 7 and placed["bag"]["x"].is_meta
    assert type(placed["sample"]) is Sample and placed["sample"].x.is_meta and placed["sample"].name == "n"
    assert placed["mover"].where == "meta"
    assert placed["packed"].data.is_meta
    assert placed["text"] is batch["text"]
    assert not bag["x"].is_meta and not batch["pair"].x.is_meta  # the user's batch is untouched


def test_what_is_in_place_already_is_handed_on_as_it_is() -> None:
    batch = {"x": [torch.ones(2)], "y": (1, 2)}
    assert Placer(torch.device("cpu"), non_blocking=True)(batch) is batch


# -- Containers keep their type and what else they carry, whatever their constructor and methods allow -----


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


def test_the_output_of_a_model_stays_one() -> None:
    given = output()
    for got in (convert_to_fp32(given), send_to_device(convert_to_fp32(given), "cpu")):
        assert type(got) is Output and got.loss is given.loss
        assert got["logits"].dtype is torch.float32 and given["logits"].dtype is torch.float16
