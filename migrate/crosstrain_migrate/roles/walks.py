"""`ast.walk` and `ast.iter_child_nodes` some times as fast: in their order, without contexts and operators."""

from __future__ import annotations

import ast

# Fields that hold no node, or one of those left out.
_LEFT_OUT = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "asname", "module", "level", "kind", "conversion"}
    | {"is_async", "simple", "type_comment", "type_ignores"}
)
# Fields that hold statements, or handlers and cases with statements in them.
_SUITES = ("body", "orelse", "finalbody", "handlers", "cases")
# Lists that hold something else than nodes, or nothing in places.
_MIXED = frozenset({"keys", "kw_defaults", "names", "kwd_attrs"})
_PARTS: dict[type[ast.AST], tuple[str, ...]] = {}


def walk(node: ast.AST) -> list[ast.AST]:
    """`node` and what is in it, breadth first."""
    found = [node]
    for current in found:  # which grows meanwhile
        _add_children(current, found)
    return found


def statements(node: ast.AST) -> list[ast.AST]:
    """The statements in `node`, in inner functions and classes too, and `node`: a tenth of what is in a script."""
    found = [node]
    for current in found:
        for name in _SUITES:
            suite = getattr(current, name, None)
            if suite.__class__ is list:
                found += suite
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """What is directly in `node`."""
    found: list[ast.AST] = []
    _add_children(node, found)
    return found


def _add_children(node: ast.AST, found: list[ast.AST]) -> None:
    kind = type(node)
    names = _PARTS.get(kind)
    if names is None:
        names = _PARTS[kind] = _parts(kind)
    for name in names:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif value.__class__ is list:
            found += [part for part in value if isinstance(part, ast.AST)] if name in _MIXED else value


def _parts(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields in which a node of this kind holds others."""
    return () if kind is ast.Constant else tuple(name for name in kind._fields if name not in _LEFT_OUT)
