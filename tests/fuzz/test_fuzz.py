"""The short form of the fuzzer: the same scripts on every run. `python -m tests.fuzz` looks for new ones."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.mutations import examine, mutated_script


@settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=60,
    phases=[Phase.generate],  # the long form shrinks
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(mutated_script())
def test_mutated_golden_scripts(text: str) -> None:
    assert examine(text) == {}
