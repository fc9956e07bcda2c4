"""CT201 by use: a data set, or its sampler, that is made as long as the steps that are taken of it, by `next`, in a loop that they
end, or in the one pass that a training is.

Each process has its share of the batches, and takes all the steps: it would come to their end too soon.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import counters_of
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Loop
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import texts_in, walk, walk_all

RULE = "CT201"
REASON = "each process takes all the steps, and has its share of the batches"


def plan_dataset_length(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Makes the data set so many times longer as there are processes."""
    script = plan.script
    for data in roles.data:
        loops = [
            loop
            for one in roles.backwards
            for loop in (script.loops_around(one.call) if data.loop is None else ())
            if script.frame(loop) is script.frame(data.node) and loop not in script.loops_around(data.node)
        ]
        steps = {text for loop in loops for text in _steps_of(loop)} | _steps_that_end(script, data.loop)
        is_one_pass = data.loop is not None and not script.loops_around(data.loop)
        for length, size in _given_to_data(script, data) if steps or is_one_pass else ():
            rows = _factors(length)
            is_all = is_one_pass and size in rows and len(rows) > 1
            if (is_all or (steps & rows and not size)) and (
                name := accelerators.may_be_at(length)
            ) is not None:
                # A pass that is all of the training has its steps already where the processes share each batch.
                many = f"(1 if {name}.split_batches else {name}.num_processes)"
                code = f"{{it}} * {many if is_all else f'{name}.num_processes'}"
                plan.replace(length, RULE, REASON, code, it=length)


def _steps_of(loop: Loop) -> set[str]:
    """`args.steps` of `for i in range(args.steps)`"""
    counted = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(counted, ast.Call) or written(counted.func) != "range" or len(counted.args) > 2:
        return set()
    return {ast.unparse(one) for one in counted.args[-1:]}


def _steps_that_end(script: Script, loop: Loop | None) -> set[str]:
    """`args.steps` of `if i >= args.steps - 1: break`, in a loop over data."""
    breaks = [n for n in walk(loop) if isinstance(n, ast.Break) and script.loop_of(n) is loop] if loop else []
    tests = [
        test for one in breaks if isinstance(test := getattr(script.parent(one), "test", None), ast.Compare)
    ]
    counted = [one for one in tests if loop and written(one.left) in counters_of(loop, script)]
    ends = [one.comparators[0] for one in counted]
    lengths = [n for n in walk_all(ends) if isinstance(n, ast.Call) and last_name(n.func) == "len"]
    return {text for one in ends for text in texts_in(one)} - {text for n in lengths for text in texts_in(n)}


def _given_to_data(script: Script, data: Data) -> Iterator[tuple[ast.expr, str]]:
    """What the data set or the sampler is given of which the loader is made, for a sampler each with the loader's size of a
    batch: `DataLoader(Rows(path, max_iters=args.steps * 4))`, `DataLoader(rows, size, sampler=Drawn(rows, args.steps * size))`."""
    for loader in _made(script, data.node):
        given = {k.arg: k.value for k in loader.keywords}
        given |= dict(zip(("dataset", "batch_size"), loader.args, strict=False))
        size = ast.unparse(given["batch_size"]) if "batch_size" in given else ""
        is_loader = last_name(loader.func) == "DataLoader"
        for name, rows in (("dataset", ""), ("sampler", size)) if is_loader else ():
            for call in _made(script, given[name]) if name in given else ():
                yield from ((value, rows) for value in (*call.args, *(k.value for k in call.keywords)))


def _made(script: Script, node: ast.expr) -> list[ast.Call]:
    values = [node, *script.values(script.frame(node), written(node))]
    return [one for one in values if isinstance(one, ast.Call)]


def _factors(node: ast.expr) -> set[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left) | _factors(node.right)
    return {ast.unparse(node)} if isinstance(node, ast.Name | ast.Attribute) else set()
