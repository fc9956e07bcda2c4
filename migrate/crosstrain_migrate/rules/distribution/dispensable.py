"""Code that only several processes run. What is part of the distribution may be removed; anything else is refused."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.values import External, Function, Method, Parameters, Unknown, code_of
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .builtin_print import puts_print
from .launcher_settings import DIST, LAUNCHED, SETUP, SPAWN, WRAPPERS, asked_variable
from .layers import SYNC_BATCH_NORM, keep_synchronised
from .own_draws import keep_share
from .plain import Stage
from .reductions import REDUCERS, check_reduction, division, reduced
from .samplers import SAMPLERS
from .world_size import ACCUMULATED, accumulates, is_batch_size, is_workers, share_batches, shared_out
from .written_back import WrittenBack

RULE = "CT303"
NO_GRADIENTS = frozenset({"torch.no_grad", "torch.inference_mode"})
DISPENSABLE = SPAWN | {"builtins.print", "time.sleep", "torch.multiprocessing.set_start_method"}
DISPENSABLE_FROM = ("torch.cuda.", "torch.backends.", "torch.accelerator.", "logging.", "warnings.")
LOGGING = frozenset({"info", "warning", "warn", "debug"})
# Wrappers, samplers, loaders and devices.
MAKERS = (
    WRAPPERS | SAMPLERS | {f"torch.utils.data.{n}" for n in ("DataLoader", "BatchSampler")} | {"torch.device"}
)
MOVES = frozenset({"cuda", "to"})
OF_MODELS = frozenset({"parameters", "named_parameters", "buffers"})
OF_NUMBERS = frozenset({"tolist", "item", "clone", "detach", "to"})


def report_lost_comments(stage: Stage, body: list[ast.stmt], elif_test: ast.expr | None = None) -> None:
    """Reports the comments of a branch that is removed, because they are removed with it."""
    lines = stage.text.split("\n")
    # What stands above an `elif` belongs to it.
    first = elif_test.lineno if elif_test is not None else body[0].lineno
    last = body[-1].end_lineno or body[-1].lineno
    while first > 1 and (
        lines[first - 2].strip().startswith("#") or lines[first - 2].split("#")[0].strip() == "else:"
    ):
        first -= 1
    indent = body[0].col_offset
    while last < len(lines) and lines[last].strip().startswith("#") and lines[last].find("#") >= indent:
        last += 1
    found = (_comment(line) for line in lines[max(first - 2, 0) : last])
    stage.report_lost([comment for comment in found if comment], first)


def _comment(line: str) -> str:
    quote = ""
    for index, char in enumerate(line):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char == "#":
            return line[index:].rstrip()
    return ""


def check_dispensable(stage: Stage, body: list[ast.stmt], at: ast.If, taken: list[ast.stmt]) -> None:
    """Refuses a branch that does more than distribute. taken: what one process does instead."""
    instead = {ast.dump(s) for s in taken} | {text for s in taken for text in _bindings(stage, s)}
    numbers = WrittenBack(stage)
    for statement in () if puts_print(stage, body) else body:
        if numbers.has_no_effect(statement):
            continue
        bound = _bindings(stage, statement)
        if ast.dump(statement) in instead or (bound and bound <= instead) or keep_share(stage, statement, at):
            continue
        for call in walk(statement):
            if isinstance(call, ast.Call) and stage.facts.paths(call.func) & SYNC_BATCH_NORM:
                made = stage.statement(call)
                if isinstance(made, ast.Assign):
                    keep_synchronised(stage, made, at)
        if not _is_dispensable(stage, statement):
            if isinstance(statement, ast.Assign | ast.AugAssign) and _shares_out(stage, statement):
                raise shared_out(statement)
            reason = "this runs only when several processes train, and the tool does not know what it should become"
            remedy = (
                "move it out of the branch, or remove the hand-written distribution, and run migrate again"
            )
            raise refuse(RULE, statement, reason, remedy)


def _shares_out(stage: Stage, statement: ast.Assign | ast.AugAssign) -> bool:
    """`accumulation_steps //= world_size`: whether a number is divided by the number of processes."""
    if isinstance(statement, ast.Assign):
        return _divides(stage, statement.value)
    processes = (stage.single, *stage.several)
    known = (process.launch_value(statement.value) for process in processes)
    return division(statement) is not None and any(value is not None for value in known)


def _bindings(stage: Stage, statement: ast.stmt) -> set[str]:
    """What an assignment binds, and by which imported function: `checkpoint = torch.load(...)` in both branches."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return set()
    paths = stage.facts.paths(statement.value.func)
    return {f"{ast.unparse(t)} = {p}" for t in statement.targets for p in paths}


def _is_dispensable(stage: Stage, statement: ast.stmt) -> bool:
    if statement in stage.gone:
        return True
    match statement:
        case ast.Pass() | ast.Import() | ast.ImportFrom() | ast.Raise() | ast.Assert() | ast.Global():
            return True
        case ast.Return():
            return statement.value is None or _only_asks(stage, statement.value)
        case ast.For():
            return _all_dispensable(stage, statement.body) and _only_asks(stage, statement.iter)
        case ast.With():
            entered = [item.context_expr for item in statement.items]
            quiet = all(isinstance(c, ast.Call) and stage.facts.paths(c.func) & NO_GRADIENTS for c in entered)
            return quiet and _all_dispensable(stage, statement.body)
        case ast.If():
            return _all_dispensable(stage, [*statement.body, *statement.orelse])
        case ast.Expr(value=ast.Call() as call):
            return _dispensable_call(stage, call)
        case ast.Expr():
            return isinstance(statement.value, ast.Constant)
        case ast.Assign():
            return _dispensable_value(stage, statement.targets, statement.value)
        case ast.AnnAssign():
            value = statement.value
            return value is None or _dispensable_value(stage, [statement.target], value)
        case ast.AugAssign():
            return _dispensable_update(stage, statement)
    return False


def _all_dispensable(stage: Stage, body: list[ast.stmt]) -> bool:
    return all(_is_dispensable(stage, statement) for statement in body)


def _only_asks(stage: Stage, node: ast.expr) -> bool:
    """Whether every call in an expression only asks the machine, the group or a model for something."""
    calls = [n for n in walk(node) if isinstance(n, ast.Call)]
    of_models = (isinstance(c.func, ast.Attribute) and c.func.attr in OF_MODELS for c in calls)
    return all(known or _asks(stage, call) for call, known in zip(calls, of_models, strict=True))


def _asks(stage: Stage, call: ast.Call) -> bool:
    paths = stage.facts.paths(call.func)
    asked = any(p.startswith((DIST, "torch.cuda.", "builtins.")) or p == "torch.device" for p in paths)
    return asked or ast.unparse(call.func).startswith(("os.environ", "os.getenv"))


def _dispensable_call(stage: Stage, call: ast.Call) -> bool:
    paths = stage.facts.paths(call.func)
    if paths & REDUCERS:
        check_reduction(stage, call)
        return True
    if any(p.startswith(DIST) for p in paths):
        return bool(paths & (SETUP | {"torch.distributed.barrier"})) or shares_weights(stage, call)
    if paths & DISPENSABLE or any(p.startswith(DISPENSABLE_FROM) for p in paths):
        return True
    if ast.unparse(call.func).startswith(("os.environ.", "os.putenv", "builtins.")):
        return True
    if isinstance(call.func, ast.Attribute):
        name = call.func.attr
        if name in LOGGING | {"set_epoch"} or (name in MOVES and _is_module(stage, call.func.value)):
            return True
    return _own_function(stage, call)


def shares_weights(stage: Stage, call: ast.Call) -> bool:
    """`dist.broadcast(p.data, 0)` of a model's parameters, which prepare does."""
    if "torch.distributed.broadcast" not in stage.facts.paths(call.func) or not call.args:
        return False
    tensor = call.args[0]
    if isinstance(tensor, ast.Attribute) and tensor.attr == "data":
        tensor = tensor.value
    return any(isinstance(v, Parameters) for v in stage.facts.of(tensor))


def _is_module(stage: Stage, node: ast.expr) -> bool:
    values = stage.facts.of(node)
    return any(stage.facts.interp.is_module(v) for v in values) or any(
        isinstance(v, External) and v.path in WRAPPERS for v in values
    )


def _own_function(stage: Stage, call: ast.Call) -> bool:
    """Whether a call runs a helper of the script that only distributes, or that only reduces what it is given."""
    values = [v for v in stage.facts.of(call.func) if not isinstance(v, Unknown)]
    targets = [code_of(v) for v in values if isinstance(v, Function | Method)]
    if not targets or len(targets) < len(values):
        return False
    return all(
        isinstance(target, ast.FunctionDef)
        and (
            _all_dispensable(stage, target.body)
            or _reduces_only(stage, target)
            or puts_print(stage, target.body)
        )
        for target in targets
    )


def _reduces_only(stage: Stage, function: ast.FunctionDef) -> bool:
    """Whether a function puts numbers into a tensor, reduces it and takes them out again: one process leaves them as they are."""
    paths = [(call, stage.facts.paths(call.func)) for call in walk(function) if isinstance(call, ast.Call)]
    return any(own & REDUCERS for _, own in paths) and all(
        any(p.startswith(("torch.", "builtins.")) for p in own)
        or (isinstance(call.func, ast.Attribute) and call.func.attr in OF_NUMBERS)
        for call, own in paths
    )


def _dispensable_value(stage: Stage, targets: list[ast.expr], value: ast.expr) -> bool:
    if all(_is_environment(t) or _says_when_to_exchange(t) for t in targets):
        return True
    if stage.single.launch_value(value) is not None:
        return True
    for target in targets:
        if is_batch_size(stage, target) and _divides(stage, value):
            share_batches(stage, value)
            return True
        if is_workers(stage, target):
            return True
    if (isinstance(value, ast.Attribute) and value.attr == "module") or _is_own_mean(targets, value):
        return True
    if isinstance(value, ast.Call):
        paths = stage.facts.paths(value.func)
        if paths & MAKERS or any(p.startswith(DIST) for p in paths):
            return True
        if isinstance(value.func, ast.Attribute) and value.func.attr in MOVES:
            owner = value.func.value
            to_itself = all(ast.unparse(t) == ast.unparse(owner) for t in targets)
            return to_itself or _is_module(stage, owner) or _dispensable_value(stage, targets, owner)
        return _own_function(stage, value)
    if _is_constant(value):
        names = [n for t in targets for n in (t.elts if isinstance(t, ast.Tuple) else [t])]
        return all(isinstance(n, ast.Name | ast.Attribute) and _is_rank_variable(stage, n) for n in names)
    return _about_ranks(stage, value)


def _is_own_mean(targets: list[ast.expr], value: ast.expr) -> bool:
    """`loss = loss.mean()`: DataParallel gathers the loss of every device, and one process has one."""
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    bare = value.func.attr == "mean" and not value.args and not value.keywords
    own = ast.unparse(value.func.value)
    return bare and all(ast.unparse(target) == own for target in targets)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Tuple | ast.List) and all(map(_is_constant, node.elts))
    )


def _is_rank_variable(stage: Stage, target: ast.Name | ast.Attribute) -> bool:
    """Whether a variable holds a rank, a size or a device, by its other values or by its uses."""
    text = ast.unparse(target)
    mentions = stage.facts.each(ast.Name, ast.Attribute)
    same = [n for n in mentions if n is not target and written(n) == text]
    stored = [stage.statement(n) for n in same if isinstance(n.ctx, ast.Store)]
    values = [s.value for s in stored if isinstance(s, ast.Assign)]
    if any(not _is_constant(v) and _about_ranks(stage, v) for v in values):
        return True
    loads = [n for n in same if isinstance(n.ctx, ast.Load)]
    return bool(loads) and all(stage.single.dead(n) or _decides_or_sets_up(stage, n) for n in loads)


def _decides_or_sets_up(stage: Stage, node: ast.AST) -> bool:
    """Whether a value is used in a test, or in a call of torch.distributed."""
    for child, around in stage.outward(node):
        if isinstance(around, ast.If | ast.IfExp | ast.While) and child is around.test:
            return True
        if isinstance(around, ast.Call) and any(p.startswith(DIST) for p in stage.facts.paths(around.func)):
            return True
        if isinstance(around, ast.stmt):
            break
    return False


def _about_ranks(stage: Stage, value: ast.expr, depth: int = 4) -> bool:
    """Whether a value is computed only from ranks, sizes, devices, constants and what the machine has."""
    if stage.several[0].launch_value(value) is not None or stage.single.launch_value(value) is not None:
        return True
    if isinstance(value, ast.Constant):
        return True
    if isinstance(value, ast.Name | ast.Attribute):
        held = {value, value.value} if isinstance(value, ast.Attribute) else {value}
        if any(isinstance(v, External) and v.path == "torch.device" for n in held for v in stage.facts.of(n)):
            return True
        sources = stage.single.sources.of(value) if depth else []
        return bool(sources) and all(_about_ranks(stage, s, depth - 1) for s in sources)
    if isinstance(value, ast.Call):
        formats = isinstance(value.func, ast.Attribute) and value.func.attr == "format"
        given = (_about_ranks(stage, argument, depth) for argument in arguments_of(value))
        return (formats or _asks(stage, value)) and all(given)
    parts = [n for n in ast.iter_child_nodes(value) if isinstance(n, ast.expr)]
    if isinstance(value, ast.IfExp):
        parts.remove(value.test)
    return bool(parts) and all(_about_ranks(stage, part, depth) for part in parts)


def _divides(stage: Stage, value: ast.expr) -> bool:
    """Whether a part of an expression is divided by the number of processes."""
    divided = (found for n in walk(value) if (found := division(n)) is not None)
    return any(stage.single.launch_value(divisor) is not None for _, divisor in divided)


def _dispensable_update(stage: Stage, node: ast.AugAssign) -> bool:
    divides = division(node) is not None
    if stage.single.launch_value(node.value) is None or not (divides or isinstance(node.op, ast.Mult)):
        return False
    if is_workers(stage, node.target):
        return True
    if divides and is_batch_size(stage, node.target):
        share_batches(stage, node)
        return True
    if divides and accumulates(stage, node.target):
        share_batches(stage, node, ACCUMULATED)
        return True
    return ast.unparse(node.target) in reduced(stage)


def _says_when_to_exchange(node: ast.expr) -> bool:
    """DistributedDataParallel's switch for accumulation steps. Averaging the gradients in every step gives the same sum."""
    return isinstance(node, ast.Attribute) and node.attr == "require_backward_grad_sync"


def _is_environment(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and asked_variable(node) in LAUNCHED | {"OMP_NUM_THREADS"}
