"""The conversions by hand that the benchmark compares the tool's with."""

from __future__ import annotations

import ast

import pytest

from tests.benchmarks.conversions import BY_HAND, OPTIONS, ROOT, arguments, longer

CASES = sorted(path.stem for path in BY_HAND.glob("*.py"))


def test_there_are_ten() -> None:
    assert len(CASES) == 10


@pytest.mark.parametrize("case", CASES)
def test_each_is_a_whole_conversion_of_a_golden_script(case: str) -> None:
    text = (BY_HAND / f"{case}.py").read_text(encoding="utf-8")
    called = [
        node.func.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert {"prepare", "reduce"} <= set(called)
    assert text.count("accelerator.backward(") == called.count("backward") > 0


@pytest.mark.parametrize("case", CASES)
def test_both_versions_train_for_as_many_epochs(case: str) -> None:
    by_option = any(option in OPTIONS for option in arguments(case))
    for path in (BY_HAND / f"{case}.py", ROOT / "golden" / case / "after.py"):
        text = path.read_text(encoding="utf-8")
        assert by_option or longer(text) != text, path
