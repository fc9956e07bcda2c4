"""Small questions about one node of the tree: its line, the last part of its name, its parameters, its fields."""

from __future__ import annotations

import ast
from typing import TypeAlias, TypeGuard

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FunctionNode: TypeAlias = Function | ast.Lambda
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def line_of(node: ast.AST) -> int:
    """The line on which `node` begins; 0 for a module, which begins on none."""
    return getattr(node, "lineno", 0)


def place_of(node: ast.AST) -> tuple[int, int]:
    """The line and column of `node`, by which nodes are sorted the same way in every run."""
    return line_of(node), getattr(node, "col_offset", 0)


_DOTTED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def written(node: ast.AST) -> str:
    """The source of `node`, as `ast.unparse` writes it. Names, and what is made of them, do not pay for that."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, _DOTTED):
        of = node.value
        return f"{of.id if isinstance(of, ast.Name) else written(of)}.{node.attr}"
    if isinstance(node, ast.Call) and isinstance(node.func, _DOTTED):
        given = [
            *map(written, node.args),
            *(f"{k.arg}={written(k.value)}" if k.arg else f"**{written(k.value)}" for k in node.keywords),
        ]
        return f"{written(node.func)}({', '.join(given)})"
    if (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, _DOTTED)
        and isinstance(node.slice, ast.Name | ast.Constant)
    ):
        return f"{written(node.value)}[{written(node.slice)}]"
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int) and node.kind is None:
        return repr(node.value)
    return ast.unparse(node)


def last_name(node: ast.AST) -> str:
    """`f` of `f` and of `a.b.f`; empty for a node without a name."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def exits(node: ast.AST | None) -> bool:
    """Whether a call, or a statement that is one, ends the process: `sys.exit(1)`."""
    call = node.value if isinstance(node, ast.Expr) else node
    if not isinstance(call, ast.Call) or last_name(call.func) not in ("exit", "_exit", "quit"):
        return False
    # Not `browser.quit()`.
    return isinstance(call.func, ast.Name) or written(call.func) in ("sys.exit", "os._exit")


def all_arguments(node: FunctionNode) -> list[ast.arg]:
    """The parameters of a function: `*args` and `**more` last."""
    args = node.args
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return found + [a for a in (args.vararg, args.kwarg) if a is not None]


def defaults(args: ast.arguments) -> list[ast.expr]:
    """What a definition evaluates for its parameters."""
    return [*args.defaults, *(default for default in args.kw_defaults if default is not None)]


def defaults_by_name(args: ast.arguments) -> dict[str, ast.expr]:
    """The defaults of the parameters that have one."""
    positional = [one.arg for one in (*args.posonlyargs, *args.args)]
    found = dict(zip(reversed(positional), reversed(args.defaults), strict=False))
    named = zip(args.kwonlyargs, args.kw_defaults, strict=True)
    return found | {one.arg: default for one, default in named if default is not None}


def words(text: str) -> frozenset[str]:
    """A table of names, written as one text."""
    return frozenset(text.split())


def gives_itself(node: ast.AST) -> TypeGuard[ast.Assign]:
    """`model = model.train()`: the variable names the same object as before."""
    return (
        isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(value := node.value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in ("train", "eval")
        and written(value.func.value) == written(node.targets[0])
    )
