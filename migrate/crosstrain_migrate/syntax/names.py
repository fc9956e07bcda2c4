"""Which names a text uses that neither its module nor Python binds: from `symtable`, the compiler's own view."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator

from .walks import statements, walk

_IMPLICIT = {
    *("__annotations__", "__builtins__", "__cached__", "__class__", "__conditional_annotations__"),
    *("__debug__", "__dict__", "__doc__", "__file__", "__loader__", "__module__", "__name__", "__package__"),
    *("__path__", "__qualname__", "__spec__", "WindowsError"),
}
KNOWN = frozenset({*dir(builtins), *_IMPLICIT})

_ANNOTATED = {ast.arg, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef}


def unbound_names(text: str, tree: ast.Module) -> dict[str, int]:
    """Names used as globals that nothing binds, with a line that does (0: in `__all__` or quoted)."""
    if has_star_import(tree):
        return {}
    bound: set[str] = set()
    used = _exported(tree) | _quoted_annotations(tree)
    for table in _tables(symtable.symtable(text, "<checked>", "exec")):
        whole = table.get_type() == "module"
        for symbol in table.get_symbols():
            if (whole or symbol.is_declared_global()) and (
                symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            ):
                bound.add(symbol.get_name())
            if symbol.is_referenced() and symbol.is_global():
                used.add(symbol.get_name())
    missing = used - bound - KNOWN
    if not missing:
        return {}
    lines: dict[str, int] = {}
    for node in walk(tree):
        if isinstance(node, ast.Name) and node.id in missing:
            lines.setdefault(node.id, node.lineno)
    return {name: lines.get(name, 0) for name in missing}


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def has_star_import(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in statements(tree))


def _exported(tree: ast.Module) -> set[str]:
    """What a literal `__all__` promises; a module's `__getattr__` may keep any promise."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name="__getattr__"):
                return set()
            case ast.Assign(
                targets=[ast.Name(id="__all__")], value=ast.List(elts=items) | ast.Tuple(elts=items)
            ):
                names = {
                    one.value for one in items if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
    return names


def _quoted_annotations(tree: ast.Module) -> set[str]:
    """Names at the front of annotations written as strings: `def f(device: "torch.device")` needs `torch`."""
    names: set[str] = set()
    for node in walk(tree):
        if node.__class__ not in _ANNOTATED:
            continue
        match getattr(node, "annotation", None) or getattr(node, "returns", None):
            case ast.Constant(value=str(text)) if text.replace(".", "").isidentifier():
                names.add(text.partition(".")[0])
    return names
