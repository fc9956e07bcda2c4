"""CT105 by use: each process has a device of its own, which the accelerator knows.

What chooses a GPU, `.cuda()`, `"cuda"`, `torch.device("cuda:0")`, becomes the accelerator's device wherever the training
reaches it. `.to(device)` of the author's stays: it is harmless once `device` is the accelerator's.
"""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.reached import held_by_file
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, words, written
from crosstrain_migrate.syntax.walks import names_stored_in, walk

from .accelerator import Accelerators
from .by_machine import is_the_machines
from .cuda_alone import ASK, SAID, asked_of_cuda, holds_with_cuda, stops_without_cuda
from .device_edits import REASON, RULE, DeviceEdits, plan_beside
from .device_texts import CUDA_TENSOR, DeviceTexts, TensorTypes
from .first import choose_visible
from .given_devices import is_found, is_given, is_set_by_file
from .numbered import is_number, numbered_lists, numbers_given
from .own_moves import compiled_functions, has_nothing_else, has_own_cuda, is_told
from .sides import asks_place, side_of

GPU_ONLY = "CT308"
_CUDA_ANSWERS = re.compile(r"torch\.cuda\.(get_device_|(max_)?memory_|mem_)|faiss\.")
# What may name a device, or ask for one; what stands around another that begins at the same place comes first.
_KINDS: tuple[type[ast.AST], ...] = (
    ast.Assert,
    ast.If,
    ast.IfExp,
    ast.BinOp,
    ast.Call,
    ast.JoinedStr,
    ast.Constant,
    ast.Attribute,
)
NO_SCRIPT = "move tensors before they are given to it"
_STATEMENTS = words(
    "synchronize empty_cache set_device reset_peak_memory_stats reset_max_memory_allocated ipc_collect"
)


class Devices:
    """Plans the edits of everything that chooses a device. `ordinals`: what numbers one, and in which frame."""

    def __init__(
        self, plan: Plan, accelerators: Accelerators, ordinals: set[tuple[Frame | None, str]] | None = None
    ) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.ordinals = ordinals or set()
        self._is_mapped = ordinals is not None
        self._is_notebook = is_linked(plan.script.text)
        self._numbered = numbered_lists(self.script)
        self.edits = DeviceEdits(plan, accelerators, is_mapped=self._is_mapped)
        self._texts, self._types = DeviceTexts(self.edits), TensorTypes(self.edits)
        self._compiled = compiled_functions(plan.script)

    def run(self) -> None:
        for function in () if self._is_mapped else filter(self._only_chooses, self.script.frames):
            for call in self.script.callers(function):
                self.edits.place(call)
            self.edits.whole.add(function)
        needs_cuda = asked_of_cuda(self.script)
        for call in needs_cuda:
            self.plan.note(GPU_ONLY, call, SAID, ASK)
        for node in sorted((n for kind in _KINDS for n in self.script.table.each(kind)), key=place_of):
            if not self.script.is_reached(node) or self._is_too_early(node) or self._is_compiled(node):
                continue
            if any(one in self.edits.whole for one in self.script.around(node)):
                continue
            if isinstance(
                node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call
            ) and self._texts.names_gpu(node):
                self._texts.literal(node)
            elif isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, ast.IfExp):
                self._texts.choice(node)
            elif isinstance(node, ast.Attribute) and CUDA_TENSOR.fullmatch(self.script.dotted(node)):
                self._types.named(node)
            elif isinstance(node, ast.Assert | ast.If) and stops_without_cuda(node):
                if not needs_cuda:
                    self._remove(node, "the script runs on any device")
            elif isinstance(node, ast.If):
                self._texts.arms(node)
        plan_beside(self.plan)

    def _is_too_early(self, node: ast.AST) -> bool:
        """Whether the script's own choice is still to come. The group of one that distributes itself may be there before,
        but an option's default stays its author's, and so does a function that says which GPUs there are."""
        if not self.accelerators.is_early(node):
            return False
        function = self.script.frame(node)
        is_first = is_function_frame(function) and choose_visible(self.script, self.script.within(function))
        is_default = any(is_method(one, "add_argument") for one in self.script.around(node))
        return not self._is_mapped or is_default or bool(is_first)

    def _is_compiled(self, node: ast.AST) -> bool:
        """Whether code is TorchScript, which knows no accelerator; what names a GPU there is said."""
        if self.script.frame(node) not in self._compiled:
            return False
        names_gpu = isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and self._texts.names_gpu(node)
        if names_gpu or is_method(node, "cuda"):
            self.plan.note(RULE, node, "TorchScript knows no accelerator: this still needs CUDA", NO_SCRIPT)
        return True

    def _only_chooses(self, function: Frame) -> TypeGuard[Function]:
        """Whether the branches of a function only choose the device by what the machine has: `device = try_gpu()`.

        With the accelerator's device in it, all its branches would say the same.
        """
        if not is_function_frame(function) or ast.unparse(function.args):
            return False
        calls = self.script.callers(function)
        has_branches = any(isinstance(n, ast.If) for n in self.script.within(function))
        own = names_stored_in(function)
        sides = {side_of(self.script, n) for n in self.script.within(function) if isinstance(n, ast.expr)}
        return (
            has_branches
            and sides >= {"gpu", "cpu"}
            and names_in(function) - own == {"torch"}
            and bool(calls)
            and all(self._is_bound_to_choice(call) for call in calls)
        )

    def _is_bound_to_choice(self, call: ast.Call) -> bool:
        return (
            isinstance(self.script.parent(call), ast.Assign)
            and not self._is_too_early(call)
            and self.script.is_reached(call)
            and is_the_machines(self.script, self.script.frame(call), call)
        )

    # -- calls -------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> None:
        name = self.script.dotted(call.func)
        if self._is_tried(call):
            return
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "cuda"
            and not name.startswith("torch.")
            and not held_by_file(self.script, call.func)  # `utils.cuda(rows)` of the project's own
        ):
            self._cuda(call, call.func.value)
        elif name == "torch.device":
            is_cpu = call.args and getattr(call.args[0], "value", None) in ("cpu", "meta")
            given = call.args[0] if call.args and self._is_mapped else call
            is_set = is_set_by_file(self.script, given) or is_found(self.script, given)
            is_other = is_cpu or is_set or is_given(self.script, call)
            if self._is_compared(call):
                return
            if not is_other and not self.edits.follows_a_tensor(call) and not self._is_asked_of_cuda(call):
                chosen = call.args[0] if call.args else None
                if isinstance(chosen, ast.IfExp) and self.edits.sides(chosen) == {"gpu", "cpu"}:
                    if self.edits.is_callers(chosen):
                        self.edits.place(
                            chosen.body if side_of(self.script, chosen.body) == "gpu" else chosen.orelse
                        )
                        return
                    self.edits.lost.choice(chosen)
                self.edits.place(call)
                self.edits.lost.setting(call)
        elif name in ("torch.accelerator.current_accelerator", "torch.cuda.current_device"):
            if self._is_number(call):
                code = f"{self.plan.state(call)}.local_process_index"
                if self._is_mapped:
                    self.plan.replace(call, RULE, "each process has a number of its own", code)
            elif not self._is_asked_of_cuda(call):
                self.edits.place(call)
        elif name == "torch.cuda.device" and self._is_block(call):
            own = self.edits.device(call)
            code = f"{own} if {own}.type == 'cuda' else -1"  # -1 changes nothing
            self.plan.replace(call.args[0], GPU_ONLY, REASON, code)
            self.edits.whole.add(call)
            self.edits.lost.number(call)
        elif self._needs_cuda(call, name):
            self._guard(call)
        elif is_method(call, "type") and self._types.is_cuda_type(call):
            self._types.typed(call, call.func.value)
        elif CUDA_TENSOR.fullmatch(name) and not self._types.is_chosen(call):
            self._types.made(call, name)
        elif last_name(call.func) == "to":
            for to in (*call.args[:1], *(k.value for k in call.keywords if k.arg == "device")):
                is_own = self._is_ordinal(to) or is_number(self.script, to, self._numbered)
                for number in [to] if is_own else numbers_given(self.script, to, self._numbered):
                    self.edits.place(number)
        elif self._is_cell_choice(call):
            self.edits.place(call)
        for keyword in call.keywords if self.ordinals else ():
            if keyword.arg in ("device", "map_location") and self._is_ordinal(keyword.value):
                self.edits.place(keyword.value)

    def _is_tried(self, call: ast.Call) -> bool:
        """Whether a block does no more than to find out whether a device works: `try: torch.ones(1).cuda(); return True`."""
        tried = next((one for one in self.script.around(call) if isinstance(one, ast.Try)), None)
        last = tried.body[-1] if tried is not None and self.script.table.is_inside(call, tried) else None
        return isinstance(last, ast.Return) and getattr(last.value, "value", None) is True

    def _is_number(self, call: ast.Call) -> bool:
        """`rank = torch.cuda.current_device()`: a variable that its function gives no tensor or call as a place; or what is
        given as a number, `gpu_ids=torch.cuda.current_device() if on_gpu else None`."""
        given_as = next(one for one in self.script.around(call) if not isinstance(one, ast.IfExp))
        if isinstance(given_as, ast.keyword):
            return given_as.arg is not None and given_as.arg.endswith(("_id", "_ids", "rank", "index"))
        bound, frame = self.script.statement(call), self.script.frame(call)
        names = [one for one in names_in(bound) if call in self.script.values(frame, one)]
        given = [self.script.parent(read) for name in names for read in self.script.reads(frame, name)]
        return bool(given) and not any(isinstance(one, ast.Call | ast.keyword) for one in given)

    def _is_compared(self, call: ast.Call) -> bool:
        """Whether a device is asked whether it is a GPU, `device == torch.device("cuda")`: that of a process has a number."""
        test = self.script.parent(call)
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
            return False
        other = test.left if test.left is not call else test.comparators[0]
        is_other = len(test.ops) > 1 or list(map(ast.unparse, call.args)) != ["'cuda'"]
        if is_other or not isinstance(other, ast.Name | ast.Attribute | ast.Subscript):
            return False
        self.plan.replace(call, RULE, REASON, '"cuda"')
        return self.plan.replace(other, RULE, REASON, "{of}.type", of=other)

    def _is_cell_choice(self, call: ast.Call) -> bool:
        """Whether a cell of a notebook has its device from a function that only chooses one, `device = try_gpu()`: the kernel
        keeps that, and each process of the training has its own."""
        is_plain = not call.args and not call.keywords and isinstance(self.script.frame(call), ast.Module)
        named = self.script.functions_of(call) if is_plain and self._is_notebook else []
        functions = [one for one in named if self.script.is_entry(one)] or named
        chosen: list[ast.expr] = []
        for node in self.script.within(functions[0]) if len(functions) == 1 else ():
            if isinstance(node, ast.Return) and node.value is not None:
                bound = self.script.values(functions[0], written(node.value))
                chosen += bound or [node.value]
        return bool(chosen) and all(side_of(self.script, one) for one in chosen)

    def _is_asked_of_cuda(self, call: ast.Call) -> bool:
        """Whether a device is given to what only a GPU can answer: `torch.cuda.get_device_properties(...)`."""
        outer = self.script.parent(call)
        return isinstance(outer, ast.Call) and _CUDA_ANSWERS.match(self.script.dotted(outer.func)) is not None

    def _is_ordinal(self, node: ast.expr) -> bool:
        """Whether an expression is a device's number."""
        text = written(node)
        return (None, text) in self.ordinals or (self.script.frame(node), text) in self.ordinals

    def _cuda(self, call: ast.Call, of: ast.expr) -> None:
        if has_own_cuda(self.script, of):
            if not has_nothing_else(self.script, of):  # else it is the method that knows the device
                self._own_cuda(call, of)
            return
        if is_told(self.script, call):
            return
        more = "".join(
            f", {keyword.arg}={{k{n}}}" for n, keyword in enumerate(call.keywords) if keyword.arg != "device"
        )
        more = more.replace("async=", "non_blocking=")
        holes = {f"k{n}": keyword.value for n, keyword in enumerate(call.keywords) if keyword.arg != "device"}
        named = "device=" if self._is_storage(of) else ""
        device = f"{self.edits.device(call)}{self._of_replica(call)}"
        self.plan.replace(call, RULE, REASON, f"{{of}}.to({named}{device}{more})", of=of, **holes)
        if not device.endswith(".type"):
            self.edits.lost.number(call, of)

    def _own_cuda(self, call: ast.Call, of: ast.expr) -> None:
        """`model.cuda()` of a class that moves more than its parameters: its own method moves it to a GPU."""
        if self.edits.follows_a_tensor(call):
            return
        device, text = self.edits.device(call), self.script.source(of)
        number = device if call.args else ""
        code = f'{text}.cuda({number}) if {device}.type == "cuda" else {text}.to({device})'
        is_whole = isinstance(self.script.parent(call), ast.Assign | ast.Return | ast.Expr)
        self.plan.replace(call, RULE, REASON, code if is_whole else f"({code})")
        self.edits.lost.number(call)

    def _of_replica(self, call: ast.Call) -> str:
        """The current GPU and not the process's, in a shared network: another script may run it by DataParallel."""
        frame = self.script.frame(call)
        cls = self.script.class_of(frame)
        given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "device")]
        if not self.script.is_shared(call):
            return ""
        if given:
            return ".type" if self._is_tensors(frame, given[0]) else ""
        if cls is None or getattr(frame, "name", "") == "__init__":
            return ""
        return ".type" if any(one.name == "forward" for one in self.script.methods(cls)) else ""

    def _is_tensors(self, frame: Frame, number: ast.expr, depth: int = 4) -> bool:
        """Whether a GPU's number may be that of a tensor: `x.cuda(y.get_device())`, also by variables and parameters."""
        names = names_in(number) if depth else ()
        sources = [(frame, value) for name in names for value in self.script.values(frame, name)]
        given = (one for name in names for one in self.script.given_for(frame, name))
        sources += [(self.script.frame(call), value) for value, call in given]
        return asks_place(number) or any(self._is_tensors(home, one, depth - 1) for home, one in sources)

    def _is_storage(self, of: ast.expr) -> bool:
        """Whether `of` is what `torch.load` gives `map_location=lambda storage, loc: ...`, whose `to` takes keywords alone."""
        function = next((one for one in self.script.around(of) if isinstance(one, ast.Lambda)), None)
        if function is None or [written(of)] != [one.arg for one in function.args.args[:1]]:
            return False
        given = self.script.parent(function)
        if isinstance(given, ast.keyword):
            return given.arg == "map_location"
        return isinstance(given, ast.Call) and last_name(given.func) == "load"

    def _is_block(self, call: ast.Call) -> bool:
        """Whether a GPU is the current one for a block, and neither by where a tensor is nor in a file that other scripts
        run by DataParallel."""
        if not isinstance(self.script.parent(call), ast.withitem) or len(call.args) != 1:
            return False
        given = [call.args[0], *self.script.values(self.script.frame(call), written(call.args[0]))]
        return not any(map(asks_place, given)) and not self.script.is_shared(call)

    def _needs_cuda(self, call: ast.Call, name: str) -> bool:
        """Whether a statement of its own stops where there is no CUDA."""
        if name == "torch.set_default_tensor_type":
            return self._types.is_cuda_type(call)
        return (
            name.startswith("torch.cuda.")
            and last_name(call.func) in _STATEMENTS
            and is_statement_call(self.script, call)
        )

    def _guard(self, call: ast.Call) -> None:
        """`torch.cuda.synchronize()` and the like, where there is CUDA."""
        statement = self.script.statement(call)
        for number in call.args[:1] if last_name(call.func) == "set_device" else ():
            values = [number, *self.script.values(self.script.frame(call), written(number))]
            is_text = any(side_of(self.script, one) for one in values)  # `device = "cuda:0"`
            if not self._is_mapped or self._is_ordinal(number) or isinstance(number, ast.Constant) or is_text:
                self.edits.place(number)
                if isinstance(number, ast.Subscript):  # of settings, which no option is read from
                    self.edits.lost.number(call)
        tests = [one.test for one in self.script.around(statement) if isinstance(one, ast.If)]
        if any(holds_with_cuda(self.script, test) for test in tests):
            return
        reason = "a CPU or a TPU has no CUDA to ask"
        test = "torch.cuda.is_available()"
        has_choice = self.accelerators.keeps_cpu and self.accelerators.at_hand(call)
        if last_name(call.func) == "set_device" and has_choice:  # of the CPU, where there may be CUDA
            test = f'{self.accelerators.name}.device.type == "cuda"'
        self.plan.add(e.Guard(statement, GPU_ONLY, reason, transaction="cuda", last=statement, test=test))

    def _remove(self, node: ast.stmt, reason: str) -> None:
        if len(self.script.suite_of(node)) > 1 and not any(self.plan.is_replaced(n) for n in walk(node)):
            self.plan.add(e.RemoveStatement(node, GPU_ONLY, reason, transaction="cuda only"))
