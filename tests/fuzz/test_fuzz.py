"""The same scripts on every run; with CROSSTRAIN_FUZZ=N (`make fuzz`) N new ones, and what breaks the oracle is shrunk."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.mutations import examine, mutated_script

NEW = int(os.environ.get("CROSSTRAIN_FUZZ", "0"))


@pytest.mark.timeout(0)
@settings(
    deadline=None,
    derandomize=not NEW,
    database=None,
    max_examples=NEW or 60,
    phases=[Phase.generate, Phase.shrink] if NEW else [Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(mutated_script())
def test_mutated_golden_scripts(text: str) -> None:
    assert examine(text) == {}
