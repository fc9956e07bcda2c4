"""CT105: tensors that a script without any device makes for its batches are made on the device.

Batches and models are on the device once they are prepared. `torch.zeros(n, 8)` in a step, or in a model's `forward`, stays
on the CPU and cannot meet them. Where the author moves tensors about, the author moves these, too.
A script that computes with tensors that are surely on the CPU stays there.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator

from crosstrain_migrate.core.distributed.wrappers import is_parallel
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.certain import is_array
from crosstrain_migrate.core.reading.forms import (
    FUNCTIONS,
    LOOPS,
    Frame,
    is_function_frame,
    is_method,
    names_in,
    root_of,
)
from crosstrain_migrate.core.reading.in_step import InStep
from crosstrain_migrate.core.reading.ranges import range_behind
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import COMPREHENSIONS, last_name, place_of, words, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.scopes import suites
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Accelerators
from .device_edits import DeviceEdits

RULE = "CT105"
REASON = "what meets a batch is made where the batch is"
STAYS = "is made on the CPU and does not go to the device with the model"
_GROUP = "made tensors"
_MAKERS = words(
    "zeros ones rand randn randint randperm full empty arange linspace eye tensor as_tensor logspace"
    " tril_indices triu_indices"
)
# These take no device.
_OLD_MAKERS = words("Tensor FloatTensor DoubleTensor LongTensor IntTensor ByteTensor BoolTensor from_numpy")
_ON_THE_HOST = {"numpy", "tolist", "item", "cpu"}
_READ_BY = {"len", "int", "float", "print", "range", "list", "str"}
_HOSTS = ("numpy", "sklearn", "scipy", "pandas", "matplotlib", "random", "math")
_SHAPES = words("view reshape unsqueeze squeeze flatten contiguous detach long int float double half bool")
_JOINS = ("torch.cat", "torch.stack")
_SETS = {"TensorDataset", "DataLoader", "Subset", "random_split"}
_CPU_TYPE = re.compile(r"torch\.\w*Tensor")
_OF_DEVICES = re.compile(r"cuda|gpu|device|accelerat|(?<![a-z])(mps|xla|xpu)(?![a-z])", re.I)
_CHOOSES = re.compile(
    r"\.cuda\(|torch\.cuda\.\w*Tensor|['\"](cuda|mps|xla|xpu)\b|default_device|accelerat", re.I
)
_FOLLOWS = re.compile(r"device\.type|is_cuda")
_COMPOUND = (*FUNCTIONS, ast.ClassDef, ast.If, ast.For, ast.While, ast.With, ast.Try)


def plan_made_tensors(plan: Plan, code: InStep, devices: DeviceEdits, trained: set[str]) -> None:
    """Makes on the device what a step makes, and what a model or a loss is given. trained: what training loops call."""
    for call in plan.script.calls:
        if isinstance(plan.script.statement(call), LOOPS):  # data, made once
            continue
        name = plan.script.dotted(call.func)
        kind = name.removeprefix("torch.")
        if name.startswith("torch.nn.") and kind.endswith("Loss"):
            _move_weights(plan, call, devices)
        elif makes_tensor(plan.script, call) and not _has_device(call):
            if not (code.in_batch_loop(call) or code.in_module(call)) and not _is_given_to(
                plan.script, call, trained
            ):
                _note_attribute(plan, call)
            elif not _stays_on_host(plan.script, code, call):
                _place(plan, call, _beside(plan.script, call) or devices.device(call), kind in _OLD_MAKERS)


def plan_made_beside(plan: Plan, code: InStep, training: set[Frame]) -> None:
    """Makes what meets a batch where that is: a prepared loader has moved that, also where the author moves no more than the
    result: `torch.zeros(n, 10).scatter_(1, y.view(-1, 1), 1)`, `torch.cat((torch.ones(n, 1), x))`, `x.index_select(0, order)`."""
    script = plan.script
    for call in script.calls:
        frame = script.frame(call)
        trains = frame in training and (is_function_frame(frame) or bool(script.loops_around(call)))
        if not (trains or code.in_batch_loop(call)) or any(map(plan.is_replaced, walk(call))):
            continue  # a part of it is brought to the CPU, maybe
        for given, beside in _meeting(script, call):
            made, is_index = _made_as(script, given), is_method(call, "scatter_", "scatter")
            is_read = isinstance(beside, ast.Name | ast.Subscript) and not script.is_imported(beside)
            if not is_read or not (is_index or code.is_tensor(beside)):
                continue
            if made is not None and not _has_device(made):
                is_old = made is not given or script.dotted(made.func).removeprefix("torch.") in _OLD_MAKERS
                if made is given or not is_index:
                    _place(plan, given, f"{written(beside)}.device", is_old)


def _meeting(script: Script, call: ast.Call) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a call of torch brings together that may be made, each with the tensor that says where that is."""
    of = call.func.value if isinstance(call.func, ast.Attribute) else call
    parts = call.args[0] if call.args and script.dotted(call.func) in _JOINS else None
    if isinstance(parts, ast.Tuple | ast.List):
        made = [one for one in parts.elts if _made_as(script, one) is not None]
        read = [_tensor_of(one) for one in parts.elts if one not in made]
        read = [one for one in read if not isinstance(one, ast.Call)]
        yield from ((one, other) for one in made for other in read[:1])
    elif len(call.args) > 1 and is_method(call, "scatter_", "scatter"):
        yield of, _tensor_of(call.args[1])
    elif len(call.args) > 1 and is_method(call, "index_select", "gather"):
        yield call.args[1], _tensor_of(of)


def _tensor_of(node: ast.expr) -> ast.expr:
    """`y` of `y.view(-1, 1)` and of `y[:, 1:]`"""
    while is_method(node, *_SHAPES) or (isinstance(node, ast.Subscript) and ":" in ast.unparse(node.slice)):
        node = node.func.value if isinstance(node, ast.Call) else node.value
    return node


def plan_given_to_wrapped(plan: Plan, accelerators: Accelerators) -> None:
    """Moves what is made on the CPU and given to a model that was wrapped: DistributedDataParallel and DataParallel moved it."""
    script = plan.script
    bound = [script.statement(call) for call in script.calls if is_parallel(script, call)]
    targets = [one for assign in bound if isinstance(assign, ast.Assign) for one in assign.targets]
    wrapped = {written(one) for target in targets for one in getattr(target, "elts", [target])}
    for call in script.calls:
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        for given in arguments if _variable(script, call.func) in wrapped else ():
            made = _last_bound(script, given)
            if makes_tensor(script, made) and not _has_device(made):
                code = "{given}.to(" + accelerators.state(call) + ".device)"
                plan.replace(given, RULE, "the wrapper moved it", code, _GROUP, given=given)


def _made_as(script: Script, given: ast.expr) -> ast.Call | None:
    """The call that makes a tensor, also by a variable, and of another shape or type: `torch.zeros(n, 8).double()`."""
    made = _tensor_of(_last_bound(script, given))
    return made if isinstance(made, ast.Call) and makes_tensor(script, made) else None


def _last_bound(script: Script, given: ast.expr) -> ast.expr:
    """What a variable is bound to last above the statement that gives it to a call; else what is given."""
    here = place_of(script.statement(given))
    stores = map(script.statement, script.stores(script.frame(given), written(given)))
    last = max((one for one in stores if place_of(one) < here), key=place_of, default=None)
    return last.value if isinstance(last, ast.Assign) else given


def makes_tensor(script: Script, node: ast.AST) -> bool:
    """`torch.zeros(n, 8)`"""
    name = script.dotted(node.func) if isinstance(node, ast.Call) else ""
    return name.startswith("torch.") and name.removeprefix("torch.") in _MAKERS | _OLD_MAKERS


def _place(plan: Plan, call: ast.expr, device: str, is_old: bool) -> None:
    if is_old:
        plan.replace(call, RULE, REASON, "{made}.to(" + device + ")", _GROUP, made=call)
    else:
        keyword = f"device={device}"
        plan.add(e.InsertArgument(call, RULE, REASON, transaction=_GROUP, code=keyword))


def _move_weights(plan: Plan, call: ast.Call, devices: DeviceEdits) -> None:
    """The weights of a loss go to the device with it."""
    if not any(keyword.arg in ("weight", "pos_weight") for keyword in call.keywords):
        return
    if devices.accelerators.at_hand(call):
        _place(plan, call, devices.device(call), is_old=True)
    else:
        plan.note(
            RULE, call, f"the weights of `{last_name(call.func)}` stay on the CPU", "move them to the device"
        )


def _note_attribute(plan: Plan, call: ast.Call) -> None:
    """Says what a module makes for itself and is neither a parameter nor a buffer."""
    parent, frame = plan.script.parent(call), plan.script.frame(call)
    cls = plan.script.class_of(frame) if is_function_frame(frame) else None
    bases = [last_name(base) for base in cls.bases] if cls is not None else []
    if isinstance(parent, ast.Assign) and any(base.endswith("Module") for base in bases):
        target = parent.targets[0]
        if written(target).startswith("self."):
            remedy = f"`self.register_buffer({last_name(target)!r}, ...)`"
            plan.note(RULE, call, f"`{written(target)}` {STAYS}", remedy)


def _is_given_to(script: Script, call: ast.Call, called: set[str]) -> bool:
    """Whether what is made is an argument of an object that training calls, at once or by its variable."""
    parent = script.parent(call)
    places: list[ast.expr] = [call]
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        places += script.reads(script.frame(call), written(parent.targets[0]))
    return any(
        isinstance(one, ast.Call) and place is not one.func and _variable(script, one.func) in called
        for place in places
        for one in [script.parent(place)]
    )


def _variable(script: Script, called: ast.expr) -> str:
    """The variable that is called; empty for what is imported."""
    return written(called) if script.dotted(called) == written(called) else ""


def _has_device(call: ast.expr) -> bool:
    return any(one.arg in ("device", "out", None) for one in getattr(call, "keywords", ()))


def _beside(script: Script, call: ast.Call) -> str:
    """The device of a parameter whose shape the new tensor has, in a module."""
    frame = script.frame(call)
    parameters = set(script.parameters(frame))
    for node in walk(call):
        of = node.func if is_method(node, "size") else node
        if (
            isinstance(of, ast.Attribute)
            and of.attr in ("size", "shape")
            and written(of.value) in parameters - {"self"}
        ):
            return f"{written(of.value)}.device"
    return ""


def _stays_on_host(script: Script, code: InStep, call: ast.Call) -> bool:
    """Whether only Python, numpy or an index of what is on the CPU reads what is made."""
    if _is_read_on_host(script, code, call):
        return True
    parent = script.parent(call)
    if not isinstance(parent, ast.Assign) or len(parent.targets) != 1:
        return False
    reads = script.reads(script.frame(call), written(parent.targets[0]))
    return bool(reads) and all(_is_read_on_host(script, code, read) for read in reads)


def _is_read_on_host(script: Script, code: InStep, node: ast.expr) -> bool:
    inner: ast.AST = node
    for one in script.around(node):
        if isinstance(one, ast.stmt):
            return False
        if isinstance(one, ast.Attribute) and one.attr in _ON_THE_HOST:
            return True
        if isinstance(one, ast.Subscript) and inner is one.slice:
            return not code.is_tensor(one.value)
        if isinstance(one, ast.Call) and inner is not one.func:
            name = script.dotted(one.func)
            if name in _READ_BY or name.partition(".")[0] in _HOSTS or last_name(one.func) in _SETS:
                return True
        inner = one
    return False


def stays_on_cpu(script: Script, roles: Roles) -> bool:
    """Whether a script without any device computes with what no loader and no `prepare` moves."""
    dealt = [(script, one.frame, one.node) for one in roles.data]
    moves_none = all(range_behind(*one) or is_array(*one) for one in dealt)
    stays = (computes_with_own_tensors, casts_to_cpu, is_used_untrained)
    return is_made_on_cpu(script) and (moves_none or any(one(script, roles) for one in stays))


def is_made_on_cpu(script: Script) -> bool:
    """Whether no code names a device: what the training computes with stays where it is made. A module that
    is imported and goes by what it is given, `device=x.device`, `if x.is_cuda:`, `torch.device(device)`, names none."""
    return _OF_DEVICES.search(script.text) is None or not any(
        _OF_DEVICES.search(ast.unparse(one)) if module is script.entry else _chooses(one)
        for module in script.modules
        for one in module.body
    )


def _chooses(node: ast.stmt) -> bool:
    if not isinstance(node, _COMPOUND):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        says = is_text or isinstance(node, ast.Raise | ast.Assert)
        return not says and _CHOOSES.search(ast.unparse(node)) is not None
    if isinstance(node, ast.If) and _FOLLOWS.search(ast.unparse(node.test)):
        return any(map(_chooses, node.orelse))
    heads = [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt | ast.ExceptHandler)]
    return any(_CHOOSES.search(ast.unparse(one)) for one in heads) or any(
        _chooses(one) for suite in suites(node) for one in suite
    )


def computes_with_own_tensors(script: Script, roles: Roles) -> bool:
    """Whether what trains is called with a variable of a file that is bound outside of its loops and functions, so that no
    loader has moved it, `model(test_x)`, or with the items of a list that is made, `[model(x) for x, y in test_loader]`."""
    models = {text for one in roles.optimizers for text in roles.models_of(one.frame, one.text)}
    return any(
        (isinstance(given, ast.Name) and _is_bound_apart(script, given)) or _is_item(script, given)
        for call in script.calls
        if written(call.func) in models
        for given in call.args
    )


def is_used_untrained(script: Script, roles: Roles) -> bool:
    """Whether a network is called on a way that does not lead over the training, where nothing prepares it:
    `if args.load: load(net)`, `else: train(net)`, and behind that `test(net)`."""
    models = {
        text for one in roles.optimizers for f in script.frames for text in roles.models_of(f, one.text)
    }

    def uses(call: ast.Call, depth: int = 3) -> bool:
        runs = [one for one in script.run_by(call) if one not in roles.frames] if depth else []
        return written(call.func) in models or any(
            uses(inner, depth - 1) for one in runs for inner in script.calls_in(one)
        )

    return any(
        uses(call)
        for data in roles.data
        for suite in _branches(script, data.node)
        for call in script.calls_in(script.frame(suite[0]))
        if not {*suite} & {*script.around(call)}
    )


def _branches(script: Script, node: ast.AST, depth: int = 4) -> Iterator[list[ast.stmt]]:
    """The branches, outside of loops, in which something runs, and its function's calls."""
    around, frame = [node, *script.around(node)], script.frame(node)
    for below, one in itertools.pairwise(around):
        if isinstance(one, ast.If) and not is_main_test(one) and not script.loops_around(one):
            yield from (suite for suite in (one.body, one.orelse) if below in suite)
    for call in script.callers(frame) if is_function_frame(frame) and depth else ():
        yield from _branches(script, call, depth - 1)


def casts_to_cpu(script: Script, roles: Roles) -> bool:
    """Whether a training loop turns tensors into the CPU's: `y_pred.type(torch.DoubleTensor)`."""
    return any(
        is_method(node, "type") and node.args and _CPU_TYPE.fullmatch(script.dotted(node.args[0]))
        for one in roles.data
        if one.loop is not None
        for node in walk(one.loop)
    )


def _is_item(script: Script, node: ast.expr) -> bool:
    """Whether a comprehension gives it, from what is no call: nothing prepares what that goes over."""
    around = (one for one in script.around(node) if isinstance(one, COMPREHENSIONS))
    sources = [one for inner in around for one in inner.generators]
    return any(isinstance(one.iter, ast.Name) and root_of(node) in names_in(one.target) for one in sources)


def _is_bound_apart(script: Script, name: ast.Name) -> bool:
    """Whether plain assignments outside of loops are all that binds a variable of a file, to what is not made on the device."""
    module = script.module(name)
    frame = script.frame(name)
    if frame is not module and script.binds(frame, name.id):
        return False
    stores, values = script.stores(module, name.id), script.values(module, name.id)
    is_plain = len(stores) == len(values) and not any(makes_tensor(script, one) for one in values)
    return bool(stores) and is_plain and not any(map(script.loops_around, stores))
