"""CT601: evaluation counts every sample once
CT603: evaluation that stays whole on every process

What:   The rows of every evaluation batch are gathered before they are summed up, so sums and counts are those of the
        whole data set (samples that only fill up the last batch are dropped). A loss that would need gathered outputs
        and is only added up is summed by each process over its own rows, `accelerator.own_rows((out, y))`, and the
        sums are added after the loop.
Why:    The accuracy of one process's share is a different number.
Leaves: (CT603) evaluation whose numbers depend on how the data is cut into batches: a mean of batch means, a number
        printed per batch, an unknown metric object. Every process then evaluates everything: slower, never wrong.

Example CT601 (test_data):
    test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
    test_loader = DataLoader(test_set, batch_size=8)
And (after_epoch):
    model.eval()
    right = 0
    for x, y in test_loader:
        right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    print(right / len(test_set))
Becomes (prepare):
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )
And (after_epoch):
    model.eval()
    right = 0
    for x, y in test_loader:
        right += accelerator.gather_for_metrics(model(x).argmax(1) == y).sum().item()
    accelerator.print(right / len(test_set))
Noted CT603 (test_data):
    test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
    test_loader = DataLoader(test_set, batch_size=8)
And (after_epoch):
    model.eval()
    total = 0.0
    for x, y in test_loader:
        total += F.cross_entropy(model(x.to(device)), y.to(device)).item()
    test_loss = total / len(test_loader)
Becomes (device):
    accelerator = Accelerator()
    device = accelerator.device  # the fastest there is
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.lifetimes import outlives
from crosstrain_migrate.facts.values import FromBatch, Length, Member, Sequence, Value, site_of
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context, Refusal
from crosstrain_migrate.rules.preparing.holders import stores
from crosstrain_migrate.syntax.nodes import line_of, place_of

from .batch_values import batch_values
from .bindings import LOOPS, mentions, names_in, receiver
from .collate import changes_rows, number_of_batch
from .gathering import Gatherer
from .globaliser import Globaliser
from .metrics import is_updated
from .opaque_calls import inside_opaque
from .own_sums import OwnSums
from .replayed_batches import kept_by
from .row_loops import in_row_loops
from .sinks import Sink, SinkFinder
from .transactions import Transaction

RULE = "CT601"
UNPREPARED = "CT603"
LEAVING = {  # what becomes of a number, by the kind of the sink
    "print": "printed",
    "test": "used in a decision",
    "store": "kept",
    "collect": "collected",
    "call": "given to another package's code",
    "index": "used as an index of what is kept",
    "rows": "looped over row by row",
    "state": "kept by a module",
}


class NotProven(Exception):
    def __init__(self, node: ast.AST, why: str) -> None:
        super().__init__(why)
        self.node = node


def plan(context: Context) -> None:
    """Decides for each group of evaluation loaders; those proven join `context.subject.eval_loaders`."""
    for group in _groups(context):
        before = Transaction(context)
        try:
            for loader in group:
                _must_be_held(context, loader)
            gatherer = Gatherer(context, set(group), RULE, "evaluated over all processes' rows")
            read = _Evaluation(context, group, gatherer).run()
            gatherer.sums = OwnSums(context, read)
            gatherer.emit()
            gatherer.assume()
            context.subject.eval_loaders.extend(group)
        except (NotProven, Refusal) as reason:
            before.roll_back()
            node = reason.node if isinstance(reason, NotProven) else site_of(group[0])
            context.note(
                UNPREPARED,
                node,
                f"evaluation is not distributed: {reason}. Every process evaluates the whole data set: slower, with the same numbers",
                "to distribute it, gather per-sample values and sum those",
                Severity.NOTE,
            )


def _groups(context: Context) -> list[list[Value]]:
    """The evaluation loaders, grouped: those that share a loop need one decision, because the same code serves them."""
    groups: list[set[Value]] = [{loader} for loader in context.facts.eval_loaders]
    for over in context.facts.interp.iterations.values():
        joined = [g for g in groups if g & over]
        if len(joined) > 1:
            groups = [g for g in groups if not g & over] + [set().union(*joined)]
    order = context.facts.eval_loaders
    return [sorted(g, key=order.index) for g in sorted(groups, key=lambda g: min(order.index(v) for v in g))]


def _must_be_held(context: Context, loader: Value) -> None:
    disorder = changes_rows(context, loader)
    if disorder is not None:
        raise NotProven(
            disorder.node,
            "its collate function may reorder or drop rows, and those that fill up the last batch must keep their place",
        )
    number = number_of_batch(context, loader)
    if number is not None:
        raise NotProven(number, "its collate function returns a number of the whole batch")
    kept = kept_by(context, loader)
    if kept is not None:
        raise NotProven(
            kept,
            "its batches are stored and used later, when it is no longer known which rows pad the last one",
        )
    for scope in context.facts.table.scopes.values():
        if stores(context.facts, scope, loader):
            return
    raise NotProven(site_of(loader), "no variable holds the loader")


class _Evaluation(Globaliser):
    def __init__(self, context: Context, group: list[Value], gatherer: Gatherer) -> None:
        super().__init__(context, set(group), gatherer)
        self.site: ast.AST = site_of(group[0])
        self.loops = [n for n, over in self.facts.loops.items() if over & self.loaders]

    def run(self) -> list[Sink]:
        """Makes all numbers global. Returns the places where rows leave the tensors, and numbers their batch."""
        self._check_loops()
        sinks = in_row_loops(self.facts, SinkFinder(self.facts, self.loaders).run(), self.loaders)
        inside = [s for s in sinks if self.facts.in_batch_loop(s.node, self.loaders)]
        for sink in inside:  # `_check_after` has the last word on the others
            self._check_exit(sink)
            if not inside_opaque(self.facts, sink.node, self.loaders):
                self.globalise(sink.node)
        # What is read into Python already must be summed up or collected too.
        exits = SinkFinder(self.facts, self.loaders, host=True).run()
        for sink in exits:
            if self.facts.in_batch_loop(sink.node, self.loaders):
                self._check_exit(sink)
        self._check_after()
        if not inside:
            raise NotProven(self.loops[0], "its loop reads no number of the rows that it goes over")
        return [*sinks, *exits]

    # -- loops -----------------------------------------------------------------------------------------------

    def _check_loops(self) -> None:
        if not self.loops:
            raise NotProven(self.site, "it is not iterated by a plain for loop")
        lengths = {Length(loader) for loader in self.loaders}
        node = next((n for n, v in self.facts.interp.values.items() if lengths & v), None)
        if node is not None:
            raise NotProven(node, "it uses its number of batches, which changes when it is distributed")
        for loop in self.loops:
            self._check_loop(loop)

    def _check_loop(self, loop: ast.For | ast.AsyncFor) -> None:
        if not self._in_eval_mode(loop):
            raise NotProven(loop, "the model is not put into evaluation mode before it")
        inside = list(ast.walk(loop))
        leaving = next((n for n in inside if isinstance(n, ast.Break | ast.Return | ast.Yield)), None)
        if leaving is not None:
            raise NotProven(leaving, "the loop may end early")
        counted = next((n for n in inside if self._counts_batches(n, loop)), None)
        if counted is not None or self._reads_counter(loop):
            why = "it counts batches, and there are fewer of them when it is distributed"
            raise NotProven(counted or loop, why)

    def _counts_batches(self, node: ast.AST, loop: ast.For | ast.AsyncFor) -> bool:
        """`n += 1` and `seen += BATCH_SIZE`, once for every batch."""
        if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
            return False
        if any(isinstance(v, FromBatch | Sequence) for v in self.facts.of(node.value)):
            return False
        inner = next(n for n in self.facts.table.ancestors(node) if isinstance(n, LOOPS))
        number = isinstance(node.value, ast.Constant | ast.Name | ast.Attribute)
        return number and inner is loop and outlives(self.facts.interp, node.target, node)

    def _reads_counter(self, loop: ast.For | ast.AsyncFor) -> bool:
        """Whether the number of the batch, `i` of `for i, batch in enumerate(loader)`, is read: in the loop, or behind
        it, where it says how many there were."""
        match loop.target, loop.iter:
            case ast.Tuple([ast.Name() as counter, *_]), ast.Call(ast.Name("enumerate")):
                pass
            case _:
                return False
        bound = {n for n in names_in(loop.target) if n.id == counter.id}
        reads = (n for n in mentions(self.facts, counter.id, loop) if isinstance(n.ctx, ast.Load))
        reaching = self.facts.interp.reaching
        return any(self.facts.table.is_inside(n, loop) or bound & set(reaching.get(n, bound)) for n in reads)

    def _in_eval_mode(self, loop: ast.AST) -> bool:
        """`.eval()` (or `.train(False)`) of a module before the loop, in its function or in a caller."""
        calls = (*self.facts.method_calls("eval"), *self.facts.method_calls("train"))
        switches = [call for call in calls if self._switches(call)]
        seen: set[ast.AST] = set()
        work: list[ast.AST] = [loop]
        while work:
            node = work.pop()
            scope = self.facts.table.of_node[node]
            if any(self.facts.table.of_node[c] is scope and c.lineno <= line_of(node) for c in switches):
                return True
            if scope.node not in seen:
                seen.add(scope.node)
                work.extend(self.facts.callers.get(scope.node, ()))
        return False

    def _switches(self, call: ast.Call) -> bool:
        match call:
            case ast.Call(ast.Attribute(module, "eval")) | ast.Call(
                ast.Attribute(module, "train"), [ast.Constant(False), *_]
            ):
                owners = (v.receiver for v in self.facts.of(call.func) if isinstance(v, Member))
                return any(self.facts.interp.is_module(v) for v in (*self.facts.of(module), *owners))
        return False

    # -- what leaves the loop --------------------------------------------------------------------------------

    def _check_exit(self, sink: Sink) -> None:
        node, how, at = sink.node, sink.how, sink.at
        if how in {"host", "opaque"}:
            return
        kinds = {s.kind for s in batch_values(self.facts, node) if s.loader in self.loaders}
        if how == "store" and kinds <= {"sum", "count"}:
            return
        appended = how == "collect" and receiver(at, "append", "extend") is not None
        if kinds <= {"rows"} and (appended or is_updated(self.context, at)):
            return
        if how == "store" and "mean" in kinds:
            raise NotProven(
                node, "it adds up batch means, which depend on how the data is divided into batches"
            )
        raise NotProven(node, f"`{ast.unparse(node)}` is {LEAVING[how]} batch by batch")

    def _check_after(self) -> None:
        """Raises NotProven where code after the loops reads what the last batch left behind: it may read accumulators
        and collections only."""
        for name, bound in self.facts.interp.reaching.items():
            if not any(s.loader in self.loaders for s in batch_values(self.facts, name)):
                continue
            for loop in self.loops:
                left = (d for d in bound if self.facts.table.is_inside(d, loop) and not self._accumulates(d))
                if not self.facts.table.is_inside(name, loop) and any(left):
                    raise NotProven(
                        name, f"`{name.id}` is read after the loop, where it holds the last batch's"
                    )

    def _accumulates(self, definition: ast.AST) -> bool:
        """`total += x`, and `total = total + x`."""
        match self.facts.table.statement_of(definition):
            case ast.AugAssign(op=ast.Add()):
                return True
            case ast.Assign(value=ast.BinOp(left, _, right)) if isinstance(definition, ast.Name):
                return any(isinstance(s, ast.Name) and s.id == definition.id for s in (left, right))
        return False

    # -- in evaluation every collapse gathers ----------------------------------------------------------------

    def is_loss(self, origins: frozenset[ast.AST]) -> bool:
        return False

    def loss(self, node: ast.expr, kinds: set[str]) -> None:
        raise NotProven(node, f"`{ast.unparse(node)}` is not laid out row by row")

    def leaf(self, node: ast.expr, kinds: set[str], origins: frozenset[ast.AST]) -> None:
        if kinds == {"count"}:
            self.count_variable(node, list(origins))
            return
        for origin in sorted(origins, key=place_of):
            if isinstance(origin, ast.expr):
                self.globalise(origin)
            else:
                raise NotProven(node, f"`{ast.unparse(node)}` is given to the function by its callers")

    def cannot(self, node: ast.AST, why: str, remedy: str = "") -> Exception:
        return NotProven(node, why)
