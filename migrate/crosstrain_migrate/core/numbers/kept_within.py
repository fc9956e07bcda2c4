"""What a model remembers of the batches that it is given: its `forward` tells its metrics, `metric(logits, target)`, and a method
gives their result behind the loop, `model.get_metrics(reset=True)`. A share of the batches would give each process its own."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, names_in, root_of
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import Function, last_name, place_of
from crosstrain_migrate.syntax.walks import walk_all

from .accumulators import QUIET_METHODS, QUIET_ROOTS

# Methods of every module, which give what is kept to a checkpoint.
_OF_MODULES = frozenset({"state_dict", "load_state_dict", "extra_repr"})


def methods_that_give_kept(script: Script) -> set[str]:
    """The names of methods that return what the `forward` of the same class has told an object of its own."""
    found: set[str] = set()
    for forward in script.functions("forward"):
        cls = script.class_of(forward)
        if cls is None or not script.is_reached(forward.body[0]):
            continue
        methods = script.all_methods(cls)
        keeps = _run_by(script, forward, methods)
        kept = {attribute for one in keeps for attribute in _told(script, one)}
        for method in (one for one in methods if kept and one.name not in _OF_MODULES):
            read = {
                n.attr for n in script.within(method) if isinstance(n, ast.Attribute) and root_of(n) == "self"
            }
            if method not in keeps and kept & read and script.returned(method):
                found.add(method.name)
    return found


def asked_behind(script: Script, frame: Frame, loop: ast.For, names: set[str], depth: int = 2) -> str:
    """Which of these methods is called behind a loop, also in a function that is called there, and its answer used."""
    calls = _behind(script, frame, loop)
    for _ in range(depth):
        for call in calls:
            if (
                isinstance(call.func, ast.Attribute)
                and call.func.attr in names
                and not is_statement_call(script, call)
            ):
                return call.func.attr
        functions = {f for call in calls for f in script.functions_of(call)}
        calls = [call for function in functions for call in script.calls_in(function)]
    return ""


def _behind(script: Script, frame: Frame, node: ast.expr | ast.stmt, depth: int = 2) -> list[ast.Call]:
    """The calls below a node, in its function and where that is called."""
    end = (node.end_lineno or 0, node.end_col_offset or 0)
    found = [c for c in script.calls_in(frame) if place_of(c) > end]
    for call in script.direct_callers(frame) if depth and is_function_frame(frame) else ():
        found += _behind(script, script.frame(call), call, depth - 1)
    return found


def _run_by(script: Script, function: Function, methods: list[Function], depth: int = 2) -> list[Function]:
    """A method and those of its object that it calls."""
    found = [function]
    for _ in range(depth):
        called = {
            last_name(c.func) for one in found for c in script.calls_in(one) if root_of(c.func) == "self"
        }
        found += [one for one in methods if one.name in called and one not in found]
    return found


def _told(script: Script, function: Function) -> set[str]:
    """The attributes that a method tells something: `self.hits.update(rows)`, `for one in self.metrics: one(rows)`."""
    drawn: dict[str, set[str]] = {}
    for one in (n for n in script.within(function) if isinstance(n, ast.For)):
        held = {n.attr for n in walk_all([one.iter]) if isinstance(n, ast.Attribute) and root_of(n) == "self"}
        drawn |= dict.fromkeys(names_in(one.target), held)
    grown = (n.target for n in script.within(function) if isinstance(n, ast.AugAssign))
    found = {n.attr for n in grown if isinstance(n, ast.Attribute) and root_of(n) == "self"}
    for call in script.calls_in(function):
        text = ast.unparse(call.func)
        if not is_statement_call(script, call) or QUIET_METHODS.search(text) or QUIET_ROOTS.search(text):
            continue
        root = root_of(call.func)
        if root == "self" and text.count(".") > 1:
            found.add(text.split(".")[1].partition("[")[0])
        found |= drawn.get(root, set())
    return found
