"""What a call gives: its arguments by position and name, and the shards and parameters among them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .values import External, FunctionNode, Instance, Iterator, Member, Parameters, Sequence, Shard, Value

if TYPE_CHECKING:
    from .infer import Interpreter

WEIGHTS = frozenset({"weight", "bias"})


def keywords_of(node: ast.Call) -> dict[str, ast.expr]:
    return {k.arg: k.value for k in node.keywords if k.arg is not None}


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """What a call gives by this name."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def given(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """What a call gives by this name or at this position."""
    found = keyword_of(call, name)
    return call.args[position] if found is None and len(call.args) > position else found


def arguments_of(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)]


def shards_of(interp: Interpreter, nodes: Iterable[ast.expr]) -> list[Shard]:
    """The shards among the arguments, those inside literal tuples, lists and dicts included."""
    found: list[Shard] = []
    for node in nodes:
        for value in interp.of(node):
            if isinstance(value, Shard):
                found.append(value)
            elif isinstance(value, Sequence):
                found.extend(e for e in interp.element(value) if isinstance(e, Shard))
            elif isinstance(value, Member) and isinstance(value.receiver, Shard):
                found.append(value.receiver)
    return found


def argument_of(node: ast.Call, function: FunctionNode, name: str, bound: bool) -> ast.expr | None:
    """The expression that a call gives for parameter `name`; `bound`: the first parameter is the receiver."""
    keyword = keyword_of(node, name)
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][bound:]
    if keyword is not None or name not in names:
        return keyword
    index = names.index(name)
    plain = index < len(node.args) and not any(isinstance(a, ast.Starred) for a in node.args[: index + 1])
    return node.args[index] if plain else None


def parameters_in(interp: Interpreter, node: ast.Call) -> set[Value]:
    """The modules whose parameters a call is given, however wrapped (groups, chains, filters)."""
    found: set[Value] = set()
    work = [v for a in arguments_of(node) for v in interp.of(a)]
    seen: set[Value] = set()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, Parameters):
            found.add(value.of)
        elif isinstance(value, Sequence):
            work.extend(interp.element(value))
        elif isinstance(value, Iterator):
            work.append(value.of)
        elif isinstance(value, Member) and is_weight(interp, value):
            found.add(value.receiver)
    return found


def is_weight(interp: Interpreter, value: Value) -> bool:
    """`layer.weight`: one of the parameters that torch's own layers have."""
    return isinstance(value, Member) and value.name in WEIGHTS and interp.is_module(value.receiver)


def note_parameters(interp: Interpreter, node: ast.Call) -> None:
    """Whatever is given `x.parameters()` may be an optimizer, and `x` is a module all the same."""
    interp.note_modules({m for m in parameters_in(interp, node) if isinstance(m, External | Instance)})
