"""Frames, loops and calls as forms of code: small questions about one node."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeGuard

from crosstrain_migrate.syntax.nodes import Function, last_name, words, written
from crosstrain_migrate.syntax.walks import walk

Frame = ast.Module | Function  # code that runs as one: a file's top level, or the body of a function
Loop = ast.For | ast.AsyncFor | ast.While
LOOPS = (ast.For, ast.AsyncFor, ast.While)
RANGES = ("range", "xrange")  # the second as six, or past, names it
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CONTAINERS = (ast.Dict, ast.DictComp, ast.List, ast.ListComp, ast.Set, ast.SetComp, ast.Tuple)
_MAKE_CONTAINERS = words("dict list set tuple defaultdict OrderedDict Counter deque state_dict")


def bound_in(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a plain assignment, or one part of a `with`, binds to what."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from pairs(target, node.value)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars, node.context_expr


def pairs(target: ast.expr, value: ast.expr) -> Iterable[tuple[ast.expr, ast.expr]]:
    """What an assignment binds to what, where both sides are written out: `a, b = x, y`."""
    if (
        isinstance(target, ast.Tuple | ast.List)
        and isinstance(value, ast.Tuple | ast.List)
        and len(target.elts) == len(value.elts)
    ):
        for inner, part in zip(target.elts, value.elts, strict=True):
            yield from pairs(inner, part)
    else:
        yield target, value


def plain_text(node: ast.AST) -> str:
    """An expression of names and dots alone; empty for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def names_in(node: ast.AST) -> set[str]:
    """The variables that an expression or a statement mentions."""
    return {one.id for one in walk(node) if isinstance(one, ast.Name)}


def root_of(node: ast.AST) -> str:
    """`a` of `a.b[c].d()`; empty where no variable stands there."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_function_frame(frame: Frame) -> TypeGuard[Function]:
    return isinstance(frame, FUNCTIONS)


class MethodCall(ast.Call):
    """A call of an attribute, for the types alone: no node is one at run time."""

    func: ast.Attribute


def is_method(call: ast.AST, *names: str) -> TypeGuard[MethodCall]:
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in names


def makes_container(value: ast.expr) -> bool:
    """`{}`, `[one for one in rows]`, `dict(a=1)`, `model.state_dict()`"""
    name = last_name(value.func) if isinstance(value, ast.Call) else ""
    return isinstance(value, _CONTAINERS) or name in _MAKE_CONTAINERS


class Replaced(ast.NodeTransformer):
    """An expression with other expressions for some of its variables and attributes, by how these are written."""

    def __init__(self, given: Mapping[str, ast.expr]) -> None:
        self.given = given

    def visit(self, node: ast.AST) -> Any:
        is_named = isinstance(node, ast.Name | ast.Attribute) and written(node) in self.given
        return self.given[written(node)] if is_named else self.generic_visit(node)


def without_gradient(block: ast.With) -> bool:
    """`with torch.no_grad():`"""
    return any(names_no_gradient(one.context_expr) for one in block.items)


def names_no_gradient(node: ast.expr) -> bool:
    text = ast.unparse(node)
    return "no_grad" in text or "inference_mode" in text


def refuses(function: Function | ast.ClassDef, call: ast.Call) -> bool:
    """Whether a call surely gives less than a function needs, or more than it takes; a method may be given its object or not."""
    given = [*call.args, *call.keywords]
    is_open = any(isinstance(one, ast.Starred) or getattr(one, "arg", "") is None for one in given)
    if is_open or isinstance(function, ast.ClassDef) or function.decorator_list:
        return False
    taken = function.args
    named = len(taken.posonlyargs) + len(taken.args)
    is_bound = bool(taken.args) and taken.args[0].arg == "self"
    return len(given) + is_bound < named - len(taken.defaults) or (
        len(call.args) > named and taken.vararg is None
    )
