"""Which attributes of an object its class's methods add to, and what becomes of the others when processes are merged.

The source code of the class tells: in a meter, ``self.sum += value`` adds, ``self.val = value`` remembers the last value,
and ``self.avg = self.sum / self.count`` is computed from others. What only ``__init__`` sets is an option.
"""

from __future__ import annotations

import ast
import copy
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

from torch import nn

MIXED = -1
_BUILDING = {"__init__", "__new__", "__post_init__", "__setstate__", "__setattr__"}
_GROWING = {"append", "appendleft", "extend", "add", "update", "subtract", "at"}
_JOINING = {"cat", "concat", "concatenate", "append", "hstack", "vstack"}


class Derived(NamedTuple):
    """An attribute that is computed from others by an expression, in which the object has the name ``me``.

    place: where the attribute is computed element by element, the variable that numbers the elements.
    """

    name: str
    expression: CodeType
    scope: Mapping[str, Any]
    me: str = "self"
    place: str = ""

    def of(self, owner: Any) -> Any:
        if not self.place:
            return eval(self.expression, dict(self.scope), {self.me: owner})
        held = getattr(owner, self.name)
        filled = copy.deepcopy(held)
        for key in list(held) if isinstance(held, Mapping) else range(len(held)):
            filled[key] = eval(self.expression, dict(self.scope), {self.me: owner, self.place: key})
        return filled


@dataclass(frozen=True)
class AddedAttributes:
    """The attributes by what becomes of them.

    added: they are added up. depths: of those, the number of indices under which something is added; a list is then
    added element by element, and not joined. joined: tensors and arrays that are concatenated. largest, smallest: of the values, the
    largest or smallest. last: the value of the process with the last batch. derived: computed anew, by an expression of
    ``self``. unclear: changed in a way that cannot be merged.
    """

    added: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()
    largest: frozenset[str] = frozenset()
    smallest: frozenset[str] = frozenset()
    last: frozenset[str] = frozenset()
    derived: tuple[Derived, ...] = ()
    unclear: frozenset[str] = frozenset()
    depths: Mapping[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The attributes that are taken from the processes."""
        return sorted(self.added | self.joined | self.largest | self.smallest | self.last | self.unclear)


@dataclass
class _Change:
    """A statement of a method that changes an attribute."""

    made: _Made
    me: str
    locals: frozenset[str]
    scope: Mapping[str, Any]


class _Made(NamedTuple):
    """What becomes of an attribute. value: what is assigned; None where it grows in place. at: under which indices."""

    name: str
    value: ast.expr | None
    at: tuple[ast.expr, ...] = ()


def of_object(value: Any) -> AddedAttributes | None:
    """What becomes of the attributes of this object; None where nobody can tell."""
    held = getattr(value, "__dict__", None)
    if not held or isinstance(value, (type, nn.Module)):
        return None
    kind: Any = type(value)
    found = of_class(kind)
    if {"sum", "count"} <= held.keys():
        return _as_meter(found or AddedAttributes(), held)
    if found == AddedAttributes() or isinstance(value, SimpleNamespace):
        # A record, whose attributes the script itself changes.
        return AddedAttributes(
            added=frozenset(name for name in held if not isinstance(held[name], (str, bool)))
        )
    return found


def _as_meter(found: AddedAttributes, held: Mapping[str, Any]) -> AddedAttributes:
    """The attributes of a meter, which keeps a sum and a count, and may keep their quotient and the last value."""
    meter = {"sum", "count"}
    derived = [entry for entry in found.derived if entry.name not in {*meter, "avg"} or entry.place]
    if "avg" in held and not any(entry.name == "avg" for entry in derived):
        derived.append(Derived("avg", compile("self.sum / self.count", "<meter>", "eval"), {}))
    lists = {name: 1 for name in meter if isinstance(held[name], list)}
    return replace(
        found,
        added=found.added | meter,
        last=found.last | ({"val"} & held.keys()) - {"avg"},
        derived=tuple(derived),
        unclear=found.unclear - meter - {"avg", "val"},
        depths=lists | dict(found.depths),
    )


@lru_cache(maxsize=256)
def of_class(kind: Any) -> AddedAttributes | None:
    """The attributes that the methods of a class change; None where its source code is not there."""
    changes: list[_Change] = []
    for base in reversed(kind.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(base))
            (definition,) = ast.parse(source).body
        except (OSError, TypeError, SyntaxError, ValueError):
            return None
        if isinstance(definition, ast.ClassDef):
            changes += _changes(base, definition)
    return _sorted(changes)


def _changes(kind: type, definition: ast.ClassDef) -> Iterator[_Change]:
    for method in definition.body:
        if not isinstance(method, ast.FunctionDef) or method.name in _BUILDING or not method.args.args:
            continue
        if any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in method.decorator_list):
            continue
        me = method.args.args[0].arg
        names = {a.arg for a in [*method.args.args[1:], *method.args.kwonlyargs, *method.args.posonlyargs]}
        names |= {a.arg for a in (method.args.vararg, method.args.kwarg) if a is not None}
        names |= {n.id for n in ast.walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        scope = getattr(inspect.unwrap(getattr(kind, method.name, _changes)), "__globals__", {})
        for node in ast.walk(method):
            for made in _changed(node, me):
                yield _Change(made, me, frozenset(names - {me}), scope)


def _changed(node: ast.AST, me: str) -> Iterator[_Made]:
    """The attributes that a statement changes."""
    if isinstance(node, ast.AugAssign):
        grows = isinstance(node.op, (ast.Add, ast.Sub, ast.BitOr))
        if (name := _root(node.target, me)) is not None:
            value = None if grows else ast.BinOp(_attribute(me, name), node.op, node.value)
            yield _Made(name, value, _indices(node.target))
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from _assigned(target, node.value, me)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if not isinstance(call.func, ast.Attribute):
            return
        method = call.func.attr
        grows = method in _GROWING or method.endswith("add_")
        held = call.args[0] if method == "at" and call.args else call.func.value
        if grows and (name := _root(held, me)) is not None:
            yield _Made(name, None, _indices(held))


def _assigned(target: ast.expr, value: ast.expr, me: str) -> Iterator[_Made]:
    if isinstance(target, (ast.Tuple, ast.List)):
        several = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        for number, each in enumerate(target.elts):
            yield from _assigned(each, value.elts[number] if several else value, me)  # type: ignore[attr-defined]
        return
    name = _root(target, me)
    if name is None:
        return
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
        same = ast.dump(_as_load(target))
        if same == ast.dump(value.left) or (same == ast.dump(value.right) and isinstance(value.op, ast.Add)):
            yield _Made(name, None, _indices(target))
            return
    yield _Made(name, value, _indices(target))


def _indices(node: ast.expr) -> tuple[ast.expr, ...]:
    """The i and j of ``self.x[i][j]``; empty where anything but indices follows the attribute."""
    found: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        found.insert(0, node.slice)
        node = node.value
    return tuple(found) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ()


def _root(node: ast.expr, me: str) -> str | None:
    """The x of ``self.x``, ``self.x[...]``, ``self.x.y`` and ``self.x.f(...)``; None for anything else."""
    while True:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return node.attr if node.value.id == me else None
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return None


def _attribute(me: str, name: str) -> ast.Attribute:
    return ast.Attribute(ast.Name(me, ast.Load()), name, ast.Load())


def _as_load(node: ast.expr) -> ast.expr:
    loaded = ast.parse(ast.unparse(node), mode="eval").body
    assert isinstance(loaded, ast.expr)
    return loaded


def _sorted(changes: list[_Change]) -> AddedAttributes:
    added = {change.made.name for change in changes if change.made.value is None}
    joined: set[str] = set()
    extreme: dict[str, set[str]] = {"max": set(), "min": set()}
    last: set[str] = set()
    unclear: set[str] = set()
    derived: dict[str, Derived] = {}
    for change in changes:
        name, value, at = change.made
        if value is None or name in added:
            continue
        read = set(_attributes(value, change.me))
        names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        index = at[0].id if len(at) == 1 and isinstance(at[0], ast.Name) else ""
        if name in read:
            kinds = {"max": extreme["max"], "min": extreme["min"]} | dict.fromkeys(_JOINING, joined)
            kinds.get("" if at else _function(value), unclear).add(name)
        elif names & change.locals - {index}:
            (unclear if at else last).add(name)
        elif read & (added | derived.keys()) and (index or not at):
            derived[name] = Derived(name, _compiled(value), change.scope, change.me, index)
        elif at and (read or names & change.locals):
            unclear.add(name)
        # else a constant, as in `reset`
    known = added | joined | extreme["max"] | extreme["min"]
    return AddedAttributes(
        frozenset(added),
        frozenset(joined - added),
        frozenset(extreme["max"]),
        frozenset(extreme["min"]),
        frozenset(last - known - derived.keys()),
        tuple(found for name, found in derived.items() if name not in known),
        frozenset(unclear),
        _depths(changes),
    )


def _depths(changes: list[_Change]) -> dict[str, int]:
    """Under how many indices something is added to an attribute; `MIXED` where one statement differs from another."""
    found: dict[str, int] = {}
    for name, value, at in (change.made for change in changes):
        if value is None:
            found[name] = len(at) if found.get(name, len(at)) == len(at) else MIXED
    return found


def _attributes(value: ast.expr, me: str) -> Iterator[str]:
    """The attributes of the object ``me`` that an expression reads."""
    for node in ast.walk(value):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == me:
            yield node.attr


def _function(value: ast.expr) -> str:
    if not isinstance(value, ast.Call):
        return ""
    return value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")


def _compiled(value: ast.expr) -> CodeType:
    return compile(ast.fix_missing_locations(ast.Expression(value)), "<attribute>", "eval")
