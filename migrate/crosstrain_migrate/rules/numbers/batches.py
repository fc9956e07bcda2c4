"""CT605: what depends on how a batch is shared

What:   Tensors that are made for one batch size and meet the rows of a batch; batch normalisation of single rows;
        batches of two loaders in one step; rows that are mixed with others of their batch; statistics of an averaged
        model (`update_bn`) taken from a shared loader; gradients by a batch's own rows; rows that are counted by the
        batch size. Refused: batches that are kept and given again (`itertools.cycle`, `list(loader)`), unless
        drop_last=True makes them even.
Why:    With --split-batches a process gets a part of the loader's batch, and of the last one maybe a single row.

Noted (data):
    batch_size = 8
    train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
    train_loader = DataLoader(train_set, batch_size=batch_size)
And (setup):
    state = torch.zeros(batch_size, 8, device=device)
And (loss):
    out = model(x + state)
    loss = F.cross_entropy(out, y)
Becomes (device):
    accelerator = Accelerator()
    device = accelerator.device  # the fastest there is
Stays (setup):
    bias = torch.zeros(3, device=device)
And (loss):
    out = model(x) + bias
    loss = F.cross_entropy(out, y)
Becomes (device):
    accelerator = Accelerator()
    device = accelerator.device  # the fastest there is
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import arguments_of, given, keywords_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.tensors import PER_SAMPLE, dims_of
from crosstrain_migrate.facts.values import External, Value, site_of
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import all_arguments, last_name, line_of
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values, kinds_of
from .bindings import option

RULE = "CT605"
MAKERS = api.FACTORIES | {"Tensor", "FloatTensor", "LongTensor"}
MAX_DEPTH = 3


def plan(context: Context) -> None:
    sites = (getattr(loader, "site", None) for loader in context.subject.train_loaders)
    given_sizes = (given(site, "batch_size", 1) for site in sites if isinstance(site, ast.Call))
    sizes = [size for size in given_sizes if size is not None]
    # A plain number is too common to be recognised elsewhere.
    variables = {ast.unparse(size) for size in sizes if isinstance(size, ast.Name | ast.Attribute)}
    _tensors_of_one_size(context, variables)
    _single_rows(context)
    _two_loaders(context)
    _mixed_rows(context)
    _averaged_statistics(context)
    _input_gradients(context)
    _counted_by_size(context, variables, sizes)


# -- tensors made for one batch size ---------------------------------------------------------------------------


def _tensors_of_one_size(context: Context, variables: set[str]) -> None:
    for call in context.facts.calls if variables else ():
        size = _constant_size(context, call, variables)
        if size is not None and _meets_rows(context, call, 0):
            context.note(
                RULE,
                call,
                f"this tensor always has `{ast.unparse(size)}` rows, but with --split-batches a process gets fewer rows "
                "of each batch",
                "take the size from the batch (`x.size(0)`), or launch without --split-batches",
            )
            return


def _constant_size(context: Context, call: ast.Call, variables: set[str]) -> ast.expr | None:
    """The argument of a tensor factory that is the loader's batch size."""
    paths = context.facts.paths(call.func)
    if not any(path.startswith("torch.") and api.last(path) in MAKERS for path in paths):
        return None
    parts = [p for a in call.args for p in (a.elts if isinstance(a, ast.Tuple | ast.List) else [a])]
    return next((p for p in parts if _is_size(context, p, variables, 0)), None)


def _is_size(context: Context, node: ast.expr, variables: set[str], depth: int) -> bool:
    if batch_values(context.facts, node):
        return False
    function = context.facts.enclosing_function(node)
    if (
        function is None
        or not isinstance(node, ast.Name)
        or all(argument.arg != node.id for argument in all_arguments(function))
    ):
        return ast.unparse(node) in variables
    if depth >= MAX_DEPTH:
        return False
    sites = context.facts.callers.get(function, ())
    passed = (context.facts.passed(site, function, node.id) for site in sites)
    return any(one is not None and _is_size(context, one, variables, depth + 1) for one in passed)


def _meets_rows(context: Context, made: ast.expr, depth: int) -> bool:
    """Whether a tensor is used together with rows of a training batch: directly, in a variable, through a return."""
    facts = context.facts
    for around in facts.table.ancestors(made):
        if isinstance(around, ast.Return) and depth < MAX_DEPTH:
            function = facts.enclosing_function(around)
            sites = facts.callers.get(function, ()) if function is not None else ()
            return any(_meets_rows(context, site, depth + 1) for site in sites)
        if isinstance(around, ast.Assign) and depth < MAX_DEPTH:
            bound = [n for target in around.targets for n in walk(target)]
            reads = {read for n in bound for read in facts.interp.uses.get(n, ())}
            return any(
                _meets_rows(context, read, depth + 1)
                for read in reads
                if not facts.table.is_inside(read, around)
            )
        if isinstance(around, ast.expr) and _has_rows(facts, around, made) and context.trains_at(around):
            return True
        if isinstance(around, ast.stmt):
            return False
    return False


def _has_rows(facts: Facts, around: ast.expr, made: ast.expr) -> bool:
    """Whether a call or an operation has rows beside `made` among its operands."""
    if isinstance(around, ast.Call):
        operands: list[ast.AST] = [*arguments_of(around)]
    elif isinstance(around, ast.BinOp | ast.Compare):
        operands = [*ast.iter_child_nodes(around)]
    else:
        return False
    return any(kinds_of(facts, o) & PER_SAMPLE for o in operands if not facts.table.is_inside(made, o))


# -- batch normalisation -----------------------------------------------------------------------------------------


def _single_rows(context: Context) -> None:
    """BatchNorm1d fails on a single row, which is all that a process may get of an uneven last batch."""
    made = context.facts.calls_to("torch.nn.BatchNorm1d", "torch.nn.LazyBatchNorm1d")
    if made and not all(map(_drops_last, context.subject.train_loaders)):
        context.note(
            RULE,
            made[0],
            "batch normalisation needs at least two rows, and with --split-batches a process may get a single row of an epoch's last batch",
            "set drop_last=True in the training loader",
            Severity.NOTE,
        )


def _drops_last(loader: Value) -> bool:
    asked = option(loader, "drop_last")
    return asked is not None and not (isinstance(asked, ast.Constant) and asked.value is False)


# -- two loaders in one step -------------------------------------------------------------------------------------


def _two_loaders(context: Context) -> None:
    """A step has one weight for the shares of two batches, so the runtime refuses uneven batches with an error."""
    facts = context.facts
    trained = set(context.subject.train_loaders)
    streams: dict[ast.AST, set[Value]] = defaultdict(set)
    for node, over in facts.interp.iterations.items():
        loop: ast.AST | None = node
        if isinstance(node, ast.Call) and "builtins.next" in facts.paths(node.func):
            loop = facts.batch_loop_around(node)
        if isinstance(node, ast.Call) and loop is not None:
            streams[loop] |= {v for v in over & trained if isinstance(v, External)}
    found = next((loaders for loaders in streams.values() if len(loaders) > 1), None)
    if found is not None:
        names = " and ".join(str(line_of(site_of(v))) for v in facts.in_order(found))
        context.note(
            RULE,
            facts.backward_calls[0][0],
            f"one step takes a batch of each of several loaders (lines {names}): with --split-batches the processes "
            "cannot share batches of different sizes, and those of shuffled loaders are paired differently than in one process",
            "launch without --split-batches, or with batch sizes and data that the number of processes divides",
            Severity.NOTE,
        )


# -- rows that meet other rows -----------------------------------------------------------------------------------


def _mixed_rows(context: Context) -> None:
    """Mixup and the like: a process can only choose among the rows of its own share."""
    for node in context.facts.each(ast.Subscript, ast.Call):
        if _reorders(context, node) and context.trains_at(node):
            context.note(
                RULE,
                node,
                f"`{ast.unparse(node)}` pairs the rows of a batch with each other: each of several processes pairs the rows "
                "of its own share, so the pairs differ from those of one process",
                "nothing to do where any pairs of rows will do, as in mixup and cutmix",
            )
            return


def _reorders(context: Context, node: ast.Subscript | ast.Call) -> bool:
    """Whether an expression gives the rows of a training batch in another order."""
    facts, trained = context.facts, context.subject.train_loaders
    if not any(v.kind == "rows" and v.loader in trained for v in batch_values(facts, node)):
        return False
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        return "order" in kinds_of(facts, first)
    name = last_name(node.func)
    if name in {"flip", "roll"}:
        rest = node.args[1:] if facts.paths(node.func) else node.args
        return 0 in (dims_of(rest, keywords_of(node), 0 if name == "flip" else 1) or ())
    return name == "index_select" and any("order" in kinds_of(facts, a) for a in arguments_of(node))


# -- an averaged model's statistics ------------------------------------------------------------------------------


def _averaged_statistics(context: Context) -> None:
    """`update_bn(loader, swa_model)` communicates nothing: every process measures its own share."""
    for call in context.facts.calls_to("torch.optim.update_bn"):
        if any(context.facts.of(argument) & context.subject.loaders for argument in arguments_of(call)):
            context.note(
                RULE,
                call,
                "the loader is shared among processes, so each of them takes the averaged model's batch statistics "
                "from its own share, and the main process's are saved",
                "give `update_bn` a loader of its own, which is not prepared",
            )


# -- gradients by rows ---------------------------------------------------------------------------------------------


def _input_gradients(context: Context) -> None:
    """Adversarial examples: the gradient of a mean over fewer rows is larger for each of them."""
    if {s.kind for s in context.facts.loss_batch_values} == {"sum"}:
        return
    found = (n for n in context.facts.each(ast.Attribute) if n.attr == "grad" and isinstance(n.ctx, ast.Load))
    measured = (
        n
        for n in found
        for v in batch_values(context.facts, n.value)
        if v.kind in PER_SAMPLE and v.loader in context.subject.loaders and _is_measured(context.facts, n)
    )
    node = next(measured, None)
    if node is not None:
        context.note(
            RULE,
            node,
            f"`{ast.unparse(node)}` is the gradient of a mean over this process's rows: with --split-batches they are fewer "
            "than in one process, and each row's gradient is larger",
            "take the gradient of a sum over the rows, or normalise the gradient of each row",
            Severity.NOTE,
        )


def _is_measured(facts: Facts, node: ast.Attribute) -> bool:
    """Whether more is read of a gradient than its signs, or than whether there is one."""
    for around in facts.table.ancestors(node):
        if not isinstance(around, ast.Attribute | ast.Call):
            return not isinstance(around, ast.Compare | ast.If)
        if last_name(around.func if isinstance(around, ast.Call) else around) in {"sign", "sign_", "zero_"}:
            return False
    return True


# -- rows counted by the batch size ------------------------------------------------------------------------------


def _counted_by_size(context: Context, variables: set[str], sizes: list[ast.expr]) -> None:
    """`seen += BATCH_SIZE`, `step * loader.batch_size`: each process takes that many rows in a step."""
    numbers = {size.value for size in sizes if isinstance(size, ast.Constant)} - {1}
    for node in context.facts.each(ast.AugAssign, ast.BinOp):
        counted = _counted(context, node)
        found = next((p for p in counted if _is_loaders_size(context, p, variables, numbers)), None)
        if found is not None and node not in context.facts.loss_slice:
            context.note(
                RULE,
                node,
                f"rows are counted by `{ast.unparse(found)}`, the batch size of one process: each of several processes takes "
                "that many in a step",
                "count the rows: `seen += x.size(0)` is converted to the number of all processes' rows",
            )
            return


def _counted(context: Context, node: ast.AugAssign | ast.BinOp) -> list[ast.expr]:
    """The parts of a sum or a product of which one may be the rows of each batch."""
    if isinstance(node, ast.AugAssign):
        return [node.value] if isinstance(node.op, ast.Add) and context.trains_at(node) else []
    if not isinstance(node.op, ast.Mult):
        return []
    sides = (node.left, node.right)
    return [one for one, other in (sides, sides[::-1]) if _counts_batches(context, other)]


def _counts_batches(context: Context, node: ast.expr) -> bool:
    """Whether a number goes up by one with every batch of training: by `enumerate`, or by `step += 1`."""
    return any(
        _goes_up_by_batches(context, name, definition)
        for name in walk(node)
        for definition in context.facts.bindings(name)
    )


def _goes_up_by_batches(context: Context, name: ast.AST, definition: ast.AST) -> bool:
    statement = context.facts.table.statement_of(definition)
    if isinstance(statement, ast.For):
        trained = context.facts.loops.get(statement, set()) & set(context.subject.train_loaders)
        return bool(trained) and not batch_values(context.facts, name)
    added = isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.Constant)
    return added and context.trains_at(statement)


def _is_loaders_size(
    context: Context, node: ast.expr, variables: set[str], numbers: Collection[object]
) -> bool:
    if isinstance(node, ast.Constant):  # multiplied with what counts batches, the same number is enough
        return node.value in numbers
    if isinstance(node, ast.Attribute) and node.attr == "batch_size":
        return bool(context.facts.of(node.value) & set(context.subject.train_loaders))
    return isinstance(node, ast.Name | ast.Attribute) and _is_size(context, node, variables, 0)
