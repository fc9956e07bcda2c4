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

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import arguments_of, given, keywords_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.tensors import PER_SAMPLE, dims_of
from crosstrain_migrate.facts.values import External, FromBatch, Value, site_of
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.arguments import argument_for
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import all_arguments, last_name, line_of
from crosstrain_migrate.syntax.walks import walk

RULE = "CT605"
MAKERS = api.FACTORIES | {"Tensor", "FloatTensor", "LongTensor"}
MAX_DEPTH = 3


def plan(context: Context) -> None:
    _sizes(context)
    _single_rows(context)
    _two_loaders(context)
    _mixed_rows(context)
    _averaged_statistics(context)
    _input_gradients(context)
    _counted_by_size(context)


# -- tensors made for one batch size ---------------------------------------------------------------------------


def _sizes(context: Context) -> None:
    sizes = {ast.unparse(s) for loader in context.subject.train_loaders for s in _batch_size(loader)}
    if not sizes:
        return
    for call in context.facts.calls:
        size = _constant_size(context, call, sizes)
        if size is not None and _meets_rows(context, call, 0):
            context.note(
                RULE,
                call,
                f"this tensor has `{ast.unparse(size)}` rows, whatever the batch that it meets: with --split-batches a "
                "process gets fewer",
                "take the size from the batch (`x.size(0)`), or launch without --split-batches",
            )
            return


def _batch_size(loader: Value) -> list[ast.expr]:
    """The loader's batch size, when it is a variable: a plain number is too common to be recognised elsewhere."""
    site = getattr(loader, "site", None)
    if not isinstance(site, ast.Call):
        return []
    given = [k.value for k in site.keywords if k.arg == "batch_size"] or site.args[1:2]
    return [g for g in given if isinstance(g, ast.Name | ast.Attribute)]


def _constant_size(context: Context, call: ast.Call, sizes: set[str]) -> ast.expr | None:
    """The argument of a tensor factory that is the loader's batch size."""
    paths = context.facts.paths(call.func)
    if not any(path.startswith("torch.") and api.last(path) in MAKERS for path in paths):
        return None
    parts = [p for a in call.args for p in (a.elts if isinstance(a, ast.Tuple | ast.List) else [a])]
    return next((p for p in parts if _is_size(context, p, sizes, 0)), None)


def _is_size(context: Context, node: ast.expr, sizes: set[str], depth: int) -> bool:
    if any(isinstance(v, FromBatch) for v in context.facts.of(node)):
        return False
    if ast.unparse(node) in sizes and not _is_parameter(context.facts, node):
        return True
    function = _is_parameter(context.facts, node)
    if function is None or depth >= MAX_DEPTH:
        return False
    assert isinstance(node, ast.Name)
    given = [
        argument_for(context, site, function, node.id) for site in context.facts.callers.get(function, ())
    ]
    return any(g is not None and _is_size(context, g, sizes, depth + 1) for g in given)


def _is_parameter(facts: Facts, node: ast.expr) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function whose parameter `node` is."""
    function = facts.enclosing_function(node)
    if function is None or not isinstance(node, ast.Name):
        return None
    return function if node.id in {a.arg for a in all_arguments(function)} else None


def _meets_rows(context: Context, made: ast.expr, depth: int) -> bool:
    """Whether a tensor is used together with rows of a training batch: directly, in a variable, through a return."""
    facts = context.facts
    for around in facts.table.ancestors(made):
        if isinstance(around, ast.Return) and depth < MAX_DEPTH:
            function = facts.enclosing_function(around)
            sites = facts.callers.get(function, ()) if function is not None else ()
            return any(_meets_rows(context, site, depth + 1) for site in sites)
        if isinstance(around, ast.Assign) and depth < MAX_DEPTH:
            return _is_read_with_rows(context, around, depth)
        if isinstance(around, ast.expr) and _has_rows(facts, around, made) and context.trains_at(around):
            return True
        if isinstance(around, ast.stmt):
            return False
    return False


def _is_read_with_rows(context: Context, assigned: ast.Assign, depth: int) -> bool:
    targets = {n for t in assigned.targets for n in walk(t) if isinstance(n, ast.Name)}
    reads = [n for n, definitions in context.facts.interp.reaching.items() if definitions & targets]
    return any(
        _meets_rows(context, read, depth + 1)
        for read in reads
        if not context.facts.table.is_inside(read, assigned)
    )


def _has_rows(facts: Facts, around: ast.expr, made: ast.expr) -> bool:
    """Whether a call or an operation has rows beside `made` among its operands."""
    if not isinstance(around, ast.Call | ast.BinOp | ast.Compare):
        return False
    operands = [n for n in ast.iter_child_nodes(around) if isinstance(n, ast.expr)]
    if isinstance(around, ast.Call):
        operands = [*around.args, *(k.value for k in around.keywords)]
    return any(
        isinstance(v, FromBatch) and v.kind in PER_SAMPLE
        for o in operands
        if not facts.table.is_inside(made, o)
        for v in facts.of(o)
    )


# -- batch normalisation -----------------------------------------------------------------------------------------


def _single_rows(context: Context) -> None:
    """BatchNorm1d of one row fails: a last batch that is no multiple of the processes may leave one of them so."""
    made = context.facts.calls_to("torch.nn.BatchNorm1d", "torch.nn.LazyBatchNorm1d")
    uneven = [v for v in context.subject.train_loaders if not _drops_last(v)]
    if made and uneven:
        context.note(
            RULE,
            made[0],
            "batch normalisation needs at least two rows, and with --split-batches a process may get a single row of an epoch's last batch",
            "set set drop_last=True in the training loader",
            Severity.NOTE,
        )


def _drops_last(loader: Value) -> bool:
    site = getattr(loader, "site", None)
    given = [k.value for k in site.keywords if k.arg == "drop_last"] if isinstance(site, ast.Call) else []
    return any(not (isinstance(g, ast.Constant) and g.value is False) for g in given)


# -- two loaders in one step -------------------------------------------------------------------------------------


def _two_loaders(context: Context) -> None:
    """Shares of two batches weigh by one of them only, so the runtime refuses uneven ones by name."""
    facts = context.facts
    trained = set(context.subject.train_loaders)
    streams: dict[ast.AST, set[Value]] = {}
    for node, over in facts.interp.iterations.items():
        mine = {v for v in over & trained if isinstance(v, External)}
        if not mine or not isinstance(node, ast.Call):
            continue
        loop = facts.batch_loop_around(node) if "builtins.next" in facts.paths(node.func) else node
        if loop is not None:
            streams.setdefault(loop, set()).update(mine)
    for found in streams.values():
        if len(found) > 1:
            names = " and ".join(str(line_of(site_of(v))) for v in facts.in_order(found))
            context.note(
                RULE,
                facts.backward_calls[0][0],
                f"one step takes a batch of each of several loaders (lines {names}): with --split-batches the processes "
                "cannot share uneven ones, and the batches of shuffled loaders meet in another order than in one process",
                "launch without --split-batches, or with batch sizes and data that the number of processes divides",
                Severity.NOTE,
            )
            return


# -- rows that meet other rows -----------------------------------------------------------------------------------


def _mixed_rows(context: Context) -> None:
    """Mixup and its like: a process has the rows of its share alone to choose from."""
    for node in context.facts.nodes:
        if (
            isinstance(node, ast.Subscript | ast.Call)
            and _reorders(context, node)
            and context.trains_at(node)
        ):
            context.note(
                RULE,
                node,
                f"`{ast.unparse(node)}` puts rows beside others of their batch: on several processes, beside others of "
                "the same process's share, so these pairs are not those of one process",
                "nothing to do where any pairs of rows will do, as in mixup and cutmix",
            )
            return


def _reorders(context: Context, node: ast.Subscript | ast.Call) -> bool:
    """Whether it gives the rows of a training batch in another order."""
    trained = context.subject.train_loaders
    if not any(
        isinstance(v, FromBatch) and v.kind == "rows" and v.loader in trained for v in context.facts.of(node)
    ):
        return False
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        return _is_order(context.facts, first)
    name = last_name(node.func)
    if name in {"flip", "roll"}:
        rest = node.args[1:] if context.facts.paths(node.func) else node.args
        return 0 in (dims_of(rest, keywords_of(node), 0 if name == "flip" else 1) or ())
    return name == "index_select" and any(_is_order(context.facts, a) for a in arguments_of(node))


def _is_order(facts: Facts, node: ast.expr) -> bool:
    return any(isinstance(v, FromBatch) and v.kind == "order" for v in facts.of(node))


# -- an averaged model's statistics ------------------------------------------------------------------------------


def _averaged_statistics(context: Context) -> None:
    """`update_bn(loader, swa_model)` communicates nothing: every process measures its own share."""
    for call in context.facts.calls_to("torch.optim.update_bn"):
        given = {v for a in (*call.args, *(k.value for k in call.keywords)) for v in context.facts.of(a)}
        if given & context.subject.loaders:
            context.note(
                RULE,
                call,
                "the loader is shared among processes, so each of them takes the averaged model's batch statistics "
                "from its own share, and the main process's are saved",
                "give `update_bn` a loader of its own, which is not prepared",
            )


# -- gradients by rows ---------------------------------------------------------------------------------------------


def _input_gradients(context: Context) -> None:
    """Adversarial examples: what a mean over fewer rows gives each of them is larger."""
    if {s.kind for s in context.facts.loss_batch_values} == {"sum"}:
        return
    found = (n for n in context.facts.each(ast.Attribute) if n.attr == "grad" and isinstance(n.ctx, ast.Load))
    measured = (n for n in found if _is_of_rows(context, n.value) and _is_measured(context.facts, n))
    node = next(measured, None)
    if node is not None:
        context.note(
            RULE,
            node,
            f"`{ast.unparse(node)}` is the gradient of a mean over this process's rows: with --split-batches they are fewer "
            "than in one process, and each row's gradient is larger",
            "take the gradient of a sum over the rows, or make it as long as another for every row",
            Severity.NOTE,
        )


def _is_of_rows(context: Context, node: ast.expr) -> bool:
    return any(
        isinstance(v, FromBatch) and v.kind in PER_SAMPLE and v.loader in context.subject.loaders
        for v in context.facts.of(node)
    )


def _is_measured(facts: Facts, node: ast.Attribute) -> bool:
    """Whether more is read of a gradient than its signs, and whether it is there."""
    for around in facts.table.ancestors(node):
        if isinstance(around, ast.Attribute | ast.Call):
            name = around.attr if isinstance(around, ast.Attribute) else last_name(around.func)
            if name in {"sign", "sign_", "zero_"}:
                return False
        else:
            return not isinstance(around, ast.Compare | ast.If)
    return True


# -- rows counted by the batch size ------------------------------------------------------------------------------


def _counted_by_size(context: Context) -> None:
    """`seen += BATCH_SIZE`, `step * loader.batch_size`: each process takes that many in a step."""
    sizes = {ast.unparse(s) for loader in context.subject.train_loaders for s in _batch_size(loader)}
    for node in context.facts.each(ast.AugAssign, ast.BinOp):
        counted = _counted(context, node)
        found = next((part for part in counted if _is_loaders_size(context, part, sizes)), None)
        if found is not None and node not in context.facts.loss_slice:
            context.note(
                RULE,
                node,
                f"rows are counted by `{ast.unparse(found)}`, the batch size of one process: on several, a step takes as many on "
                "each of them",
                "count what there is: `seen += x.size(0)` becomes that of all processes",
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
    reaching = context.facts.interp.reaching
    names = [n for n in walk(node) if isinstance(n, ast.Name)]
    return any(
        _goes_up_by_batches(context, name, definition)
        for name in names
        for definition in reaching.get(name, ())
    )


def _goes_up_by_batches(context: Context, name: ast.Name, definition: ast.AST) -> bool:
    statement = context.facts.table.statement_of(definition)
    if isinstance(statement, ast.For):
        trained = context.facts.loops.get(statement, set()) & set(context.subject.train_loaders)
        return bool(trained) and not any(isinstance(v, FromBatch) for v in context.facts.of(name))
    added = isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.Constant)
    return added and context.trains_at(statement)


def _is_loaders_size(context: Context, node: ast.expr, sizes: set[str]) -> bool:
    if isinstance(node, ast.Constant):  # beside what counts batches, the number itself says enough
        made = (site_of(v) for v in context.subject.train_loaders)
        given_sizes = [given(site, "batch_size", 1) for site in made if isinstance(site, ast.Call)]
        same = (isinstance(one, ast.Constant) and one.value == node.value for one in given_sizes)
        return node.value != 1 and any(same)
    if isinstance(node, ast.Attribute) and node.attr == "batch_size":
        return bool(context.facts.of(node.value) & set(context.subject.train_loaders))
    return isinstance(node, ast.Name | ast.Attribute) and _is_size(context, node, sizes, 0)
