"""Batches as long as their longest row: the parts of a batch that each process pads to a length of its own."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.facts.values import FromBatch, Value
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import FunctionNode, last_name
from crosstrain_migrate.syntax.walks import walk

from .collate import code_of_collate

PADS = frozenset({"pad_sequence", "pad", "max", "amax"})
# What a padded tensor goes through and keeps its length, or is only laid out anew.
KEEPS = frozenset(
    {
        *("to", "cuda", "cpu", "float", "long", "int", "bool", "type", "type_as", "half", "double"),
        *("detach", "clone", "contiguous", "requires_grad_", "eq", "ne", "gt", "ge", "lt", "le"),
        *("view", "reshape", "flatten", "transpose", "permute", "squeeze", "unsqueeze", "masked_fill"),
    }
)
Key = int | str


@dataclass(frozen=True)
class Parts:
    """What a collate function returns, part by part: whether it is padded to the longest row of the share."""

    padded: dict[Key, bool]

    @property
    def any(self) -> bool:
        return any(self.padded.values())


def padded_parts(context: Context, loader: Value) -> Parts:
    """Which parts of the loader's batches are padded to the longest row; none where nothing says so."""
    padded: dict[Key, bool] = {}
    for function in code_of_collate(context, loader):
        for returned in _returned(context, function):
            for key, part in _parts_of(returned):
                padded[key] = padded.get(key, False) or _is_padded(function, part)
    return Parts(padded)


def is_padded(context: Context, node: ast.AST) -> bool | None:
    """Whether a tensor is as long as the longest row of this process's share; None where it cannot be told."""
    loaders = {v.loader for v in context.facts.of(node) if isinstance(v, FromBatch)}
    parts = [p for p in (padded_parts(context, loader) for loader in loaders) if p.any]
    if not parts:
        return False if loaders else None
    found = _Origin(context).padded(node, parts, frozenset())
    return next((answer for answer in (True, None, False) if answer in found), None)


class _Origin:
    """Follows a tensor back to the parts of the batch that it is made of."""

    def __init__(self, context: Context) -> None:
        self.facts = context.facts

    def padded(self, node: ast.AST, parts: list[Parts], seen: frozenset[ast.AST]) -> set[bool | None]:
        if node in seen:
            return set()
        seen |= {node}
        if isinstance(node, ast.Name):
            return self._variable(node, parts, seen)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self._part(node.value, node.slice.value, parts, seen)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEEPS:
            return self._any([node.func.value, *node.args[:1]], parts, seen)
        if isinstance(node, ast.BinOp):
            return self._any([node.left, node.right], parts, seen)
        if isinstance(node, ast.Compare):
            return self._any([node.left, *node.comparators], parts, seen)
        if isinstance(node, ast.UnaryOp):
            return self.padded(node.operand, parts, seen)
        return {None}

    def _any(self, nodes: list[ast.expr], parts: list[Parts], seen: frozenset[ast.AST]) -> set[bool | None]:
        """What goes together element by element is as long as the longest of it."""
        tensors = [n for n in nodes if any(isinstance(v, FromBatch) for v in self.facts.of(n))]
        found = {answer for node in tensors for answer in self.padded(node, parts, seen)}
        return {True} if True in found else {False} if found == {False} or False in found else found

    def _variable(self, name: ast.Name, parts: list[Parts], seen: frozenset[ast.AST]) -> set[bool | None]:
        found: set[bool | None] = set()
        for definition in self._definitions(name):
            if isinstance(definition, ast.arg):
                for given in self.facts.given(definition):
                    found |= self.padded(given, parts, seen)
            else:
                found |= self._bound(definition, parts, seen)
        return found or {None}

    def _bound(self, target: ast.AST, parts: list[Parts], seen: frozenset[ast.AST]) -> set[bool | None]:
        """What a loop or an assignment binds `target` to."""
        around = self.facts.table.parents.get(target)
        statement = self.facts.table.statement_of(target)
        value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        if not isinstance(around, ast.Tuple | ast.List):
            return {None} if value is None else self.padded(value, parts, seen)
        position = next(i for i, part in enumerate(around.elts) if part is target)
        if isinstance(statement, ast.For | ast.AsyncFor):
            return _look_up(self._place_in_batch(target, statement), parts)
        if value is None:
            return {None}
        value = _moved_together(value) or value
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(around.elts):
            return self.padded(value.elts[position], parts, seen)
        return self._part(value, position, parts, seen)

    def _place_in_batch(self, target: ast.AST, loop: ast.For | ast.AsyncFor) -> int:
        """The part of the batch that a loop variable is in: `x` of `(lengths, x), y` is in the first."""
        places: list[int] = []
        inner, around = target, self.facts.table.parents.get(target)
        while isinstance(around, ast.Tuple | ast.List):
            places.append(next(i for i, part in enumerate(around.elts) if part is inner))
            inner, around = around, self.facts.table.parents.get(around)
        calls = [n for n in walk(loop.iter) if isinstance(n, ast.Call)]
        pairs = sum(bool(self.facts.paths(c.func) & {"builtins.enumerate", "builtins.zip"}) for c in calls)
        return places[max(len(places) - 1 - pairs, 0)]

    def _part(
        self, whole: ast.AST, key: object, parts: list[Parts], seen: frozenset[ast.AST]
    ) -> set[bool | None]:
        if isinstance(key, int | str) and self._is_batch(whole, seen):
            return _look_up(key, parts)
        return {None}

    def _is_batch(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        """Whether `node` is what the loader gave, and not a tuple that the script made of parts of it."""
        kinds = {v.kind for v in self.facts.of(node) if isinstance(v, FromBatch)}
        if node in seen or kinds != {"batch"}:
            return False
        seen |= {node}
        if isinstance(node, ast.Call):
            moved = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
            if moved and isinstance(node.func, ast.Attribute):
                return self._is_batch(node.func.value, seen)
            return self.facts.paths(node.func) == {"builtins.next"}
        if isinstance(node, ast.DictComp):
            over = node.generators[0].iter
            if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute):
                return over.func.attr == "items" and self._is_batch(over.func.value, seen)
            return False
        sources = [source for d in self._definitions(node) for source in self._given(d)]
        return bool(sources) and all(
            isinstance(source, ast.For) or self._is_batch(source, seen) for source in sources
        )

    def _definitions(self, node: ast.AST) -> frozenset[ast.AST]:
        return (
            self.facts.interp.reaching.get(node, frozenset()) if isinstance(node, ast.Name) else frozenset()
        )

    def _given(self, definition: ast.AST) -> list[ast.AST]:
        """What a variable is bound to as a whole: by a loop, by an assignment, or by the calls of its function."""
        if isinstance(definition, ast.arg):
            return [*self.facts.given(definition)] or [definition]
        statement = self.facts.table.statement_of(definition)
        if isinstance(statement, ast.Assign):
            return [statement.value if statement.targets == [definition] else definition]
        return [statement]


def _moved_together(value: ast.expr) -> ast.expr | None:
    """`batch` of `[t.to(device) for t in batch]`"""
    if not isinstance(value, ast.GeneratorExp | ast.ListComp) or len(value.generators) != 1:
        return None
    only, moved = value.generators[0], value.elt
    if only.ifs or not isinstance(only.target, ast.Name) or not isinstance(moved, ast.Call):
        return None
    moves = isinstance(moved.func, ast.Attribute) and moved.func.attr in {"to", "cuda"}
    return only.iter if moves and _names(moved.func, only.target.id, ast.Load) else None


def _look_up(key: Key, parts: list[Parts]) -> set[bool | None]:
    return {one.padded.get(key) for one in parts}


def _returned(context: Context, function: FunctionNode) -> list[ast.expr]:
    return [function.body] if isinstance(function, ast.Lambda) else context.facts.returned(function)


def _parts_of(returned: ast.expr) -> list[tuple[Key, ast.expr]]:
    if isinstance(returned, ast.Tuple | ast.List):
        return list(enumerate(returned.elts))
    if isinstance(returned, ast.Dict):
        pairs = zip(returned.keys, returned.values, strict=True)
        return [
            (key.value, value)
            for key, value in pairs
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        ]
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
