"""`ast.walk` and `ast.iter_child_nodes`, several times as fast, in the same order, without contexts and operators."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from crosstrain_migrate.syntax.nodes import words, written

# Types in the grammar of fields that hold no node, or a node that is left out.
_LEFT_OUT = words("identifier string int constant type_ignore expr_context operator unaryop boolop cmpop")
# Lists with gaps: the key of `**more` in a dict, the default of an argument that has none.
_GAPS = frozenset({"keys", "kw_defaults"})
_FIELD = re.compile(r"(\w+)([?*]?) (\w+)")
# Lists that hold statements, or handlers and cases with statements in them.
_SUITES = ("body", "orelse", "finalbody", "handlers", "cases")

_ONE, _MANY, _WITH_GAPS = range(3)


class _Parts(dict[type[ast.AST], tuple[tuple[str, int], ...]]):
    def __missing__(self, kind: type[ast.AST]) -> tuple[tuple[str, int], ...]:
        """The fields in which a node of this kind holds others, as Python's docstring of the kind has them:
        `Dict(expr* keys, expr* values)`."""
        own = next(one for one in kind.__mro__ if getattr(ast, one.__name__, None) is one)
        grammar = _FIELD.findall((own.__doc__ or "").partition("(")[2])
        # A field that is overlooked would hide its nodes without an error.
        assert {name for _, _, name in grammar} >= set(own._fields), f"this Python does not describe {own}"
        self[kind] = tuple(
            (name, _ONE if sign != "*" else _WITH_GAPS if name in _GAPS else _MANY)
            for held, sign, name in grammar
            if held not in _LEFT_OUT
        )
        return self[kind]


_PARTS = _Parts()


def walk(node: ast.AST) -> list[ast.AST]:
    """`node` and all nodes in it, breadth first."""
    found = [node]
    for current in found:  # which grows meanwhile
        # As in `children`: a call for each node takes a third longer.
        for name, shape in _PARTS[current.__class__]:
            value = getattr(current, name, None)
            if not value:
                continue
            if shape == _ONE:
                found.append(value)
            elif shape == _MANY:
                found += value
            else:
                found += [part for part in value if part is not None]
    return found


def walk_all(code: Iterable[ast.AST]) -> list[ast.AST]:
    """The nodes in several pieces of code, such as the statements of a loop's body."""
    return [node for one in code for node in walk(one)]


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly in `node`."""
    found: list[ast.AST] = []
    for name, shape in _PARTS[node.__class__]:
        value = getattr(node, name, None)
        if not value:
            continue
        if shape == _ONE:
            found.append(value)
        elif shape == _MANY:
            found += value
        else:
            found += [part for part in value if part is not None]
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


def texts_in(node: ast.AST) -> set[str]:
    """The variables and attributes that a piece of code mentions, as they are written."""
    return {written(n) for n in walk(node) if isinstance(n, ast.Name | ast.Attribute)}


def stores_in(*code: ast.AST) -> list[ast.Name | ast.Attribute]:
    """Where pieces of code bind a variable or an attribute."""
    nodes = (n for one in code for n in walk(one) if isinstance(n, ast.Name | ast.Attribute))
    return [n for n in nodes if isinstance(n.ctx, ast.Store)]


def names_stored_in(*code: ast.AST) -> set[str]:
    """The variables that pieces of code bind: not the attributes, nor those of which they set a part."""
    return {one.id for one in stores_in(*code) if isinstance(one, ast.Name)}
