"""CT302 to CT309 by use: a script that distributes itself is mapped where it stands (CONVERT.md, "one way").

Its group, wrapper and processes become the runtime's. Samplers, rank tests, collectives, branches, the author's scaler and
evaluations stay: their meaning on N processes is the script's own.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import written

from .accelerator import Accelerators
from .plan import Plan
from .script import FUNCTIONS, Script, is_function_frame

GROUP, WRAPPER, PARALLEL, SAMPLER, SPAWN, RANKS = "CT303", "CT302", "CT301", "CT304", "CT305", "CT309"
_WRAPPERS = re.compile(r"(^|\.)(DistributedDataParallel|DDP)$")
_COLLECTIVE = re.compile(
    r"distributed(\.nn)?(\.functional)?\.(all_reduce|all_gather|reduce_scatter|broadcast)\w*$"
)
_ASKS_LAUNCHER = re.compile(
    r"""(environ\.get|getenv)\(\s*['"](LOCAL_)?RANK|['"](LOCAL_)?RANK['"] in os\.environ"""
)


def distributes_itself(script: Script) -> bool:
    return any(script.dotted(call.func).endswith("init_process_group") for call in script.calls)


def has_wrapper(script: Script) -> bool:
    """Whether a DistributedDataParallel averages the gradients; without one the script does it by itself."""
    return any(_WRAPPERS.search(script.dotted(call.func)) for call in script.calls)


def shards_layers(script: Script) -> ast.Call | None:
    """A collective of a layer's own, in a script without a wrapper: the processes share one model."""
    if has_wrapper(script):
        return None
    for call in script.calls:
        frame = script.frame(call)
        if not _COLLECTIVE.search(script.dotted(call.func)) or not is_function_frame(frame):
            continue
        if frame.name in ("forward", "backward") and script.class_of(frame) is not None:
            return call
    return None


def group_options(script: Script) -> str:
    """How the group of one is made under plain python: with the launcher's variables, unless the script has a branch
    without a group, in which nothing is wrapped."""
    wrappers = [call for call in script.calls if _WRAPPERS.search(script.dotted(call.func))]
    has_branch = all(any(isinstance(one, ast.If | ast.IfExp) for one in script.around(c)) for c in wrappers)
    asks = has_branch and any(_ASKS_LAUNCHER.search(ast.unparse(module)) for module in script.modules)
    return "group_of_one=True" if asks else "group_of_one=True, environment=True"


class Mapping:
    """Plans what becomes of a script's own distribution."""

    def __init__(self, plan: Plan, accelerators: Accelerators) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.ordinals = self._ordinals()

    def run(self) -> None:
        self._start()
        for call in self.script.calls:
            name = self.script.dotted(call.func)
            if name.endswith("init_process_group"):
                self._group(call)
            elif _WRAPPERS.search(name):
                self._wrapper(call, WRAPPER)
            elif name.endswith("convert_sync_batchnorm") and call.args:
                self._synchronised(call)
            elif name.endswith("multiprocessing.spawn") and call.args:
                self._spawn(call)
            elif name.endswith("DistributedSampler"):
                self._sampler(call)
            elif name == "torch.cuda.device_count":
                self.plan.replace(
                    call,
                    RANKS,
                    "the launcher says how many processes there are",
                    f"{self._state(call)}.num_processes",
                )
            elif name.endswith("add_argument"):
                self._local_rank(call)

    def _ordinals(self) -> set[str]:
        """What names a device by its number: in `device_ids`, and in `set_device`."""
        found: set[str] = set()
        for call in self.script.calls:
            name = self.script.dotted(call.func)
            if _WRAPPERS.search(name):
                for keyword in call.keywords:
                    if keyword.arg == "device_ids" and isinstance(keyword.value, ast.List):
                        found |= {written(one) for one in keyword.value.elts}
            elif name == "torch.cuda.set_device" and call.args:
                found.add(written(call.args[0]))
        return found

    def _state(self, node: ast.AST) -> str:
        return self.plan.state(node)

    def _start(self) -> None:
        """The group is there before the script's own code asks for it."""
        place = self._last_import()
        self.plan.imports(place, "PartialState")
        reason = "the launcher's processes, or plain python's one, are the group"
        self.plan.after(place, GROUP, reason, f"PartialState({group_options(self.script)})")

    def _last_import(self) -> ast.stmt:
        """The last of the imports at the head of the script's own file."""
        body = self.script.entry.body
        found = body[0]
        for statement in body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                found = statement
            elif isinstance(statement, (*FUNCTIONS, ast.ClassDef, ast.If, ast.For)):
                break
        return found

    def _synchronised(self, call: ast.Call) -> None:
        """SyncBatchNorm needs a GPU."""
        statement = self.script.statement(call)
        model = written(call.args[0])
        reason = "batch statistics are shared on GPUs only"
        is_own = isinstance(statement, ast.Assign) and statement.value is call
        if is_own and [written(target) for target in statement.targets] == [model]:  # type: ignore[attr-defined]
            test = "torch.cuda.is_available()"
            guard = e.Guard(statement, WRAPPER, reason, transaction="statistics", last=statement, test=test)
            self.plan.add(guard)
        else:
            template = f"({{it}} if torch.cuda.is_available() else {model})"
            self.plan.replace(call, WRAPPER, reason, template, "statistics", it=call)

    def _group(self, call: ast.Call) -> None:
        self.plan.imports(call, "PartialState")
        self.plan.replace(
            call, GROUP, "the group of the launcher's processes", "PartialState(group_of_one=True)"
        )

    def _wrapper(self, call: ast.Call, rule: str) -> None:
        model = (
            call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "module"), None)
        )
        if model is None:
            return
        if self.accelerators.at_hand(call):
            accelerator = self.accelerators.name
        else:
            self.plan.imports(call, "Accelerator")
            accelerator = "Accelerator()"
        self.plan.replace(
            call,
            rule,
            "the accelerator averages the gradients",
            f"{accelerator}.prepare({{model}})",
            model=model,
        )

    def _spawn(self, call: ast.Call) -> None:
        """`mp.spawn(worker, args=(...))`: the launcher starts the processes, each calls the worker."""
        given = next(
            (k.value for k in call.keywords if k.arg == "args"), call.args[1] if len(call.args) > 1 else None
        )
        rank = f"{self._state(call)}.local_process_index"
        holes = {"worker": call.args[0]}
        if isinstance(given, ast.Tuple) and not any(isinstance(one, ast.Starred) for one in given.elts):
            more = "".join(f", {{a{n}}}" for n in range(len(given.elts)))
            holes |= {f"a{n}": one for n, one in enumerate(given.elts)}
            self.plan.replace(
                call, SPAWN, "the launcher starts the processes", f"{{worker}}({rank}{more})", **holes
            )
        elif given is not None:
            self.plan.replace(
                call,
                SPAWN,
                "the launcher starts the processes",
                f"{{worker}}({rank}, *{{given}})",
                given=given,
                **holes,
            )
        else:
            self.plan.replace(
                call, SPAWN, "the launcher starts the processes", f"{{worker}}({rank})", **holes
            )

    def _sampler(self, call: ast.Call) -> None:
        """The group's own numbers: those of a command line may say something else."""
        for keyword in call.keywords:
            if keyword.arg in ("num_replicas", "rank"):
                self.plan.replace(keyword.value, SAMPLER, "the group's own number", "None")

    def _local_rank(self, call: ast.Call) -> None:
        named = any(
            isinstance(a, ast.Constant) and re.fullmatch(r"--local[_-]rank", str(a.value)) for a in call.args
        )
        for keyword in call.keywords if named else ():
            if keyword.arg == "default":
                self.plan.replace(
                    keyword.value,
                    RANKS,
                    "the launcher knows the rank",
                    f"{self._state(call)}.local_process_index",
                )


def plan_data_parallel(plan: Plan, accelerators: Accelerators) -> None:
    """DataParallel goes where it is applied: each process has one device."""
    script = plan.script
    for call in script.calls:
        if (
            not re.search(r"(^|\.)(DataParallel|DataParallelCriterion)$", script.dotted(call.func))
            or not call.args
        ):
            continue
        accelerator = accelerators.may_be_at(call)
        if accelerator is None or any(isinstance(one, ast.Starred) for one in call.args):
            continue
        plan.replace(
            call,
            PARALLEL,
            "each process has a device of its own",
            f"{accelerator}.prepare({{model}})",
            model=call.args[0],
        )
