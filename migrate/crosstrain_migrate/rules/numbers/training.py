"""CT602: numbers of training are the global ones
CT604: one loop that trains and evaluates

What:   A loss that is read becomes `accelerator.reduce(loss, reduction="mean")`; a metric's rows are gathered before
        they are summed; sizes are those of the global batch.
Why:    A process's own loss is the loss of its share: a wrong number to print, and processes that decide by it part ways.
Leaves: a number that has no global form stays each process's own, with a note; where it decides, every process takes the
        main process's answer.
Refuses: rows that are kept and trained on later, and numbers that may be those of an evaluation.

Example CT602 (after_step):
    print(loss.item())
Becomes (after_step):
    accelerator.print(accelerator.reduce(loss, reduction="mean").item())
Stays CT602 (after_step):
    assert out.shape[1] == 3
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch, Length, Value, code_of
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax.walks import walk

from . import collective_safety
from .backward_passes import check_gradients, goes_backward_in_every_turn
from .batch_values import batch_values, local_batch_values
from .bindings import names_in, receiver
from .collate import changes_rows, number_of_batch
from .gathering import MIXED, Gatherer
from .globaliser import Globaliser
from .opaque_calls import inside_opaque, is_term
from .own_numbers import OwnNumbers, UnreadNumbers
from .row_counts import Collapse
from .row_loops import fills_only_the_batch, in_row_loops, pool_around, rows_read
from .shared_reductions import reduce_once
from .sinks import Sink, SinkFinder
from .totals import reduce_totals
from .transactions import Transaction
from .ungathered import NotAgain, Ungathered

RULE = "CT602"
OWN_FUNCTIONS = "use a function of its own for each loader"
SPLIT = "split training and evaluation into two loops"
KEPT_BY_ALL = "convert by hand: keep the rows of all processes, `gather(keys)` of the Accelerator, before they are stored"
# Ways in which rows leave their batch that no gather of one expression makes global.
UNGATHERED = {
    "index": "it says where something is stored, so what is stored and where would have to be gathered together",
    "rows": "a loop goes over its rows one by one and keeps something of them",
    "state": "a module keeps it from batch to batch, so the processes' modules would diverge",
}
KEPT = frozenset({"store", "collect", "call", "opaque"})
HOOKS = (
    *("register_forward_hook", "register_forward_pre_hook"),
    *("register_full_backward_hook", "register_hook"),
)


def plan(context: Context) -> None:
    check_gradients(context)
    loaders = set(context.subject.train_loaders)
    own = OwnNumbers(context)
    gatherer = _gathered(context, loaders, own)
    gatherer.assume()
    own.plan()
    reduce_totals(context, UnreadNumbers(context, own))
    reduce_once(context)
    for loader in loaders if gatherer.collapses else ():
        _check_collate(context, loader)
    _report_hooks(context)
    _report_divisors(context, loaders)


def _gathered(context: Context, loaders: set[Value], own: OwnNumbers) -> Gatherer:
    """Makes the reads global, each completely or not at all: after one that cannot be, the others are planned anew."""
    reduced: frozenset[ast.expr] = frozenset()
    while True:
        before = Transaction(context)
        gatherer = Gatherer(context, loaders, RULE, "a training metric over the global batch", reduced)
        try:
            _Training(context, loaders, gatherer, own).run()
            gatherer.emit()
            _check_shared(context, gatherer)
        except NotAgain as found:
            reduced |= {found.node}
        except Ungathered as reason:
            reads = [r for r in gatherer.asked_by.get(reason.node, ()) if r not in own.reads]
            reads += [gatherer.read] if gatherer.read is not None else []
            assert reads, "what could not be gathered was gathered for a read"
            # Training must not go on with rows that each process keeps of its own share.
            if any(r.how == "state" or (r.how in UNGATHERED and own.flows_back(r)) for r in reads):
                raise refuse(RULE, reason.node, str(reason), KEPT_BY_ALL) from reason
            _check_trained_alone(context, loaders, reason)
            own.reads.update(dict.fromkeys(reads, reason))
        else:
            if not own.leave_used_together([r for reads in gatherer.asked_by.values() for r in reads]):
                return gatherer
        before.roll_back()


def _check_trained_alone(context: Context, loaders: set[Value], reason: Ungathered) -> None:
    """Raises the reason where the number may be one of evaluation: computed from one share, it would be wrong."""
    facts = context.facts
    over = {s.loader for s in batch_values(facts, reason.node)} & loaders or loaders
    for loop, iterated in facts.interp.iterations.items():
        gone_over = loop.iter if isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension) else loop
        zipped = any(_calls(facts, "builtins.zip", node) for node in walk(gone_over))
        if len(iterated & over) < 2 or zipped or goes_backward_in_every_turn(facts, loop):
            continue
        if facts.comes_to(reason.node, set(iterated)):
            raise refuse(MIXED, reason.node, f"one loop trains and evaluates, and {reason}", SPLIT)


def _calls(facts: Facts, path: str, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and path in facts.paths(node.func)


def _check_shared(context: Context, gatherer: Gatherer) -> None:
    """Raises Ungathered for a helper that also measures loaders that are not shared."""
    for collapse in gatherer.collapses.values():
        why = collective_safety.unshared_rows_at(context, collapse.node)
        if why is not None:
            raise Ungathered(RULE, collapse.node, why, OWN_FUNCTIONS)


def _report_divisors(context: Context, loaders: set[Value]) -> None:
    """Notes means over batches whose divisor is a number of batches that the script computes itself."""
    for node in context.facts.each(ast.BinOp):
        if not isinstance(node.op, ast.Div):
            continue
        summed = {s.kind for s in local_batch_values(context.facts, node.left, loaders, host=True)}
        divided_by = (v for part in walk(node.right) for v in context.facts.of(part))
        by_batches = any(isinstance(v, Length) and v.of in loaders for v in divided_by)
        if summed & {"sum", "count"} and by_batches:
            context.note(
                RULE,
                node,
                f"a sum over the rows of all processes is divided by `{ast.unparse(node.right)}`, a number of batches: by "
                "default there are fewer batches on several processes, with more rows each",
                "divide by the number of rows, or launch with --split-batches",
            )
        if "mean" in summed and _is_made_by_hand(context, node):
            context.note(
                RULE,
                node,
                f"a sum over batches is divided by `{ast.unparse(node.right)}`, which does not follow the number of "
                "batches: by default there are fewer of them on several processes",
                "divide by len() of the loader, or launch with --split-batches",
            )


def _is_made_by_hand(context: Context, node: ast.BinOp) -> bool:
    """Whether the divisor is a number that neither a loader nor a loop over batches counts."""
    facts = context.facts
    counts = any(isinstance(v, Length | FromBatch) for v in facts.of(node.right))
    if counts or facts.batch_loop_around(node) is not None:
        return False
    calls = [n for n in walk(node.right) if isinstance(n, ast.Call)]
    if any(_calls(facts, "builtins.len", call) for call in calls):
        return False
    functions = {n for call in calls for n in walk(call.func)}
    names = [n for n in names_in(node.right) if n not in functions]
    bound = {d for name in names for d in facts.bindings(name)}
    if any(isinstance(d, ast.arg) or facts.batch_loop_around(d) is not None for d in bound):
        return False  # given by a caller, or counted in the loop
    return bool(names) and all(name in facts.interp.reaching for name in names)


def _check_collate(context: Context, loader: Value) -> None:
    number = number_of_batch(context, loader)
    if number is not None:
        raise refuse(
            RULE,
            number,
            f"the collate function returns `{ast.unparse(number)}`, one number for the whole batch: each process has a "
            "number of its own for its share, but training gathers one value per row",
            "compute it from the batch where it is used",
        )
    disorder = changes_rows(context, loader)
    if disorder is None:
        return
    if disorder.drops:
        context.assume(
            "rows", RULE, disorder.node, "the collate function drops no row of a batch that training counts"
        )
        return
    context.note(
        RULE,
        disorder.node,
        "the collate function reorders the rows of a batch, so the few rows that fill up the last global batch are "
        "counted in what training prints",
        "launch with --split-batches for exact counts, or sort in the sampler",
        Severity.NOTE,
    )


def _report_hooks(context: Context) -> None:
    for call in context.facts.calls:
        if receiver(call, *HOOKS) is not None and _keeps_something(context, call):
            context.note(
                RULE,
                call,
                "what a hook reads or keeps is computed from this process's share of the batch alone",
                "gather or reduce it outside of the hook before it is printed or decided by",
            )


def _keeps_something(context: Context, call: ast.Call) -> bool:
    """Whether the hook that is registered appends, adds up, stores or prints."""
    functions = (code_of(value) for argument in call.args for value in context.facts.of(argument))
    return any(
        isinstance(node, ast.AugAssign) or receiver(node, "append", "extend", "update", "item") is not None
        for function in functions
        if function is not None
        for node in walk(function)
    )


class _Training(Globaliser):
    def __init__(self, context: Context, loaders: set[Value], gatherer: Gatherer, own: OwnNumbers) -> None:
        super().__init__(context, loaders, gatherer)
        self.own = own

    def run(self) -> None:
        found = SinkFinder(self.facts, self.loaders).run()
        # A term of the loss that is kept by a name is made global where it is read.
        found = [s for s in found if s.how not in KEPT or not is_term(self.facts, s.node)]
        sinks = in_row_loops(self.facts, found, self.loaders)
        filled = [s for s in sinks if self._is_filled_to_train(s)]
        for sink in filled:
            self.context.note(
                RULE,
                sink.at,
                "a tensor that is made for the batch is filled row by row here: it holds this process's rows, and what is "
                "computed from it is this process's own number, beside the loss",
                "nothing to do where only the loss is computed from it; otherwise gather what is read",
            )
        sinks = [s for s in sinks if s not in filled]
        done = [*self._pools(sinks), *self._row_loops(sinks)]
        unread = UnreadNumbers(self.context, self.own)
        kept = unread.of(sinks)
        unread.note_unread(kept)
        for sink in sinks:
            inside = any(self.facts.table.is_inside(sink.node, part) for part in done)
            if not inside and not self._stays_own(sink) and sink not in kept:
                self.gatherer.read = sink
                self._make_global(sink)
        self.gatherer.read = None

    def _make_global(self, sink: Sink) -> None:
        evaluated = set(self.context.subject.eval_loaders)
        if any(s.loader in evaluated for s in batch_values(self.facts, sink.node)):
            return  # a function that measures both: what evaluation made global is global for training, too
        if sink.how in UNGATHERED:
            raise self.cannot(sink.node, UNGATHERED[sink.how])
        backward = any(sink.at is call for call, _ in self.facts.backward_calls)
        if not backward and not inside_opaque(self.facts, sink.node, self.loaders):
            self.globalise(sink.node)

    def loss(self, node: ast.expr, kinds: set[str]) -> None:
        why = collective_safety.unshared_rows_at(self.context, node) if kinds == {"sum"} else None
        if why is not None:
            raise Ungathered(RULE, node, why, OWN_FUNCTIONS)
        super().loss(node, kinds)

    def _stays_own(self, sink: Sink) -> bool:
        """Whether a read is one that stays each process's own, or a part of one: `loss` of `loss.item() / len(x)`."""
        return any(self.facts.table.is_inside(sink.node, read.node) for read in self.own.reads)

    def _is_filled_to_train(self, sink: Sink) -> bool:
        fills = sink.how == "rows" and fills_only_the_batch(self.facts, sink.at)
        return fills and self.own.flows_back(sink)

    def _pools(self, sinks: list[Sink]) -> list[ast.AST]:
        """The methods that keep rows for later training steps, and for nothing else."""
        pools: dict[ast.AST, None] = {}
        for sink in (s for s in sinks if s.how == "rows"):
            pool = pool_around(self.facts, sink.at)
            if pool is not None and pool not in pools:
                pools[pool] = None
                self.context.note(
                    "CT605",
                    sink.at,
                    "rows are kept for later batches here: every process keeps those of its own share, and trains on them alone",
                    "nothing to do where any earlier rows will do, as in the image buffers of GANs",
                )
        return [*pools]

    def _row_loops(self, sinks: list[Sink]) -> list[ast.AST]:
        """The loops over rows before which all that they read is gathered."""
        loops: list[ast.AST] = []
        for sink in (s for s in sinks if s.how == "rows"):
            if sink.at in loops or sink in self.own.reads or pool_around(self.facts, sink.at) is not None:
                continue
            self.gatherer.read = sink
            rows = rows_read(self.facts, sink, self.loaders)
            if rows is not None:
                self.gatherer.add(Collapse(sink.node, rows, above=True))
                loops.append(sink.at)
        return loops
