"""CT301 and CT302 by use: DataParallel and DistributedDataParallel go where they are applied, since `prepare` averages.

A wrapper puts `module.` before the names in a model's state. Where these names may be read or written (in files that the
author's other scripts read, in a library) the wrapper stays, and is prepared as it is.

A normalisation of the project's own that shares its batch statistics between the replicas of a DataParallel finds its sisters in
the threads of one process. Each process has one replica, so none is found.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, pairs
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import Function, all_arguments, last_name, place_of, words, written
from crosstrain_migrate.syntax.walks import walk

WRAPPER, PARALLEL = "CT302", "CT301"
_WRAPPERS = re.compile(r"(^|\.)(DistributedDataParallel|DDP)$")
_PARALLEL = re.compile(r"(^|\.)(DataParallel|DataParallelModel|DataParallelCriterion)$")
# Of the outputs of replicas; one device has a tensor.
_GATHERS = re.compile(r"^torch\.nn\.parallel\.(\w+\.)?gather$")
PARALLEL_CALLS = ("torch.nn.parallel.data_parallel", "torch.nn.parallel.replicate")
_KEEPS_NAMES = "the wrapper stays: the names that it gives to weights, with `module.`, are used elsewhere"
_TAKES_ALL = "DataParallel stays here, and would take all GPUs in every process"
_TAKE_OUT = "take it out, or give each process one GPU by `--gpu-ids`"
_OWN_DEVICE = "each process has a device of its own"
_OPTIONS_OF_DEVICES = ("device_ids", "output_device")

_NAMES = words(
    "state_dict load_state_dict children get_submodule get_parameter get_buffer _modules"
    " named_parameters named_modules named_buffers named_children"
)
_RETURNS_IT = {"to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16", "requires_grad_"}
_LOOKS_ONLY = {"isinstance", "hasattr", "getattr", "type", "id", "print", "len", "callable", "unwrap_model"}
_LOOKING = (ast.Expr, ast.Compare, ast.UnaryOp, ast.If, ast.IfExp, ast.While, ast.Assert, ast.FormattedValue)
_PASSES_ON = {"torch.compile", "copy.deepcopy", "copy.copy"}
_TOLD_OF_REPLICAS = (
    "__data_parallel_replicate__"  # the method by which a wrapper tells its layers of one another
)
_ALONE = "it shares its batch statistics between the replicas of one process, and each process has one"
_OF_TORCH = "torch's own shares them between processes on GPUs: `torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)`"


def is_wrapper(script: Script, call: ast.Call) -> bool:
    return _WRAPPERS.search(script.dotted(call.func)) is not None


def is_parallel(script: Script, call: ast.Call) -> bool:
    return is_wrapper(script, call) or _PARALLEL.search(script.dotted(call.func)) is not None


def keeps_parallel(script: Script) -> bool:
    """Whether a DataParallel stays for the names that it gives to weights: one process computes on the author's GPUs."""
    calls = (c for c in script.calls if is_parallel(script, c) and not is_wrapper(script, c))
    return any(NamesUsed(script).behind(call) is not None for call in calls)


def has_wrapper(script: Script) -> bool:
    """Whether a DistributedDataParallel averages the gradients; without one the script does it by itself."""
    return any(is_wrapper(script, call) for call in script.calls)


def plan_wrapper(plan: Plan, accelerators: Accelerators, call: ast.Call) -> None:
    """Plans what becomes of a DistributedDataParallel."""
    if accelerators.at_hand(call):
        accelerator = accelerators.name
    else:
        plan.imports(call, "Accelerator")
        accelerator = "Accelerator()"
    _prepare(plan, call, WRAPPER, "the accelerator averages the gradients", accelerator)


def plan_data_parallel(plan: Plan, accelerators: Accelerators) -> None:
    """Plans what becomes of each DataParallel: each process has one device."""
    script = plan.script
    for call in script.calls:
        if script.dotted(call.func) in PARALLEL_CALLS:
            _call_once(plan, call)
        if (cls := _own_parallel(script, call)) is not None and not _is_prepared_below(plan, call):
            _keep_to_one_device(plan, accelerators, call, cls)
        outputs = next(map(written, call.args), "") if _GATHERS.search(script.dotted(call.func)) else ""
        if outputs.isidentifier() and isinstance(script.parent(call), ast.Assign):
            code = f"{{it}} if isinstance({outputs}, list) else {outputs}"
            plan.replace(call, PARALLEL, _OWN_DEVICE, code, it=call)
        if not _PARALLEL.search(script.dotted(call.func)) or not (call.args or call.keywords):
            continue
        accelerator = accelerators.may_be_at(call)
        if accelerator is None and _is_prepared_below(plan, call):
            reason = "the wrapper stays, and is prepared below: it computes on the process's own device"
            plan.note(PARALLEL, call, reason, "nothing needs to be done")
        elif accelerator is None or any(isinstance(one, ast.Starred) for one in call.args):
            plan.note(PARALLEL, call, _TAKES_ALL, _TAKE_OUT)
        else:
            _prepare(plan, call, PARALLEL, _OWN_DEVICE, accelerator)


def _own_parallel(script: Script, call: ast.Call) -> ast.ClassDef | None:
    """The script's own kind of DataParallel of which a call makes an object."""
    classes = script.classes(script.last(call.func)) if call.args else []
    return next((c for c in classes if any(_PARALLEL.search(script.dotted(b)) for b in c.bases)), None)


def _keep_to_one_device(plan: Plan, accelerators: Accelerators, call: ast.Call, cls: ast.ClassDef) -> None:
    """Plans that a wrapper which is not prepared computes on its process's device, where its class takes the devices."""
    has_init = any(method.name == "__init__" for method in plan.script.methods(cls))
    given = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    is_devices = all(keyword.arg == "device_ids" for keyword in call.keywords)
    if has_init or len(given) > 1 or not is_devices:
        plan.note(PARALLEL, call, _TAKES_ALL, _TAKE_OUT)
        return
    state = accelerators.state(call)
    if given:  # one process keeps to the author's GPUs
        own = f"{{ids}} if {state}.num_processes == 1 else [{state}.device]"
        plan.replace(given[0], PARALLEL, _OWN_DEVICE, own, ids=given[0])
    else:
        code = f"device_ids=[{state}.device]"
        plan.add(e.InsertArgument(call, PARALLEL, _OWN_DEVICE, code=code))


def _is_prepared_below(plan: Plan, call: ast.Call) -> bool:
    """Whether the variable that a wrapped model is bound to is prepared further down in its function."""
    statement = plan.script.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
    texts = {written(target) for target in targets}
    frame = plan.script.frame(call)
    return any(
        text in texts and plan.script.frame(use) is frame and place_of(use) > place_of(call)
        for text, use in plan.models
    )


def _call_once(plan: Plan, call: ast.Call) -> None:
    """`data_parallel(model, x)` becomes `model(x)`; what replicates the model by itself is said."""
    if last_name(call.func) == "data_parallel" and len(call.args) >= 2 and _is_plain_call(call):
        first = call.args[1]
        bound = plan.script.values(plan.script.frame(call), written(first))
        star = "*" if bound and all(isinstance(one, ast.Tuple) for one in bound) else ""
        star, first = ("*", first.value) if isinstance(first, ast.Starred) else (star, first)
        holes = {
            f"a{n}": one for n, one in enumerate(first.elts if isinstance(first, ast.Tuple) else [first])
        }
        given = star + ", ".join(f"{{{name}}}" for name in holes)
        plan.replace(call, PARALLEL, _OWN_DEVICE, f"{{it}}({given})", it=call.args[0], **holes)
        return
    plan.note(PARALLEL, call, "every process copies the model to all GPUs here", "call the model itself")


def _is_plain_call(call: ast.Call) -> bool:
    """Whether a model is given, with inputs, and nothing but devices besides."""
    others = {keyword.arg for keyword in call.keywords} - {*_OPTIONS_OF_DEVICES, "dim"}
    inputs = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else []
    spread = [one for one in (*call.args, *inputs) if isinstance(one, ast.Starred)]
    return (
        (not spread or (spread == call.args[1:2] and len(call.args) == 3))  # `*inputs, devices`
        and not others
        and len(call.args) <= 5
        and isinstance(call.args[0], ast.Name | ast.Attribute)
    )


def _prepare(plan: Plan, call: ast.Call, rule: str, reason: str, accelerator: str) -> None:
    """Plans to prepare the model of a wrapper, or the wrapper where its names are used."""
    model = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "module"), None)
    if model is None:
        return
    template = f"{accelerator}.prepare({{it}})"
    used = NamesUsed(plan.script).behind(call)
    if used is None:
        plan.replace(call, rule, reason, template, it=model)
        return
    plan.replace(call, rule, reason, template, it=call)
    # Rows for each device, `chunk_sizes`, are given to a wrapper of the project's own alone.
    named = {k.arg: k.value for k in call.keywords if k.arg in (*_OPTIONS_OF_DEVICES, "chunk_sizes")}
    alone = f" if {accelerator}.num_processes == 1 else "  # one process keeps to the author's GPUs
    ids = named.get("device_ids", next(iter(call.args[1:2]), None))
    is_own = any(
        "device_ids" in plan.script.parameters(one)
        for cls in plan.script.classes(plan.script.last(call.func))
        for one in plan.script.methods(cls, "__init__")
    )
    if is_own and ids is None and rule == PARALLEL:  # a copy of torch's, which takes all that it sees
        code = f"device_ids=None{alone}[{accelerator}.device]"
        plan.add(e.InsertArgument(call, rule, reason, code=code))
    for argument in (*call.args[1 : 3 if rule == PARALLEL else None], *named.values()):
        if rule != PARALLEL:
            plan.add(e.RemoveArgument(call, rule, reason, argument=argument))
        elif not isinstance(argument, ast.Constant) or argument.value is not None:
            others = f"[{accelerator}.device]" if is_own and argument is ids else "None"
            plan.replace(argument, rule, reason, f"{{ids}}{alone}{others}", ids=argument)
    plan.note(rule, call, _KEEPS_NAMES, "nothing needs to be done")


class NamesUsed:
    """Looks for a place where the names in a wrapped model's state may be seen. In doubt they are."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._followed: set[tuple[Frame | None, str]] = set()

    def behind(self, call: ast.Call) -> ast.expr | None:
        """The first such place behind the call that wraps a model."""
        return self._of_value(call)

    def _of_value(self, node: ast.expr) -> ast.expr | None:
        """Where an expression goes whose value is the wrapped model."""
        parent = self.script.parent(node)
        if isinstance(parent, ast.keyword):
            parent = self.script.parent(parent)
        if isinstance(parent, ast.Attribute):
            return self._of_member(parent)
        if isinstance(parent, ast.Call):
            return None if parent.func is node else self._of_argument(parent, node)
        if isinstance(parent, ast.IfExp) and node is not parent.test:
            other = parent.orelse if node is parent.body else parent.body
            unwraps = isinstance(other, ast.Attribute) and other.attr == "module"
            return None if unwraps else self._of_value(parent)
        if isinstance(parent, ast.NamedExpr | ast.BoolOp):
            return self._of_value(parent)
        if isinstance(parent, ast.Assign | ast.AnnAssign):
            return self._of_binding(parent, node)
        return None if isinstance(parent, _LOOKING) else node

    def _of_member(self, member: ast.Attribute) -> ast.expr | None:
        if member.attr in _NAMES:
            return member
        call = self.script.parent(member)
        if member.attr in _RETURNS_IT and isinstance(call, ast.Call) and call.func is member:
            return self._of_value(call)
        return None

    def _of_argument(self, call: ast.Call, node: ast.expr) -> ast.expr | None:
        """Where a function of the project that is given the model uses it; what a library does is not known."""
        if self.script.last(call.func) in _LOOKS_ONLY:
            return None
        if self.script.dotted(call.func) in _PASSES_ON or is_parallel(self.script, call):
            return self._of_value(call)
        functions = self._called(call)
        for function in functions:
            names = [one.arg for one in all_arguments(function)]
            given = [one for one in names if self.script.argument_for(call, function, one) is node]
            used = self._of_text(function, given[0]) if given else node
            if used is not None:
                return used
        return None if functions else call

    def _called(self, call: ast.Call) -> list[Function]:
        """The functions of the project that a call calls, if it is clear which."""
        script, name = self.script, self.script.last(call.func)
        if isinstance(call.func, ast.Name):
            inits = [m for cls in script.classes(name) for m in script.methods(cls) if m.name == "__init__"]
            return inits or [one for one in script.functions(name) if script.class_of(one) is None]
        if not isinstance(call.func, ast.Attribute):
            return []
        of = call.func.value
        if written(of) == "self":
            return [one for one in script.functions(name) if script.class_of(one) is not None]
        if script.is_imported(of):
            return [one for one in script.functions(name) if script.class_of(one) is None]
        made = [script.class_made(value) for value in script.values(script.frame(call), written(of))]
        return [one for one in script.functions(name) if script.class_of(one) in made]

    def _of_binding(self, statement: ast.Assign | ast.AnnAssign, node: ast.expr) -> ast.expr | None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            assert statement.value is not None
            for bound, value in pairs(target, statement.value):
                if value is not node:
                    continue
                frame = self.script.frame(statement)
                if not isinstance(bound, ast.Name | ast.Attribute) or self._is_part(frame, bound):
                    return node
                used = self._of_text(frame, written(bound), after=statement)
                if used is not None:
                    return used
        return None

    def _is_part(self, frame: Frame, bound: ast.expr) -> bool:
        """Whether the wrapped model may become a part of another one, whose state has its names."""
        if not isinstance(bound, ast.Attribute):
            return False
        cls = self.script.class_of(frame)
        return written(bound.value) != "self" or cls is None or bool(cls.bases)

    def _of_text(self, frame: Frame, text: str, after: ast.stmt | None = None) -> ast.expr | None:
        """The uses of a variable, or an attribute, that holds the model; those of its own frame behind `after`."""
        attribute = text.rpartition(".")[2] if "." in text else ""
        key = (None, f".{attribute}") if attribute else (frame, text)
        if key in self._followed:
            return None
        self._followed.add(key)
        for read in self._reads_of_attribute(attribute) if attribute else self._reads(frame, text):
            is_above = after is not None and self._runs_above(read, after)
            used = None if is_above else self._of_value(read)
            if used is not None:
                return used
        return None

    def _runs_above(self, read: ast.expr, statement: ast.stmt) -> bool:
        """Whether a node, or every call of the function that it stands in, is above the end of a statement of a frame."""
        frame, home = self.script.frame(read), self.script.frame(statement)
        if frame is home:
            return _ends_before(read, statement)
        calls = self.script.callers(frame) if is_function_frame(frame) else []
        return bool(calls) and all(self.script.frame(c) is home and _ends_before(c, statement) for c in calls)

    def _reads(self, frame: Frame, name: str) -> list[ast.expr]:
        """Where the variable that a frame sees by a name is read, there and in other functions."""
        scopes = self.script.table.scopes
        owner = scopes[frame].resolve(name)
        frames = [one for one in self.script.frames if scopes[one].resolve(name) is owner]
        return [read for one in frames for read in self.script.reads(one, name)]

    def _reads_of_attribute(self, attribute: str) -> list[ast.expr]:
        return [
            node
            for frame in self.script.frames
            for node in self.script.within(frame)
            if isinstance(node, ast.Attribute)
            and node.attr == attribute
            and isinstance(node.ctx, ast.Load)
            and self.script.is_reached(node)
        ]


def _ends_before(node: ast.expr, statement: ast.stmt) -> bool:
    """Whether a node begins above the end of a statement."""
    return (node.lineno, node.col_offset) < (statement.end_lineno or 0, statement.end_col_offset or 0)


def note_statistics(plan: Plan) -> None:
    """Says which layers that the script uses compute with the batch of one process from now on."""
    script = plan.script
    for cls in script.table.each(ast.ClassDef):
        if is_told(cls) and any(_is_used(script, one) for one in _with_heirs(script, cls)):
            plan.note("CT301", cls, _ALONE, _OF_TORCH)


def is_told(cls: ast.ClassDef) -> bool:
    """Whether a layer is told of its replicas, or waits for one on each GPU by queues of its own."""
    methods = {n.name for n in cls.body if isinstance(n, ast.FunctionDef)}
    if _TOLD_OF_REPLICAS in methods or "forward" not in methods:
        return _TOLD_OF_REPLICAS in methods
    called = {last_name(n.func) for n in walk(cls) if isinstance(n, ast.Call)}
    return {"device_count", "Queue"} <= called


def _with_heirs(script: Script, cls: ast.ClassDef) -> list[ast.ClassDef]:
    found = [cls]
    for one in found:
        heirs = script.table.each(ast.ClassDef)
        found += [h for h in heirs if h not in found and one.name in map(script.last, h.bases)]
    return found


def _is_used(script: Script, cls: ast.ClassDef) -> bool:
    """Whether code that runs reads the class, other than to derive from it."""
    reads: list[ast.Name | ast.Attribute] = [*script.table.each(ast.Name), *script.table.each(ast.Attribute)]
    return any(
        isinstance(n.ctx, ast.Load)
        and script.last(n) == cls.name
        and not isinstance(script.parent(n), ast.ClassDef)
        and script.is_reached(n)
        for n in reads
    )
