"""CT105: what the code reads on the CPU comes from there.

A prepared loader gives its batches on the device, also those that the author's script left on the CPU: labels that become an
array at the end, lengths of packed sequences. `labels.numpy()` becomes `labels.cpu().numpy()`, which is right anywhere.
"""

from __future__ import annotations

import ast
import math
import re

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.in_step import InStep
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of, words, written
from crosstrain_migrate.syntax.walks import walk

RULE = "CT105"
REASON = "batches are on the device: what is read on the CPU is brought there"
GROUP = "read on the CPU"
_ARRAYS = ("numpy", "sklearn", "scipy", "pandas", "matplotlib")
_PACKED = "torch.nn.utils.rnn.pack_padded_sequence"
_KIND = re.compile(r"torch\.([A-Z][a-z]+Tensor)")
_READ = ("item", "tolist", "numpy", "size", "numel")
OF_TENSORS = words("to cuda size view float long detach unsqueeze squeeze argmax numel eq")


def plan_host_reads(plan: Plan, code: InStep) -> None:
    """Brings to the CPU what numpy and packed sequences read."""
    script = plan.script
    for call in script.calls:
        if is_method(call, "numpy") and not call.keywords:
            if code.is_tensor(call.func.value) and not _is_on_cpu(script, call.func.value):
                plan.replace(call, RULE, REASON, "{of}.cpu().numpy()", GROUP, of=call.func.value)
        elif script.dotted(call.func) == _PACKED and len(call.args) > 1:
            _bring(plan, code, call.args[1])
        elif _reads_arrays(script, call):
            for argument in call.args:
                _bring(plan, code, argument)
        elif written(call.func) == "isinstance" and len(call.args) == 2:
            kind = _KIND.fullmatch(script.dotted(call.args[1]))
            if kind is not None and code.is_tensor(call.args[0]) and not _is_on_cpu(script, call.args[0]):
                reason = "the type is that of tensors on the CPU, and batches are on the device"
                plan.replace(call.args[1], RULE, reason, f"({kind[0]}, torch.cuda.{kind[1]})", GROUP)


def note_unseen_reads(plan: Plan, code: InStep) -> None:
    """Names what numpy or the like reads in a script without devices that may be a tensor of the batch, where no code shows it."""
    script = code.script
    for one in (argument for call in script.calls for argument in call.args if _reads_arrays(script, call)):
        frame = script.frame(one)
        if (
            isinstance(one, ast.Name)
            and code.is_tensor(one)
            and not _is_on_cpu(script, one)
            and not _is_list(script, frame, one)
            and not _is_array(script, frame, one)
            and not _is_tensor_for_sure(script, frame, one)
        ):
            reason = f"`{one.id}` may be a tensor of the device, which numpy cannot read"
            plan.note(RULE, one, reason, "add `.cpu()` if it is, or use `crosstrain launch --cpu`")


def _is_array(script: Script, frame: Frame, node: ast.expr) -> bool:
    """Whether a variable is bound to what numpy or the like gives alone: `matrix = confusion_matrix(y, out)`."""
    values = script.values(frame, written(node))
    return bool(values) and all(isinstance(one, ast.Call) and _reads_arrays(script, one) for one in values)


def _reads_arrays(script: Script, call: ast.Call) -> bool:
    return script.dotted(call.func).partition(".")[0] in _ARRAYS


def _bring(plan: Plan, code: InStep, node: ast.expr) -> None:
    """Brings an argument to the CPU, where it is a tensor for sure; a list of them is only spoken of."""
    script, frame = plan.script, plan.script.frame(node)
    if not isinstance(node, ast.Name | ast.Attribute) or not code.is_tensor(node) or _is_on_cpu(script, node):
        return
    if _is_list(script, frame, node):
        kept = _kept(script, frame, node)
        if any(_is_tensor_for_sure(script, frame, one) and not _is_on_cpu(script, one) for one in kept):
            plan.note(
                RULE,
                node,
                f"`{written(node)}` holds tensors of the device, which numpy cannot read",
                "add `.cpu()`",
            )
    elif not _is_array(script, frame, node) and _is_tensor_for_sure(script, frame, node):
        plan.replace(node, RULE, REASON, "{of}.cpu()", GROUP, of=node)


def _is_on_cpu(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression, or what its variable is bound to, goes over the CPU: `out.cpu().detach()`."""
    for one in walk(node):
        if is_method(one, "cpu", "numpy", "tolist", "item") or (
            is_method(one, "to") and any(getattr(a, "value", None) == "cpu" for a in one.args)
        ):
            return True
    values = script.values(script.frame(node), written(node)) if depth < 3 else []
    return any(_is_on_cpu(script, value, depth + 1) for value in values)


def _is_list(script: Script, frame: Frame, node: ast.expr) -> bool:
    return any(isinstance(value, ast.List | ast.ListComp) for value in script.values(frame, written(node)))


def _kept(script: Script, frame: Frame, node: ast.expr) -> list[ast.expr]:
    """What is appended to a list."""
    calls = [
        c for c in script.calls_in(frame) if is_method(c, "append") and written(c.func.value) == written(node)
    ]
    return [argument for call in calls for argument in call.args]


def _is_tensor_for_sure(script: Script, frame: Frame, node: ast.expr) -> bool:
    """Whether the function calls a tensor's method on a variable, or binds it to what such a method gives."""
    text = written(node)
    later = _bound_later(script, frame, node)
    calls = [c for c in script.calls_in(frame) if is_method(c, *OF_TENSORS)]
    if any(written(c.func.value) == text and place_of(c) < later for c in calls):
        return True
    return is_method(node, *OF_TENSORS) or any(
        _is_chain(v) and place_of(v) < later for v in script.values(frame, text)
    )


def _is_chain(node: ast.expr) -> bool:
    """Whether methods follow each other of which one is a tensor's, and none ends in a number: `(out == y).float().mean()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in _READ:
        if node.func.attr in OF_TENSORS:
            return True
        node = node.func.value
    return False


def _bound_later(script: Script, frame: Frame, node: ast.expr) -> tuple[float, int]:
    """From where on a variable is not what is read here: it is bound again below, and no loop leads back."""
    loops = script.loops_around(node)
    stores = [
        one
        for one in script.stores(frame, written(node))
        if place_of(one) > place_of(node) and not set(loops) & set(script.loops_around(one))
    ]
    return min((place_of(script.statement(one)) for one in stores), default=(math.inf, 0))
