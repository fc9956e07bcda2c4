"""Which lengths count the batches of one process: those that are read beside a loop's own count of them."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator

from crosstrain_migrate.core.reading.alike import counters_of, turns_of
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import LOOPS, Frame, Loop, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.syntax.nodes import last_name, words, written
from crosstrain_migrate.syntax.walks import stores_in, texts_in, walk, walk_all

from .ends import lengths_in_turns
from .schedules import OwnSchedule, given_to
from .taken import counts_taken, frames_of_names


def counted_lengths(
    script: Script, frame: Frame, text: str, schedules: Iterable[OwnSchedule]
) -> list[ast.expr]:
    """Where a loader's length counts the batches of one process: `first_epoch = step // len(loader)`, a schedule's own."""
    in_schedules = {id(n) for one in schedules for n in given_to(script, one)}
    found = []
    for read in script.reads(frame, text):
        length = script.parent(read)
        if not isinstance(length, ast.Call) or last_name(length.func) != "len":
            continue
        share = script.parent(length)
        divides = isinstance(share, ast.BinOp) and isinstance(share.op, ast.Div | ast.FloorDiv | ast.Mod)
        is_share = isinstance(share, ast.BinOp) and divides and share.right is length
        is_bound = isinstance(share, ast.Assign | ast.Tuple)
        counts = (is_bound and counts_in_loops(script, frame, length)) or _tells_the_last(script, share)
        counts = counts or counts_taken(script, frame, text, length) or _starts_count(script, frame, length)
        counts = counts or _measures_progress(script, frame, length) or _divides_turns(script, frame, share)
        counts = counts or _is_shown(script, length) or _counts_own_loop(script, frame, text, share)
        counts = counts or _is_compared(script, length) or _is_compared_by_method(script, length)
        if id(length) in in_schedules or is_share or counts:
            found.append(read)
    return found


def lengths_of_turns(script: Script, data: Data) -> list[ast.expr]:
    """Where the length is read after which what is prepared begins anew, or all of the training ends:
    `if step % n == 0: it = iter(loaders["a"])`, `while step < epochs * n`; and beside the loop's count of batches, also where
    a variable holds it that loops alone read, or in one call with it, `tqdm(Reader(loader), total=len(loader))`."""
    texts = [[ast.unparse(data.node)]]
    if isinstance(data.node, ast.Call) and script.class_made(data.node) is not None:
        # `Reader(loader)` gives as many as its loader.
        texts.append([ast.unparse(one) for one in data.node.args])
    around = list(script.around(data.node))
    tests = [one.test for one in around if isinstance(one, ast.If | ast.While)]
    tests += [one.iter for one in around if isinstance(one, ast.For) and isinstance(one.iter, ast.Call)]
    counts = {n.id for n in walk_all(tests) if isinstance(n, ast.Name)}
    homes = script.homes(data.frame, texts[0][0])
    lengths = [c for home in homes for c in script.calls_in(home) if last_name(c.func) == "len"]
    lengths = [c for c in lengths if list(map(ast.unparse, c.args)) in texts]
    found: list[ast.expr] = []
    for call in (c for c in lengths if script.frame(c) is data.frame):
        above = script.statement(call)
        bound = above.targets if isinstance(above, ast.Assign) else []
        if (
            counts & {n.id for n in walk_all(bound) if isinstance(n, ast.Name)}
            or any(script.table.is_inside(call, test) for test in tests)
            or any(isinstance(one, ast.Call) and one in around for one in script.around(call))
            or counts_in_loops(script, data.frame, call)
            or (data.loop in script.loops_around(call) and _stands_by_counter(script, call))
            or (data.loop in script.loops_around(call) and _divides(script, call, data.loop))
            or _is_compared(script, call)
        ):
            found.append(call.args[0])
    return found


def _counts_own_loop(script: Script, frame: Frame, text: str, bound: ast.AST | None) -> bool:
    """Whether an attribute holds a length for the loop over that loader behind it, of a method that goes over it once a call and
    makes no schedule: `self.steps = len(self.loader)`, for the methods that the loop calls."""
    if not isinstance(bound, ast.Assign) or not isinstance(bound.targets[0], ast.Attribute):
        return False
    behind = script.suite_of(bound)[script.suite_of(bound).index(bound) :]
    loops = [one for one in behind if isinstance(one, ast.For) and text in map(written, walk(one.iter))]
    return bool(loops) and not any(
        _is_in_schedule(script, n) for n in [bound, *script.reads(frame, written(bound.targets[0]))]
    )


def _divides(script: Script, length: ast.Call, loop: ast.AST) -> bool:
    """`total += loss / len(loaders[k])`: what each turn computes anew, not `epoch / len(loaders[k])`."""
    share = script.parent(length)
    if not (isinstance(share, ast.BinOp) and isinstance(share.op, ast.Div) and share.right is length):
        return False
    computed = {written(one) for one in stores_in(loop)}
    return any(written(n) in computed for n in walk(share.left))


def _is_compared(script: Script, length: ast.Call) -> bool:
    """Whether a length, or a multiple of it, is compared with the count of the loop around it: `if step >= 3 * len(loader):`."""
    around = itertools.takewhile(lambda one: isinstance(one, ast.expr), script.around(length))
    test = next((one for one in around if not _computes(one)), None)
    return isinstance(test, ast.Compare) and _has_count(script, test)


def _is_compared_by_method(script: Script, length: ast.Call) -> bool:
    """The same of a length that a method keeps for another one: `self.most = epochs * len(self.loader)`."""
    around = itertools.takewhile(lambda one: isinstance(one, ast.expr), script.around(length))
    bound = script.statement(length)
    targets = bound.targets if isinstance(bound, ast.Assign) and all(map(_computes, around)) else []
    kept = {written(one) for one in targets if isinstance(one, ast.Attribute)}
    methods = [*script.all_methods(script.class_of(script.frame(length)))] if kept else []
    tests = [n for one in methods for n in script.within(one) if isinstance(n, ast.Compare)]
    is_compared = any(kept & texts_in(test) and _has_count(script, test) for test in tests)
    return is_compared and is_plain_for_schedules(script, length)


def is_plain_for_schedules(script: Script, length: ast.Call) -> bool:
    """Whether no schedule goes by a number that attributes keep by a length, but what is given the attribute itself."""
    if not any(_makes_schedule(script, call) for call in script.calls):
        return True
    bound = script.statement(length)
    kept = (
        [one for one in bound.targets if isinstance(one, ast.Attribute)]
        if isinstance(bound, ast.Assign)
        else []
    )
    reads = [
        read
        for text in map(written, kept)
        for home in script.homes(script.frame(length), text)
        for read in script.reads(home, text)
    ]
    around = [[n for n in script.around(read) if isinstance(n, ast.Compare)] for read in reads]
    return all(
        any(_makes_schedule(script, n) for n in script.around(read) if isinstance(n, ast.Call))
        or any(_has_count(script, test) for test in tests)
        for read, tests in zip(reads, around, strict=True)
    )


def _has_count(script: Script, test: ast.Compare) -> bool:
    """Whether a comparison reads what counts the turns of the loop around it."""
    loops = script.loops_around(test)[:1]
    counters = {name for loop in loops for name in (*counters_of(loop, script), *turns_of(loop))}
    grown = (n for loop in loops for n in walk(loop) if isinstance(n, ast.AugAssign))
    counters |= {written(n.target) for n in grown if ast.unparse(n).endswith(" += 1")}
    return bool(texts_in(test) & counters)


def _divides_turns(script: Script, frame: Frame, bound: ast.AST | None) -> bool:
    """Whether a variable holds a length by which steps become epochs: `n = len(loader)`, `for epoch in range(steps // n)`."""
    target = bound.targets[0] if isinstance(bound, ast.Assign) else None
    loops = [one for one in script.within(frame) if isinstance(one, ast.For)]
    return isinstance(target, ast.Name) and any(
        target.id in lengths_in_turns(script, frame, one) for one in loops
    )


def _tells_the_last(script: Script, bound: ast.AST | None) -> bool:
    """Whether an attribute that a length is bound to is read beside a loop's own count of batches alone, `f"{i}/{self.steps}"`,
    or compared with it, `if i == self.steps - 1:`, and no schedule of torch is made for the steps of all processes."""
    targets = bound.targets if isinstance(bound, ast.Assign) and isinstance(bound.value, ast.Call) else []
    if len(targets) != 1 or not written(targets[0]).startswith("self."):
        return False
    text = written(targets[0])
    reads = [read for one in script.homes(script.frame(targets[0]), text) for read in script.reads(one, text)]
    if reads and all(_stands_by_counter(script, read) for read in reads):
        return True
    if any(script.dotted(call.func).startswith("torch.optim.lr_scheduler.") for call in script.calls):
        return False
    return any(
        isinstance(one, ast.Compare) and names_in(one) & counters_of(loop, script)
        for read in reads
        for one in script.around(read)
        for loop in script.loops_around(read)
    )


def counts_in_loops(script: Script, frame: Frame, length: ast.Call) -> bool:
    """Whether a length is bound to a variable, `done, n = 0, len(loader)`, that is read in loops alone, beside steps that are
    counted there; a notebook's cells above its training keep what they have."""
    target = _target_of(script, length)
    if is_linked(script.text) or not isinstance(target, ast.Name) or script.loops_around(length):
        return False
    reads = [n for n in walk(frame) if isinstance(n, ast.Name) and n.id == target.id and n is not target]
    return bool(reads) and all(
        script.frame(one) is frame and script.loops_around(one) and not _is_in_schedule(script, one)
        for one in reads
    )


def _target_of(script: Script, length: ast.Call) -> ast.expr | None:
    """What a statement binds to a length, or to what a call makes of it, also beside others."""
    bound = script.statement(length)
    if not isinstance(bound, ast.Assign) or len(bound.targets) != 1:
        return None
    target, value = bound.targets[0], bound.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and length in value.elts:
        return target.elts[value.elts.index(length)] if len(target.elts) == len(value.elts) else None
    return target if isinstance(value, ast.Call) else None


def _measures_progress(script: Script, frame: Frame, length: ast.Call) -> bool:
    """Whether a number that is computed from a length is read beside a loop's count of batches, and else only told above:
    `start = epoch * len(loader)` of `p = (i + start) / total`, `steps = len(loader)` of the file in `if i == steps:` of
    the function that trains."""
    bound = script.statement(length)
    targets = bound.targets if isinstance(bound, ast.Assign) and not is_linked(script.text) else []
    inside = itertools.takewhile(lambda one: one is not bound, script.around(length))
    if len(targets) != 1 or not all(map(_computes, inside)):
        return False
    name = targets[0].id if isinstance(targets[0], ast.Name) else ""
    frames = frames_of_names(script, frame, {name})
    reads = [read for one in frames for given in script.reads(one, name) for read in _handed(script, given)]
    told = [read for read in reads if not script.loops_around(read) and _is_told(script, bound, read)]
    return len(told) < len(reads) and all(
        _stands_by_counter(script, one) or _is_divided_by(script, one, length)
        for one in reads
        if one not in told
    )


def _handed(script: Script, read: ast.expr) -> list[ast.expr]:
    """Where a number is read: by the function of the project that is given it, if that reads it."""
    call = next((one for one in script.around(read) if isinstance(one, ast.Call)), None)
    given = [(f, script.given_by(call, f)) for f in script.run_by(call)] if call is not None else []
    found = [n for f, names in given for name in names if names[name] is read for n in script.reads(f, name)]
    return found or [read]


def _is_divided_by(script: Script, read: ast.expr, length: ast.Call) -> bool:
    """`range(ceil(steps / len(loader)))`: the epochs of steps that are a multiple of that length."""
    share = script.parent(read)
    if not isinstance(share, ast.BinOp) or not isinstance(share.op, ast.Div | ast.FloorDiv):
        return False
    return share.left is read and ast.unparse(share.right) == ast.unparse(length)


def _computes(node: ast.AST) -> bool:
    """`n + 1`, `max(1, n)`, `math.ceil(9.5 * n)`, `args.every or n`, `args.every if args.every else n`"""
    is_bound = isinstance(node, ast.Call) and last_name(node.func) in ("max", "min", "int", "ceil", "round")
    return is_bound or isinstance(node, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.BoolOp)


def _is_shown(script: Script, length: ast.Call) -> bool:
    """Whether a length is only shown, above all loops: as it is, by a call of its own, `log("{} steps".format(len(loader)))`, or
    as the end of a bar that moves with the batches, `bar = tqdm(total=rows * len(loader))`."""
    statement = script.statement(length)
    if script.loops_around(statement) or is_linked(script.text):
        return False
    around = list(itertools.takewhile(lambda one: one is not statement, script.around(length)))
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return all(isinstance(one, _TEXTS) or _writes_text(one) for one in around)
    bar = next((one for one in around if isinstance(one, ast.Call) and last_name(one.func) in _BARS), None)
    if bar is None or not (names := script.names_of(bar)):
        return False
    argument, step = _BARS[last_name(bar.func)]
    end = next((k for k in bar.keywords if k.arg == argument), None)
    moves = {f"{name}.{step}" for name in names}
    return (
        end in around
        and all(one in (bar, end) or _computes(one) or isinstance(one, ast.withitem) for one in around)
        and any(
            script.loops_around(n) for n in script.calls_in(script.frame(bar)) if written(n.func) in moves
        )
    )


_BARS = {"tqdm": ("total", "update"), "Bar": ("max", "next")}  # what says where it ends, and what moves it
_TEXTS = (ast.JoinedStr, ast.FormattedValue, ast.Tuple, ast.keyword)
_TELLING = words("print format info debug log write warning")


def _writes_text(node: ast.AST) -> bool:
    is_format = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and "'" in ast.unparse(node.left)
    return is_format or (isinstance(node, ast.Call) and last_name(node.func) in _TELLING)


def _starts_count(script: Script, frame: Frame, length: ast.Call) -> bool:
    """Whether a number that is computed from a length is where a count of batches begins: `step = first * len(loader)`, and
    `step += 1` in a loop, or in a method of the same object."""
    bound, share = script.statement(length), script.parent(length)
    if not isinstance(bound, ast.Assign) or not isinstance(share, ast.BinOp) or is_linked(script.text):
        return False
    inside = itertools.takewhile(lambda one: one is not bound, script.around(length))
    if len(bound.targets) != 1 or not all(map(_computes, inside)):
        return False
    text = written(bound.targets[0])
    frames = script.homes(frame, text)
    raised = (n for one in frames for n in script.within(one) if isinstance(n, ast.AugAssign))
    return any(
        ast.unparse(one) == f"{text} += 1" and (len(frames) > 1 or script.loops_around(one)) for one in raised
    )


def _is_told(script: Script, bound: ast.stmt, read: ast.expr) -> bool:
    """Whether a number is read by a call of its own in the same block, above all loops: `print(total)`, or one that makes room for
    as many numbers, `losses = np.zeros(total)`."""
    suite, statement = script.suite_of(bound), script.statement(read)
    loops = [i for i, one in enumerate(suite) if isinstance(one, LOOPS)]
    above = suite[: loops[0]] if loops else suite
    call = getattr(statement, "value", None)
    is_alone = isinstance(statement, ast.Expr) or last_name(getattr(call, "func", statement)) in (
        "zeros",
        "empty",
    )
    return statement in above and isinstance(call, ast.Call) and is_alone


def _stands_by_counter(script: Script, read: ast.expr) -> bool:
    """Whether a number is read in one expression with a loop's count of batches."""
    beside = [one for one in script.around(read) if isinstance(one, ast.expr)]
    loops = script.loops_around(read)
    counters = {name for loop in loops for name in (*counters_of(loop, script), *turns_of(loop))}
    counters |= {name for loop in loops for name in _counted_with(loop, counters)}
    return bool(beside) and bool(names_in(beside[-1]) & counters) and not _is_in_schedule(script, read)


def _counted_with(loop: Loop, counters: set[str]) -> Iterator[str]:
    """`step` of `step = epoch * len(loader) + i + 1`"""
    for one in walk(loop):
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        if isinstance(one, ast.Assign) and isinstance(target, ast.Name) and isinstance(one.value, ast.BinOp):
            calls = [part for part in walk(one.value) if isinstance(part, ast.Call)]
            if all(last_name(call.func) == "len" for call in calls) and names_in(one.value) & counters:
                yield target.id


def _makes_schedule(script: Script, call: ast.Call) -> bool:
    """Whether a call makes a schedule, of torch or, by its name, of another library: `get_linear_schedule_with_warmup(...)`."""
    return "lr_scheduler" in script.dotted(call.func) or "schedule" in last_name(call.func).lower()


def _is_in_schedule(script: Script, node: ast.AST) -> bool:
    """Whether something is given to a schedule of torch, which is made for the steps of all processes."""
    calls = (one for one in script.around(node) if isinstance(one, ast.Call))
    return any("lr_scheduler" in (script.dotted(one.func) or "") for one in calls)
