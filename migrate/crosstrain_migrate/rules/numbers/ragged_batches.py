"""Batches as long as their longest row: the parts of a batch that each process pads to a length of its own."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Value
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import FunctionNode, last_name
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values, kinds_of
from .bindings import assigned, receiver
from .collate import code_of_collate

PADS = frozenset({"pad_sequence", "pad", "max", "amax"})
# Methods that keep the length of a padded tensor, or only change its layout.
KEEPS = (
    *("to", "cuda", "cpu", "float", "long", "int", "bool", "type", "type_as", "half", "double"),
    *("detach", "clone", "contiguous", "requires_grad_", "eq", "ne", "gt", "ge", "lt", "le"),
    *("view", "reshape", "flatten", "transpose", "permute", "squeeze", "unsqueeze", "masked_fill"),
)
Key = int | str
Parts = dict[
    Key, bool
]  # what a collate function returns, part by part: whether it is padded to the longest row
Answers = set[bool | None]  # whether a tensor is as long as the longest row; None: it cannot be told


def padded_parts(context: Context, loader: Value) -> Parts:
    """Which parts of the loader's batches are padded to the longest row; empty where nothing says so."""
    padded: Parts = {}
    for function in code_of_collate(context, loader):
        body = function.body
        for returned in [body] if isinstance(body, ast.expr) else context.facts.returned(function):
            for key, part in _parts_of(returned):
                padded[key] = padded.get(key, False) or _is_padded(function, part)
    return padded if any(padded.values()) else {}


def is_padded(context: Context, node: ast.AST) -> bool | None:
    """Whether a tensor is as long as the longest row of this process's share; None where it cannot be told."""
    loaders = {v.loader for v in batch_values(context.facts, node)}
    parts = [p for p in (padded_parts(context, loader) for loader in loaders) if p]
    if not parts:
        return False if loaders else None
    found = _Origin(context.facts, parts).padded(node, frozenset())
    return next((answer for answer in (True, None, False) if answer in found), None)


class _Origin:
    """Follows a tensor back to the parts of the batch that it is made of."""

    def __init__(self, facts: Facts, parts: list[Parts]) -> None:
        self.facts = facts
        self.parts = parts

    def padded(self, node: ast.AST, seen: frozenset[ast.AST]) -> Answers:
        if node in seen:
            return set()
        seen |= {node}
        kept = receiver(node, *KEEPS)
        if kept is not None and isinstance(node, ast.Call):
            return self._together([kept, *node.args[:1]], seen)
        match node:
            case ast.Name():
                return self._variable(node, seen)
            case ast.Subscript(whole, ast.Constant(key)):
                return self._part(whole, key, seen)
            case ast.BinOp(left, _, right):
                return self._together([left, right], seen)
            case ast.Compare(left, _, others):
                return self._together([left, *others], seen)
            case ast.UnaryOp(_, operand):
                return self.padded(operand, seen)
        return {None}

    def _together(self, nodes: list[ast.expr], seen: frozenset[ast.AST]) -> Answers:
        """Of tensors that are combined element by element: they are as long as the longest of them."""
        found: Answers = set()
        for node in nodes:
            if batch_values(self.facts, node):
                found |= self.padded(node, seen)
        return {True} if True in found else {False} if False in found else found

    def _variable(self, name: ast.Name, seen: frozenset[ast.AST]) -> Answers:
        found: Answers = set()
        for definition in self.facts.bindings(name):
            if isinstance(definition, ast.arg):
                for given in self.facts.given(definition):
                    found |= self.padded(given, seen)
            else:
                found |= self._bound(definition, seen)
        return found or {None}

    def _bound(self, target: ast.AST, seen: frozenset[ast.AST]) -> Answers:
        """What a loop or an assignment binds `target` to."""
        around = self.facts.table.parents.get(target)
        statement = self.facts.table.statement_of(target)
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if not isinstance(around, ast.Tuple | ast.List):
            return {None} if value is None else self.padded(value, seen)
        if isinstance(statement, ast.For | ast.AsyncFor):
            return self._look_up(self._place_in_batch(target, statement))
        if value is None:
            return {None}
        position = _position(target, around)
        value = _moved_together(value) or value
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(around.elts):
            return self.padded(value.elts[position], seen)
        return self._part(value, position, seen)

    def _place_in_batch(self, target: ast.AST, loop: ast.For | ast.AsyncFor) -> int:
        """The part of the batch that a loop variable is in: `x` of `(lengths, x), y` is in the first."""
        places: list[int] = []
        inner, around = target, self.facts.table.parents.get(target)
        while isinstance(around, ast.Tuple | ast.List):
            places.append(_position(inner, around))
            inner, around = around, self.facts.table.parents.get(around)
        calls = [n for n in walk(loop.iter) if isinstance(n, ast.Call)]
        pairs = sum(bool(self.facts.paths(c.func) & {"builtins.enumerate", "builtins.zip"}) for c in calls)
        return places[max(len(places) - 1 - pairs, 0)]

    def _part(self, whole: ast.AST, key: object, seen: frozenset[ast.AST]) -> Answers:
        if isinstance(key, int | str) and self._is_batch(whole, seen):
            return self._look_up(key)
        return {None}

    def _look_up(self, key: Key) -> Answers:
        return {one.get(key) for one in self.parts}

    def _is_batch(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        """Whether `node` is what the loader gave, and not a tuple that the script made of parts of it."""
        if node in seen or kinds_of(self.facts, node) != {"batch"}:
            return False
        seen |= {node}
        match node:
            case ast.Call(ast.Attribute(moved, "to")):
                return self._is_batch(moved, seen)
            case ast.Call(function):
                return self.facts.paths(function) == {"builtins.next"}
            case ast.DictComp():
                items = receiver(node.generators[0].iter, "items")
                return items is not None and self._is_batch(items, seen)
        sources = [source for d in self.facts.bindings(node) for source in self._sources(d)]
        return bool(sources) and all(
            isinstance(source, ast.For) or self._is_batch(source, seen) for source in sources
        )

    def _sources(self, definition: ast.AST) -> list[ast.AST]:
        """What a variable is bound to as a whole: by a loop, by an assignment, or by the calls of its function."""
        if isinstance(definition, ast.arg):
            return [*self.facts.given(definition)] or [definition]
        statement = self.facts.table.statement_of(definition)
        return [
            (assigned(self.facts, definition) or definition)
            if isinstance(statement, ast.Assign)
            else statement
        ]


def _position(part: ast.AST, whole: ast.Tuple | ast.List) -> int:
    return next(i for i, one in enumerate(whole.elts) if one is part)


def _moved_together(value: ast.expr) -> ast.expr | None:
    """`batch` of `[t.to(device) for t in batch]`"""
    if not isinstance(value, ast.GeneratorExp | ast.ListComp) or len(value.generators) != 1:
        return None
    only, moved = value.generators[0], receiver(value.elt, "to", "cuda")
    if only.ifs or not isinstance(only.target, ast.Name) or moved is None:
        return None
    return only.iter if _names(moved, only.target.id, ast.Load) else None


def _parts_of(returned: ast.expr) -> list[tuple[Key, ast.expr]]:
    match returned:
        case ast.Tuple(parts) | ast.List(parts):
            return list(enumerate(parts))
        case ast.Dict(keys, values):
            named = ((k.value, v) for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant))
            return [(key, value) for key, value in named if isinstance(key, str)]
    return []


def _is_padded(function: FunctionNode, part: ast.expr) -> bool:
    """Whether a part of what is returned is computed with padding, or from the longest length."""
    known: set[str] = set()
    work: list[ast.AST] = [part]
    while work:
        node = work.pop()
        if any(isinstance(n, ast.Call) and last_name(n.func) in PADS for n in walk(node)):
            return True
        names = {n.id for n in walk(node) if isinstance(n, ast.Name)} - known
        known |= names
        work += [value for name in names for value in _assigned(function, name)]
    return False


def _assigned(function: FunctionNode, name: str) -> list[ast.AST]:
    """What the function binds a variable to, or puts into it."""
    found: list[ast.AST] = []
    for node in walk(function):
        if isinstance(node, ast.Assign) and any(_names(target, name, ast.Store) for target in node.targets):
            found.append(node.value)
        elif isinstance(node, ast.Call) and last_name(node.func) in {"append", "extend"}:
            # `append = rows.append` may be of any list.
            mine = not isinstance(node.func, ast.Attribute) or _names(node.func.value, name, ast.Load)
            found += node.args if mine else []
    return found


def _names(node: ast.AST, name: str, context: type[ast.expr_context]) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, context) for n in walk(node))
