"""The quick walks see what `ast.walk` sees, in its order."""

import ast

import pytest
from crosstrain_migrate.syntax.program import link, parse
from crosstrain_migrate.syntax.walks import children, walk

from tests.unit.test_skeleton import AWKWARD

OPERATORS = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
GAPS = "match {**a, 'b': 1}:\n    case {'c': d, **e}: pass\nf = lambda *, g, h=1: not g\nglobal i\n"


@pytest.mark.parametrize("text", [AWKWARD, GAPS])
def test_walks_are_those_of_ast(text: str) -> None:
    tree = ast.parse(text)
    expected = [node for node in ast.walk(tree) if not isinstance(node, OPERATORS)]
    assert walk(tree) == expected
    for node in expected:
        assert children(node) == [one for one in ast.iter_child_nodes(node) if not isinstance(one, OPERATORS)]


def test_the_files_of_a_program_are_walked() -> None:
    tree = parse(link([("a.py", "x = 1\n"), ("b.py", "import a\n")], ("",)))
    found = [type(node).__name__ for node in walk(tree)][:5]
    assert found == ["Module", "Region", "Region", "Assign", "Import"]
