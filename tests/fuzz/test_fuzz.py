"""Mutated golden scripts break no oracle: the same few on every run, or with CROSSTRAIN_FUZZ as many new ones as it says."""

import os

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.mutations import examine, mutated_script

NEW = int(os.environ.get("CROSSTRAIN_FUZZ", 0))


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
