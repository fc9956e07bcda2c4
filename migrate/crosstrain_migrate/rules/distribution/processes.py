"""CT303: torch.distributed by hand
CT304: DistributedSampler
CT305: processes started by hand
CT308: a device chosen by hand

What:   The process group, the device of each process, samplers and `set_epoch`, tests of the rank, barriers, reductions of
        metrics, `mp.spawn` and its port. A script that trains with DistributedDataParallel joins the launcher's group,
        uses the accelerator's device and calls `prepare`; the rest stays as it is. Any other script becomes the plain
        script that it is on a single process.
Why:    The same calls work on any number of processes and machines, and the other rules make every number global.
Refuses: gradients or weights that the script averages itself in addition to `prepare`; a barrier that only some processes
         reach; with `--runtime accelerate`, whose prepared model is another object, everything that would be mapped.

Example CT303 (imports):
    import torch.distributed as dist
And (setup):
    dist.init_process_group("nccl")
And (after_epoch):
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), "model.pt")
Becomes (imports): nothing
And (setup): nothing
And (after_epoch):
    accelerator.save_model(model, "model.pt")
Example CT304 (imports):
    from torch.utils.data.distributed import DistributedSampler
And (data):
    train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=8, sampler=sampler)
And (epoch):
    sampler.set_epoch(epoch)
Becomes (imports): nothing
And (data):
    train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
    train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
And (epoch): nothing
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.arguments import spawn_arguments
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.rules.side_effects import effectless
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from . import (
    branches,
    builtin_print,
    layers,
    own_collectives,
    own_draws,
    ranks,
    replicas,
    samplers,
    world_size,
)
from .dispensable import shares_weights
from .guards import guard_of, one_sided_barrier
from .launcher_settings import (
    DIST,
    LAUNCHED,
    OPTION,
    SETUP,
    SPAWN,
    SPAWNED_RANK,
    asked_variable,
    asks_launcher,
)
from .plain import Stage
from .reductions import REDUCERS, reduction
from .requested_options import MARK
from .samplers import SAMPLERS, is_sampler

PACKAGES = (DIST, "torch.nn.parallel.", "torch.nn.DataParallel", "torch.utils.data.distributed.", "apex.")
RANK_NUMBERS = frozenset({"process_index", "local_process_index"})
GROUP, SAMPLER, PROCESSES, DEVICE = "CT303", "CT304", "CT305", "CT308"


def started(stage: Stage) -> None:
    """Calls the functions that the script starts in processes of their own, so that what they compute becomes known."""
    for call in stage.single.spawns:
        if not stage.single.dead(call):
            call_directly(stage, call, SPAWNED_RANK)


def call_directly(stage: Stage, spawn: ast.Call, number: str) -> None:
    """`mp.spawn(f, args=(a, b))` becomes `f(number, a, b)`."""
    statement, arguments = stage.statement(spawn), spawn_arguments(spawn)
    if not isinstance(statement, ast.Expr) or statement.value is not spawn or not spawn.args:
        reason = (
            "the processes that mp.spawn starts are waited for elsewhere, and the launcher starts its own"
        )
        remedy = "write mp.spawn(f, args=(...), nprocs=n) as a statement of its own"
        raise refuse(PROCESSES, spawn, reason, remedy)
    if arguments is None:
        reason = (
            "the arguments of the started processes are built elsewhere, and a direct call needs each of them"
        )
        raise refuse(PROCESSES, spawn, reason, "write mp.spawn(f, args=(...), nprocs=n)")
    holes = {f"a{index}": argument for index, argument in enumerate(arguments)}
    template = "{f}(" + ", ".join([number, *(f"{{{name}}}" for name in holes)]) + ")"
    stage.replace(spawn, PROCESSES, "the launcher starts the processes", template, f=spawn.args[0], **holes)


def plan(stage: Stage) -> None:
    """Plans everything else: wrappers, branches, statements, samplers and ranks."""
    if not _distributes(stage):
        return
    own_collectives.plan(stage)
    own_draws.find(stage)
    replicas.plan(stage)
    branches.plan(stage)
    _statements(stage)
    world_size.plan(stage)
    samplers.plan(stage)
    ranks.plan(stage)
    builtin_print.plan(stage)
    _options(stage)
    _own_data(stage)


def _distributes(stage: Stage) -> bool:
    used = {p for c in stage.facts.calls for p in stage.facts.paths(c.func)}
    found = any(p.startswith(PACKAGES) or p in SAMPLERS | SPAWN | {"torch.cuda.set_device"} for p in used)
    return found or asks_launcher(stage.facts)


def _own_data(stage: Stage) -> None:
    """Reports training data that each process draws itself, without a loader."""
    facts = stage.facts
    if facts.train_loaders or not facts.backward_calls:
        return
    if stage.requested.draws_apart:
        own_draws.note(stage)
        return
    reason = "each process drew its own training data, and gradients were averaged; now all processes draw the same data"
    remedy = (
        f"call `set_seed(seed, device_specific=True)` of {stage.runtime}.utils after prepare, or give the data to a "
        "DataLoader"
    )
    stage.note(GROUP, facts.backward_calls[0][0], reason, remedy)


# -- statements that go --------------------------------------------------------------------------------------


def _statements(stage: Stage) -> None:
    for node in stage.facts.each(ast.stmt):
        if stage.single.dead(node) or stage.is_settled(node):
            continue
        if isinstance(node, ast.Assign) and sets_environment(node):
            stage.remove(node, GROUP, "the launcher sets it")
        elif isinstance(node, ast.AugAssign) and _counts_rank(stage, node):
            stage.remove(node, GROUP, "the accelerator knows which process this is")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            _call_statement(stage, node, node.value)
        elif isinstance(node, ast.Assign) and _unread_rank(stage, node):
            stage.remove(node, GROUP, "nothing asks for it")
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            layers.plan_assignment(stage, node, node.value)


def devices(stage: Stage) -> None:
    """Turns a device chosen by `if` and `else` into a conditional expression, which the rules about devices know."""
    for node in stage.facts.each(ast.If):
        match node.body, node.orelse:
            case [ast.Assign(targets=[target]) as first], [ast.Assign() as second]:
                names = [_device_name(stage, s.value) for s in (first, second)]
                if None not in names and ast.unparse(target) == ast.unparse(second.targets[0]):
                    chosen = f'torch.device("{names[0]}" if {stage.source(node.test)} else "{names[1]}")'
                    code = f"{stage.source(target)} = {chosen}"
                    stage.edits.append(e.InsertBefore(node, DEVICE, code=code))
                    stage.remove(node, DEVICE)


def _device_name(stage: Stage, node: ast.expr) -> str | None:
    """`cuda` or `cpu` of `torch.device("cuda")`."""
    if not isinstance(node, ast.Call) or "torch.device" not in stage.facts.paths(node.func):
        return None
    named = "torch" in stage.facts.table.of_node[node].module.names
    match node.args:
        case [ast.Constant(value="cuda" | "cpu" as name)] if named:
            return name
    return None


def sets_environment(node: ast.Assign) -> bool:
    return any(isinstance(t, ast.Subscript) and asked_variable(t) in LAUNCHED for t in node.targets)


def _counts_rank(stage: Stage, node: ast.AugAssign) -> bool:
    """`args.rank += gpu`: makes the node's first rank the rank of this process; its readers ask the accelerator instead."""
    if not isinstance(node.op, ast.Add) or not isinstance(node.target, ast.Name | ast.Attribute):
        return False
    by, target = stage.single.launch_value(node.value), stage.single.launch_value(node.target)
    return by is not None and target is not None and ranks.number(stage, node.value, by) in RANK_NUMBERS


def _unread_rank(stage: Stage, node: ast.Assign) -> bool:
    """Whether a function asks for a rank or a size that it does not use."""
    target = node.targets[0]
    if len(node.targets) > 1 or not isinstance(target, ast.Name) or not effectless(node.value):
        return False
    scope = stage.facts.table.of_node[target].resolve(target.id)
    if scope is None or scope.parent is None or stage.single.launch_value(node.value) is None:
        return False
    named = (n for n in walk(scope.node) if isinstance(n, ast.Name) and n.id == target.id)
    return not any(isinstance(n.ctx, ast.Load) for n in named)


def _call_statement(stage: Stage, node: ast.Expr, call: ast.Call) -> None:
    paths = stage.facts.paths(call.func)
    if paths & SETUP and any(p.startswith(("torch.cuda", "torch.accelerator")) for p in paths):
        stage.remove(node, DEVICE, "the launcher gives each process its device")
    elif paths & SETUP:
        stage.remove(node, GROUP, "the launcher sets the processes up")
    elif ast.unparse(call.func) in {"os.environ.setdefault", "os.putenv"} and _names_launched(call):
        stage.remove(node, GROUP, "the launcher sets it")
    elif "torch.distributed.barrier" in paths:
        if guard_of(stage, node) is not None:
            raise one_sided_barrier(call)
        stage.replace(call, GROUP, "the accelerator waits", MARK.format("wait_for_everyone") + "()")
    elif paths & REDUCERS:
        reduction(stage, node, call)
    elif shares_weights(stage, call):
        stage.remove(node, GROUP, "prepare gives all processes the same weights")
    elif _sets_epoch(stage, call):
        stage.remove(node, SAMPLER, "prepared loaders draw a new order every epoch")


def _sets_epoch(stage: Stage, call: ast.Call) -> bool:
    method = call.func
    return (
        isinstance(method, ast.Attribute) and method.attr == "set_epoch" and is_sampler(stage, method.value)
    )


def _names_launched(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value in LAUNCHED


def _options(stage: Stage) -> None:
    for name, call in stage.single.sources.options.items():
        if OPTION.match(name):
            reason = f"the option `{name}` has no effect any more: the launcher decides how to distribute"
            remedy = "use `crosstrain launch --num-processes`, `--gpu-ids` and its other options"
            stage.note(GROUP, call, reason, remedy)
