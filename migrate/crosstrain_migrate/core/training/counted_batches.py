"""CT201 by use: the number of all batches, `len(rows) // size`, beside a loop's own count of them, and rows that end a pass.

Each process counts its own batches: what is shown, or compared, beside that count is the number of these.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from crosstrain_migrate.core.numbers.whole_counts import ROUNDS, WholeCounts
from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan, share_of
from crosstrain_migrate.core.reading.alike import counters_of, turns_of
from crosstrain_migrate.core.reading.certain import Certain
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, names_in
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
    _plan_renewed(plan, roles, accelerators)
    _plan_taken_turns(plan, roles, accelerators)
    _plan_parts_of_pass(plan, roles, accelerators)
    _plan_ends_within(plan, roles)
    _plan_kept_steps(plan, roles, accelerators)


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
                and (is_dealt or loop in phases or not plan.is_replaced(node))
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
                    code = share_of(one, accelerator)
                if accelerator is not None and not plan.is_replaced(one):
                    plan.replace(one, RULE, REASON, code, it=one)


def _plan_renewed(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Steps by which an iterator is made anew, `if step % steps == 0: batches = iter(loader)`, or that each make one, `for i in
    range(steps): batch = next(iter(loader))`, and that are computed from all rows, `steps = len(rows) // size`, are those of
    one process where they are bound, and all that is counted by them."""
    for data in roles.data:
        around = list(plan.script.around(data.node))
        loop = next((one for one in around if isinstance(one, ast.For)), None)
        if loop is None:
            continue
        tests = [one.test for one in around if isinstance(one, ast.If)]
        ends = [n.right for n in walk_all(tests) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
        if [last_name(one.func) for one in around[:2] if isinstance(one, ast.Call)] == ["iter", "next"]:
            ends += _end_of(loop.iter)
        for end in ends:
            bound = plan.script.values(data.frame, written(end))
            steps = bound[0] if len(bound) == 1 else end
            if WholeCounts(plan, data, loop).is_of_rows(steps):
                _take_share(plan, accelerators, steps)


def _take_share(plan: Plan, accelerators: Accelerators, steps: ast.expr) -> None:
    """The steps of one process; where the processes share each batch a pass has all its steps."""
    state = (name := accelerators.may_be_at(steps)) or plan.state(steps)
    many = f"(1 if {name}.split_batches else {name}.num_processes)"
    code = share_of(steps, state).replace(f"{name}.num_processes", many)
    plan.replace(steps, RULE, REASON, code, it=steps)


def _plan_taken_turns(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Steps that are computed from all rows, `self.steps = ceil(len(rows) / size)`, of a loop whose turns take a batch of an
    iterator that an attribute or a dictionary holds, `next(self.batches["train"])`, in whichever function."""
    script = plan.script
    bound = ((n.targets[0], n.value) for n in script.table.each(ast.Assign) if script.is_reached(n))
    made = [(to, call.args[0]) for to, call in bound if _makes_iterator(call)]
    for data in roles.data:
        around = script.statement(data.node)
        own = [data.node, *(around.targets if isinstance(around, ast.Assign) else [])]
        texts = {written(_container(one)) for one in own}
        held = {written(_container(to)) for to, of in made if written(_container(of)) in texts}
        held = {text for text in held if text.startswith("self.")}
        takes = [c for c in script.calls if last_name(c.func) == "next" and c.args]
        takes = [c for c in takes if written(_container(c.args[0])) in held]
        for loop in {one for call in takes for one in _turns_around(script, call)}:
            for end in _end_of(loop.iter):
                homes = script.homes(script.frame(loop), written(end))
                values = [value for home in homes for value in script.values(home, written(end))]
                is_whole = len(values) == 1 and WholeCounts(plan, data, loop).is_of_rows(values[0])
                if is_whole and not plan.is_replaced(values[0]):
                    _take_share(plan, accelerators, values[0])


def _makes_iterator(call: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(call, ast.Call) and written(call.func) == "iter" and len(call.args) == 1


def _container(node: ast.expr) -> ast.expr:
    """`batches` of `batches[key]`"""
    return node.value if isinstance(node, ast.Subscript) else node


def _turns_around(script: Script, call: ast.Call, depth: int = 4) -> list[ast.For]:
    """The loops over numbers around a call, and around the calls of its function."""
    loops = [one for one in script.loops_around(call) if isinstance(one, ast.For) and is_range(one.iter)]
    frame = script.frame(call)
    if not loops and depth and is_function_frame(frame):
        loops = [one for c in script.callers(frame) for one in _turns_around(script, c, depth - 1)]
    return loops


def _end_of(turns: ast.expr) -> list[ast.expr]:
    """`steps` of `range(steps)` and of `range(1, steps + 1)`"""
    end = turns.args[-1] if isinstance(turns, ast.Call) and is_range(turns) and turns.args else None
    if isinstance(end, ast.BinOp) and isinstance(end.right, ast.Constant):
        end = end.left
    return [] if end is None else [end]


def _plan_parts_of_pass(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Where one pass is all epochs, `epoch = i // batches`, the batches of one, `len(rows) // epochs // size`, are one process's."""
    for data in (one for one in roles.data if isinstance(one.loop, ast.For)):
        assert isinstance(data.loop, ast.For)
        counters, counts = counters_of(data.loop, plan.script), WholeCounts(plan, data, data.loop)
        turns = [n for n in walk(data.loop) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.FloorDiv)]
        names = {written(n.right) for n in turns if names_in(n.left) & counters}
        for part in (value for name in names for value in plan.script.values(data.frame, name)):
            whole = part.left if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv) else None
            if isinstance(whole, ast.BinOp) and counts.is_of_rows(whole):
                state = accelerators.may_be_at(part) or plan.state(part)
                plan.replace(part, RULE, REASON, f"{{it}} // {state}.num_processes", it=part)


def _plan_kept_steps(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """The steps of all epochs that an attribute keeps, `self.total = len(rows) // size * epochs`, where nothing reads it but what
    asks how much a count of the training loop's turns is of them: `self.total / self.step`."""
    script = plan.script
    for data in (one for one in roles.data if isinstance(one.loop, ast.For)):
        assert isinstance(data.loop, ast.For)
        counts = WholeCounts(plan, data, data.loop)
        counters = {one for one in turns_of(data.loop) if one.startswith("self.")}
        shares = [n for n in script.table.each(ast.BinOp) if isinstance(n.op, ast.Div) if counters]
        kept = {written(n.left) for n in shares if written(n.right) in counters}
        for text in sorted(one for one in kept if one.startswith("self.")):
            values = script.values_anywhere(text)
            reads = [read for frame in script.frames for read in script.reads(frame, text)]
            is_compared = all(any(one.left is read for one in shares) for read in reads)
            if len(values) == 1 and is_compared and counts.is_of_steps(values[0]):
                _take_share(plan, accelerators, values[0])


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
                plan.replace(read, RULE, REASON, share_of(read, state), it=read)


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
