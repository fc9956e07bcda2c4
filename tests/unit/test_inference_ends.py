"""Understanding a script ends, however its values refer to themselves, and keeps sets of values small."""

from __future__ import annotations

import ast

import pytest
from crosstrain_migrate.roles.facts import understand

_LINKED = """\
def walk(node):
    while node is not None:
        if node.{0}:
            node = node.{1}
        elif node.{2}:
            node = node.{2}
        elif node.{3}:
            node = node.{3}
        else:
            node = node.{0}
    return node
"""

_IMPORTED = """\
import somewhere
value = somewhere.value
while value.base:
    value = value.base
value.stride()
"""

_FUNCTIONS = (
    "def look(fn):\n"
    + "".join(f"    if fn.a{n}:\n        fn = fn.a{n}\n" for n in range(30))
    + "look(print)\n"
)

_CONTAINERS = "".join(
    f"x{n} = [{n}, ({n}, {{'a': {n}}})]\nfor y{n} in x{n}:\n    print(y{n})\n" for n in range(200)
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "largest"),
    [
        pytest.param(_LINKED.format("next", "parent", "left", "right"), 100, id="linked"),
        pytest.param(_IMPORTED, 50, id="imported"),
        pytest.param(_FUNCTIONS, 50, id="many-attributes"),
        pytest.param(_CONTAINERS, 10, id="many-containers"),
    ],
)
def test_understanding_ends(text: str, largest: int) -> None:
    interp = understand(ast.parse(text)).interp
    assert max(len(values) for values in interp.values.values()) <= largest


def test_a_module_may_look_at_its_own_parts() -> None:
    text = """
import torch

class Net(torch.nn.Module):
    def train(self):
        for name, part in self.named_children():
            part.loss.backward()
"""
    interp = understand(ast.parse(text)).interp
    part = next(n for n in ast.walk(interp.tree) if isinstance(n, ast.Name) and n.id == "part")
    assert [getattr(value, "path", "") for value in interp.of(part)] == ["torch.nn.Module"]


def test_a_test_of_self_is_no_crash() -> None:
    text = "class Marker:\n    def same(self, other):\n        if self == 1:\n            return other\nMarker().same(2)\n"
    assert understand(ast.parse(text)).interp.constants.dead == set()
