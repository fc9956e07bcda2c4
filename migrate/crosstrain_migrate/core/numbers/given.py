"""What a function does to what it is given, `step(batch, sums)`, which adds to the dictionary `sums`; and classes of the project
whose objects only add up what they are told, such as an AverageMeter."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import is_method, names_in, root_of
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .changes import Change, assigned, change_of, changed_by, reads

_OTHER = words("insert pop popleft popitem remove clear setdefault sort reverse")


def given_to(script: Script, call: ast.Call) -> list[tuple[str, Function, str]]:
    """The variables and attributes that a call gives to a function of the project, each with the parameter's name."""
    functions = script.functions_of(call)
    if len(functions) != 1:
        return []
    (function,) = functions
    given = script.given_by(call, function).items()
    return [(written(a), function, name) for name, a in given if isinstance(a, ast.Name | ast.Attribute)]


def what_becomes(script: Script, function: Function, name: str, depth: int = 3) -> set[str]:
    """What a function does to its parameter: "adds", "appends", "changes" otherwise, or calls the methods named."""
    found: set[str] = set()
    for node in walk_all(function.body):
        if isinstance(node, ast.AugAssign) and _is_part(node.target, name):
            found.add("adds" if isinstance(node.op, ast.Add) else "changes")
        elif isinstance(node, ast.Assign) and any(_is_part(target, name) for target in node.targets):
            found.add("changes")
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and written(changed_by(node.func.value)) == name:
                found |= _of_method(node.func)
            for text, called, parameter in given_to(script, node) if depth else ():
                if text == name and called is not function:
                    found |= what_becomes(script, called, parameter, depth - 1)
    return found


def kept_outside(script: Script, call: ast.Call, depth: int = 2) -> bool:
    """Whether a plain function of the project adds to a variable of its file, or of a function around it, when it is called:
    `shown[name] += 1`, a number of a picture, goes on from call to call."""
    for function in (one for one in script.functions_of(call) if script.class_of(one) is None):
        for node in script.within(function):
            grown = [t for t, value in assigned(node) if reads(value, written(changed_by(t)))]
            if isinstance(node, ast.AugAssign):
                grown = [node.target]
            elif is_method(node, "append", "extend"):
                grown = [node.func.value]
            roots = [one for one in map(changed_by, grown) if isinstance(one, ast.Name)]
            scopes = (script.table.of_node[one].resolve(one.id) for one in roots)
            if any(one is not None and not script.table.is_inside(one.node, function) for one in scopes):
                return True
            if depth and isinstance(node, ast.Call) and kept_outside(script, node, depth - 1):
                return True
    return False


def _of_method(func: ast.Attribute) -> set[str]:
    if func.attr in ("append", "extend"):
        return {"appends"}
    if func.attr in _OTHER:
        return {"changes"}
    return {f".{func.attr}"} if isinstance(func.value, ast.Name) else set()


def _is_part(target: ast.expr, name: str) -> bool:
    """Whether a target is an entry of the variable `name`."""
    return isinstance(target, ast.Subscript) and written(changed_by(target)) == name


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
