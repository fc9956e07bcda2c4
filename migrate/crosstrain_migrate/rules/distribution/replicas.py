"""CT301: DataParallel
CT302: DistributedDataParallel

What:   `nn.DataParallel(model)` and `DistributedDataParallel(model, ...)` become the model itself, and `.module` on
        them is removed.
Why:    The prepared model averages gradients and is still the author's own object, so `.module` is not needed.
Refuses: a process group of its own, communication hooks.

Example CT301 (setup):
    model = nn.DataParallel(model)
And (end):
    torch.save(model.module.state_dict(), "model.pt")
Becomes (device):
    accelerator = Accelerator(split_batches=True)  # the fastest there is
And (setup): nothing
And (end):
    accelerator.save_model(model, "model.pt")
Example CT302 (imports):
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel as DDP
And (setup):
    dist.init_process_group("gloo")
    model = DDP(model)
Becomes (imports): nothing
And (device):
    accelerator = Accelerator()
    device = accelerator.device  # the fastest there is
And (prepare):
    model, optimizer = accelerator.prepare(model, optimizer)
And (setup): nothing
And (batch):
    x, y = x.to(device), y.to(device)
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of, given
from crosstrain_migrate.facts.torch_api import FACTORIES, last
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .guards import free_name
from .launcher_settings import WRAPPERS
from .plain import Stage, nodes_in
from .requested_options import MARK

THREADS, PROCESSES = "CT301", "CT302"
CONSUME = "consume_prefix_in_state_dict_if_present"
VARIABLE = frozenset({"torch.autograd.Variable", "torch.autograd.variable.Variable"})
IGNORED = frozenset(
    {
        "module",
        "device_ids",
        "output_device",
        "dim",
        "find_unused_parameters",
        "gradient_as_bucket_view",
        "bucket_cap_mb",
        "static_graph",
        "check_reduction",
        "broadcast_buffers",
        "init_sync",
        "delay_allreduce",
        "message_size",
    }
)


def plan(stage: Stage) -> None:
    wrapped = stage.facts.calls_to(*WRAPPERS)
    for call in wrapped:
        if _is_open(stage, call):
            _unwrap(stage, call)
    for node in stage.facts.each(ast.Attribute):
        if node.attr == "module" and is_wrapped(stage, node.value) and _is_open(stage, node):
            rule = _rule(stage, node.value)
            stage.replace(node, rule, "the prepared model is the model itself", "{m}", m=node.value)
    for call in stage.facts.calls:
        method = call.func
        if isinstance(method, ast.Attribute) and is_wrapped(stage, method.value) and _is_open(stage, call):
            _method(stage, call, method)
    _inputs(stage)
    _batches(stage, wrapped)


def _is_open(stage: Stage, node: ast.AST) -> bool:
    """Whether a single process runs `node`, and nothing is planned for it yet."""
    return not stage.single.dead(node) and not stage.is_settled(node)


def _unwrap(stage: Stage, call: ast.Call) -> None:
    rule = _rule(stage, call)
    model = wrapped_model(call, rule, "the prepared model would average its gradients without that")
    parent = stage.parent(call)
    if stage.runtime == "accelerate" and isinstance(model, ast.Name | ast.Attribute):
        text = ast.unparse(model)
        if isinstance(parent, ast.Assign) and any(ast.unparse(t) != text for t in parent.targets):
            # Its `prepare` makes another object, which a second name for the model would not be.
            reason = f"the wrapped model has another name than `{text}`, and Accelerate's prepare() replaces only one of the two"
            remedy = "use one name for the model, or migrate with --runtime crosstrain"
            raise refuse(rule, call, reason, remedy)
    stage.keep_only(call, rule, "prepare does it", model)


def wrapped_model(call: ast.Call, rule: str, otherwise: str) -> ast.expr:
    """The model in a wrapper. Raises Refusal for arguments of the wrapper that have no counterpart in `prepare`.

    otherwise: the second half of the reason.
    """
    unknown = {k.arg for k in call.keywords} - IGNORED
    model = given(call, "module", 0)
    if unknown or model is None:
        names = ", ".join(sorted(map(str, unknown))) or "no module"
        raise refuse(rule, call, f"the wrapper is made with {names}: {otherwise}", "leave it out")
    return model


def is_wrapped(stage: Stage, node: ast.expr) -> bool:
    return bool(_wrappers(stage, node))


def _wrappers(stage: Stage, node: ast.expr) -> set[str]:
    return {v.path for v in stage.facts.of(node) if isinstance(v, External) and v.path in WRAPPERS}


def _rule(stage: Stage, node: ast.expr) -> str:
    """The rule about the kind of wrapper that a value is, or that a call makes."""
    paths = stage.facts.paths(node.func) & WRAPPERS if isinstance(node, ast.Call) else set()
    paths = paths or _wrappers(stage, node)
    return THREADS if paths and all("Distributed" not in p for p in paths) else PROCESSES


def _method(stage: Stage, call: ast.Call, method: ast.Attribute) -> None:
    """Plans a method call on the wrapper itself."""
    name, model = method.attr, method.value
    if name == "no_sync":
        template = MARK.format("no_sync") + "({m})"
        stage.replace(call, PROCESSES, "gradients stay local inside", template, m=model)
    elif name in {"register_comm_hook", "join"}:
        reason = (
            f"`{name}` changes how the wrapper averages gradients, and the prepared model would not do so"
        )
        raise refuse(PROCESSES, call, reason, "take it out and run migrate again")
    elif name in {"state_dict", "load_state_dict"} and not _was_inside(stage, model):
        _prefix(stage, call, model, name)


def _was_inside(stage: Stage, model: ast.expr) -> bool:
    """Whether a variable holds the model that `.module` took out of the wrapper."""
    sources = stage.single.sources.of(model) if isinstance(model, ast.Name | ast.Attribute) else []
    return any(isinstance(n, ast.Attribute) and n.attr == "module" for n in nodes_in(sources))


def _prefix(stage: Stage, call: ast.Call, owner: ast.expr, name: str) -> None:
    """The wrapper's state had `module.` before every name: older files still load, and new ones have no prefix."""
    if name == "state_dict":
        reason = "with the wrapper, the names in the state saved here began with `module.`; now they never do"
        stage.note(_rule(stage, owner), call, reason, "update other programs that read these files")
    elif call.args and not _saves_inner_state(stage) and _was_saved(stage, call.args[0]):
        _without_prefix(stage, call, owner, call.args[0])


def _saves_inner_state(stage: Stage) -> bool:
    """Whether the script saves the state of the inner model: `model.module.state_dict()`."""
    asked = [
        c.func.value for c in stage.facts.method_calls("state_dict") if isinstance(c.func, ast.Attribute)
    ]
    inner = [o for o in asked if isinstance(o, ast.Attribute) and o.attr == "module"]
    return bool(inner) and not any(is_wrapped(stage, o) for o in asked if o not in inner)


def _was_saved(stage: Stage, state: ast.expr, depth: int = 5) -> bool:
    """Whether a state may come from a file, and not from a model of this run."""
    if isinstance(state, ast.Subscript):
        return _was_saved(stage, state.value, depth)
    if isinstance(state, ast.Call):
        if isinstance(state.func, ast.Attribute) and state.func.attr == "state_dict":
            return False
        copied = "copy.deepcopy" in stage.facts.paths(state.func) and len(state.args) == 1
        return _was_saved(stage, state.args[0], depth) if copied else True
    if isinstance(state, ast.Name | ast.Attribute) and depth:
        sources = stage.single.sources.of(state)
        return not sources or any(_was_saved(stage, s, depth - 1) for s in sources)
    return True


def _without_prefix(stage: Stage, call: ast.Call, owner: ast.expr, state: ast.expr) -> None:
    rule, statement, text = _rule(stage, owner), stage.statement(call), stage.source(state)
    lines = []
    if not isinstance(state, ast.Name | ast.Attribute | ast.Subscript):
        name = free_name(stage.facts.table.of_node[call], "state")
        lines.append(f"{name} = {text}")
        stage.replace_whole(state, rule, "", name)
        text = name
    lines.append(f'{CONSUME}({text}, "module.")')
    reason = "files of the wrapped model still load: the prefix of their names goes"
    stage.edits.append(e.InsertBefore(statement, rule, reason, code="\n".join(lines)))
    file = stage.facts.table.of_node[call].file
    stage.edits.append(e.AddImport(file, rule, code=f"from torch.nn.modules.utils import {CONSUME}"))


def _inputs(stage: Stage) -> None:
    """Moves the wrapper's arguments to the device: the model itself does not, and prepared loaders move batches only."""
    for call in stage.facts.calls:
        if is_wrapped(stage, call.func) and _is_open(stage, call):
            for value in arguments_of(call):
                if _made_on_the_cpu(stage, value) or _as_loaded(stage, value):
                    rule = _rule(stage, call.func)
                    stage.replace(value, rule, "the wrapper moved it", '{x}.to("cuda")', x=value)


def _made_on_the_cpu(stage: Stage, node: ast.expr) -> bool:
    """Whether a tensor is made on the CPU, here or where its variable is assigned: `torch.randn(20, 10)`."""
    made = [o for o in stage.single.sources.origins(node) if isinstance(o, ast.Call)]
    return bool(made) and all(
        not any(k.arg in {"device", None} for k in call.keywords)
        and any(p.startswith("torch.") and last(p) in FACTORIES for p in stage.facts.paths(call.func))
        for call in made
    )


def _as_loaded(stage: Stage, node: ast.expr, depth: int = 3) -> bool:
    """Whether a loop over a loader binds this, and nothing moves it: `for images, labels in loader`."""
    if isinstance(node, ast.Call) and stage.facts.paths(node.func) & VARIABLE:
        return bool(node.args) and _as_loaded(stage, node.args[0], depth)
    if not isinstance(node, ast.Name) or not depth:
        return False
    bound = stage.facts.bindings(node)
    return bool(bound) and all(_is_loaded_as(stage, one, depth) for one in bound)


def _is_loaded_as(stage: Stage, name: ast.AST, depth: int) -> bool:
    statement = stage.statement(name)
    if isinstance(statement, ast.For):
        over_loader = bool(stage.facts.interp.iterations.get(statement))
        return over_loader and name in set(walk(statement.target))
    alone = isinstance(statement, ast.Assign) and statement.targets == [name]
    return alone and isinstance(statement, ast.Assign) and _as_loaded(stage, statement.value, depth - 1)


def _batches(stage: Stage, wrapped: list[ast.Call]) -> None:
    """Requests split batches for DataParallel, which splits each batch over the devices."""
    if not wrapped or any(_rule(stage, call) == PROCESSES for call in wrapped):
        return
    if not stage.requested.split_batches and not _multiplied(stage):
        stage.requested.split_batches = True
        reason = "DataParallel split every batch across the GPUs; split_batches=True splits it across the processes in the same way"
        stage.note(THREADS, wrapped[0], reason, "choose a batch size divisible by the number of processes")


def _multiplied(stage: Stage) -> bool:
    """Whether the script multiplies the batch size by the number of devices: the author chose that of one device."""
    sizes = (given(c, "batch_size", 1) for c in stage.facts.calls_to("torch.utils.data.DataLoader"))
    return any(
        _multiplies(stage, node) or (isinstance(node, ast.Name | ast.Attribute) and _is_scaled(stage, node))
        for size in sizes
        if size is not None
        for node in walk(size)
    )


def _multiplies(stage: Stage, node: ast.AST) -> bool:
    """`batch_size * torch.cuda.device_count()`"""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    return any(stage.single.launch_value(side) is not None for side in (node.left, node.right))


def _is_scaled(stage: Stage, name: ast.expr) -> bool:
    text = ast.unparse(name)
    for node in stage.facts.each(ast.Assign, ast.AugAssign):
        if isinstance(node, ast.AugAssign):
            if isinstance(node.op, ast.Mult) and ast.unparse(node.target) == text:
                return stage.single.launch_value(node.value) is not None
        elif any(ast.unparse(t) == text for t in node.targets) and any(
            _multiplies(stage, inner) for inner in walk(node.value)
        ):
            return True
    return False
