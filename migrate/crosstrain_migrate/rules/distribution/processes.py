"""CT303: torch.distributed by hand
CT304: DistributedSampler
CT305: processes started by hand
CT308: a device chosen by hand

What:   The process group, the device each process takes, samplers and `set_epoch`, tests of the rank, barriers,
        reductions of metrics, `mp.spawn` and its port: the script becomes the plain one it is with a single process.
        Where it holds more than that (samplers of its own, sums over the processes that no library takes), it is mapped
        where it stands: the launcher's group, devices, `prepare`; all else stays as it is.
Why:    One set of calls works on any number of processes and machines, and every number is global by the other rules.
Refuses: gradients or weights that are averaged by hand beside `prepare`, a barrier that only some processes reach; with
         `--runtime accelerate`, whose prepared model is another object, whatever would be mapped.

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
from .guards import asks_rank
from .launcher_settings import DIST, ENVIRONMENT, LAUNCHED, OPTION, SETUP, SPAWN, SPAWNED_RANK, asks_launcher
from .plain import Stage
from .reductions import REDUCERS, reduction
from .requested_options import MARK
from .samplers import SAMPLERS, is_sampler

RANK_NUMBERS = frozenset({"process_index", "local_process_index"})
GROUP, SAMPLER, PROCESSES, DEVICE = "CT303", "CT304", "CT305", "CT308"


def started(stage: Stage) -> None:
    """Functions that the script starts in processes of their own are called: what they compute is known only then."""
    for spawn in stage.alone.spawns:
        if not stage.alone.dead(spawn):
            _spawn(stage, spawn)


def plan(stage: Stage) -> None:
    """Everything else: the wrappers, branches, statements, samplers and ranks."""
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
    wanted = (
        DIST,
        "torch.nn.parallel.",
        "torch.nn.DataParallel",
        "torch.utils.data.distributed.",
        "apex.",
    )
    found = any(p.startswith(wanted) or p in SAMPLERS | SPAWN | {"torch.cuda.set_device"} for p in used)
    return found or asks_launcher(stage.facts)


def _own_data(stage: Stage) -> None:
    """Without a loader, what one process trained on was what it drew, and no two drew the same."""
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


# -- processes that the script starts ------------------------------------------------------------------------


def _spawn(stage: Stage, call: ast.Call) -> None:
    statement = stage.statement(call)
    given = spawn_arguments(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call or given is None or not call.args:
        reason = (
            "what the started processes are given is put together elsewhere, and a call needs each argument"
        )
        raise refuse(PROCESSES, call, reason, "write mp.spawn(f, args=(...), nprocs=n)")
    holes: dict[str, ast.expr] = {"f": call.args[0], **{f"a{i}": a for i, a in enumerate(given)}}
    arguments = "".join(f", {{a{i}}}" for i in range(len(given)))
    stage.replace(
        call, PROCESSES, "the launcher starts the processes", "{f}(" + SPAWNED_RANK + arguments + ")", **holes
    )


# -- statements that go --------------------------------------------------------------------------------------


def _statements(stage: Stage) -> None:
    for node in stage.facts.each(ast.stmt):
        if stage.alone.dead(node) or stage.is_settled(node):
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
    """A device chosen by `if` and `else` is one choice, as the rules about devices know it."""
    for node in stage.facts.each(ast.If):
        if len(node.body) != 1 or len(node.orelse) != 1:
            continue
        first, second = node.body[0], node.orelse[0]
        if not isinstance(first, ast.Assign) or not isinstance(second, ast.Assign):
            continue
        if len(first.targets) != 1 or ast.unparse(first.targets[0]) != ast.unparse(second.targets[0]):
            continue
        names = [_device_name(stage, s.value) for s in (first, second)]
        if None in names:
            continue
        target, test = stage.source(first.targets[0]), stage.source(node.test)
        code = f'{target} = torch.device("{names[0]}" if {test} else "{names[1]}")'
        stage.edits.append(e.InsertBefore(node, DEVICE, code=code))
        stage.remove(node, DEVICE)


def _device_name(stage: Stage, node: ast.expr) -> str | None:
    """`cuda` or `cpu` of `torch.device("cuda")`."""
    if (
        not isinstance(node, ast.Call)
        or "torch.device" not in stage.facts.paths(node.func)
        or len(node.args) != 1
    ):
        return None
    name = node.args[0]
    if (
        isinstance(name, ast.Constant)
        and name.value in {"cuda", "cpu"}
        and "torch" in stage.facts.table.of_node[node].module.names
    ):
        return str(name.value)
    return None


def sets_environment(node: ast.Assign) -> bool:
    return any(
        isinstance(t, ast.Subscript)
        and ast.unparse(t.value) in ENVIRONMENT
        and isinstance(t.slice, ast.Constant)
        and t.slice.value in LAUNCHED
        for t in node.targets
    )


def _counts_rank(stage: Stage, node: ast.AugAssign) -> bool:
    """`args.rank += gpu`: from the machine's first process to this one; whoever reads it asks the accelerator."""
    if not isinstance(node.op, ast.Add) or not isinstance(node.target, ast.Name | ast.Attribute):
        return False
    by, target = stage.alone.by_hand(node.value), stage.alone.by_hand(node.target)
    return by is not None and target is not None and ranks.number(stage, node.value, by) in RANK_NUMBERS


def _unread_rank(stage: Stage, node: ast.Assign) -> bool:
    """A rank or a size that a function asks the launcher for, and does nothing with."""
    target = node.targets[0]
    if len(node.targets) > 1 or not isinstance(target, ast.Name) or not effectless(node.value):
        return False
    scope = stage.facts.table.of_node[target].resolve(target.id)
    if scope is None or scope.parent is None or stage.alone.by_hand(node.value) is None:
        return False
    return not any(
        isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)
        for n in walk(scope.node)
    )


def _call_statement(stage: Stage, node: ast.Expr, call: ast.Call) -> None:
    paths = stage.facts.paths(call.func)
    if paths & SETUP:
        device = any(p.startswith(("torch.cuda", "torch.accelerator")) for p in paths)
        rule, reason = (
            (DEVICE, "the launcher gives each process its device")
            if device
            else (GROUP, "the launcher sets the processes up")
        )
        stage.remove(node, rule, reason)
    elif ast.unparse(call.func) in {"os.environ.setdefault", "os.putenv"} and _names_launched(call):
        stage.remove(node, GROUP, "the launcher sets it")
    elif "torch.distributed.barrier" in paths:
        _barrier(stage, node, call)
    elif paths & REDUCERS:
        reduction(stage, node, call)
    elif shares_weights(stage, call):
        stage.remove(node, GROUP, "prepare gives all processes the same weights")
    elif (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "set_epoch"
        and is_sampler(stage, call.func.value)
    ):
        stage.remove(node, SAMPLER, "prepared loaders draw a new order every epoch")


def _names_launched(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value in LAUNCHED


def _barrier(stage: Stage, node: ast.Expr, call: ast.Call) -> None:
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.If) and asks_rank(stage, around.test):
            reason = "only some processes reach this barrier (the others wait elsewhere), which decides who goes first"
            remedy = "do it under `with accelerator.main_process_first():` after migrating, and take the barriers out now"
            raise refuse(GROUP, call, reason, remedy)
    stage.replace(call, GROUP, "the accelerator waits", MARK.format("wait_for_everyone") + "()")


# -- options that do nothing any more ------------------------------------------------------------------------


def _options(stage: Stage) -> None:
    idle = [(n, c) for n, c in stage.alone.sources.options.items() if OPTION.match(n)]
    for name, call in idle:
        reason = f"the option `{name}` has no effect any more: the launcher decides how to distribute"
        remedy = "use `crosstrain launch --num-processes`, `--gpu-ids` and its other options"
        stage.note(GROUP, call, reason, remedy)
