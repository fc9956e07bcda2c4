"""Types of tensors on a GPU, `torch.cuda.FloatTensor`."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name

from .device_edits import REASON, RULE, DeviceEdits
from .sides import is_about_gpu

CUDA_TENSOR = re.compile(r"torch\.cuda\.\w*Tensor")
TYPE_OF_CUDA = "this type is CUDA's or the CPU's: on another device its tensors stay on the CPU"


class TensorTypes:
    """Plans that they are the CPU's types, on the device of the process."""

    def __init__(self, edits: DeviceEdits) -> None:
        self.edits = edits
        self.plan = edits.plan
        self.script: Script = edits.script

    def is_cuda_type(self, call: ast.Call) -> bool:
        """Whether the one argument of a call is a type of tensors on a GPU, or its name."""
        if len(call.args) != 1 or call.keywords:
            return False
        given = call.args[0]
        name = given.value if isinstance(given, ast.Constant) else self.script.dotted(given)
        return isinstance(name, str) and CUDA_TENSOR.fullmatch(name) is not None

    def typed(self, call: ast.Call, of: ast.expr) -> None:
        """`x.type(torch.cuda.LongTensor)`"""
        given = call.args[0]
        name = str(given.value) if isinstance(given, ast.Constant) else self.script.dotted(given)
        kind = name.rpartition(".")[2]
        self.plan.replace(
            call, RULE, REASON, f"{{of}}.type(torch.{kind}).to({self.edits.device(call)})", of=of
        )

    def named(self, node: ast.Attribute) -> None:
        """`Tensor = torch.cuda.FloatTensor`: the CPU's where there is no CUDA."""
        parent = self.script.parent(node)
        is_moved = isinstance(parent, ast.Call) and self.plan.is_replaced(parent)  # `x.type(...)`
        if isinstance(self.script.statement(node), ast.Assign) and not is_moved:
            self.plan.note(
                RULE, node, TYPE_OF_CUDA, "give `device=accelerator.device` where such tensors are made"
            )
        if not isinstance(parent, ast.Assign) or self.is_chosen(node):
            return
        self.plan.replace(node, RULE, REASON, of_the_machine(last_name(node)))

    def is_chosen(self, node: ast.AST) -> bool:
        """Whether the author's own condition of a device stands around a node."""
        tests = [one.test for one in self.script.around(node) if isinstance(one, ast.IfExp | ast.If)]
        return any(is_about_gpu(self.script, self.script.frame(node), test) for test in tests)

    def made(self, call: ast.Call, name: str) -> None:
        """`torch.cuda.FloatTensor(3)`"""
        kind = name.rpartition(".")[2]
        given = ", ".join(f"{{a{n}}}" for n in range(len(call.args)))
        holes = {f"a{n}": argument for n, argument in enumerate(call.args)}
        if call.keywords or any(isinstance(a, ast.Starred) for a in call.args):
            return
        if self.script.is_shared(call):  # other scripts may run it on several GPUs by DataParallel
            self.plan.replace(call.func, RULE, REASON, f"({of_the_machine(kind)})")
        else:
            template = f"torch.{kind}({given}).to({self.edits.device(call)})"
            self.plan.replace(call, RULE, REASON, template, **holes)


def of_the_machine(kind: str) -> str:
    """A type of tensors on the current GPU, or on the CPU where there is none."""
    return f"torch.cuda.{kind} if torch.cuda.is_available() else torch.{kind}"
