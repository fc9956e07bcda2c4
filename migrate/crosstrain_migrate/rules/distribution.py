"""CT303 to CT305 and CT308: hand-written distribution goes; the launcher and `prepare` do its work.

What:   The process group, the device each process takes, samplers and `set_epoch`, tests of the rank, barriers,
        reductions of metrics, `mp.spawn` and its port: the script becomes the plain one it is with a single process.
Why:    One set of calls works on any number of processes and machines, and every number is global by the other rules.
Before: `if rank == 0: torch.save(model.module.state_dict(), path)`
After:  `accelerator.save_model(model, path)`
Refuses: a branch that only several processes take and that does something else (CT303), a barrier that only some
         processes reach, groups, point-to-point messages, arithmetic with the number of processes that cannot be kept.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate import edits as e
from crosstrain_migrate.results import Severity
from crosstrain_migrate.roles import torch_api as api
from crosstrain_migrate.roles.values import Class, Function, Method, Shard

from . import branches, replicas
from .alone import DIST, LAUNCHED, SPAWN, SPAWNED_RANK, Known, spawn_arguments
from .base import refuse
from .plain import Stage
from .wish import MARK

GROUP, SAMPLER, PROCESSES, DEVICE = "CT303", "CT304", "CT305", "CT308"
SAMPLERS = frozenset(
    {
        "torch.utils.data.distributed.DistributedSampler",
        "torch.utils.data.DistributedSampler",
    }
)
SETUP = frozenset(
    {
        "torch.distributed.init_process_group",
        "torch.distributed.destroy_process_group",
        "torch.cuda.set_device",
        "torch.accelerator.set_device_index",
        "torch.accelerator.set_device_idx",
        "torch.distributed.monitored_barrier",
    }
)
SYNC_BATCH_NORM = frozenset(
    {
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
        "torch.nn.modules.batchnorm.SyncBatchNorm.convert_sync_batchnorm",
        "apex.parallel.convert_syncbn_model",
    }
)
SIZE_WORDS = re.compile(r"world|n_?gpus?|nprocs|num_proc|replicas", re.IGNORECASE)
REDUCERS = frozenset({"torch.distributed.all_reduce", "torch.distributed.reduce"})


def started(stage: Stage) -> None:
    """Functions that the script starts in processes of their own are called: what they compute is known only then."""
    for spawn in stage.alone.spawns:
        if not stage.alone.dead(spawn):
            _spawn(stage, spawn)


def plan(stage: Stage) -> None:
    """Everything else: the wrappers, branches, statements, samplers and ranks."""
    if not _distributes(stage):
        return
    replicas.plan(stage)
    branches.plan(stage)
    _statements(stage)
    _arithmetic(stage)
    _samplers(stage)
    _ranks(stage)
    _options(stage)


def _distributes(stage: Stage) -> bool:
    used = {p for c in stage.facts.calls for p in stage.facts.paths(c.func)}
    wanted = (
        DIST,
        "torch.nn.parallel.",
        "torch.nn.DataParallel",
        "torch.utils.data.distributed.",
        "apex.",
    )
    return any(p.startswith(wanted) or p in SAMPLERS | SPAWN | {"torch.cuda.set_device"} for p in used)


# -- processes that the script starts ------------------------------------------------------------------------


def _spawn(stage: Stage, call: ast.Call) -> None:
    statement = stage.statement(call)
    given = spawn_arguments(call)
    if not isinstance(statement, ast.Expr) or statement.value is not call or given is None or not call.args:
        raise refuse(
            PROCESSES,
            call,
            "what the started processes get cannot be told",
            "write mp.spawn(f, args=(...), nprocs=n)",
        )
    holes: dict[str, ast.expr] = {"f": call.args[0], **{f"a{i}": a for i, a in enumerate(given)}}
    arguments = "".join(f", {{a{i}}}" for i in range(len(given)))
    stage.replace(
        call, PROCESSES, "the launcher starts the processes", "{f}(" + SPAWNED_RANK + arguments + ")", **holes
    )


# -- statements that go --------------------------------------------------------------------------------------


def _statements(stage: Stage) -> None:
    for node in list(ast.walk(stage.facts.tree)):
        if not isinstance(node, ast.stmt) or stage.alone.dead(node) or stage.is_gone(node):
            continue
        if isinstance(node, ast.Assign) and _sets_environment(node):
            stage.remove(node, GROUP, "the launcher sets it")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            _call_statement(stage, node, node.value)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            _synchronised_layers(stage, node, node.value)


def devices(stage: Stage) -> None:
    """A device chosen by `if` and `else` is one choice, as the rules about devices know it."""
    for node in ast.walk(stage.facts.tree):
        if not isinstance(node, ast.If) or len(node.body) != 1 or len(node.orelse) != 1:
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
        and "torch" in stage.facts.table.root.names
    ):
        return str(name.value)
    return None


def _sets_environment(node: ast.Assign) -> bool:
    return any(
        isinstance(t, ast.Subscript)
        and ast.unparse(t.value) in {"os.environ", "environ"}
        and isinstance(t.slice, ast.Constant)
        and t.slice.value in LAUNCHED
        for t in node.targets
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
        _reduction(stage, node, call)
    elif branches.shares_weights(stage, call):
        stage.remove(node, GROUP, "prepare gives all processes the same weights")
    elif (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "set_epoch"
        and _is_sampler(stage, call.func.value)
    ):
        stage.remove(node, SAMPLER, "prepared loaders draw a new order every epoch")


def _names_launched(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value in LAUNCHED


def _is_sampler(stage: Stage, node: ast.expr) -> bool:
    if made_samplers(stage, node):
        return True
    return isinstance(node, ast.Attribute) and node.attr in {"sampler", "batch_sampler"}


def _barrier(stage: Stage, node: ast.Expr, call: ast.Call) -> None:
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.If) and branches.asks_rank(stage, around.test):
            raise refuse(
                GROUP,
                call,
                "only some processes reach this barrier (the others wait elsewhere), which decides who goes first",
                "do it under `with accelerator.main_process_first():` after migrating, and take the barriers out now",
            )
    stage.replace(call, GROUP, "the accelerator waits", MARK.format("wait_for_everyone") + "()")


def _reduction(stage: Stage, node: ast.Expr, call: ast.Call) -> None:
    known = {"tensor", "op", "dst", "async_op"}
    if any(k.arg not in known for k in call.keywords) or len(call.args) > 2:
        raise refuse(
            GROUP, call, "this reduction is among some of the processes only", "reduce over all processes"
        )
    check_reduction(stage, call)
    _no_unknown_size(stage, node)
    stage.remove(node, GROUP, "every number is made global where it is computed")


def _no_unknown_size(stage: Stage, node: ast.Expr) -> None:
    """A sum over processes is often divided by their number. Where that number cannot be followed, nothing is done."""
    function = stage.facts.enclosing_function(node) or stage.facts.tree
    for other in ast.walk(function):
        divisor: ast.expr | None = None
        if isinstance(other, ast.BinOp | ast.AugAssign) and isinstance(other.op, ast.Div | ast.FloorDiv):
            divisor = other.right if isinstance(other, ast.BinOp) else other.value
        if divisor is None or stage.alone.known(divisor) is not None:
            continue
        if SIZE_WORDS.search(ast.unparse(divisor)) and not any(
            isinstance(n, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and stage.alone.by_hand(n)
            for n in ast.walk(divisor)
        ):
            raise refuse(
                GROUP,
                divisor,
                f"`{ast.unparse(divisor)}` may be the number of processes, and where it comes from cannot be followed",
                "write `dist.get_world_size()` here and run migrate again",
            )


def check_reduction(stage: Stage, call: ast.Call) -> None:
    """Sums and means of numbers are global already; gradients are averaged. What else is reduced is not known."""
    given = next((k.value for k in call.keywords if k.arg == "op"), None)
    operation = given or (call.args[1] if len(call.args) > 1 else None)
    name = ast.unparse(operation).rsplit(".", 1)[-1] if operation is not None else "SUM"
    tensor = next((k.value for k in call.keywords if k.arg == "tensor"), call.args[0] if call.args else None)
    if name not in {"SUM", "AVG"} or tensor is None:
        raise refuse(
            GROUP,
            call,
            f"{name} over the processes has no counterpart that is known to be the same number",
            "compute it from gathered values (`accelerator.gather_for_metrics`) after migrating, and take it out now",
        )
    if isinstance(tensor, ast.Attribute) and tensor.attr == "data":
        inner = tensor.value
        if not (isinstance(inner, ast.Attribute) and inner.attr == "grad"):
            raise refuse(
                GROUP,
                call,
                "this may average weights, which is another algorithm than averaging gradients in every step",
                "take it out and run migrate again, if gradients averaged in every step are what you want",
            )
    gradient = any(isinstance(n, ast.Attribute) and n.attr == "grad" for n in ast.walk(tensor))
    if gradient and name == "SUM" and not _divided(stage, tensor):
        raise refuse(
            GROUP,
            call,
            "gradients are summed over the processes here, and prepare averages them",
            "average them",
        )


def _divided(stage: Stage, tensor: ast.expr) -> bool:
    text = ast.unparse(tensor).removesuffix(".data")
    return any(
        isinstance(n, ast.AugAssign)
        and isinstance(n.op, ast.Div)
        and ast.unparse(n.target).removesuffix(".data") == text
        and stage.alone.by_hand(n.value) is not None
        for n in ast.walk(stage.facts.tree)
    )


def reduced(stage: Stage) -> set[str]:
    """The tensors that the script reduces itself, by source."""
    found = {ast.unparse(c.args[0]) for c in stage.facts.calls_to(*REDUCERS) if c.args}
    return found | {t.removesuffix(".data") for t in found} | {f"{t}.data" for t in found}


def _synchronised_layers(stage: Stage, node: ast.Assign, call: ast.Call) -> None:
    guarded = any(
        isinstance(a, ast.If) and MARK.format("num_processes") in ast.unparse(a.test)
        for a in stage.facts.table.ancestors(node)
    )
    if stage.facts.paths(call.func) & SYNC_BATCH_NORM and not guarded:
        keep_synchronised(stage, node, node)


def keep_synchronised(stage: Stage, node: ast.Assign, before: ast.stmt) -> None:
    """Batch statistics over all processes: kept, where layers that can do it exist."""
    test = f'{MARK.format("num_processes")} > 1 and {MARK.format("device")}.type == "cuda"'
    lines = f"if {test}:\n    {stage.source(node)}"
    reason = "batch statistics over all processes, as before, on devices that can"
    stage.edits.append(e.InsertBefore(before, GROUP, reason, code=lines))
    if before is node:
        stage.remove(node, GROUP)


# -- arithmetic with the number of processes -----------------------------------------------------------------


def _arithmetic(stage: Stage) -> None:
    for node in list(ast.walk(stage.facts.tree)):
        if stage.alone.dead(node) or stage.is_gone(node):
            continue
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
            size = stage.alone.by_hand(node.value)
            if size is not None and size.value == 1:
                _augmented(stage, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
            _scaled(stage, node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            _added(stage, node)


def _augmented(stage: Stage, node: ast.AugAssign) -> None:
    target = ast.unparse(node.target)
    if target in reduced(stage) or _is_local(stage, node.target):
        stage.remove(node, GROUP, "it is the global number already")
    elif is_batch_size(stage, node.target):
        if not isinstance(node.op, ast.Mult):
            share_batches(stage, node)
        stage.remove(node, GROUP, "the loader's batch is divided as the launcher says")
    else:
        stage.gone.update(ast.walk(node.value))
        stage.replace(node.value, GROUP, "the number of processes", MARK.format("num_processes"))


def _scaled(stage: Stage, node: ast.BinOp) -> None:
    right, left = stage.alone.by_hand(node.right), stage.alone.by_hand(node.left)
    if right is not None and left is None and right.value == 1:
        other, size = node.left, node.right
    elif left is not None and right is None and left.value == 1 and isinstance(node.op, ast.Mult):
        other, size = node.right, node.left
    else:
        return
    if _reduced_value(stage, other) or _is_local(stage, other):
        reason = "it is the global number already"
    elif feeds_batch_size(stage, node):
        reason = "the loader's batch is divided as the launcher says"
        if not isinstance(node.op, ast.Mult):
            share_batches(stage, node)
    else:
        return
    stage.gone.update(ast.walk(size))
    simple = isinstance(other, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
    stage.replace(node, GROUP, reason, "{x}" if simple else "({x})", x=other)


def _added(stage: Stage, node: ast.BinOp) -> None:
    """`len(loader) + (distributed and ...)`: a test that counts as nothing."""
    test = stage.alone.by_hand(node.right)
    if isinstance(node.right, ast.BoolOp | ast.Compare) and test is not None and not test.truth:
        stage.gone.update(ast.walk(node.right))
        stage.replace(node, GROUP, "what one process does, prepare does on all", "{x}", x=node.left)


def _reduced_value(stage: Stage, node: ast.expr) -> bool:
    names = reduced(stage)
    return any(ast.unparse(n) in names for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))


def _is_local(stage: Stage, node: ast.expr) -> bool:
    return any(isinstance(v, Shard) for v in stage.facts.of(node))


def share_batches(stage: Stage, node: ast.AST) -> None:
    """The author divides the batch by the number of processes: it is the global batch that the script is given."""
    if not stage.wish.split_batches:
        stage.wish.split_batches = True
        stage.note(
            GROUP,
            node,
            "the batch size was divided by the number of processes; with split_batches=True they share the batch in the same way",
            "choose a batch size that the number of processes divides",
            Severity.NOTE,
        )


def is_batch_size(stage: Stage, target: ast.expr) -> bool:
    return _feeds(stage, ast.unparse(target), "batch_size", 1)


def is_workers(stage: Stage, target: ast.expr) -> bool:
    return _feeds(stage, ast.unparse(target), "num_workers", 5)


def _feeds(stage: Stage, text: str, keyword: str, position: int, depth: int = 3) -> bool:
    """Whether a variable (by its source, whatever the namespace is called) is a loader's argument."""
    last = text.split(".")[-1]
    for call in stage.facts.calls:
        paths = stage.facts.paths(call.func)
        if not paths & (api.LOADERS | {"torch.utils.data.BatchSampler"}):
            continue
        given = next((k.value for k in call.keywords if k.arg == keyword), None)
        if given is None and len(call.args) > position:
            given = call.args[position]
        if given is not None and any(
            ast.unparse(n).split(".")[-1] == last
            for n in ast.walk(given)
            if isinstance(n, ast.Name | ast.Attribute)
        ):
            return True
    for call in stage.facts.calls if depth else ():
        for name, value in _passed_names(stage, call):
            if (
                ast.unparse(value).split(".")[-1] == last
                and name != last
                and _feeds(stage, name, keyword, position, depth - 1)
            ):
                return True
    return False


def _passed_names(stage: Stage, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for value in stage.facts.of(call.func):
        if isinstance(value, Function | Method):
            function = value.function.node if isinstance(value, Method) else value.node
            names = [a.arg for a in function.args.args]
            if isinstance(value, Method):
                names = names[1:]
            yield from zip(names, call.args, strict=False)
            yield from ((k.arg, k.value) for k in call.keywords if k.arg)


def feeds_batch_size(stage: Stage, node: ast.expr) -> bool:
    """`int(args.batch_size / world)` assigned to a batch size, or written where the loader is made."""
    child: ast.AST = node
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.Assign):
            return any(is_batch_size(stage, t) for t in around.targets)
        if isinstance(around, ast.keyword) and around.arg == "batch_size":
            return True
        if isinstance(around, ast.Call) and child in around.args:
            if stage.facts.paths(around.func) & api.LOADERS:
                return around.args.index(child) == 1
            if any(name == "batch_size" and value is child for name, value in _passed_names(stage, around)):
                return True
        if isinstance(around, ast.stmt):
            return False
        child = around
    return False


# -- samplers ------------------------------------------------------------------------------------------------


def _samplers(stage: Stage) -> None:
    for call in stage.facts.calls_to(*api.LOADERS):
        if stage.alone.dead(call) or stage.is_gone(call):
            continue
        sampler = next((k for k in call.keywords if k.arg == "sampler"), None)
        shuffle = next((k for k in call.keywords if k.arg == "shuffle"), None)
        made = _sampler_made(stage, sampler.value) if sampler is not None else None
        known = stage.alone.known(sampler.value) if sampler is not None else None
        if sampler is not None and made is not None:
            _restore_order(stage, call, sampler, shuffle, made)
            continue
        if (
            sampler is not None
            and known is not None
            and known.value is None
            and _was_sampler(stage, sampler.value)
        ):
            stage.edits.append(
                e.RemoveArgument(call, SAMPLER, "prepare shards the loader", argument=sampler.value)
            )
            stage.gone.update(ast.walk(sampler.value))
        if shuffle is not None and not isinstance(shuffle.value, ast.Constant):
            value = stage.alone.by_hand(shuffle.value)
            if value is not None:
                stage.replace(
                    shuffle.value, SAMPLER, "the order the loader has without a sampler", str(value.truth)
                )
                stage.gone.update(ast.walk(shuffle.value))


def _was_sampler(stage: Stage, node: ast.expr) -> bool:
    return stage.alone.by_hand(node) is not None or bool(made_samplers(stage, node))


def made_samplers(stage: Stage, node: ast.expr, depth: int = 5) -> list[ast.Call]:
    """The DistributedSampler(...) calls that `node` may be the result of."""
    if isinstance(node, ast.Call):
        return [node] if stage.facts.paths(node.func) & SAMPLERS else []
    if isinstance(node, ast.IfExp):
        return [*made_samplers(stage, node.body, depth), *made_samplers(stage, node.orelse, depth)]
    if not isinstance(node, ast.Name | ast.Attribute) or not depth:
        return []
    return [c for value in stage.alone.sources(node) for c in made_samplers(stage, value, depth - 1)]


def _sampler_made(stage: Stage, node: ast.expr) -> ast.Call | None:
    """The DistributedSampler(...) that surely is the sampler, also when one process trains."""
    if stage.alone.known(node) is not None:
        return None
    values: list[ast.expr] = [node] if isinstance(node, ast.Call | ast.IfExp) else []
    if isinstance(node, ast.Name | ast.Attribute):
        values = [v for v in stage.alone.sources(node) if not stage.alone.dead(v)]
    found = [c for value in values for c in made_samplers(stage, value)]
    if not found:
        return None
    if len(values) != 1 or len(found) != 1:
        raise refuse(SAMPLER, node, "which sampler this is cannot be told", "give each loader one sampler")
    return found[0]


def _restore_order(
    stage: Stage, call: ast.Call, sampler: ast.keyword, shuffle: ast.keyword | None, made: ast.Call
) -> None:
    given = next(
        (k.value for k in made.keywords if k.arg == "shuffle"), made.args[3] if len(made.args) > 3 else None
    )
    if given is not None and not isinstance(given, ast.Constant):
        raise refuse(
            SAMPLER, made, "whether this sampler shuffles is decided elsewhere", "say shuffle=True or False"
        )
    shuffles = given is None or bool(given.value)
    code = f"shuffle={shuffles}"
    stage.gone.update(ast.walk(sampler.value))
    if not shuffles and shuffle is not None:
        stage.edits.append(
            e.RemoveArgument(call, SAMPLER, "prepare shards the loader", argument=sampler.value)
        )
    else:
        if shuffle is not None:
            stage.edits.append(e.RemoveArgument(call, SAMPLER, argument=shuffle.value))
        stage.edits.append(
            e.RemoveArgument(call, SAMPLER, "prepare shards the loader", argument=sampler.value)
        )
        if shuffles:
            stage.edits.append(e.InsertArgument(call, SAMPLER, position=-1, code=code))
    statement = stage.statement(made)
    if isinstance(statement, ast.Assign) and statement.value is made:
        stage.remove(statement, SAMPLER, "prepare shards the loader")
    if shuffles:
        stage.note(
            SAMPLER,
            made,
            "the order of the samples came from the sampler's own seed and the epoch; now it comes from torch's random state",
            "expect another order than the original's, the same on every number of processes",
            Severity.NOTE,
        )


# -- ranks that are left -------------------------------------------------------------------------------------


def _ranks(stage: Stage) -> None:
    """Uses of a rank or a size outside tests: devices become the process's own, numbers are asked for."""
    for node in list(ast.walk(stage.facts.tree)):
        if not isinstance(node, ast.Name | ast.Attribute | ast.Call) or not _is_load(node):
            continue
        if node in stage.gone or stage.alone.dead(node) or stage.is_gone(node):
            continue
        known = stage.alone.by_hand(node)
        if known is None or not isinstance(known.value, int) or isinstance(known.value, bool):
            continue
        parent = stage.parent(node)
        if isinstance(parent, ast.Attribute) or (isinstance(parent, ast.Call) and parent.func is node):
            continue
        if isinstance(node, ast.Call) and not _asks_for_number(stage, node):
            continue
        _rank(stage, node, known)


def _is_load(node: ast.expr) -> bool:
    return not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)


def _asks_for_number(stage: Stage, node: ast.Call) -> bool:
    return any(p.startswith(DIST) for p in stage.facts.paths(node.func))


def _rank(stage: Stage, node: ast.expr, known: Known) -> None:
    device = _device_around(stage, node)
    if device is not None:
        if not stage.is_gone(device):
            stage.gone.update(ast.walk(device))
            if isinstance(device, ast.keyword):
                return
            assert isinstance(device, ast.expr)
            stage.replace(device, DEVICE, "the process's own device", _device_text(device))
        return
    if _carried_on(stage, node) or known.value not in (0, 1):
        return
    name = "process_index" if known.value == 0 else "num_processes"
    if known.value == 0 and "local" in ast.unparse(node).lower():
        name = "local_process_index"
    stage.gone.add(node)
    stage.replace(node, GROUP, "the accelerator knows it", MARK.format(name))


def _device_text(node: ast.expr) -> str:
    return (
        'torch.device("cuda")'
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Attribute)
        else '"cuda"'
    )


def _device_around(stage: Stage, node: ast.expr) -> ast.AST | None:
    """The expression around a rank that names a device: `f"cuda:{rank}"`, `torch.device("cuda", rank)`, `.to(rank)`."""
    child: ast.AST = node
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.Call):
            if (
                (
                    isinstance(around.func, ast.Attribute)
                    and around.func.attr == "format"
                    and around.func is not child
                )
                and isinstance(around.func.value, ast.Constant)
                and str(around.func.value.value).startswith("cuda")
            ):
                return around
            if "torch.device" in stage.facts.paths(around.func):
                return around
            if (
                isinstance(around.func, ast.Attribute)
                and around.func.attr in {"to", "cuda"}
                and child is node
            ):
                return node if around.func.attr == "to" or child in around.args else None
            return None
        if isinstance(around, ast.JoinedStr):
            first = around.values[0]
            return around if isinstance(first, ast.Constant) and str(first.value).startswith("cuda") else None
        if (
            isinstance(around, ast.BinOp)
            and isinstance(around.op, ast.Add | ast.Mod)
            and isinstance(around.left, ast.Constant)
            and str(around.left.value).startswith("cuda")
        ):
            return around
        if isinstance(around, ast.keyword) and around.arg in {"device", "map_location"}:
            return node if child is node else None
        if isinstance(around, ast.stmt):
            return None
        child = around
    return None


def _carried_on(stage: Stage, node: ast.expr) -> bool:
    """Handed on under another name, where its uses are found: assigned, returned, passed to the script's own code."""
    child: ast.AST = node
    for around in stage.facts.table.ancestors(node):
        if isinstance(around, ast.Call):
            if child is around.func:
                return False
            values = stage.facts.of(around.func)
            own = bool(values) and all(isinstance(v, Function | Method | Class) for v in values)
            pure = "builtins.int" in stage.facts.paths(around.func)
            if pure:
                child = around
                continue
            return own or bool(stage.facts.paths(around.func) & SPAWN) or _asks_for_number(stage, around)
        if isinstance(around, ast.Assign | ast.AnnAssign | ast.Return):
            return stage.alone.by_hand(child) is not None if isinstance(child, ast.expr) else True
        if isinstance(around, ast.If | ast.While) and child is around.test:
            return stage.alone.by_hand(around.test) is not None
        if isinstance(around, ast.stmt):
            return False
        child = around
    return False


# -- options that do nothing any more ------------------------------------------------------------------------


def _options(stage: Stage) -> None:
    from .alone import OPTION

    idle = [(n, c) for n, c in stage.alone.options.items() if OPTION.match(n)]
    for name, call in idle:
        stage.note(
            GROUP,
            call,
            f"the option `{name}` no longer says how to distribute: the launcher does",
            "use `crosstrain launch --num-processes`, `--gpu-ids` and its other options",
            Severity.NOTE,
        )
