"""One round of every fault, always the same; with CROSSTRAIN_FAULTS as many new ones of each as it says (`make faults`)."""

import os
import time
from dataclasses import replace

import pytest

from tests.faults.journal import Reference
from tests.faults.rounds import FAULTS, make_reference, run

ROUNDS = int(os.environ.get("CROSSTRAIN_FAULTS", 0))
TRIES = 8  # a training may be over before it is struck: each try strikes in half the time


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference()


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_repeated_or_dropped(name: str, reference: Reference) -> None:
    first = int(time.time()) if ROUNDS else 0
    for seed in range(first, first + max(ROUNDS, 1)):
        for number in range(TRIES):
            sooner = replace(reference, seconds=reference.seconds / 2**number)
            try:
                struck, wrong = run(FAULTS[name], sooner, seed + number)
            except PermissionError as error:
                pytest.skip(f"needs a disk of its own: {error}")
            assert not wrong
            if struck:
                break
        else:
            pytest.fail(f"{name} never struck before the training was over")
