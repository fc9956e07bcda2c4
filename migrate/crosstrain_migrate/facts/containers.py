"""Containers whose items are told apart: loaders in dicts and lists, joined tuples, records."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from .arguments import keywords_of
from .interpretation import Interpretation
from .memory import ANY
from .values import Class, External, Sequence, Value, Values

Key = str | int
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def store_by_key(interp: Interpretation, node: Comprehension, element: Iterable[Value]) -> bool:
    """Whether a comprehension makes loaders whose keys are known; stores each under its key.

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
    displayed = generator.iter.elts if isinstance(generator.iter, ast.Tuple | ast.List) else []
    if not isinstance(node, ast.DictComp):
        return list(range(len(displayed)))
    match node.key, generator.target, generator.iter:
        case ast.Name(id=key), ast.Name(id=target), ast.Tuple() | ast.List() if key == target:
            constants = [e.value for e in displayed if isinstance(e, ast.Constant)]
            known = len(constants) == len(displayed)
            return [c for c in constants if isinstance(c, str | int)] if known else []
        case (
            ast.Name(id=key),
            ast.Tuple(elts=[ast.Name(id=target), *_]),
            ast.Call(func=ast.Attribute(value=owner, attr="items")),
        ) if key == target:  # `for name, data in sets.items()`
            return _keys_of(interp, interp.of(owner))
    return []


def _keys_of(interp: Interpretation, values: Values) -> list[Key]:
    """The keys of dicts; none where one of them is not known."""
    keys = {k for v in values if isinstance(v, Sequence) for _, k in interp.heap.keys_of(v.site)}
    known = all(isinstance(v, Sequence) for v in values) and ANY not in keys
    found = [k for k in keys if isinstance(k, str | int)]
    return sorted(found, key=str) if known and len(found) == len(keys) else []


def concatenated(interp: Interpretation, node: ast.BinOp) -> Values:
    """`(loss,) + outputs`: where the length of the left side is known, the items of the right side follow at their places."""
    left = node.left
    if not isinstance(left, ast.Tuple | ast.List) or any(isinstance(e, ast.Starred) for e in left.elts):
        return frozenset()
    for position, part in enumerate(left.elts):
        interp.store(node, position, interp.of(part))
    for value in (v for v in interp.of(node.right) if isinstance(v, Sequence)):
        for _, key in list(interp.heap.keys_of(value.site)):
            target = key + len(left.elts) if isinstance(key, int) else key
            interp.store(node, target, interp.heap[value.site, key])
    return frozenset({Sequence(node)})


def record(interp: Interpretation, node: ast.Call, fields: list[str]) -> Values:
    """What a call makes that only puts its arguments together: each is found by its position and by its name."""
    for index, argument in enumerate(node.args):
        for key in (index, *fields[index : index + 1]):
            interp.store(node, key, interp.of(argument))
    for name, argument in keywords_of(node).items():
        for key in (name, *([fields.index(name)] if name in fields else [])):
            interp.store(node, key, interp.of(argument))
    return frozenset({Sequence(node)})


def is_record(interp: Interpretation, cls: ast.ClassDef) -> bool:
    """Whether a class of the script only names its fields: a data class, a NamedTuple, a ModelOutput."""
    fields = [s for s in cls.body if isinstance(s, ast.AnnAssign)]
    rest = [s for s in cls.body if not isinstance(s, ast.AnnAssign | ast.Expr | ast.Pass)]
    return bool(fields) and not rest and all(not isinstance(v, Class) for v in interp.bases(cls))


def is_changeable(interp: Interpretation, site: ast.AST) -> bool:
    """Whether items of the container made at `site` can be assigned to: a dict or a list, not a tuple."""
    if isinstance(site, ast.Call):
        return any(getattr(v, "path", "") == "builtins.dict" for v in interp.of(site.func))
    return isinstance(site, ast.Dict | ast.DictComp | ast.List | ast.ListComp)
