"""Loaders in dicts and lists: which key or position holds which."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from .interpretation import Interpretation
from .memory import ANY
from .values import Class, External, Sequence, Value, Values

Key = str | int
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def told_apart(interp: Interpretation, node: Comprehension, element: Iterable[Value]) -> bool:
    """Records the loaders that a comprehension makes under the keys it makes them for, when it makes loaders.

    `{x: DataLoader(sets[x]) for x in ["train", "val"]}` calls DataLoader in one place and makes two of them.
    """
    loaders = [v for v in element if isinstance(v, External) and interp.is_loader(v)]
    keys = _keys(interp, node) if loaders else []
    for key in keys:
        interp.store(node, key, {replace(loader, key=key) for loader in loaders})
    return bool(keys)


def _keys(interp: Interpretation, node: Comprehension) -> list[Key]:
    """The keys or positions a comprehension fills; none where they cannot be told."""
    generator = node.generators[0]
    if len(node.generators) > 1 or generator.ifs or isinstance(node, ast.SetComp):
        return []
    over = generator.iter
    if not isinstance(node, ast.DictComp):
        return list(range(len(over.elts))) if isinstance(over, ast.Tuple | ast.List) else []
    if not isinstance(node.key, ast.Name):
        return []
    if isinstance(over, ast.Tuple | ast.List) and ast.unparse(generator.target) == node.key.id:
        constants = [e.value for e in over.elts if isinstance(e, ast.Constant)]
        return [c for c in constants if isinstance(c, str | int)] if len(constants) == len(over.elts) else []
    return _keys_of_items(interp, over, generator.target, node.key.id)


def _keys_of_items(interp: Interpretation, over: ast.expr, target: ast.expr, key: str) -> list[Key]:
    """The keys of `sets` in `for name, data in sets.items()`."""
    items = isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr == "items"
    if not items or not isinstance(target, ast.Tuple) or ast.unparse(target.elts[0]) != key:
        return []
    assert isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute)
    found: set[Key] = set()
    for value in interp.of(over.func.value):
        if not isinstance(value, Sequence):
            return []
        keys = [k for _, k in interp.heap.keys_of(value.site)]
        if not all(isinstance(k, str | int) and k != ANY for k in keys):
            return []
        found.update(k for k in keys if isinstance(k, str | int))
    return sorted(found, key=str)


def concatenated(interp: Interpretation, node: ast.BinOp) -> Values:
    """`(loss,) + outputs`, when it is known how many the left one holds: the right one's follow at their positions."""
    left = node.left
    if not isinstance(left, ast.Tuple | ast.List) or any(isinstance(e, ast.Starred) for e in left.elts):
        return frozenset()
    for position in range(len(left.elts)):
        interp.store(node, position, interp.of(left.elts[position]))
    for value in (v for v in interp.of(node.right) if isinstance(v, Sequence)):
        for _, key in list(interp.heap.keys_of(value.site)):
            target = key + len(left.elts) if isinstance(key, int) else key
            interp.store(node, target, interp.heap[value.site, key])
    return frozenset({Sequence(node)})


def record(interp: Interpretation, node: ast.Call, fields: list[str]) -> Values:
    """A call that only puts its arguments together: by position and by name."""
    for index, argument in enumerate(node.args):
        interp.store(node, index, interp.of(argument))
        if index < len(fields):
            interp.store(node, fields[index], interp.of(argument))
    for keyword in node.keywords:
        if keyword.arg is not None:
            interp.store(node, keyword.arg, interp.of(keyword.value))
            if keyword.arg in fields:
                position = fields.index(keyword.arg)
                interp.store(node, position, interp.of(keyword.value))
    return frozenset({Sequence(node)})


def is_record(interp: Interpretation, cls: ast.ClassDef) -> bool:
    """A class of the script that only names its fields: a data class, a NamedTuple, a ModelOutput."""
    fields = [s for s in cls.body if isinstance(s, ast.AnnAssign)]
    rest = [s for s in cls.body if not isinstance(s, ast.AnnAssign | ast.Expr | ast.Pass)]
    return bool(fields) and not rest and all(not isinstance(v, Class) for v in interp.bases(cls))


def is_changeable(interp: Interpretation, site: ast.AST) -> bool:
    """Whether items of the container made at `site` can be assigned to: a dict or a list, not a tuple."""
    if isinstance(site, ast.Call):
        return any(getattr(v, "path", "") == "builtins.dict" for v in interp.of(site.func))
    return isinstance(site, ast.Dict | ast.DictComp | ast.List | ast.ListComp)
