"""Code that is found by a text: `getattr(models, name)`, `eval("models." + name)`, `globals()[name]`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.program import path_of
from crosstrain_migrate.syntax.walks import walk

_FINDS_BY_TEXT = ("globals", "locals", "eval", "exec")
_IMPORTS = ("import_module", "__import__")


def asks_by_name(call: ast.Call) -> bool:
    """Whether a call is `getattr(models, name)` with a name that the code does not say."""
    is_getattr = isinstance(call.func, ast.Name) and call.func.id == "getattr" and len(call.args) > 1
    return is_getattr and not isinstance(call.args[1], ast.Constant)


def beginning(text: ast.expr) -> str:
    """What a text surely begins with: `model` of `"model" + str(n)`, of `f"model{n}"` and of `"model{}".format(n)`."""
    if isinstance(text, ast.BinOp) and isinstance(text.op, ast.Add | ast.Mod):
        return beginning(text.left).partition("%")[0]
    if isinstance(text, ast.Call) and isinstance(text.func, ast.Attribute) and text.func.attr == "format":
        return beginning(text.func.value).partition("{")[0]
    first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else text
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def evaluates(call: ast.Call) -> bool:
    """Whether a call evaluates a text that the code does not say."""
    is_builtin = isinstance(call.func, ast.Name) and call.func.id == "eval"
    return is_builtin and bool(call.args) and not isinstance(call.args[0], ast.Constant)


def first_named(call: ast.Call) -> str:
    """`models` of `eval("models." + name)`; empty where the text may begin with anything."""
    first, dot, _ = beginning(call.args[0]).partition(".") if evaluates(call) else ("", "", "")
    return first if dot else ""


def may_mean_any(node: ast.AST) -> bool:
    """Whether a call finds code by a text, wherever it is: `eval(name)`, `globals()[name]`; `import_module("tensorboardX")` is an
    import."""
    if not isinstance(node, ast.Call) or first_named(node):
        return False
    if last_name(node.func) in _IMPORTS:
        return not (node.args and isinstance(node.args[0], ast.Constant))
    return isinstance(node.func, ast.Name) and node.func.id in _FINDS_BY_TEXT


def asks_own_file(call: ast.Call) -> bool:
    """Whether a text is a name that its own file knows: `eval(name)`, `globals()[name]`, `import_module(__name__)`."""
    if last_name(call.func) not in _IMPORTS:
        return last_name(call.func) != "exec"
    return bool(call.args) and isinstance(call.args[0], ast.Name) and call.args[0].id == "__name__"


def known_in(module: ast.Module) -> Iterator[str]:
    """The last part of a file's own path, and of all that it imports."""
    yield path_of(module).removesuffix(".py").removesuffix("/__init__").rpartition("/")[2]
    for node in walk(module):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
