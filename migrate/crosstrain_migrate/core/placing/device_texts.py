"""Texts and types that name a GPU, `"cuda:0"`, `torch.cuda.FloatTensor`, and choices between such a text and `"cpu"`."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written

from .device_edits import REASON, RULE, DeviceEdits
from .sides import (
    arms_of,
    is_about_gpu,
    is_asked_as_text,
    is_gpu,
    keeps_data,
    must_be_text,
    side_of,
)

_GPU = re.compile(r"(cuda|mps|xpu)(:\d+)?")
_FORMATS = ("cuda:{}", "cuda:{:d}", "cuda:{0}")
CUDA_TENSOR = re.compile(r"torch\.cuda\.\w*Tensor")
TYPE_OF_CUDA = "this type is CUDA's or the CPU's: on another device its tensors stay on the CPU"


class DeviceTexts:
    """Plans that they are the name, or the device, of the process."""

    def __init__(self, edits: DeviceEdits) -> None:
        self.edits = edits
        self.script: Script = edits.script

    def names_gpu(self, node: ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call) -> bool:
        """`"cuda"`, `"cuda:0"`, `f"cuda:{rank}"`, `"cuda:" + str(rank)`, `"cuda:%d" % rank`, `"cuda:{}".format(rank)`"""
        if isinstance(node, ast.Call):
            return is_method(node, "format") and getattr(node.func.value, "value", None) in _FORMATS
        if isinstance(node, ast.BinOp):
            left = node.left
            return isinstance(left, ast.Constant) and left.value in ("cuda:", "cuda:%d", "cuda:%s")
        if isinstance(node, ast.JoinedStr):
            first = node.values[0] if node.values else None
            return isinstance(first, ast.Constant) and first.value == "cuda:"
        is_part = isinstance(self.script.parent(node), ast.JoinedStr)
        return isinstance(node.value, str) and not is_part and _GPU.fullmatch(node.value) is not None

    def literal(self, node: ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call) -> None:
        if self.edits.follows_a_tensor(node):
            return
        parent = self.script.parent(node)
        if isinstance(parent, ast.IfExp) and "cpu" not in self.edits.sides(parent):
            parent = self.script.parent(parent)  # `"cuda:%d" % gpus[0] if gpus else 0`
        if isinstance(parent, ast.Call):
            if (
                isinstance(parent.func, ast.Attribute) and parent.func.attr in ("to", "set_default_device")
            ) or (isinstance(parent.func, ast.Attribute) and parent.func.attr == "load"):
                self.edits.place(node)
            elif _is_default_of_device(parent, node):
                self.edits.place(node, as_text=True)
            elif any("device" in name for _, name in self.script.given_on(node)):  # `move(x, "cuda")`
                self.edits.place(node, as_text=is_asked_as_text(self.script, node))
            elif self._is_of_library(parent):  # `Batch(rows, fields, "cuda")`
                self.edits.place(node, as_text=True)
        elif isinstance(parent, ast.keyword):
            if parent.arg in ("device", "map_location"):
                self.edits.place(node, as_text=is_asked_as_text(self.script, node))
        elif isinstance(parent, ast.arguments):
            self.edits.place(node)
        elif isinstance(parent, ast.Assign):
            names = [written(target).lower() for target in parent.targets]
            is_named = any("device" in name and "type" not in name for name in names)
            if is_named or any(self._is_where_to_load(target) for target in parent.targets):
                self.edits.place(node, as_text=self._is_read_as_text(parent))
        elif isinstance(parent, ast.Dict):
            keys = [
                k.value
                for k, v in zip(parent.keys, parent.values, strict=True)
                if v is node and isinstance(k, ast.Constant)
            ]
            if any("device" in str(key).lower() for key in keys):
                self.edits.place(node, as_text=True)

    def _is_of_library(self, call: ast.Call) -> bool:
        """Whether a call makes an object of a library beside torch, whose own classes that take such a text are known, or runs an
        object's method by another name: `process = field.process`."""
        name = self.script.dotted(call.func)
        bound = (
            self._bound(self.script.frame(call), written(call.func))
            if isinstance(call.func, ast.Name) and len(call.args) > 1
            else []
        )
        if bound and all(isinstance(one, ast.Attribute) for one in bound):
            return not any(self.script.functions(last_name(one)) for one in bound)
        is_class = last_name(call.func)[:1].isupper() and self.script.is_of_library(call.func)
        return is_class and not name.startswith("torch.") and not self.script.run_by(call)

    def _bound(self, frame: Frame, name: str, depth: int = 2) -> list[ast.expr]:
        """What a variable is bound to, or a parameter given."""
        given = self.script.given_for(frame, name) if depth and not self.script.stores(frame, name) else []
        others = [(self.script.frame(call), value) for value, call in given]
        handed = [one for home, value in others for one in self._bound(home, written(value), depth - 1)]
        return [*self.script.values(frame, name), *handed]

    def _is_where_to_load(self, target: ast.expr) -> bool:
        """`loc`, which is given as a `map_location`, or as a `device`."""
        parents = map(self.script.parent, self.script.reads(self.script.frame(target), written(target)))
        return any(isinstance(one, ast.keyword) and one.arg in ("map_location", "device") for one in parents)

    def choice(self, node: ast.IfExp) -> None:
        """`"cuda" if ... else "cpu"`, `torch.device("cuda") if ... else torch.device("cpu")`."""
        if self.edits.follows_a_tensor(node) or keeps_data(self.script, node):
            return
        is_made = all(self.edits.makes_device(one) for one in (node.body, node.orelse))
        parent = self.script.parent(node)
        if self.edits.is_callers(node) and (is_made or self.edits.makes_device(parent)):
            return  # each device is placed for itself
        if is_made and self.edits.sides(node) == {"gpu", "cpu"}:
            self.edits.place(node)
            self.edits.lost.choice(node)
            return
        sides = {one.value for one in (node.body, node.orelse) if isinstance(one, ast.Constant)}
        gpu = {one for one in sides if isinstance(one, str) and _GPU.fullmatch(one)}
        is_formatted = any(
            isinstance(one, ast.JoinedStr | ast.Call) and self.names_gpu(one)
            for one in (node.body, node.orelse)
        )
        if not ("cpu" in sides and (gpu or is_formatted)):
            return
        self.edits.lost.choice(node)
        if self.edits.makes_device(parent):
            return
        is_type = isinstance(parent, ast.keyword) and parent.arg in ("device_type", "default")
        self.edits.place(
            node,
            as_text=is_type
            or is_asked_as_text(self.script, node)
            or (isinstance(parent, ast.Assign) and self._is_read_as_text(parent))
            or (isinstance(parent, ast.AnnAssign) and ast.unparse(parent.annotation) == "str"),
        )

    def arms(self, node: ast.If) -> None:
        """`if torch.cuda.is_available(): device = "cuda" else: device = "cpu"`: the accelerator's in every arm."""
        frame = self.script.frame(node)
        training = map(self.script.module, self.edits.accelerators.roles.frames)
        is_helper = self.edits.is_callers(node) and self.script.module(node) not in training
        is_others = is_helper or self.edits.follows_a_tensor(node)
        arms = arms_of(self.script, node) if not is_others else []
        placed = [one for one in arms if not self.edits.is_numbered_by_file(one)]
        if any(side_of(self.script, one) == "cpu" and not is_gpu(self.script, frame, one) for one in placed):
            self.edits.lost.choice(node)
        for value in filter(self.edits.makes_device, arms):
            self.edits.place(value)

    def _is_read_as_text(self, assign: ast.Assign) -> bool:
        return any(must_be_text(self.script, written(target)) for target in assign.targets)


def _is_default_of_device(call: ast.Call, node: ast.expr) -> bool:
    """`options.get("device", "cuda")`, `getattr(args, "device", "cuda")`"""
    if (
        last_name(call.func) not in ("get", "pop", "getattr")
        or len(call.args) < 2
        or call.args[-1] is not node
    ):
        return False
    return "device" in str(getattr(call.args[-2], "value", "")).lower()


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
        """`Tensor = torch.cuda.FloatTensor`, `assert isinstance(x, torch.cuda.FloatTensor)`: the CPU's where there is no CUDA."""
        parent, statement = self.script.parent(node), self.script.statement(node)
        is_moved = isinstance(parent, ast.Call) and self.plan.is_replaced(parent)  # `x.type(...)`
        if isinstance(statement, ast.Assign) and not is_moved:
            self.plan.note(
                RULE, node, TYPE_OF_CUDA, "give `device=accelerator.device` where such tensors are made"
            )
        is_asserted = isinstance(statement, ast.Assert) and isinstance(parent, ast.Call) and not is_moved
        if not (isinstance(parent, ast.Assign) or is_asserted) or self.is_chosen(node):
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
