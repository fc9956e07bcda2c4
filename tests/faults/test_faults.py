"""One round of every fault; `make faults` runs hundreds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults.journal import Reference
from tests.faults.rounds import FAULTS, make_reference, run

TRIES = 8  # a training may be over before it is struck: each try strikes in half the time


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference()


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_repeated_or_dropped(name: str, reference: Reference) -> None:
    for seed in range(TRIES):
        try:
            outcome = run(FAULTS[name], replace(reference, seconds=reference.seconds / 2**seed), seed)
        except PermissionError as error:
            pytest.skip(f"needs a disk of its own: {error}")
        assert not outcome.bad, outcome
        if outcome.struck:
            return
    pytest.fail(f"{name} never struck before the training was over")
