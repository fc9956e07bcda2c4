"""What a script puts into its containers and attributes: the origins of what it reads from them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator

from .arguments import arguments_of
from .interpretation import Interpretation
from .memory import ANY, key_of
from .values import FromBatch, Instance, Sequence, Values

FILLS = frozenset({"append", "add", "appendleft", "extend", "insert", "put", "setdefault", "update"})
Written = list[tuple[object, ast.expr]]  # (key, what is put under it)


class Contents:
    """Where the elements of containers and the values of attributes are written."""

    def __init__(
        self,
        interp: Interpretation,
        assignments: Iterable[ast.Assign | ast.AugAssign],
        calls: Iterable[ast.Call],
    ) -> None:
        self._interp = interp
        self._items: dict[ast.AST, Written] = defaultdict(list)
        self._attributes: dict[str, list[tuple[Values, ast.expr]]] = defaultdict(list)
        for node in assignments:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assigned(target, node.value)
        for call in calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr in FILLS:
                for part in arguments_of(call):
                    self._put(call.func.value, ANY, part)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Subscript):
            self._put(target.value, key_of(target.slice), value)
        elif isinstance(target, ast.Attribute):
            self._attributes[target.attr].append((self._interp.of(target.value), value))
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple) else []
            if len(parts) != len(target.elts):
                parts = [value] * len(target.elts)
            for inner, part in zip(target.elts, parts, strict=True):
                self._assigned(inner, part)

    def _put(self, container: ast.expr, key: object, value: ast.expr) -> None:
        for owner in self._interp.of(container):
            if isinstance(owner, Sequence):
                self._items[owner.site].append((key, value))

    def of(self, node: ast.AST) -> Iterator[ast.expr]:
        """The expressions that were put into what a variable, an attribute or an item holds; plain numbers left out."""
        if isinstance(node, ast.Subscript):
            found = self._held(node.value, key_of(node.slice))
        elif isinstance(node, ast.Name | ast.Attribute | ast.Call) and not self._is_indexed(node):
            found = self._held(node, ANY)
        else:
            return
        yield from (value for value in found if self._is_tensor(value))

    def _is_indexed(self, node: ast.expr) -> bool:
        """`losses` of `losses["mask"]`: only that item is read."""
        around = self._interp.table.parents.get(node)
        return isinstance(around, ast.Subscript) and around.value is node

    def _held(self, node: ast.expr, key: object) -> Iterator[ast.expr]:
        if isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        for owner in self._interp.of(node):
            if isinstance(owner, Sequence):
                for own, value in (*self._items.get(owner.site, ()), *_displayed(owner.site)):
                    if ANY in (key, own) or key == own:
                        yield value

    def _attribute(self, node: ast.Attribute) -> Iterator[ast.expr]:
        owners = {v.cls for v in self._interp.of(node.value) if isinstance(v, Instance)}
        for values, value in self._attributes.get(node.attr, ()):
            if owners & {v.cls for v in values if isinstance(v, Instance)}:
                yield value

    def _is_tensor(self, value: ast.expr) -> bool:
        held = self._interp.of(value)
        return any(isinstance(v, Sequence) or (isinstance(v, FromBatch) and not v.host) for v in held)


def _displayed(site: ast.AST) -> Written:
    """What a display, a comprehension or a call of `dict` holds from the start."""
    if isinstance(site, ast.Dict):
        return [(ANY if k is None else key_of(k), v) for k, v in zip(site.keys, site.values, strict=True)]
    if isinstance(site, ast.Tuple | ast.List | ast.Set):
        return list(enumerate(site.elts))
    if isinstance(site, ast.Call):
        return [*((ANY, a) for a in site.args), *((k.arg or ANY, k.value) for k in site.keywords)]
    if isinstance(site, ast.DictComp):
        return [(ANY, site.value)]
    return [(ANY, site.elt)] if isinstance(site, ast.ListComp | ast.SetComp | ast.GeneratorExp) else []
