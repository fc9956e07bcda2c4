"""Which names a piece of the tree binds in its own scope, and which functions there are to ask about."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from .nodes import COMPREHENSIONS, Function, all_arguments
from .walks import children, walk

_OPEN = {
    *(ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, *COMPREHENSIONS),
    *(ast.alias, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping),
}


def bound_name(alias: ast.alias) -> str:
    """What an import binds: `a` of `import a.b`."""
    return alias.asname or alias.name.partition(".")[0]


def bindings(nodes: Iterable[ast.AST]) -> set[str]:
    """The names that these nodes bind in their own scope."""
    names: set[str] = set()
    work = list(nodes)
    while work:
        node = work.pop()
        if node.__class__ not in _OPEN:
            work += children(node)
            continue
        match node:
            case ast.Name():
                if isinstance(node.ctx, ast.Store):
                    names.add(node.id)
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
                work += node.decorator_list
                continue
            case ast.Lambda():
                continue
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                work += assignments_inside(node)
                continue
            case ast.alias():
                names.add(bound_name(node))
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
        work += children(node)
    return names


def assignments_inside(comprehension: ast.AST) -> list[ast.AST]:
    """The targets of `:=` inside a comprehension, which belong to the scope around it."""
    return [part.target for part in walk(comprehension) if isinstance(part, ast.NamedExpr)]


def own_names(function: Function) -> set[str]:
    """The names that a function binds itself, its parameters among them."""
    return bindings(function.body) | {argument.arg for argument in all_arguments(function)}


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Every function, with its qualified name, which redefinitions share."""
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        for child in children(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, child
                stack.append((name + ".", child))
            elif not isinstance(child, ast.expr):
                stack.append((prefix, child))
