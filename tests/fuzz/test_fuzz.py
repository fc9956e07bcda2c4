"""The short form of the fuzzer: the same scripts on every run. `python -m tests.fuzz` looks for new ones."""

from __future__ import annotations

import ast

from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.grammar import training_script
from tests.fuzz.mutations import mutated_script
from tests.fuzz.oracle import examine

SHORT = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=40,
    phases=[Phase.generate],  # the long form shrinks
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@SHORT
@given(training_script())
def test_scripts_from_the_grammar(text: str) -> None:
    assert examine(text) == {}


@SHORT
@given(mutated_script())
def test_mutated_golden_scripts(text: str) -> None:
    assert examine(text) == {}


@settings(SHORT, max_examples=100)
@given(training_script())
def test_the_grammar_speaks_python_that_trains(text: str) -> None:
    """Text that no tool could convert, or need not, would prove nothing in the tests above."""
    called = [n.func for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Call)]
    assert any(isinstance(function, ast.Attribute) and function.attr == "backward" for function in called)
