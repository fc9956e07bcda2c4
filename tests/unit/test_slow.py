"""The list of tests that the short set leaves out is about tests that there are, and chosen as it says."""

from __future__ import annotations

import ast
from pathlib import Path

from tests import slow

ROOT = Path(__file__).parents[2]
OUTPUT = """
12.00s call     tests/a.py::test_one[x y]
0.50s setup    tests/a.py::test_one[x y]
0.10s call     tests/a.py::test_one[z]
5.00s call     tests/a.py::test_two
3.00s call     tests/a.py::test_three[a]
2.00s call     tests/a.py::test_three[b]
"""


def test_every_listed_test_is_there() -> None:
    names: dict[str, set[str]] = {}
    for test in {*slow.listed(slow.TABLE.read_text().splitlines()), *slow.ALWAYS}:
        path, _, name = test.partition("::")
        if path not in names:
            nodes = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
            names[path] = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in names[path], (
            f"{test} is listed in tests/slow.txt and not there any more"
        )


def test_the_fastest_of_each_function_stays_if_it_is_fast_enough() -> None:
    seconds = slow.measured(OUTPUT)
    assert slow.left_out(seconds) == [
        (12.5, "tests/a.py::test_one[x y]"),
        (5.0, "tests/a.py::test_two"),
        (3.0, "tests/a.py::test_three[a]"),
    ]
