"""`pad_collate`: sequences of different lengths in one tensor, masks and ignored labels included."""

from typing import Any

import pytest
from crosstrain import Accelerator
from crosstrain.utils import pad_collate

SHORT = {"input_ids": [8], "labels": [4], "weight": 1.5}
SAMPLES = [{"input_ids": [5, 6, 7], "labels": [1, 2, 3], "weight": 0.5}, SHORT]
FIELDS = ["input_ids", "attention_mask", "labels"]


def test_fields_are_padded_masked_and_ignored_and_the_rest_is_collated() -> None:
    batch = pad_collate(fields=FIELDS)(SAMPLES)
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2, 3], [4, -100, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["weight"].tolist() == [0.5, 1.5]


def test_lengths_are_rounded_up_where_shapes_are_fixed() -> None:
    batch = pad_collate(8, {"input_ids": 9, "labels": -1}, everywhere=True)(SAMPLES)
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 8)
    assert batch["input_ids"][1].tolist() == [8, *[9] * 7]


def test_a_device_without_fixed_shapes_gets_the_longest_sequence() -> None:
    Accelerator(cpu=True)
    assert pad_collate(8, FIELDS)(SAMPLES)["input_ids"].shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "samples", "reason"),
    [
        ({"fields": []}, SAMPLES, "needs the fields to pad"),
        ({"fields": ["attention_mask"]}, SAMPLES, "needs the fields to pad"),
        ({"fields": ["tokens"]}, SAMPLES, "no field 'tokens'; they have"),
        ({"fields": ["labels"], "multiple_of": 0}, SAMPLES, "must be 1 or more"),
        ({"fields": ["labels"]}, SAMPLES, "'input_ids' cannot be put together .* add 'input_ids' to fields"),
        ({"fields": ["input_ids"], "max_length": 2}, SAMPLES, "length 3, more than max_length=2"),
    ],
)
def test_what_cannot_be_padded_is_said(arguments: dict[str, Any], samples: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        pad_collate(**arguments)(samples)
