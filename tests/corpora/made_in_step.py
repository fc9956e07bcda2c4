"""Tensors that a step makes without a device and that meet a batch, over the public scripts: which are placed, which noted.

    python -m tests.corpora.made_in_step CHECKOUTS [--only ID ...] [--list]

CHECKOUTS is what `tests.corpora.public` reads. Each script is planned with all its files. A tensor is *placed* where its author
moves it or the conversion does, *noted* where a note names it. In the author's branch for the CPU it is placed if the accelerator
has that choice, and noted if a note says that it has not. The exit code is the number of those that are neither.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from crosstrain_migrate import cli
from crosstrain_migrate.core import conversion
from crosstrain_migrate.core.numbers.dealing import Evaluations
from crosstrain_migrate.core.placing import made_tensors
from crosstrain_migrate.core.placing.lost import NOT_KEPT
from crosstrain_migrate.core.placing.sides import flag_of, is_about_gpu
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.in_step import InStep
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_method
from crosstrain_migrate.syntax.edits import InsertBefore
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .public.__main__ import SCRIPTS

_MOVES = ("to", "cuda", "type_as", "type", "expand_as", "new_tensor")
_NEW = ("new", "new_zeros", "new_ones", "new_full", "new_empty", "new_tensor")
_COMPUTES = ast.BinOp | ast.Compare | ast.Call | ast.Subscript | ast.AugAssign
_OF_TENSORS = frozenset(
    [
        "size",
        "view",
        "dim",
        "float",
        "long",
        "mean",
        "sum",
        "permute",
        "transpose",
        "reshape",
        "shape",
        "device",
    ]
)


@dataclass(frozen=True)
class Made:
    """A tensor that a step makes. state: "placed", "noted" or "neither"."""

    line: int
    text: str
    state: str


class Step:
    """What one script makes in its steps."""

    def __init__(self, plan: Plan, roles: Roles) -> None:
        self.plan = plan
        self.script: Script = plan.script
        evaluations = Evaluations(self.script, roles)
        self.code = InStep(self.script, evaluations.loops)
        self.trained = evaluations.trained

    def made(self) -> Iterator[Made]:
        """Every tensor that meets a batch."""
        for call in self.script.calls:
            if not self.script.is_reached(call) or not self._makes(call):
                continue
            if (self.code.in_batch_loop(call) or self.code.in_module(call)) and self._meets_batch(call):
                yield Made(call.lineno, ast.unparse(call)[:60], self._state(call))

    def _makes(self, call: ast.Call) -> bool:
        """`torch.zeros(3)`, `mask.new_zeros(3)` of what is no batch, `torch.cuda.FloatTensor(3)`"""
        if any(keyword.arg in ("device", "out", None) for keyword in call.keywords):
            return False
        if is_method(call, *_NEW) and self.script.dotted(call.func) == written(call.func):
            return not self._follows(call.func.value)
        is_cuda_type = self.script.dotted(call.func).startswith("torch.cuda.") and written(
            call.func
        ).endswith("Tensor")
        return is_cuda_type or made_tensors.makes_tensor(self.script, call)

    def _follows(self, of: ast.expr) -> bool:
        """Whether a tensor is a batch's, a parameter of the function or of the module."""
        root = written(of).partition(".")[0]
        return self.code.is_tensor(of) or root in self.script.parameters(self.script.frame(of))

    def _meets_batch(self, call: ast.Call) -> bool:
        return any(
            self._computes_with_batch(one)
            for one in self._places(call)
            if not made_tensors._is_read_on_host(self.script, self.code, one)
        )

    def _places(self, call: ast.expr) -> list[ast.expr]:
        """Where a tensor is used: where it is made, and where its variable is read behind that."""
        places = [call]
        statement = self.script.statement(call)
        if (
            isinstance(statement, ast.Assign)
            and len(statement.targets) == 1
            and self._is_value(call, statement)
        ):
            reads = self.script.reads(self.script.frame(call), written(statement.targets[0]))
            end = (statement.end_lineno or 0, statement.end_col_offset or 0)
            places += [read for read in reads if (read.lineno, read.col_offset) >= end]
        return places

    def _is_value(self, call: ast.expr, statement: ast.Assign) -> bool:
        """Whether an assignment binds what is made, whatever its methods make of it."""
        value = statement.value
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value is not call:
            value = value.func.value
        return value is call or statement.value is call

    def _computes_with_batch(self, place: ast.expr) -> bool:
        inner: ast.AST = place
        for one in self.script.around(place):
            if isinstance(one, ast.Call) and inner is not one.func and written(one.func) in self.trained:
                return True
            if isinstance(one, ast.Subscript) and inner is one.slice:
                return False  # an index may be on the CPU
            if isinstance(one, _COMPUTES):
                beside = [n for n in ast.iter_child_nodes(one) if n is not inner and isinstance(n, ast.expr)]
                if any(self._is_on_device(n) for n in beside):
                    return True
            if isinstance(one, ast.stmt):
                return False
            inner = one
        return False

    def _is_on_device(self, node: ast.AST) -> bool:
        if self.code.is_tensor(node):
            return True
        in_module = self.code.in_module(node)
        parameters = set(self.script.parameters(self.script.frame(node))) - {"self"}
        return (
            in_module
            and isinstance(node, ast.Name)
            and node.id in parameters
            and self._is_computed_with(node)
        )

    def _is_computed_with(self, name: ast.Name) -> bool:
        """Whether a parameter of a module's method is used as a tensor."""
        reads = self.script.reads(self.script.frame(name), name.id)
        parents = map(self.script.parent, reads)
        return any(isinstance(one, ast.Attribute) and one.attr in _OF_TENSORS for one in parents)

    def _is_moved(self, call: ast.expr, depth: int = 0) -> bool:
        """Whether the author brings it to the device, also in a function that it is given to."""
        for place in self._places(call) if depth == 0 else [call]:
            for one in self._expressions(place):
                if is_method(one, *_MOVES) and place in walk(one.func.value):
                    return True
                if isinstance(one, ast.Call) and depth < 3 and self._moves_given(one, place, depth):
                    return True
        return False

    def _moves_given(self, call: ast.Call, given: ast.expr, depth: int) -> bool:
        """Whether a function of the script moves what it is given by a call."""
        return any(
            self._is_moved(read, depth + 1)
            for function in self.script.functions(self.script.last(call.func))
            for name in self.script.parameters(function)
            if self.script.argument_for(call, function, name) is given
            for read in self.script.reads(function, name)
        )

    def _expressions(self, node: ast.expr) -> list[ast.expr]:
        """A node and the expressions around it."""
        return [node, *(one for one in self.script.around(node) if isinstance(one, ast.expr))]

    def _state(self, call: ast.Call) -> str:
        at = {id(one) for place in self._places(call) for one in self._expressions(place)}
        for (rule, _, _), nodes in self.plan._notes.items():
            if rule == "CT105" and any(id(node) in at for node in nodes):
                return "noted"
        edited = any(id(one.node) in at for one in self.plan.edits if one.rule == "CT105")
        if edited or self._is_moved(call):
            return "placed"
        flag = self._chooses_cpu(call)
        return self._on_cpu(flag) if flag else "neither"

    def _chooses_cpu(self, call: ast.Call) -> str:
        """The flag of the author's own test for a GPU in whose `else` a tensor is made; empty where there is none."""
        below: ast.AST = call
        for one in self.script.around(call):
            if isinstance(one, ast.If) and below in one.orelse:
                frame = self.script.frame(one)
                flag = flag_of(self.script, frame, one.test)
                if flag and is_about_gpu(self.script, frame, one.test):
                    return flag
            below = one
        return ""

    def _on_cpu(self, flag: str) -> str:
        """What becomes of what is made where a flag has chosen the CPU."""
        made = [one.code for one in self.plan.edits if isinstance(one, InsertBefore)]
        if any("Accelerator(cpu=" in code and flag.rpartition(".")[2] in code for code in made):
            return "placed"
        return "noted" if any(reason == NOT_KEPT for _, reason, _ in self.plan._notes) else "neither"


class _Enough(BaseException):
    """The plan is there: nothing else is wanted of the command."""


def planned(path: Path) -> tuple[Plan, Roles] | None:
    """The plan that the command makes for a script and the files it imports; None where it plans nothing."""
    found: list[tuple[Plan, Roles]] = []
    plan_of = conversion._planned

    def keeping(script: Script, roles: Roles, runtime: str, seen: Any) -> Plan:
        found.append((plan_of(script, roles, runtime, seen), roles))
        raise _Enough

    arguments = ["migrate", path.name, "--no-cache", "--output-format", "json"]
    with (
        contextlib.chdir(path.parent),
        mock.patch.object(conversion, "_planned", keeping),
        mock.patch.object(sys, "argv", arguments),
        contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())),
        contextlib.suppress(SystemExit, _Enough),
    ):
        cli.main()
    return found[0] if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID")
    parser.add_argument("--list", action="store_true", help="every tensor, with its line")
    options = parser.parse_args()
    tensors, scripts = Counter[str](), Counter[str]()
    for script in json.loads(SCRIPTS.read_text(encoding="utf-8"))["scripts"]:
        path = (options.checkouts / script["repo"].replace("/", "+") / script["script"]).resolve()
        if options.only and script["id"] not in options.only:
            continue
        plan = planned(path) if path.exists() else None
        scripts["planned" if plan else "not converted" if path.exists() else "missing"] += 1
        made = set(Step(*plan).made()) if plan else set()
        tensors.update(one.state for one in made)
        for one in sorted(made, key=lambda one: one.line) if options.list else ():
            print(f"{script['id']}: line {one.line} {one.text}: {one.state}", flush=True)
    print("scripts:", dict(scripts))
    print("tensors:", ", ".join(f"{tensors[state]} {state}" for state in ("placed", "noted", "neither")))
    return min(tensors["neither"], 100)


if __name__ == "__main__":
    sys.exit(main())
