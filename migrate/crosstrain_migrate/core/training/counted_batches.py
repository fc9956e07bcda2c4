"""CT201 by use: the number of all batches, `len(rows) // size`, beside a loop's own count of them, and rows that end a pass.

Each process counts its own batches: what is shown, or compared, beside that count is the number of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.core.numbers.whole_counts import ROUNDS, WholeCounts
from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import counters_of, turns_of
from crosstrain_migrate.core.reading.certain import Certain
from crosstrain_migrate.core.reading.forms import Frame, names_in
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import texts_in, walk, walk_all

from .counted_rows import ON_EVERY, is_length, is_rows, plan_position
from .lengths import counts_in_loops
from .taken import knows

RULE = "CT201"
REASON = "a pass has the batches of one process"
_SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod)


def plan_counts(plan: Plan, roles: Roles, accelerators: Accelerators, phases: dict[ast.AST, str]) -> None:
    """Takes the share of one process of the numbers of all batches. phases: the names of the loaders of loops that also
    evaluate."""
    _plan_counted_batches(plan, roles, accelerators, phases)
    _plan_own_counts(plan, roles, accelerators)
    _plan_ends_within(plan, roles)


def _plan_counted_batches(
    plan: Plan, roles: Roles, accelerators: Accelerators, phases: dict[ast.AST, str]
) -> None:
    """Takes the share of one process where a loop over divided data counts its batches."""
    for data in roles.data:
        loop, node = data.loop, data.node
        length = _length_of_maker(plan.script, node)
        is_dealt = is_range(node) or bool(length)
        is_named = loop in phases or isinstance(node, ast.Name | ast.Attribute)
        if not isinstance(loop, ast.For) or not (is_dealt or is_named):
            continue
        counters, counts = counters_of(loop, plan.script) | turns_of(loop), WholeCounts(plan, data, loop)
        nodes = walk_all(loop.body) if counters else []
        for one in nodes:
            if isinstance(one, ast.If) and isinstance(one.body[-1], ast.Break):
                _plan_end(plan, accelerators, one.test, counters)
            elif isinstance(one, ast.BinOp) and _is_position(plan.script, data.frame, one, counters):
                plan_position(plan, accelerators, one)
            elif (
                isinstance(one, ast.expr)
                and (is_dealt or loop in phases)
                and (
                    ast.unparse(one) == length
                    if length
                    else counts.is_of_rows(one) or counts.is_of_epochs(one)
                )
                and not knows(plan.script, data.frame, one, ast.unparse(node))
                and stands_by_count(plan.script, one, counters)
            ):
                accelerator = accelerators.may_be_at(one) if is_dealt or counts.is_of_epochs(one) else ""
                code = f"min({{it}}, len({phases.get(loop, ast.unparse(node))}))"
                if accelerator:
                    code = plan.share_of(one, accelerator)
                if accelerator is not None and not plan.is_replaced(one):
                    plan.replace(one, RULE, REASON, code, it=one)


def _plan_ends_within(plan: Plan, roles: Roles) -> None:
    """`for i, x in enumerate(self.loader): if i * self.size >= self.most: break`, in the `__iter__` of what is dealt by the loader
    that it holds: a batch is then one of each process. What is evaluated whole has the loader as it was."""
    script, certain = plan.script, Certain(plan.script)
    for data in roles.data:
        for cls in certain.own_iterables(data.frame, data.node):
            nodes = [n for method in script.methods(cls, "__iter__") for n in script.within(method)]
            for loop in (n for n in nodes if isinstance(n, ast.For)):
                counters = counters_of(loop, script) | turns_of(loop)
                held = [n for n in walk(loop.iter) if isinstance(n, ast.Attribute)]
                tests = [
                    n.test for n in loop.body if isinstance(n, ast.If) and isinstance(n.body[-1], ast.Break)
                ]
                for count in (n.left for n in tests if isinstance(n, ast.Compare)):
                    if held and isinstance(count, ast.BinOp) and _is_count_of_rows(count, counters):
                        code = f'getattr({written(held[0])}, "total_batch_size", {{size}})'
                        plan.replace(count.right, RULE, ON_EVERY, code, size=count.right)


def _plan_own_counts(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """What an object of the project that is dealt says of its batches, `rows.n_batches`, is its process's share beside a count of
    these, and where steps are computed of it, but for a schedule of torch; a sum over all is divided by all."""
    script = plan.script
    for data in roles.data:
        given = script.given_for(data.frame, written(data.node))
        places = [
            (data.frame, written(data.node)),
            *((script.frame(call), written(one)) for one, call in given),
        ]
        made = {script.class_made(value) for place in places for value in script.values(*place)} - {None}
        counts = {text for cls in made if cls is not None for text in _counts_of(script, cls)}
        reads = [
            r for f, text in dict.fromkeys(places) for one in counts for r in _reads_of(script, f, text, one)
        ]
        for read in reads if len(made) == 1 else ():
            loops = [one for one in script.loops_around(read) if isinstance(one, ast.For)]
            counters = {name for loop in loops for name in counters_of(loop, script) | turns_of(loop)}
            bound, share = script.statement(read), script.parent(read)
            is_computed = isinstance(share, ast.BinOp) and isinstance(share.op, ast.Mult | ast.FloorDiv)
            is_computed = is_computed and isinstance(bound, ast.Assign)
            calls = (one for one in script.around(read) if isinstance(one, ast.Call))
            if any("lr_scheduler" in script.dotted(one.func) for one in calls):
                continue
            is_kept = isinstance(read, ast.Call) and counts_in_loops(script, script.frame(read), read)
            if is_computed or is_kept or stands_by_count(script, read, counters):
                state = accelerators.may_be_at(read) or plan.state(read)
                plan.replace(read, RULE, REASON, plan.share_of(read, state), it=read)


def _reads_of(script: Script, frame: Frame, text: str, count: str) -> list[ast.expr]:
    """Where an attribute of an object is read, or a method of it called: `rows.n_batches`, `rows.count()`."""
    reads: list[ast.expr] = [*script.reads(frame, f"{text}.{count.removesuffix('()')}")]
    if not count.endswith("()"):
        return reads
    calls = [(read, script.parent(read)) for read in reads]
    return [one for read, one in calls if isinstance(one, ast.Call) and one.func is read]


def _counts_of(script: Script, cls: ast.ClassDef) -> Iterator[str]:
    """The attributes that a class binds to the length of what it gives one by one, and to nothing else, and the methods that give
    that of its sampler of batches."""
    methods = script.methods(cls)
    for method in methods:
        sizes = [n for n in script.returned(method) if isinstance(n, ast.Call) and last_name(n.func) == "len"]
        of = [v for n in sizes for one in methods for v in script.values(one, written(n.args[0]))]
        if of and all("BatchSampler" in last_name(getattr(one, "func", one)) for one in of):
            yield f"{method.name}()"
    nodes = [n for m in methods if m.name in ("__iter__", "__next__") for n in script.within(m)]
    items = [n for n in nodes if isinstance(n, ast.Subscript)]
    cut = {written(n.value) for n in items if isinstance(n.slice, ast.Slice)}
    given = {written(n.value) for n in items} | {written(n.iter) for n in nodes if isinstance(n, ast.For)}
    lengths = {f"len({one})" for one in given - cut if one.startswith("self.")}
    stores = [s for m in methods for s in script.within(m) if isinstance(s, ast.Attribute)]
    for text in {written(s) for s in stores if isinstance(s.ctx, ast.Store)} if lengths else ():
        values = [value for m in methods for value in script.values(m, text)]
        bound = [s for m in methods for s in script.stores(m, text)]
        if len(values) == len(bound) and {ast.unparse(one) for one in values} <= lengths:
            yield text.removeprefix("self.")


def _length_of_maker(script: Script, node: ast.expr) -> str:
    """`len(rows)` of `rows(epoch)` or `rows.batches()`, where the class of the project divides there: a number of batches."""
    makers = script.functions("__len__") if isinstance(node, ast.Call) else []
    for length, cls in ((one, script.class_of(one)) for one in makers):
        divided = (n.op for n in script.within(length) if isinstance(n, ast.BinOp))
        if cls is None or not any(isinstance(one, ast.Div | ast.FloorDiv) for one in divided):
            continue
        for method in script.methods(cls):
            if isinstance(node, ast.Call) and method is not length and node in script.callers(method):
                func = written(node.func)
                return f"len({func if method.name == '__call__' else func.rpartition('.')[0]})"
    return ""


def stands_by_count(script: Script, node: ast.expr, counters: set[str]) -> bool:
    """Whether a number is compared with a count, divides it, is divided by it, `seconds * batches / i`, or is shown in one call
    with it, and nothing else is computed."""
    below: ast.AST = node
    scaled = False
    for one in script.around(node):
        if isinstance(one, ast.BinOp) and isinstance(one.op, _SIGNS):
            other = one.left if below is one.right else one.right
            if isinstance(one.op, ast.Div | ast.Mod) and texts_in(other) & counters:
                return True
            if not isinstance(other, ast.Constant) or isinstance(other.value, str):
                scaled = isinstance(one.op, ast.Mult)
                if not scaled:
                    return False
        elif isinstance(one, ast.Compare):
            test = script.parent(one)  # `if i >= batches: break` is harmless: the loop ends before it
            ends = isinstance(test, ast.If) and isinstance(test.body[-1], ast.Break)
            return bool(texts_in(one) & counters) and not ends
        elif isinstance(one, ast.Call) and last_name(one.func) in ROUNDS:
            return False  # which is such a number itself
        else:
            break
        below = one
    statement = script.statement(node)
    return not scaled and isinstance(statement, ast.Expr) and bool(names_in(statement) & counters)


def _plan_end(plan: Plan, accelerators: Accelerators, test: ast.expr, counters: set[str]) -> None:
    """`if i * len(x) > limit: break`"""
    for one in test.values if isinstance(test, ast.BoolOp) else [test]:
        left = one.left if isinstance(one, ast.Compare) else None
        if isinstance(left, ast.BinOp) and _is_count_of_rows(left, counters):
            plan_position(plan, accelerators, left)


def _is_position(script: Script, frame: Frame, node: ast.BinOp, counters: set[str]) -> bool:
    """Whether `i * batch_size` is shown beside the number of all rows."""
    shown = script.statement(node)
    is_size = _is_count_of_rows(node, counters) and last_name(node.right) == "batch_size"
    return (
        is_size
        and isinstance(shown, ast.Expr)
        and any(is_length(script, frame, part) for part in walk(shown))
    )


def _is_count_of_rows(node: ast.BinOp, counters: set[str]) -> bool:
    """`i * len(x)`, `i * args.batch_size`"""
    count = names_in(node.left)
    return is_rows(node.right) and isinstance(node.op, ast.Mult) and bool(count) and count <= counters
