"""CT308: what CUDA alone answers. A script that asks it without a test keeps its own stop where there is none, and it is said.

CT105: what is moved only where CUDA is, and nothing else brings to the device, is named. `if torch.cuda.is_available(): mask =
mask.cuda()` is right on CUDA and on the CPU. On another accelerator the model and the batches of prepared loaders are on the
device, and the mask stays behind.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.in_step import InStep
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import exits, last_name, written
from crosstrain_migrate.syntax.walks import walk

from .made_tensors import makes_tensor
from .sides import asks_place

SAID = "this needs CUDA, and stops where there is none"
ASK = "ask first: `if torch.cuda.is_available():`"
_ANSWERS = re.compile(
    r"torch\.cuda\.(get_device_(name|properties|capability)|get_rng_state|mem_get_info|current_stream|Stream|Event|CUDAGraph)"
)
# Tests that hold with CUDA alone.
_ASKS_FOR_CUDA = re.compile(r"is_available|== 'cuda'|startswith\('cuda|'cuda' in ")
_SHORT = 40  # characters of a test that asks for nothing else
MOVES = "CT105"
STAYS = "this moves only where CUDA is: on another accelerator it stays on the CPU"
WITHOUT_TEST = "move it without the test"


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


def note_moves_with_cuda(plan: Plan, code: InStep) -> None:
    """Names them. code: knows the loops whose batches a prepared loader places."""
    script = plan.script
    for call in script.calls:
        if not is_method(call, "cuda") or not plan.is_replaced(call) or is_statement_call(script, call):
            continue
        is_guarded = any(_asks_for_cuda(script, test) for test in _tests(script, call))
        if is_guarded and not _is_placed(plan, code, call.func.value):
            plan.note(MOVES, call, STAYS, WITHOUT_TEST)


def _tests(script: Script, node: ast.AST) -> list[ast.expr]:
    """What must hold for a node to run."""
    found, inner = [], node
    for one in script.around(node):
        if isinstance(one, ast.If | ast.IfExp):
            body = one.body if isinstance(one.body, list) else [one.body]
            found += [one.test] if inner in body else []
        inner = one
    return found


def _asks_for_cuda(script: Script, test: ast.expr, seen: set[str] | None = None) -> bool:
    """Whether a test asks for CUDA, by itself or by variables and parameters."""
    if "cuda.is_available" in ast.unparse(test) or asks_place(test):
        return True
    seen = set() if seen is None else seen
    for node in walk(test):
        if not isinstance(node, ast.Name | ast.Attribute) or written(node) in seen:
            continue
        seen.add(written(node))
        if any(_asks_for_cuda(script, value, seen) for value in _given(script, node)):
            return True
    return False


def _given(script: Script, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a variable or an attribute is bound to, also by the calls of its function."""
    text, frame = written(node), script.frame(node)
    if isinstance(node, ast.Attribute):
        return script.values_anywhere(text)
    found = list(script.values(frame, text) or script.values(script.module(node), text))
    return found + [one for one, _ in script.given_for(frame, text)]


def _is_placed(plan: Plan, code: InStep, node: ast.expr) -> bool:
    """Whether something is on the device without the move, needs none, or is no tensor for all that is known."""
    script, text = plan.script, written(node)
    if makes_tensor(script, node):
        return False
    if not isinstance(node, ast.Name | ast.Attribute) or text in dict(plan.models) or code.is_tensor(node):
        return True
    values = script.values(script.frame(node), text)
    made_by = {last_name(value.func) for value in values if isinstance(value, ast.Call)}
    if any(name == "next" or name.endswith("Loss") for name in made_by):  # a loss needs no device
        return True
    return any(code.is_tensor(source) for source in _gone_over(script, node))


def _gone_over(script: Script, node: ast.expr) -> list[ast.expr]:
    """What the comprehensions go over that bind a variable."""
    scopes = (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
    return [
        generator.iter
        for one in script.around(node)
        if isinstance(one, scopes)
        for generator in one.generators
        if written(node) in {written(n) for n in walk(generator.target)}
    ]
