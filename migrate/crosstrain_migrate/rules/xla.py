"""CT701: shapes that depend on values
CT702: branches on a tensor's value
CT703: values read in every step
CT704: lengths that follow the batch
CT705: loop counts and slices that vary
CT706: recurrent layers and packed sequences
CT707: autocast for a named device
CT708: rates that go by processes

What:   Shapes and branches that depend on values, values read every step, lengths that follow the batch, loops and
        slices that follow a Python number, recurrent layers, autocast for a named device, rates times processes.
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

from crosstrain_migrate.core.numbers.dealing import Evaluations
from crosstrain_migrate.core.reading.in_step import InStep
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.nodes import last_name, words
from crosstrain_migrate.syntax.walks import walk

SHAPES, BRANCHES, READS = "CT701", "CT702", "CT703"
LENGTHS, COUNTS, RECURRENT = "CT704", "CT705", "CT706"
AUTOCAST, RATES = "CT707", "CT708"

_BY_VALUE = {
    "nonzero": ("torch.where with a value for the other places", 7),
    "argwhere": ("torch.where with a value for the other places", 7),
    "masked_select": ("multiplication by the mask", 8),
    "unique": ("torch.bincount with a fixed minlength, or a sum of one_hot", 1),
}
_READERS = frozenset({"item", "tolist", "cpu", "numpy"})
_PRINTERS = frozenset({"print", "float", "int", "bool"})
_RECURRENT = ("torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN")
_CUDA_AUTOCAST = ("torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast")
_ANY_AUTOCAST = ("torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast")
_SIZES = ("torch.distributed.get_world_size", "torch.cuda.device_count")
_RANDOM = words("random.randint random.randrange random.choice numpy.random.randint numpy.random.choice")
_PADDED = (
    "pad_sequence makes each batch as long as its longest sequence: a new shape nearly every step",
    "pad to a few lengths: collate_fn=crosstrain.utils.pad_collate(multiple_of=64, fields=[...])",
)
_PACKED = (
    "packed sequences do not run on XLA at all: their batch sizes depend on values",
    "pad to a fixed length and mask the outputs",
)
Advice = tuple[ast.expr | ast.stmt, str, str]  # where, why, what to do instead


def advise(text: str) -> list[Finding]:
    """Every note of this family, in the order of a script that trains; one for each place, reads one for each loop."""
    script = Script(text)
    roles = Roles(script)
    if not roles.trains:
        return []
    code = InStep(script, Evaluations(script, roles).loops)
    found = [
        Finding(rule, node.lineno, node.col_offset + 1, reason, remedy, Severity.NOTE)
        for rule, search in _SEARCHES.items()
        for node, reason, remedy in search(code)
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


def _calls_to(code: InStep, *paths: str) -> list[ast.Call]:
    return [call for call in code.script.table.each(ast.Call) if code.script.dotted(call.func) in paths]


def _each_step(code: InStep, node: ast.AST) -> bool:
    """Whether the code runs once a batch: in a loop over batches, in what such a loop calls, or in a module."""
    return code.in_batch_loop(node) or code.in_module(node)


def _is_mask(code: InStep, node: ast.AST, depth: int = 0) -> bool:
    """Whether the expression is a boolean tensor: a comparison with a tensor, or such masks joined by & | ~."""
    if isinstance(node, ast.Compare):
        return any(_may_be_tensor(code, side) for side in _compared(node))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        return _is_mask(code, node.operand, depth)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        return _is_mask(code, node.left, depth) and _is_mask(code, node.right, depth)
    if isinstance(node, ast.Name) and depth < 3:
        values = code.script.values(code.script.frame(node), node.id)
        return bool(values) and all(_is_mask(code, value, depth + 1) for value in values)
    return False


def _compared(node: ast.Compare) -> list[ast.expr]:
    """The sides of a comparison that is made element by element, as `is` and `in` are not."""
    if any(isinstance(op, ast.In | ast.NotIn | ast.Is | ast.IsNot) for op in node.ops):
        return []
    return [node.left, *node.comparators]


def _may_be_tensor(code: InStep, node: ast.AST) -> bool:
    """A tensor of the batch; in a module, any variable may be one."""
    return code.is_tensor(node) or (isinstance(node, ast.Name) and code.in_module(node))


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 50 else text[:47] + "..."


# -- CT701: shapes -----------------------------------------------------------------------------------------------


def _shapes(code: InStep) -> Iterator[Advice]:
    for node in code.script.table.each(ast.Subscript, ast.Call):
        if isinstance(node, ast.Subscript) and _each_step(code, node):
            if _is_mask(code, node.slice) and _may_be_tensor(code, node.value):
                yield _indexing(code, node)
        elif isinstance(node, ast.Call) and _each_step(code, node):
            name = _shape_by_value(code, node)
            if name is not None:
                instead, count = _BY_VALUE[name]
                yield (
                    node,
                    f"the size of {name}'s result depends on values: XLA leaves it to the CPU, and what follows was "
                    f"compiled {count} times in 8 steps",
                    f"use {instead}, which keeps the shape",
                )


def _indexing(code: InStep, node: ast.Subscript) -> Advice:
    base, mask = _text(node.value), _text(node.slice)
    statement = code.script.table.statement_of(node)
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


def _shape_by_value(code: InStep, call: ast.Call) -> str | None:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _BY_VALUE:
        return None
    name = call.func.attr
    of_tensor = code.script.dotted(call.func) == f"torch.{name}" or _may_be_tensor(code, call.func.value)
    return name if of_tensor else None


# -- CT702, CT703: values that Python reads -------------------------------------------------------------------------


def _branches(code: InStep) -> Iterator[Advice]:
    for node in _conditionals(code):
        if _each_step(code, node) and any(_decides(code, part) for part in _conditions(node.test)):
            yield (
                node.test,
                f"`{_text(node.test)}` is known only when the device has finished: the step becomes two graphs with a "
                f"wait between them",
                "choose with torch.where, or decide once in many steps",
            )


def _conditionals(code: InStep) -> list[ast.If | ast.While | ast.IfExp]:
    return code.script.table.each(ast.If, ast.While, ast.IfExp)


def _conditions(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _conditions(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _conditions(test.operand)
    else:
        yield test


def _decides(code: InStep, test: ast.expr) -> bool:
    """Whether the truth of the expression is a tensor's."""
    if isinstance(test, ast.Compare):
        return any(code.is_tensor(side) for side in _compared(test))
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute):
        return test.func.attr in ("any", "all", "equal", "allclose") and code.is_tensor(test)
    return code.is_tensor(test)


def _reads(code: InStep) -> Iterator[Advice]:
    """One note for each loop: at its first read, with the number of them."""
    loops: dict[ast.AST, list[ast.Call]] = {}
    for call in code.script.table.each(ast.Call):
        if _reads_value(code, call) and code.in_batch_loop(call) and not _rarely(code, call):
            around = code.loop_around(call) or code.function_around(call)
            if around is not None:
                loops.setdefault(around, []).append(call)
    for calls in loops.values():
        count = f"{len(calls)} values are" if len(calls) > 1 else f"`{_text(calls[0])}` is"
        yield (
            calls[0],
            f"{count} read in every step: on a TPU each read waits for the device",
            "add up on the device (total += loss.detach()) and read once, after the loop",
        )


def _reads_value(code: InStep, call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in _READERS:
        return code.is_tensor(call.func.value)
    if code.script.dotted(call.func) in _PRINTERS:
        return any(code.is_tensor(part) for argument in call.args for part in _shown(argument))
    return False


def _shown(argument: ast.expr) -> list[ast.expr]:
    if isinstance(argument, ast.JoinedStr):
        return [part.value for part in argument.values if isinstance(part, ast.FormattedValue)]
    return [argument]


def _rarely(code: InStep, node: ast.AST) -> bool:
    """Whether it stands under `if step % n == 0` or the like."""
    for around in code.script.table.ancestors(node):
        if isinstance(around, ast.If) and any(
            isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mod) for part in walk(around.test)
        ):
            return True
        if isinstance(around, ast.For | ast.While | ast.FunctionDef | ast.AsyncFunctionDef):
            return False
    return False


# -- CT704, CT705: sizes that follow Python ----------------------------------------------------------------------


def _lengths(code: InStep) -> Iterator[Advice]:
    for call in code.script.table.each(ast.Call):
        if any(_to_longest(keyword) for keyword in call.keywords):
            yield (
                call,
                "padding to the longest of each batch makes a new shape nearly every step: 40 steps of lengths 5 to "
                "128 were compiled 32 times, 5 times with multiples of 32",
                'use padding="max_length", or pad_to_multiple_of with truncation',
            )
    for call in _calls_to(code, "torch.nn.utils.rnn.pad_sequence"):
        yield call, *_PADDED


def _to_longest(keyword: ast.keyword) -> bool:
    value = keyword.value
    return (
        keyword.arg == "padding"
        and isinstance(value, ast.Constant)
        and (value.value is True or value.value == "longest")
    )


def _counts(code: InStep) -> Iterator[Advice]:
    for loop in code.script.table.each(ast.For):
        counts = loop not in code.loops and isinstance(loop.target, ast.Name) and _is_range(loop.iter)
        if counts and _each_step(code, loop) and _random_size(code, loop.iter):
            yield (
                loop,
                "the loop runs a random number of times: each number is a graph of its own (8 were compiled in 8 steps)",
                "draw from a few fixed numbers, or run the longest loop and mask what is too much",
            )
    for node in code.script.table.each(ast.Slice):
        ends = [end for end in (node.lower, node.upper) if end is not None]
        if _each_step(code, node) and any(_random_size(code, end) for end in ends):
            yield (
                ends[0],
                "the slice starts or ends at another number each step, and each number is a graph of its own",
                "index with a tensor (torch.index_select, x[offset + torch.arange(n)]), which is one graph",
            )


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _random_size(code: InStep, node: ast.AST, depth: int = 0) -> bool:
    for part in walk(node):
        if isinstance(part, ast.Call) and code.script.dotted(part.func) in _RANDOM:
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and depth < 3:
            values = code.script.values(code.script.frame(part), part.id)
            if any(_random_size(code, value, depth + 1) for value in values):
                return True
    return False


# -- CT706 to CT708: layers, devices, processes --------------------------------------------------------------------


def _recurrent(code: InStep) -> Iterator[Advice]:
    for call in _calls_to(code, *_RECURRENT):
        if code.script.dotted(call.func) == "torch.nn.GRU":
            continue  # torch_xla brings a GRU of its own that is compiled once
        yield (
            call,
            "XLA unrolls the layer over time: one compilation of 16 s for 8 steps of a sequence, 117 s for 64, for "
            "every length",
            "use few, short lengths (pad_collate), or a GRU, which torch_xla compiles as a loop",
        )
    for call in _calls_to(code, "torch.nn.utils.rnn.pack_padded_sequence"):
        yield call, *_PACKED


def _autocast(code: InStep) -> Iterator[Advice]:
    for call in _calls_to(code, *_CUDA_AUTOCAST, *_ANY_AUTOCAST):
        named = next((k.value for k in call.keywords if k.arg == "device_type"), next(iter(call.args), None))
        cuda = code.script.dotted(call.func) in _CUDA_AUTOCAST
        if cuda or (isinstance(named, ast.Constant) and named.value == "cuda"):
            yield (
                call,
                "this autocast is for CUDA and has no effect, or raises, on any other device",
                'use accelerator.autocast() with Accelerator(mixed_precision="bf16"): TPUs compute in bfloat16',
            )


def _rates(code: InStep) -> Iterator[Advice]:
    for node in code.script.table.each(ast.BinOp):
        if not isinstance(node.op, ast.Mult | ast.Div):
            continue
        sides = (node.left, node.right)
        if any(_process_count(code, side) for side in sides) and any(_is_rate(side) for side in sides):
            yield (
                node,
                "on a TPU host one process drives all chips: the number of processes says nothing about the batch",
                "use accelerator.num_replicas, which counts chips there and processes elsewhere",
            )


def _process_count(code: InStep, node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return code.script.dotted(node.func) in _SIZES
    attribute = isinstance(node, ast.Attribute) and node.attr == "num_processes"
    return attribute or last_name(node) == "world_size"


def _is_rate(node: ast.expr) -> bool:
    name = last_name(node)
    return name in ("lr", "learning_rate", "base_lr", "rate") or name.endswith(("_lr", "_learning_rate"))


_SEARCHES: dict[str, Callable[[InStep], Iterator[Advice]]] = {
    SHAPES: _shapes,
    BRANCHES: _branches,
    READS: _reads,
    LENGTHS: _lengths,
    COUNTS: _counts,
    RECURRENT: _recurrent,
    AUTOCAST: _autocast,
    RATES: _rates,
}
