"""What a module keeps from batch to batch: a running mean, a count, a queue, a list of outputs.

Each process's module sees its own share, and nothing in a module may communicate, so the modules would diverge.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts.arguments import arguments_of, keyword_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Class
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

COLLECTS = frozenset(
    {"append", "extend", "insert", "add", "update", "appendleft", "put"}
)  # a container's methods
_KEEPS = COLLECTS | {"setdefault", "push", "register_buffer"}


def kept_in_module(facts: Facts, node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that `node`, which stands in a method of a module, keeps beyond the batch."""
    if isinstance(node, ast.AugAssign):
        if _outlives(facts, node.target):
            yield from _stored(node.target, node.value)
    elif isinstance(node, ast.Assign):
        read = {written(n) for n in walk(node.value) if isinstance(n, ast.Attribute)}
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                again = written(target) in read
                of_class = any(isinstance(v, Class) for v in facts.of(target.value))  # `Net.count = ...`
                kept = again or of_class or (target.attr == "data" and _outlives(facts, target))
            else:
                kept = isinstance(target, ast.Subscript) and _outlives(facts, target)
            if kept:
                yield from _stored(target, node.value)
    elif isinstance(node, ast.Call) and _changes(facts, node):
        yield from arguments_of(node)


def _stored(target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    """What an assignment keeps; of `self.seen[labels] += 1`, the place too."""
    yield value
    if isinstance(target, ast.Subscript):
        yield target.slice


def _changes(facts: Facts, call: ast.Call) -> bool:
    """Whether a call changes something that outlives the batch in place."""
    paths = facts.paths(call.func)
    if any(path.startswith("torch.nn.init.") for path in paths) or "builtins.setattr" in paths:
        return bool(call.args) and _outlives(facts, call.args[0], whole=True)
    into = keyword_of(call, "out")
    if into is not None and any(path.startswith("torch.") for path in paths) and _outlives(facts, into):
        return True
    if not isinstance(call.func, ast.Attribute):
        return False
    name = call.func.attr
    in_place = name in _KEEPS or (name.endswith("_") and not name.startswith("_"))
    return in_place and _outlives(facts, call.func.value, whole=name == "register_buffer")


def _outlives(facts: Facts, node: ast.expr, whole: bool = False) -> bool:
    """Part of the module (`self.mean`, `self.mean[0]`), or of something outside of its methods; `whole`: or itself."""
    part = whole
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        part = part or isinstance(node, ast.Attribute)
        node = node.func if isinstance(node, ast.Call) else node.value
    if not isinstance(node, ast.Name):
        return False
    if node.id == "self":
        return part
    scope = facts.table.of_node[node].resolve(node.id)
    return scope is not None and scope.parent is None and not facts.paths(node)
