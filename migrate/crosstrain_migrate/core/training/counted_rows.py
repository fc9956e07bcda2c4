"""CT201 by use: a count of rows, `seen += args.batch_size`, that stands beside the number of all rows is that of all processes."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, last_name, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

RULE = "CT201"
ON_EVERY = "a step takes a batch on every process"
_TOGETHER = (ast.BinOp, ast.Compare, ast.Call, ast.JoinedStr)  # in which numbers meet
_SIZE = re.compile(r"batch_?size", re.I)
_BATCHES = re.compile(r"len\((?![^)]*dataset)[^)]*(loader|batches|dl\b)|/", re.I)  # a number of them


def plan_counted_rows(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Counts the rows of all processes where a loop over divided data counts by the size of its batches; a count that grows
    beside such a one does, too: a run that goes on may compute one from the other. So does a bar that ends with all rows."""
    script = plan.script
    for data in roles.data:
        counts = _counts_rows(script, data.loop) if data.loop is not None else []
        sizes = _moves_by_rows(script, data.frame, data.loop) if data.loop is not None else []
        sizes += _told_by_rows(script, data.loop) if data.loop is not None else []
        for count in counts:
            beside = [one for one in counts if written(one.value) == written(count.value)]
            known = any(_meets_all_rows(script, data.frame, written(one.target)) for one in beside)
            limits = _rows_that_end(script, data.loop, written(count.target))
            if (known or limits) and not _takes_mean(script, data.frame, written(count.target)):
                sizes += [count.value, *_parts_of_limit(script, data.frame, count.value, limits)]
        for size in sizes:
            if (accelerator := accelerators.may_be_at(size)) is not None:
                plan.replace(size, RULE, ON_EVERY, f"{{size}} * {accelerator}.num_processes", size=size)


def _moves_by_rows(script: Script, frame: Frame, loop: Loop) -> list[ast.expr]:
    """The rows by which a loop moves a bar that ends with all of them: `with tqdm(total=len(rows)) as bar`, which an attribute
    may hold for the loop of another method: `self.bar = bar`."""
    moves = [n for n in walk(loop) if is_method(n, "update") and n.args and is_rows(n.args[0])]
    return [one.args[0] for one in moves if _ends_with_rows(script, frame, written(one.func.value))]


def _told_by_rows(script: Script, loop: Loop) -> list[ast.expr]:
    """The rows of each turn that an object of the project adds to its count, `progress.update(len(x))`, of which it asks how much it
    is of all: `self.seen / self.total`."""
    calls = [n for n in walk(loop) if isinstance(n, ast.Call) and len(n.args) == 1 and is_rows(n.args[0])]
    calls = [n for n in calls if written(getattr(n.func, "value", n.func)) not in script.bars]
    own = [(one, f) for one in calls for f in script.functions_of(one) if one in script.callers(f)]
    return [one.args[0] for one, method in own if _adds_to_share(script, method)]


def _adds_to_share(script: Script, method: Function) -> bool:
    """`self.seen += number`, and nothing else of that number, beside `self.seen / self.total`, which is made with `len(rows)`"""
    cls, given = script.class_of(method), {one.arg for one in method.args.args[1:]}
    added = [n for n in script.within(method) if isinstance(n, ast.AugAssign) and written(n.value) in given]
    if cls is None or len(added) != 1 or len(script.reads(method, written(added[0].value))) != 1:
        return False
    count, methods = written(added[0].target), script.methods(cls)
    if not count.startswith("self.") or any(_takes_mean(script, one, count) for one in methods):
        return False
    reads = [(one, script.parent(read)) for one in methods for read in script.reads(one, count)]
    shares = [(one, n.right) for one, n in reads if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    return any(_is_of_rows_given(script, cls, total) for _, total in shares)


def _is_of_rows_given(script: Script, cls: ast.ClassDef, total: ast.expr) -> bool:
    """Whether an attribute is bound to nothing but what the class is made with, the number of all rows."""
    bound = [(one, value) for one in script.methods(cls) for value in script.values(one, written(total))]
    given = [one for init, value in bound for one in script.given_for(init, written(value))]
    return (
        len(bound) == 1
        and bool(given)
        and all(
            is_length(script, script.frame(call), part) and not _BATCHES.search(ast.unparse(part))
            for part, call in given
        )
    )


def _ends_with_rows(script: Script, frame: Frame, bar: str) -> bool:
    for home in [frame, *(script.frames if bar.startswith("self.") else ())]:
        names = {bar, *map(written, script.values(home, bar))}
        calls = (call for call in script.calls_in(home) if script.names_of(call) & names)
        if any(_is_of_rows(script, home, k.value) for c in calls for k in c.keywords if k.arg == "total"):
            return True
    return False


def _is_of_rows(script: Script, frame: Frame, end: ast.expr) -> bool:
    """`len(rows)`, what is computed from it, `len(rows) - held_back`, or a variable that is bound to nothing else; also what an
    object of the project was made with: `progress.total`."""
    if isinstance(end, ast.Attribute) and not script.values(frame, written(end)):
        own = ast.Attribute(ast.Name("self", ast.Load()), end.attr, ast.Load())
        return any(_is_of_rows_given(script, cls, own) for cls in script.table.each(ast.ClassDef))
    values = script.values(frame, written(end)) or [end]
    return all(
        any(is_length(script, frame, part) for part in walk(one)) and not _BATCHES.search(ast.unparse(one))
        for one in values
    )


def _counts_rows(script: Script, loop: Loop) -> list[ast.AugAssign]:
    """`seen += args.batch_size`, in each turn of a loop."""
    return [
        n
        for n in walk(loop)
        if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add) and script.loops_around(n)[:1] == [loop]
        if isinstance(n.value, ast.Name | ast.Attribute) and _SIZE.search(last_name(n.value)) is not None
        if not _changes(loop, n.value)
    ]


def _rows_that_end(script: Script, loop: Loop | None, count: str) -> set[str]:
    """What ends a training, or a part of it, by so many rows: `if seen > args.images: break`, `while seen < args.images:`."""
    around = [one.test for one in script.loops_around(loop) if isinstance(one, ast.While)] if loop else []
    ends = [n for n in walk(loop) if isinstance(n, ast.If)] if loop else []
    ends = [n for n in ends if any(isinstance(one, ast.Break | ast.Return) for one in walk_all(n.body))]
    compared = [n for n in (*around, *(one.test for one in ends)) if isinstance(n, ast.Compare)]
    sides = [{written(one.left), *map(written, one.comparators)} for one in compared]
    return {text for those in sides if count in those for text in those - {count}}


def _parts_of_limit(script: Script, frame: Frame, size: ast.expr, limits: set[str]) -> list[ast.expr]:
    """`size` of `faded += size / args.images`, which grows with the count of rows"""
    shares = [n for n in script.within(frame) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
    return [n.left for n in shares if written(n.right) in limits and written(n.left) == written(size)]


def _changes(loop: Loop, size: ast.expr) -> bool:
    return written(size) in map(written, stores_in(loop))


def _meets_all_rows(script: Script, frame: Frame, text: str) -> bool:
    """Whether a count is computed with, compared with, or given or shown with a length, and no mean is taken by it."""
    reads = script.reads(frame, text)
    if _takes_mean(script, frame, text):
        return False
    beside = (one for read in reads for one in script.around(read) if isinstance(one, _TOGETHER))
    return any(is_length(script, frame, part) for part in walk_all(beside))


def _takes_mean(script: Script, frame: Frame, text: str) -> bool:
    parents = map(script.parent, reads := script.reads(frame, text))
    return any(
        isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div | ast.FloorDiv) and one.right is of
        for one, of in zip(parents, reads, strict=True)
    )


def is_length(script: Script, frame: Frame, node: ast.AST) -> bool:
    """`len(rows)`, or a variable that is bound to nothing else."""
    if isinstance(node, ast.Name):
        values = script.values(frame, node.id)
        return bool(values) and all(
            isinstance(one, ast.Call) and last_name(one.func) == "len" for one in values
        )
    return isinstance(node, ast.Call) and last_name(node.func) == "len" and bool(names_in(node))


def plan_position(plan: Plan, accelerators: Accelerators, rows: ast.BinOp) -> None:
    if (accelerator := accelerators.may_be_at(rows)) is not None:
        code = f"{{rows}} * {accelerator}.num_processes"
        plan.replace(rows, RULE, ON_EVERY, code, rows=rows)


def is_rows(node: ast.expr) -> bool:
    """`len(x)`, `x.size(0)`, `args.batch_size`"""
    is_size = last_name(node) == "batch_size" or is_method(node, "size") or "shape" in ast.unparse(node)
    return is_size or (isinstance(node, ast.Call) and last_name(node.func) == "len")
