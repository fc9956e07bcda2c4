"""The scripts of a tree that train: run as scripts, they reach a backward and an optimizer's step."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from pathlib import Path

from .checkout import Checkout, Code
from .reach import Reach, Unit, is_main_guard

_BACKWARD, _STEP = re.compile(r"\.backward\b"), re.compile(r"\.step\s*\(")
_RUNS_ON_IMPORT = re.compile(r"^(?:if\b.*__name__|for |while |with |[\w.]+\s*(?:\(|\W*=|\[))", re.MULTILINE)


def find(checkout: Checkout, seconds: float = 60.0) -> list[str]:
    """The entry scripts, sorted. By their own text alone where they do not parse (Python 2), and in a tree so large that
    what its scripts reach is not known after so many seconds."""
    if not any(_BACKWARD.search(checkout.code(path).text) for path in checkout.files):
        return []
    end = time.monotonic() + seconds
    return sorted(path for path in checkout.files if _is_entry(checkout, checkout.code(path), end))


def listed(file: Path) -> list[tuple[str, str]]:
    """(checkout, script) of each line `owner+name/path/to/script.py`; `#` begins a comment."""
    lines = (line.split("#")[0].strip() for line in file.read_text().splitlines())
    return [(line.partition("/")[0], line.partition("/")[2]) for line in lines if "/" in line]


def runs(code: Code) -> bool:
    """Whether a file does something when it is run, beyond defining things."""
    if code.path.endswith(".ipynb"):
        return True
    if not _RUNS_ON_IMPORT.search(code.text):
        return False
    if code.tree is None:
        return bool(_RUNS_ON_IMPORT.search(code.text))
    return any(is_main_guard(node) or _acts(node) for node in code.tree.body)


def _acts(node: ast.stmt) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    return isinstance(node, ast.For | ast.While | ast.With | ast.AugAssign)


def _is_entry(checkout: Checkout, code: Code, end: float) -> bool:
    if not code.text or not runs(code):
        return False
    if code.tree is None or time.monotonic() > end:
        return bool(_BACKWARD.search(code.text) and _STEP.search(code.text))
    reach = Reach(checkout, code.path)
    found = list(reach.active)
    return any(map(_has_backward, found)) and any(map(_has_step, found))


def _has_backward(unit: Unit) -> bool:
    return any(True for _ in backwards(unit))


def _has_step(unit: Unit) -> bool:
    return any(_called(node) == "step" for node in unit.nodes)


def backwards(unit: Unit) -> Iterator[ast.Call]:
    """The calls of a backward in a unit's own code; not the ones that pass a gradient on inside a Function."""
    for node in unit.nodes:
        if isinstance(node, ast.Call) and _called(node) in ("backward", "manual_backward"):
            yield node


def _called(node: ast.AST) -> str:
    return node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
