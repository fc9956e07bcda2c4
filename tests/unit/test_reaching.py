"""Which definitions of a variable may reach a use."""

from __future__ import annotations

import ast

import pytest
from crosstrain_migrate.facts.facts import understand
from crosstrain_migrate.syntax.program import parse


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\nx: int\nprint(x)\n", [1]),
        ("x: int\nx = 1\nprint(x)\n", [2]),
        ("x = 1\nx: int = 2\nprint(x)\n", [2]),
        (
            "def f():\n    x = 1\n    try:\n        x = 2\n        return x\n    except OSError:\n        print(x)\n",
            [2, 4],
        ),
        ("x = 1\ntry:\n    x = 2\n    x = 3\nexcept OSError:\n    print(x)\n", [1, 3, 4]),
        ("try:\n    x = 1\nexcept* OSError:\n    x = 2\nprint(x)\n", [2, 4]),
        ("match a:\n    case [x]:\n        pass\n    case _:\n        x = 2\nprint(x)\n", [2, 5]),
    ],
    ids=["annotation", "annotation first", "annotated", "return in try", "within try", "except*", "match"],
)
def test_definitions_that_reach_a_use(text: str, expected: list[int]) -> None:
    tree = parse(text)
    reaching = understand(tree).interp.reaching
    use = next(n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "print").args[
        0
    ]
    assert isinstance(use, ast.Name)
    assert sorted(getattr(node, "lineno", 0) for node in reaching[use]) == expected
