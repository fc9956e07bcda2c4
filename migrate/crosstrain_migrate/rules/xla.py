"""CT701: shapes that depend on values
CT702: branches on a tensor's value
CT703: values read in every step
CT704: lengths that follow the batch
CT705: loop counts and slices that vary
CT706: recurrent layers and packed sequences
CT707: autocast for a named device
CT708: rates that go by processes
CT709: tied weights and a plain move

What:   Shapes and branches that depend on values, values read every step, lengths that follow the batch, loops and
        slices that follow a Python number, recurrent layers, autocast for a named device, rates times processes, ties.
Why:    A new shape is a new compilation: seconds on a CPU, up to minutes on a TPU. A value that Python reads stops the
        device until it is there. The costs were counted on XLA's CPU client, over eight steps of a small model.
Before: `x[x > 0] = 0`
After:  `x = torch.where(x > 0, 0, x)`
Advice only: nothing is changed, and a script that never sees a TPU can do without. A script that is converted gets
one note of each rule, `--select CT7` shows every place, `--ignore CT7` none.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

from .base import finding

SHAPES, BRANCHES, READS = "CT701", "CT702", "CT703"
LENGTHS, COUNTS, RECURRENT = "CT704", "CT705", "CT706"
AUTOCAST, RATES, TIES = "CT707", "CT708", "CT709"

_BY_VALUE = {
    "nonzero": ("torch.where with a value for the other places", 7),
    "argwhere": ("torch.where with a value for the other places", 7),
    "masked_select": ("multiplication by the mask", 8),
    "unique": ("torch.bincount with a fixed minlength, or a sum of one_hot", 1),
}
_READERS = frozenset({"item", "tolist", "cpu", "numpy"})
_PRINTERS = frozenset({"builtins.print", "builtins.float", "builtins.int", "builtins.bool"})
_RECURRENT = ("torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN")
_CUDA_AUTOCAST = ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast")
_ANY_AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_SIZES = ("torch.distributed.get_world_size", "torch.cuda.device_count")
_RANDOM = frozenset(
    {
        "random.randint",
        "random.randrange",
        "random.choice",
        "numpy.random.randint",
        "numpy.random.choice",
    }
)
_PADDED = (
    "pad_sequence makes each batch as long as its longest sequence: a new shape nearly every step",
    "pad to a few lengths: collate_fn=crosstrain.utils.pad_collate(multiple_of=64, fields=[...])",
)
_PACKED = (
    "packed sequences do not run on XLA at all: their batch sizes depend on values",
    "pad to a fixed length and mask the outputs",
)
Advice = tuple[ast.AST, str, str]  # where, why, what to do instead


def advise(facts: Facts) -> list[Finding]:
    """Every note of this family, in the order of the script; one for each place, reads one for each loop."""
    found = [
        finding(rule, node, reason, remedy, Severity.NOTE)
        for rule, search in _SEARCHES.items()
        for node, reason, remedy in search(facts)
    ]
    return sorted(dict.fromkeys(found), key=lambda one: (one.line, one.column, one.rule))


def one_of_each(advice: list[Finding]) -> list[Finding]:
    """One note for each rule, at its first place; the lines of the others are only named."""
    places: dict[str, list[Finding]] = {}
    for one in advice:
        places.setdefault(one.rule, []).append(one)
    return [replace(first, reason=first.reason + _also(others)) for first, *others in places.values()]


def _also(others: list[Finding]) -> str:
    lines = list(dict.fromkeys(str(one.line) for one in others))
    if not lines:
        return ""
    shown = ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
    return f" (also line{'s' if len(lines) > 1 else ''} {shown})"


# -- steps, tensors, masks -----------------------------------------------------------------------------------------


def _each_step(facts: Facts, node: ast.AST) -> bool:
    """Whether the code runs once a batch: in a loop over batches, in what such a loop calls, or in a module."""
    return facts.in_batch_loop(node) or facts.in_module(node)


def _is_tensor(facts: Facts, node: ast.AST) -> bool:
    return any(isinstance(value, FromBatch) and not value.host for value in facts.of(node))


def _is_mask(facts: Facts, node: ast.AST, depth: int = 0) -> bool:
    """Whether the expression is a boolean tensor: a comparison with a tensor, or such masks joined by & | ~."""
    if isinstance(node, ast.Compare):
        return any(_may_be_tensor(facts, side) for side in _compared(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_mask(facts, node.operand, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return _is_mask(facts, node.left, depth) and _is_mask(facts, node.right, depth)
    if isinstance(node, ast.Name) and depth < 3:
        values = [_assigned(facts, definition) for definition in facts.bindings(node)]
        return bool(values) and all(v is not None and _is_mask(facts, v, depth + 1) for v in values)
    return False


def _compared(node: ast.Compare) -> list[ast.expr]:
    """The sides of a comparison that is made element by element, as `is` and `in` are not."""
    if any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in node.ops):
        return []
    return [node.left, *node.comparators]


def _assigned(facts: Facts, definition: ast.AST) -> ast.expr | None:
    statement = facts.table.statement_of(definition)
    if isinstance(statement, ast.Assign) and statement.targets[0] is definition:
        return statement.value
    return None


def _may_be_tensor(facts: Facts, node: ast.AST) -> bool:
    """A tensor of the batch; in a module, any variable may be one."""
    return _is_tensor(facts, node) or (isinstance(node, ast.Name) and facts.in_module(node))


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 50 else text[:47] + "..."


# -- CT701: shapes -----------------------------------------------------------------------------------------------


def _shapes(facts: Facts) -> Iterator[Advice]:
    for node in facts.nodes:
        if isinstance(node, ast.Subscript) and _each_step(facts, node):
            if _is_mask(facts, node.slice) and _may_be_tensor(facts, node.value):
                yield _indexing(facts, node)
        elif isinstance(node, ast.Call) and _each_step(facts, node):
            name = _shape_by_value(facts, node)
            if name is not None:
                instead, count = _BY_VALUE[name]
                yield (
                    node,
                    f"the size of {name}'s result depends on values: XLA leaves it to the CPU, and what follows was "
                    f"compiled {count} times in 8 steps",
                    f"use {instead}, which keeps the shape",
                )


def _indexing(facts: Facts, node: ast.Subscript) -> Advice:
    base, mask = _text(node.value), _text(node.slice)
    statement = facts.table.statement_of(node)
    if isinstance(statement, ast.Assign) and statement.targets == [node]:
        remedy = f"choose with torch.where({mask}, ..., {base}), which keeps the shape"
        if isinstance(statement.value, ast.Constant | ast.UnaryOp):
            remedy = f"write {base} = torch.where({mask}, {_text(statement.value)}, {base})"
        reason = f"assigning to {base}[{mask}] was compiled 9 times in 8 steps: the number of places differs"
        return node, reason, remedy
    return (
        node,
        f"{base}[{mask}] has another shape for every batch: it was compiled 8 times in 8 steps",
        f"keep all rows: multiply by the mask, or use torch.where({mask}, {base}, 0), and divide sums by ({mask}).sum()",
    )


def _shape_by_value(facts: Facts, call: ast.Call) -> str | None:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _BY_VALUE:
        return None
    name = call.func.attr
    of_tensor = f"torch.{name}" in facts.paths(call.func) or _may_be_tensor(facts, call.func.value)
    return name if of_tensor else None


# -- CT702, CT703: values that Python reads -------------------------------------------------------------------------


def _branches(facts: Facts) -> Iterator[Advice]:
    for node in facts.each(ast.If, ast.While, ast.IfExp):
        if _each_step(facts, node) and any(_decides(facts, part) for part in _conditions(node.test)):
            yield (
                node.test,
                f"`{_text(node.test)}` is known only when the device has finished: the step becomes two graphs with a "
                f"wait between them",
                "choose with torch.where, or decide once in many steps",
            )


def _conditions(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _conditions(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _conditions(test.operand)
    else:
        yield test


def _decides(facts: Facts, test: ast.expr) -> bool:
    """Whether the truth of the expression is a tensor's."""
    if isinstance(test, ast.Compare):
        return any(_is_tensor(facts, side) for side in _compared(test))
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
        return test.func.attr in ("any", "all", "equal", "allclose") and _is_tensor(facts, test)
    return _is_tensor(facts, test)


def _reads(facts: Facts) -> Iterator[Advice]:
    """One note for each loop: at its first read, with the number of them."""
    loops: dict[ast.AST, list[ast.Call]] = {}
    for call in facts.calls:
        if _reads_value(facts, call) and facts.in_batch_loop(call) and not _rarely(facts, call):
            around = facts.batch_loop_around(call) or facts.enclosing_function(call)
            if around is not None:
                loops.setdefault(around, []).append(call)
    for calls in loops.values():
        count = f"{len(calls)} values are" if len(calls) > 1 else f"`{_text(calls[0])}` is"
        yield (
            calls[0],
            f"{count} read in every step: on a TPU each read waits for the device",
            "add up on the device (total += loss.detach()) and read once, after the loop",
        )


def _reads_value(facts: Facts, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _READERS:
        return _is_tensor(facts, call.func.value)
    if facts.paths(call.func) & _PRINTERS or getattr(call.func, "id", "") in ("print", "float"):
        return any(_is_tensor(facts, part) for argument in call.args for part in _shown(argument))
    return False


def _shown(argument: ast.expr) -> list[ast.expr]:
    if isinstance(argument, ast.JoinedStr):
        return [part.value for part in argument.values if isinstance(part, ast.FormattedValue)]
    return [argument]


def _rarely(facts: Facts, node: ast.AST) -> bool:
    """Whether it stands under `if step % n == 0` or the like."""
    for around in facts.table.ancestors(node):
        if isinstance(around, ast.If) and any(
            isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in walk(around.test)
        ):
            return True
        if isinstance(around, ast.For | ast.While | ast.FunctionDef | ast.AsyncFunctionDef):
            return False
    return False


# -- CT704, CT705: sizes that follow Python ----------------------------------------------------------------------


def _lengths(facts: Facts) -> Iterator[Advice]:
    for call in facts.calls:
        if any(_to_longest(keyword) for keyword in call.keywords):
            yield (
                call,
                "padding to the longest of each batch makes a new shape nearly every step: 40 steps of lengths 5 to "
                "128 were compiled 32 times, 5 times with multiples of 32",
                'use padding="max_length", or pad_to_multiple_of with truncation',
            )
    for call in facts.calls_to("torch.nn.utils.rnn.pad_sequence"):
        yield call, *_PADDED


def _to_longest(keyword: ast.keyword) -> bool:
    value = keyword.value
    return (
        keyword.arg == "padding"
        and isinstance(value, ast.Constant)
        and (value.value is True or value.value == "longest")
    )


def _counts(facts: Facts) -> Iterator[Advice]:
    for loop in facts.each(ast.For):
        counts = loop not in facts.loops and isinstance(loop.target, ast.Name) and _is_range(loop.iter)
        if counts and _each_step(facts, loop) and _random_size(facts, loop.iter):
            yield (
                loop,
                "the loop runs a random number of times: each number is a graph of its own (8 were compiled in 8 steps)",
                "draw from a few fixed numbers, or run the longest loop and mask what is too much",
            )
    for node in facts.each(ast.Slice):
        ends = [end for end in (node.lower, node.upper) if end is not None]
        if _each_step(facts, node) and any(_random_size(facts, end) for end in ends):
            yield (
                ends[0],
                "the slice starts or ends at another number each step, and each number is a graph of its own",
                "index with a tensor (torch.index_select, x[offset + torch.arange(n)]), which is one graph",
            )


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _random_size(facts: Facts, node: ast.AST, depth: int = 0) -> bool:
    for part in walk(node):
        if isinstance(part, ast.Call) and facts.paths(part.func) & _RANDOM:
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and depth < 3:
            for definition in facts.bindings(part):
                value = _assigned(facts, definition)
                if value is not None and _random_size(facts, value, depth + 1):
                    return True
    return False


# -- CT706 to CT709: layers, devices, processes, ties --------------------------------------------------------------


def _recurrent(facts: Facts) -> Iterator[Advice]:
    for call in facts.calls_to(*_RECURRENT):
        if "torch.nn.GRU" in facts.paths(call.func):
            continue  # torch_xla brings a GRU of its own that is compiled once
        yield (
            call,
            "XLA unrolls the layer over time: one compilation of 16 s for 8 steps of a sequence, 117 s for 64, for "
            "every length",
            "use few, short lengths (pad_collate), or a GRU, which torch_xla compiles as a loop",
        )
    for call in facts.calls_to("torch.nn.utils.rnn.pack_padded_sequence"):
        yield call, *_PACKED


def _autocast(facts: Facts) -> Iterator[Advice]:
    for call in facts.calls_to(*_CUDA_AUTOCAST, *_ANY_AUTOCAST):
        named = given(call, "device_type", 0)
        cuda = facts.paths(call.func) & set(_CUDA_AUTOCAST)
        if cuda or (isinstance(named, ast.Constant) and named.value == "cuda"):
            yield (
                call,
                "this autocast is for CUDA and has no effect, or raises, on any other device",
                'use accelerator.autocast() with Accelerator(mixed_precision="bf16"): TPUs compute in bfloat16',
            )


def _rates(facts: Facts) -> Iterator[Advice]:
    for node in facts.each(ast.BinOp):
        if not isinstance(node.op, ast.Mult | ast.Div):
            continue
        sides = (node.left, node.right)
        if any(_process_count(facts, side) for side in sides) and any(_is_rate(side) for side in sides):
            yield (
                node,
                "on a TPU host one process drives all chips: the number of processes says nothing about the batch",
                "use accelerator.num_replicas, which counts chips there and processes elsewhere",
            )


def _process_count(facts: Facts, node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return bool(facts.paths(node.func) & set(_SIZES))
    attribute = isinstance(node, ast.Attribute) and node.attr == "num_processes"
    return attribute or last_name(node) == "world_size"


def _is_rate(node: ast.expr) -> bool:
    name = last_name(node)
    return name in ("lr", "learning_rate", "base_lr", "rate") or name.endswith(("_lr", "_learning_rate"))


def _ties(facts: Facts) -> Iterator[Advice]:
    for node in facts.each(ast.Assign):
        match node:
            case ast.Assign(
                targets=[ast.Attribute(value=owner, attr="weight") as target],
                value=ast.Attribute(value=other, attr="weight") as tied,
            ) if ast.dump(owner) != ast.dump(other):
                yield (
                    node,
                    f"{_text(target)} and {_text(tied)} are one parameter, and a plain .to(device) on XLA makes two of it",
                    "let prepare move the model, which keeps ties, and leave out other moves",
                )


_SEARCHES: dict[str, Callable[[Facts], Iterator[Advice]]] = {
    SHAPES: _shapes,
    BRANCHES: _branches,
    READS: _reads,
    LENGTHS: _lengths,
    COUNTS: _counts,
    RECURRENT: _recurrent,
    AUTOCAST: _autocast,
    RATES: _rates,
    TIES: _ties,
}
