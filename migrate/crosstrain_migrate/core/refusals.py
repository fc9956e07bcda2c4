"""CT901 and CT903 by use: what is known to be wrong to convert, and what cannot be said to Hugging Face's library.

A script that another framework distributes is left alone; one that shares its work in a way that averaged gradients would
break is refused, with the line and what to do.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk_all

from .distributed.group import is_called_below
from .distributed.mapping import distributes_itself, shards_layers
from .distributed.processes import is_process, ranks_of
from .output.commands import starts_itself
from .plan import Plan, finding_at
from .reading.data import Data
from .reading.forms import FUNCTIONS, Frame, MethodCall, is_function_frame, is_method, names_in, root_of
from .reading.frameworks import FRAMEWORKS, RUNNERS
from .reading.imported import imported
from .reading.made import constants, is_switched_off
from .reading.roles import Roles
from .reading.script import Script, is_statement_call
from .training.backward import SUMMED
from .training.losses import sums_over_rows

BUILT_ON, LINE_SEARCH = "CT901", "CT903"
# Statements of a file that run nothing, its docstring among them.
_DEFINES = (
    *FUNCTIONS,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.Expr,
    ast.Pass,
)
_NOT_OURS = {
    "torch.distributed.rpc": "RPC",
    "torch.distributed.fsdp": "FSDP",
    "torch.distributed.tensor": "tensor parallelism",
    "torch.distributed.pipelining": "pipeline parallelism",
    "torch.distributed.device_mesh": "a device mesh",
    "torch.distributed._composable": "composable parallelism",
}
_DISTRIBUTES = {"horovod", "deepspeed", "torch_xla", "colossalai", "megatron"}


def known_wrong(script: Script, roles: Roles) -> list[Finding]:
    """Why a script must not be converted; empty where nothing speaks against it."""
    found = [*_foreign(script), *_tests(script), *_line_searches(script, roles), *_own_processes(script)]
    found += [*_own_ranks(script), *_given_to_trainers(script, roles), *_plays(script, roles)]
    if (call := shards_layers(script)) is not None:
        reason = "a layer communicates by itself: the processes share one model (tensor parallelism)"
        remedy = "leave it as it is, or use `torch.distributed.tensor`"
        found.append(finding_at(call, BUILT_ON, reason, remedy, Severity.REFUSED))
    return found


def not_in_accelerate(plan: Plan, roles: Roles) -> list[Finding]:
    """Why a script must not be converted for Accelerate, which averages the gradients of prepared modules and deals DataLoaders;
    empty where nothing speaks against it."""
    first = roles.backwards[0].call if roles.backwards else plan.script.entry  # a library goes backward
    if distributes_itself(plan.script):
        return [
            _not_in_accelerate(
                "CT303", first, "the script distributes itself, and Accelerate cannot take its place"
            )
        ]
    if sums_over_rows(plan.script, roles):
        return [
            _not_in_accelerate(
                "CT202", first, f"the loss is a sum over rows, and Accelerate has no `{SUMMED}`"
            )
        ]
    if not plan.models:
        reason = "Accelerate averages the gradients of prepared modules only, and none is known here"
        return [_not_in_accelerate("CT201", first, reason)]
    return []


def _not_in_accelerate(rule: str, node: ast.AST, reason: str) -> Finding:
    remedy = "leave --runtime accelerate out: Crosstrain's own runtime does it"
    return finding_at(node, rule, reason, remedy, Severity.REFUSED)


def _foreign(script: Script) -> list[Finding]:
    found: dict[str, Finding] = {}
    for path, node in imported(script.tree):
        top = path.split(".")[0]
        what = FRAMEWORKS.get(top) if top in _DISTRIBUTES else None
        severity = Severity.NOTE
        if what is None:
            what = next(
                (w for name, w in _NOT_OURS.items() if path == name or path.startswith(name + ".")), None
            )
            severity = Severity.REFUSED
        if what is None or not script.is_reached(node) or _is_only_tried(script, node):
            continue
        if severity is Severity.REFUSED and not _is_used(script, node):
            continue
        reason = f"the script is built on {what}, which distributes training itself"
        remedy = "leave it as it is, or write the loop in plain PyTorch first"
        found.setdefault(what, finding_at(node, BUILT_ON, reason, remedy, severity))
    return list(found.values())


def _tests(script: Script) -> list[Finding]:
    """A file of tests, which trains where a test runner calls them and not by itself."""
    runners = {"pytest", "unittest"}
    node = next((node for path, node in imported(script.entry) if path.split(".")[0] in runners), None)
    functions = [n for n in ast.walk(script.entry) if isinstance(n, FUNCTIONS) and n.name.startswith("test")]
    if node is None or not functions or not all(_runs_nothing(one, runners) for one in script.entry.body):
        return []
    reason = "a file of tests, which a test runner calls: by itself it trains nothing"
    return [finding_at(node, BUILT_ON, reason, "name the script that trains", Severity.NOTE)]


def _runs_nothing(statement: ast.stmt, runners: set[str]) -> bool:
    """Whether a statement of a file defines something, or at most starts a test runner."""
    if isinstance(statement, ast.If) and is_main_test(statement):
        return all(_runs_nothing(one, runners) for one in statement.body)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return root_of(statement.value.func) in runners
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        return not isinstance(statement.value.func, ast.Name)  # `model = train()`
    return isinstance(statement, _DEFINES)


def _uses(script: Script, node: ast.stmt) -> list[ast.Name]:
    names = {alias.asname or alias.name.split(".")[0] for alias in getattr(node, "names", ())}
    module = script.module(node)
    return [n for n in script.table.each(ast.Name) if n.id in names and script.module(n) is module]


def _is_only_tried(script: Script, node: ast.stmt) -> bool:
    """`try: import torch_xla; torch_xla.manual_seed(0)`: all that uses it are calls beside it in the `try`, of which nothing
    is kept; or it may be missing, and an option chooses it."""
    tried, uses = script.parent(node), [script.statement(one) for one in _uses(script, node)]
    if not isinstance(tried, ast.Try):
        return False
    is_beside = bool(uses) and all(one in tried.body and isinstance(one, ast.Expr) for one in uses)
    return is_beside or (_may_be_none(tried) and all(_is_behind_flag(script, one, tried) for one in uses))


def _may_be_none(tried: ast.Try) -> bool:
    """`try: import horovod.torch as hvd`, `except ImportError: hvd = None`"""
    bound = [one.value for handler in tried.handlers for one in handler.body if isinstance(one, ast.Assign)]
    return any(isinstance(one, ast.Constant) and one.value is None for one in bound)


def _is_behind_flag(script: Script, use: ast.stmt, tried: ast.Try) -> bool:
    """Whether a use stands under an option, `if args.horovod:`, beside what is done without it."""
    tests = [one.test for one in script.around(use) if isinstance(one, ast.If)]
    return script.table.is_inside(use, tried) or any(isinstance(n, ast.Attribute | ast.Name) for n in tests)


def _is_used(script: Script, node: ast.stmt) -> bool:
    """Whether reached code calls something that an import statement binds."""
    of = _uses(script, node)
    return any(script.is_reached(n) and any(isinstance(a, ast.Call) for a in script.around(n)) for n in of)


def _line_searches(script: Script, roles: Roles) -> list[Finding]:
    found = []
    for call in script.calls:
        if not last_name(call.func).endswith("LBFGS") or not script.dotted(call.func).endswith("LBFGS"):
            continue
        # Without a function that computes the loss anew it does not run: it is one of those that an option may name.
        steps = [c for c in script.calls if is_method(c, "step") and (c.args or c.keywords)]
        searches = {written(c.func.value) for c in steps} & {one.text for one in roles.optimizers}
        if roles.data and searches and not _is_switched_off(script, call):
            reason = "LBFGS searches along a line by its own process's loss, so that processes would take different steps"
            remedy = 'return the mean over the processes from its closure, `accelerator.reduce(loss, "mean")`'
            found.append(finding_at(call, LINE_SEARCH, reason, remedy, Severity.REFUSED))
    return found


def _is_switched_off(script: Script, node: ast.AST) -> bool:
    """Whether a node stands under a flag of its function that is false by default and that no call gives: `if use_lbfgs:`."""
    frame = script.frame(node)
    calls = script.callers(frame) if is_function_frame(frame) else []
    if not is_function_frame(frame) or not calls or any(script.last(c.func) != frame.name for c in calls):
        return False
    if any(isinstance(one, ast.Starred) for c in calls for one in c.args) or any(
        keyword.arg is None for c in calls for keyword in c.keywords
    ):
        return False
    given = {name for call in calls for name in script.given_by(call, frame)}
    known = {name: value for name, value in constants(script, frame, {}).items() if name not in given}
    return is_switched_off(script, node, frame, known)


def _own_processes(script: Script) -> list[Finding]:
    """Hogwild: processes of the script's own that share one model's memory, and join no group to average gradients."""
    shares = any(is_method(call, "share_memory") for call in script.calls)
    if not shares or any(script.makes_group(call) for call in script.calls):
        return []
    starts = [
        c for c in script.calls if re.search(r"(multiprocessing|mp)\.(Process|spawn)$", script.dotted(c.func))
    ]
    reason = "the script's own processes train one model in shared memory (Hogwild)"
    remedy = "train in one process instead, and let `crosstrain launch` start the others"
    return [finding_at(c, BUILT_ON, reason, remedy, Severity.REFUSED) for c in starts[:1]]


def _own_ranks(script: Script) -> list[Finding]:
    """Processes that join a group by ranks of the script's own, and that no loop over ranks starts, or that run the script once
    more: beside the launcher's, each would be alone, or a rank that is there already."""
    reason = "the script starts its own processes, each with a rank of the group"
    remedy = "start them by `torch.multiprocessing.spawn`, which is converted, or call the function once"
    apart = [c for c in script.spawns if is_process(c) and ranks_of(script, c) is None]
    if distributes_itself(script):
        apart += [call for call in script.calls if starts_itself(script, call)]
    apart = list(filter(script.is_reached, apart))
    return [finding_at(call, BUILT_ON, reason, remedy, Severity.REFUSED) for call in apart[:1]]


def _given_to_trainers(script: Script, roles: Roles) -> list[Finding]:
    """Another framework's trainer that is given the function that steps, `Engine(update)`, or a model with it, or runs one in
    workers of its own, `@ray.remote`."""
    names = {one.frame.name for one in roles.backwards if isinstance(one.frame, FUNCTIONS)}
    for call in script.calls:
        given = {written(one) for one in (*call.args, *(k.value for k in call.keywords))}
        path = script.dotted(call.func)
        runner = RUNNERS.get(path) if script.is_reached(call) else None
        what = FRAMEWORKS.get(path.split(".")[0]) if given & names else runner
        if what is not None:
            reason = (
                f"{what} trains: it is given {'the model' if what == runner else f'`{min(given & names)}`'}"
            )
            remedy = f"use what {what} has for several processes"
            return [finding_at(call, BUILT_ON, reason, remedy, Severity.NOTE)]
    for function in filter(is_function_frame, script.reached_frames):
        named = [script.dotted(getattr(one, "func", one)).split(".")[0] for one in function.decorator_list]
        what = next((FRAMEWORKS[name] for name in named if name in FRAMEWORKS), None)
        if what and any(is_called_below(script, one.frame, function) for one in roles.backwards):
            reason = f"{what} runs `{function.name}`, which trains, in processes of its own"
            remedy = "convert a script that calls it by itself"
            return [finding_at(function, BUILT_ON, reason, remedy, Severity.NOTE)]
    return _runs_modules(script, roles)


def _runs_modules(script: Script, roles: Roles) -> list[Finding]:
    """A framework's trainer, where all that goes backward is in modules of that framework, whose steps it calls."""
    classes = [cls for one in roles.backwards if (cls := script.class_of(one.frame))]
    frameworks = {_framework_of(script, cls) for cls in classes}
    made = {
        FRAMEWORKS.get(script.dotted(c.func).split(".")[0])
        for c in script.calls
        if script.last(c.func) == "Trainer"
    }
    if not classes or len(classes) < len(roles.backwards) or None in frameworks or not frameworks <= made:
        return []
    what = _framework_of(script, classes[0])
    reason, remedy = (
        f"{what} trains: it calls `{classes[0].name}`",
        f"use what {what} has for several processes",
    )
    return [finding_at(classes[0], BUILT_ON, reason, remedy, Severity.NOTE)]


def _framework_of(script: Script, cls: ast.ClassDef, depth: int = 4) -> str | None:
    """The framework from whose module a class of the project derives: `class Model(pl.LightningModule)`."""
    for base in cls.bases if depth else ():
        above = (_framework_of(script, one, depth - 1) for one in script.classes(script.last(base)))
        if found := FRAMEWORKS.get(script.dotted(base).split(".")[0]) or next(filter(None, above), None):
            return found
    return None


def _plays(script: Script, roles: Roles) -> list[Finding]:
    """An environment that gives the training its data: `state, reward, done, info = env.step(action)`."""
    has_loaders = any(script.last(c.func) == "DataLoader" for c in script.calls)
    if has_loaders and not any(_is_generated(script, one) for one in roles.data):
        return []
    for call in script.calls:
        assigned = script.parent(call)
        if not is_method(call, "step") or not call.args or not isinstance(assigned, ast.Assign):
            continue
        if _is_own_step(script, call) or _is_optimizer(script, call.func.value):
            continue
        target = assigned.targets[0]
        if isinstance(target, ast.Tuple) and len(target.elts) > 2:
            if _only_judges(script, call, names_in(target)):
                continue
            reason = "it trains on what it plays: processes would play, and step, different numbers of times"
            remedy = "leave it as it is, or play in several environments within one process"
            return [finding_at(call, BUILT_ON, reason, remedy, Severity.REFUSED)]
    return []


def _is_own_step(script: Script, call: MethodCall) -> bool:
    """`out, *states = self.step(x, states)` of a network, which is no environment."""
    cls = script.class_of(script.frame(call)) if written(call.func.value) == "self" else None
    return cls is not None and "forward" in {one.name for one in script.methods(cls)}


def _is_optimizer(script: Script, node: ast.expr) -> bool:
    """Whether an object was made for a model's parameters: `loss, *_, failed = optimizer.step(options)`."""
    made = script.values(script.frame(node), written(node))
    return any(is_method(n, "parameters") for n in walk_all(made))


def _is_generated(script: Script, data: Data) -> bool:
    """Whether a function of the project generates batches, of what it has played: `rollouts.batches(advantages)`."""
    made = script.values(data.frame, written(data.node)) or [data.node]
    return any(script.is_generator(function) for one in made for function in script.functions_of(one))


def _only_judges(script: Script, step: ast.Call, played: set[str]) -> bool:
    """Whether a function plays to judge the model: it gives away sums of what it plays, and keeps nothing of it."""
    frame = script.frame(step)
    nodes = script.within(frame)
    if not is_function_frame(frame) or not any(is_method(n, "eval") for n in nodes):
        return False
    if any(isinstance(n, ast.Attribute | ast.Subscript | ast.Yield) and _is_stored(script, n) for n in nodes):
        return False
    alone = [n for n in nodes if isinstance(n, ast.Call) and is_statement_call(script, n)]
    given = [one for call in alone for one in (*call.args, *(k.value for k in call.keywords))]
    if any(names_in(one) & played for one in given):
        return False  # memory.push(state, reward)
    returned = {name for n in nodes if isinstance(n, ast.Return) and n.value for name in names_in(n.value)}
    return all(_is_sum(script, frame, name) for name in returned)


def _is_stored(script: Script, node: ast.AST) -> bool:
    """Whether something outlives the function: an attribute, a generator's item; not an element of its own variable."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Store) and not script.binds(script.frame(node), root_of(node))
    return isinstance(node, ast.Yield) or (
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    )


def _is_sum(script: Script, frame: Frame, name: str) -> bool:
    """Whether a variable starts at a number and only grows."""
    starts = script.values(frame, name)
    grown = [s for s in script.stores(frame, name) if isinstance(script.parent(s), ast.AugAssign)]
    is_number = all(isinstance(v, ast.Constant) and isinstance(v.value, int | float) for v in starts)
    return bool(starts) and is_number and len(grown) + len(starts) == len(script.stores(frame, name))
