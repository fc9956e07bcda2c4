"""Classes of the project whose objects only add up what they are told, such as an AverageMeter."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.numbers.changes import Change, assigned, change_of, changed_by, reads
from crosstrain_migrate.core.reading.forms import names_in, root_of
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk, walk_all


def only_adds(script: Script, cls: ast.ClassDef, method: str) -> bool:
    """Whether a method adds to attributes, remembers what it was given, and computes averages of these: no more."""
    found = next((one for one in script.methods(cls) if one.name == method), None)
    if found is None:
        return False
    added = False
    for node in walk(found):
        if isinstance(node, ast.AugAssign):
            added |= isinstance(node.op, ast.Add)
            if not isinstance(node.op, ast.Add):
                return False
        elif isinstance(node, ast.Assign):
            changed = {written(changed_by(target)) for target in node.targets}
            if any(text.startswith("self.") and reads(node.value, text) for text in changed):
                return False  # self.total = f(self.total)
        elif isinstance(node, ast.Call) and root_of(node.func) == "self":
            if not (isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend")):
                return False
            added = True
    return added


def is_understood(script: Script, cls: ast.ClassDef) -> bool:
    """Whether `merge` knows what becomes of all that a class's methods change: no average that forgets, no table of places."""
    methods = [one for one in script.methods(cls) if not one.name.startswith("__")]
    nodes = walk_all(methods)
    held = {written(n) for n in nodes if isinstance(n, ast.Attribute)}
    meter = {"self.val", "self.avg"} if {"self.sum", "self.count"} <= held else set[str]()
    for node in nodes:
        for target, value in assigned(node):
            text = written(changed_by(target))
            if not text.startswith("self.") or text in meter:
                continue
            index = names_in(target.slice) if isinstance(target, ast.Subscript) else set[str]()
            if reads(value, text) and change_of(target, value) is not Change.SUM:
                return False
            if isinstance(target, ast.Subscript) and names_in(value) - index - {"self"}:
                return False
        adds = not isinstance(node, ast.AugAssign) or isinstance(node.op, ast.Add | ast.Sub)
        if isinstance(node, ast.AugAssign) and not adds and root_of(node.target) == "self":
            return False
    return True
