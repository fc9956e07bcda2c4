"""The quick walks see what `ast.walk` sees, in its order."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from crosstrain_migrate.syntax.program import link, parse
from crosstrain_migrate.syntax.walks import children, walk

OPERATORS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.relative_to(TESTS).as_posix()
)
def test_walks_are_those_of_ast(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    expected = [node for node in ast.walk(tree) if not isinstance(node, OPERATORS)]
    assert walk(tree) == expected
    for node in expected:
        inside = [one for one in ast.iter_child_nodes(node) if not isinstance(one, OPERATORS)]
        assert children(node) == inside


def test_gaps_and_rare_fields() -> None:
    tree = ast.parse(
        "match {**a, 'b': 1}:\n    case {'c': d, **e}: pass\nf = lambda *, g, h=1: not g\nglobal i\n"
    )
    assert walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, OPERATORS)]


def test_the_files_of_a_program_are_walked() -> None:
    tree = parse(link([("a.py", "x = 1\n"), ("b.py", "import a\n")], ("",)))
    assert [type(node).__name__ for node in walk(tree)][:5] == [
        "Module",
        "Region",
        "Region",
        "Assign",
        "Import",
    ]
