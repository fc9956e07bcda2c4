"""Understanding a script ends, however its values refer to themselves, and keeps sets of values small."""

from __future__ import annotations

import ast

import pytest
from crosstrain_migrate.facts.facts import understand

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

_NESTED = """
import torch

def nested(condition, fn):
    def apply(obj):
        if condition(obj):
            return fn(obj)
        elif isinstance(obj, (list, tuple)):
            mapped = (apply(x) for x in obj)
            if hasattr(obj, "_fields"):
                return type(obj)(*mapped)
            return type(obj)(mapped)
        elif isinstance(obj, dict):
            return {x: apply(obj[x]) for x in obj}
    return apply

def filtered(condition, conversion=None):
    def walk(obj):
        if conversion is not None:
            obj = conversion(obj)
        if condition(obj):
            yield obj
        elif isinstance(obj, (list, tuple)):
            for o in obj:
                yield from walk(o)
        elif isinstance(obj, dict):
            for o in obj.values():
                yield from walk(o)
    return walk

data = nested(lambda x: isinstance(x, torch.Tensor), lambda x: x.data)
values = filtered(lambda x: x is None or isinstance(x, torch.Tensor))
data([values({"a": (1, 2)})])
"""

_ITERATORS = """
def convert(value, seen):
    if isinstance(value, tuple):
        return tuple(convert(iter(value), seen))
    if isinstance(value, list):
        return list(convert(iter(value), seen))
    for index, part in enumerate(value):
        convert(enumerate(part), seen)
    return value

convert([(1, 2)], {})
"""

_CONTAINERS = "".join(
    f"x{n} = [{n}, ({n}, {{'a': {n}}})]\nfor y{n} in x{n}:\n    print(y{n})\n" for n in range(200)
)

_ONE_OF_MANY = (
    "import torch\n\ndef pick(n, block):\n"
    + "".join(
        f"    if n == {n}:\n        return {{'{n}': pick(n - 1, block), 'in': [block, ({n},)]}}\n"
        for n in range(90)
    )
    + "    return block\n\nnet = torch.nn.Linear(2, 1)\nfound = pick(3, [net])\n"
    + "for key in found:\n    found = found[key]['in']\nfound[0][0].eval()\n"
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("text", "largest"),
    [
        pytest.param(_LINKED.format("next", "parent", "left", "right"), 100, id="linked"),
        pytest.param(_IMPORTED, 50, id="imported"),
        pytest.param(_FUNCTIONS, 50, id="many-attributes"),
        pytest.param(_NESTED, 20, id="calls-itself"),
        pytest.param(_ITERATORS, 100, id="iterators-over-iterators"),
        pytest.param(_CONTAINERS, 10, id="many-containers"),
        pytest.param(_ONE_OF_MANY, 50, id="one-of-many-containers"),
    ],
)
def test_understanding_ends(text: str, largest: int) -> None:
    interp = understand(ast.parse(text)).interp
    assert max(len(values) for values in interp.values.values()) <= largest


def test_what_one_of_many_containers_holds_is_not_forgotten() -> None:
    interp = understand(ast.parse(_ONE_OF_MANY)).interp
    called = next(n for n in ast.walk(interp.tree) if isinstance(n, ast.Attribute) and n.attr == "eval")
    assert "torch.nn.Linear" in {getattr(value, "path", "") for value in interp.of(called.value)}


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
