"""CT308: what CUDA alone answers. A script that asks it without a test keeps its own stop where there is none, and it is said."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import exits

SAID = "this needs CUDA, and stops where there is none"
ASK = "ask first: `if torch.cuda.is_available():`"
_ANSWERS = re.compile(
    r"torch\.cuda\.(get_device_(name|properties|capability)|get_rng_state|mem_get_info|current_stream|Stream|Event|CUDAGraph)"
)
# Tests that hold with CUDA alone.
_ASKS_FOR_CUDA = re.compile(r"is_available|== 'cuda'|startswith\('cuda|'cuda' in ")
_SHORT = 40  # characters of a test that asks for nothing else


def asked_of_cuda(script: Script) -> list[ast.Call]:
    """The calls that stop where there is no CUDA, with no test around them that asks for it."""
    return [
        c
        for c in script.calls
        if _needs_cuda(script, c) and script.is_reached(c) and not _is_asked(script, c)
    ]


def _needs_cuda(script: Script, call: ast.Call) -> bool:
    is_numbered = is_method(call, "barrier") and any(one.arg == "device_ids" for one in call.keywords)
    return is_numbered or _ANSWERS.fullmatch(script.dotted(call.func)) is not None


def _is_asked(script: Script, call: ast.Call) -> bool:
    around = list(script.around(call))
    tests = [one.test for one in around if isinstance(one, ast.If | ast.IfExp)]
    is_tried = any(isinstance(one, ast.Try) for one in around)
    return is_tried or any(holds_with_cuda(script, test) for test in tests)


def holds_with_cuda(script: Script, test: ast.expr) -> bool:
    """Whether a test asks for CUDA, by itself or by a variable."""
    if isinstance(test, ast.Name):
        frame = script.frame(test)
        values = script.values(frame, test.id) or script.values(script.module(test), test.id)
        return bool(values) and all("is_available" in ast.unparse(value) for value in values)
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name):
        frame, name = script.frame(test), test.left.id
        if name in script.parameters(frame) and not script.stores(frame, name):
            return False  # `device == "cuda"` of what a caller wishes
    return _ASKS_FOR_CUDA.search(ast.unparse(test)) is not None


def stops_without_cuda(node: ast.AST) -> bool:
    """`assert torch.cuda.is_available()`, `if not torch.cuda.is_available(): raise RuntimeError(...)`"""
    if isinstance(node, ast.Assert):
        return "torch.cuda.is_available()" in ast.unparse(node.test)
    if not isinstance(node, ast.If) or node.orelse:
        return False
    test, last = ast.unparse(node.test), node.body[-1]
    if "not torch.cuda.is_available()" not in test or len(test) > _SHORT:
        return False
    return isinstance(last, ast.Raise) or exits(last)
