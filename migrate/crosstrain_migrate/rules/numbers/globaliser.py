"""Makes one number global: what it is computed from decides whether it is reduced, gathered or computed again."""

from __future__ import annotations

import ast
import copy

from crosstrain_migrate.facts import tensors
from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.values import FromBatch, Sequence, Value
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.rules.placement.devices import Devices
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk

from .batch_parts import smallest_part
from .batch_values import held_batch_values, local_batch_values
from .bindings import receiver
from .gathering import MIXED, Gatherer
from .host_leaves import stays_on_host
from .loss_terms import is_trained, terms
from .opaque_calls import inside_opaque, is_opaque
from .ragged_batches import is_padded
from .row_counts import Collapse
from .shared_reductions import reduction
from .sinks import zip_of
from .ungathered import Ungathered, inside_module

RULE = "CT602"
ROW_BY_ROW = "compute it from tensors that keep one row per sample, or after the loop"
READERS = ("cpu", "numpy", "tolist", "item")


class Globaliser:
    """Finds, for an expression that leaves the tensors, the parts to reduce or gather."""

    def __init__(self, context: Context, loaders: set[Value], gatherer: Gatherer) -> None:
        self.context = context
        self.facts = context.facts
        self.loaders = loaders
        self.gatherer = gatherer
        self.done: set[ast.AST] = set()

    def local(self, node: ast.AST) -> list[FromBatch]:
        return local_batch_values(self.facts, node, self.loaders)

    def globalise(self, node: ast.expr) -> None:
        if inside_opaque(self.facts, node, self.loaders):
            return  # what the function around it is given is global already
        if isinstance(node, ast.Call) and is_opaque(self.facts, node, self.loaders):
            self.opaque(node)
            return
        if node in self.done:
            return
        values = self.local(node)
        if not values:
            self.contents(node)
            return
        self.done.add(node)
        origins = frozenset(o for s in values for o in s.origins)
        kinds = {s.kind for s in values}
        if kinds & tensors.PER_SAMPLE:
            self.rows(node)
        elif node in origins and not self.is_loss(origins):
            self.collapse(node)
        elif kinds <= {"mean", "sum"} and self.is_loss(origins):
            self.loss(node, kinds)
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            self.leaf(node, kinds, origins)
        else:
            parts = [p for p in _parts(node) if self.local(p)]
            if not parts:
                raise self.cannot(node, "no part of it has rows of the batch that could be gathered")
            for part in parts:
                self.globalise(part)

    def contents(self, node: ast.expr) -> None:
        """Makes what a dictionary or a tuple holds global, where it is written out."""
        self.done.add(node)
        for value in self.facts.of(node):
            if not isinstance(value, Sequence):
                continue
            zipped = zip_of(self.facts, value)
            if zipped is not None:
                parts = zipped.args
            elif isinstance(value.site, ast.Dict | ast.Tuple | ast.List):
                parts = value.site.values if isinstance(value.site, ast.Dict) else value.site.elts
            else:
                held = held_batch_values(self.facts, frozenset({value}), self.loaders)
                if any(v.kind in {"count", "mean", "sum"} for v in held):
                    why = "it holds numbers of this process's share, which are put into it elsewhere"
                    raise self.cannot(node, why)
                continue
            for part in parts:
                self.globalise(part)

    def opaque(self, call: ast.Call) -> None:
        """Gives a measuring function of the script's own the rows of all processes."""
        if call in self.done:
            return
        self.done.add(call)
        rows = []
        for argument in arguments_of(call):
            kinds = {s.kind for s in self.local(argument)}
            if kinds == {"rows"}:
                rows.append(argument)
            elif kinds:
                self.globalise(argument)
        if rows:
            self.gatherer.add(Collapse(call, rows))

    def _is_held_beside(self, name: str, node: ast.expr) -> bool:
        """Whether `name` is rows of the batch where `node` stands: a function that was called has names of its own."""
        scope = self.facts.table.of_node[node]
        mentions = (n for n in self.facts.names.get(name, ()) if self.facts.table.of_node[n] is scope)
        return any(s.kind == "rows" for n in mentions for s in self.local(n))

    def is_loss(self, origins: frozenset[ast.AST]) -> bool:
        return bool(origins) and origins <= self.facts.loss_origins

    def rows(self, node: ast.expr) -> None:
        operand = peel(node)
        if any(s.kind != "rows" for s in self.local(operand)):
            raise self.cannot(operand, "it is not laid out row by row, so it cannot be gathered")
        on_host = node is operand and stays_on_host(self.facts, operand)
        self.gatherer.add(Collapse(operand, [operand], to_cpu=on_host))

    def collapse(self, node: ast.expr) -> None:
        operands = operands_of(node)
        if isinstance(node, ast.Subscript) and self.local(node.slice):
            operands = [node.value, node.slice]
        operands = [o for o in operands if self.local(o)]
        kinds = {s.kind for o in operands for s in self.local(o)}
        own = {s.kind for s in self.local(node)}
        if not operands:
            raise self.cannot(node, "none of its arguments has rows of the batch that could be gathered")
        if isinstance(node, ast.Call) and "torch.autograd.grad" in self.facts.paths(node.func):
            raise self.cannot(node, "its rows cannot be gathered: gathered rows have no gradients")
        ragged = kinds <= {"rows"} and any(is_padded(self.context, o) is not False for o in operands)
        if ragged and "count" in own:
            self.count_padded(node, operands[0])
        elif ragged and own == {"sum"}:
            self.loss(node, own)
        elif kinds <= {"rows"}:
            self.gatherer.add(Collapse(node, operands, counts="count" in own))
        elif own <= {"mean", "sum"} and kinds <= {"rows", "mixed", "layers"}:
            self.loss(node, own)
        elif kinds <= {"rows", "other"}:
            for operand in operands:  # what is computed from global numbers is one
                self.globalise(operand)
        else:
            raise self.cannot(node, "its arguments are not laid out row by row, so they cannot be gathered")

    def count_padded(self, node: ast.expr, rows: ast.expr) -> None:
        """Counts rows that each process pads to a length of its own: only the first number of each row is gathered."""
        if self.context.runtime == "crosstrain" and self.gatherer.counts.is_size(node):
            self.gatherer.counts.count(node, rows)
            return
        template = f"{self.context.accelerator(rows)}.gather_for_metrics({{x}}.reshape(len({{x}}), -1)[:, 0])"
        self.context.replace(rows, RULE, "rows of the global batch", template, x=rows)
        self.context.collective.add(rows)

    def loss(self, node: ast.expr, kinds: set[str]) -> None:
        if self.facts.in_module(node):
            raise inside_module(RULE, node)
        if self._in_mixed_loop(node):
            if self._is_of_one_call(node) and node not in self.gatherer.reduced:
                self._again(node)
                return
            self._must_be_exact(node, kinds)
        if kinds != {"sum"}:
            self.context.averaged.add(node)
        elif self.context.runtime == "accelerate":
            self.context.note(
                RULE,
                node,
                "Accelerate fills up the last batch with rows from the first, and they are counted in this sum",
                "use --runtime crosstrain for exact sums, or a batch size that divides the data set",
            )
        else:
            self._never_completed()
        by = "sum" if kinds == {"sum"} else "mean"
        self.context.edits.append(reduction(self.context, node, RULE, by))
        self.context.collective.add(node)

    def _never_completed(self) -> None:
        """Keeps the last batch from being completed, as a loss that is a sum does anyway: its rows would count twice."""
        if {s.kind for s in self.facts.loss_batch_values} != {"sum"}:
            self.context.options["even_batches"] = '"weighted"'

    def _in_mixed_loop(self, node: ast.expr) -> bool:
        """Whether one loop serves training and evaluation: it has several loaders and a conditional backward pass."""
        if len({s.loader for s in self.local(node)}) < 2:
            return False
        for call, _ in self.facts.backward_calls:
            loop = self.facts.batch_loop_around(call)
            tests = (around for around in self.facts.table.ancestors(call) if isinstance(around, ast.If))
            if loop is not None and any(self.facts.table.is_inside(test, loop) for test in tests):
                return True
        return False

    def _is_of_one_call(self, node: ast.expr) -> bool:
        origins = {o for s in self.local(node) for o in s.origins}
        return isinstance(node, ast.Name) and len(origins) == 1 and isinstance(next(iter(origins)), ast.Call)

    def _must_be_exact(self, node: ast.expr, kinds: set[str]) -> None:
        """Makes sure that no batch is filled up, for a loss that is not computed again; raises Refusal where that is not possible."""
        read = f"one loop trains and evaluates, and `{ast.unparse(node)}` is read in both"
        if self.context.runtime == "accelerate":
            why = "Accelerate fills up the last batch with rows from the first, which evaluation would count twice"
            raise refuse(
                MIXED, node, f"{read}: {why}", "migrate with --runtime crosstrain, or write two loops"
            )
        if len(kinds) > 1:
            why = "it is a mean over rows in one place and a sum in another, and of one share it would be neither"
            raise refuse(MIXED, node, f"{read}: {why}", "use one reduction, or write two loops")
        self._never_completed()

    def _again(self, node: ast.expr) -> None:
        """Evaluation must not count the rows that fill up its last batch, so the loss that is read is computed again."""
        call = next(o for s in self.local(node) for o in s.origins)
        assert isinstance(call, ast.Call)
        operands = [o for o in operands_of(call) if self.local(o)]
        self.gatherer.add(Collapse(node, operands, again=self._source_of_placed(call)))

    def _source_of_placed(self, call: ast.Call) -> str:
        """The source of a call, without moves of its arguments to the device: gathered rows are there already."""
        devices = Devices(self.facts)
        moves = {
            id(n): n.func.value
            for n in ast.walk(call)
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and self.local(n.func.value)
            if n.func.attr == "cuda"
            or (n.func.attr == "to" and len(n.args) == 1 and devices.is_device(n.args[0]))
        }
        return ast.unparse(copy.deepcopy(call, moves)) if moves else self.context.source(call)

    def leaf(self, node: ast.expr, kinds: set[str], origins: frozenset[ast.AST]) -> None:
        metric = [o for o in origins if o not in self.facts.loss_origins]
        if self._is_beside_the_loss(node):
            raise self.cannot(node, "it comes out of one call together with the loss")
        if not metric and "other" in kinds and self._is_the_loss(node):
            self._averaged(node)
            return
        beside_the_loss = len(metric) < len(origins) or self._comes_from_the_terms(node)
        if beside_the_loss and kinds <= {"mean", "other"} and self._is_one_of_several(node):
            self._averaged(node) if "other" in kinds else self.loss(node, {"mean"})
            return
        if not metric or any(not isinstance(o, ast.expr) for o in metric):
            raise self.cannot(node, "it is computed from several numbers of this process's share")
        if kinds == {"count"}:
            self.count_variable(node, metric)
            return
        if len(metric) < len(origins):
            self.globalise(self._made_with_the_loss(node))
            return
        for origin in sorted(metric, key=place_of):
            assert isinstance(origin, ast.expr)
            self.globalise(origin)

    def _is_the_loss(self, node: ast.expr) -> bool:
        """Whether backward gets this very value (not some function of it), or a sum that it is a term of."""
        given = any(s in self.facts.loss_batch_values for s in self.local(node))
        return given or is_trained(self.facts, node, terms(self.facts))

    def _averaged(self, node: ast.expr) -> None:
        self.context.note(
            RULE,
            node,
            "this loss is neither a mean nor a sum over rows (a class weight, an ignored index, pairs within the batch, a "
            "constant divisor, or a loss we cannot see into): the value read is the average over processes of the loss of each one's own rows, which is not the loss of the global batch",
            "check that an average over processes is what you want",
        )
        self.loss(node, {"mean"})

    def _is_one_of_several(self, node: ast.expr) -> bool:
        """Whether a tensor is one of several: `value` of `for name, value in losses.items():`, each a term of the loss or
        a number beside it, or a `loss` that training and evaluation compute in different ways. Only tensors have methods
        such as `item`."""
        if not isinstance(self.facts.table.parents.get(node), ast.Attribute):
            return False
        bound = self.facts.bindings(node)
        if len(bound) > 1 and self._in_mixed_loop(node):
            return True
        return bool(bound) and all(map(self._loop_that_binds, bound))

    def _comes_from_the_terms(self, node: ast.expr) -> bool:
        """Whether a loop over what the loss is made of binds a variable: over `losses` beside `sum(losses.values())`."""
        trained = (n for n in self.facts.loss_slice if isinstance(n, ast.Name))
        made = frozenset().union(*map(self.facts.bindings, trained))
        loops = map(self._loop_that_binds, self.facts.bindings(node))
        return any(self.facts.bindings(n) & made for loop in loops if loop for n in walk(loop.iter))

    def _loop_that_binds(self, definition: ast.AST) -> ast.For | ast.comprehension | None:
        around = self.facts.table.ancestors(definition)
        loop = next((a for a in around if isinstance(a, ast.comprehension | ast.stmt)), None)
        if not isinstance(loop, ast.For | ast.comprehension):
            return None
        return loop if definition not in walk(loop.iter) else None

    def _is_beside_the_loss(self, node: ast.expr) -> bool:
        """`found[1]` of what is taken for the loss: it is a tuple, then, whose second part may be no tensor."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
            return False
        later = isinstance(node.slice.value, int) and node.slice.value not in (0, -1)
        return later and any(s.kind in tensors.SCALARS | {"other"} for s in self.local(node.value))

    def _made_with_the_loss(self, node: ast.expr) -> ast.expr:
        """What a variable is computed from, the loss among it: `weighted` of `weighted = loss * len(x)`."""
        bound = self.facts.bindings(node)
        statements = [self.facts.table.statement_of(d) for d in bound if not isinstance(d, ast.arg)]
        made_by = statements[0] if len(bound) == len(statements) == 1 else None
        if not isinstance(made_by, ast.Assign) or not isinstance(made_by.value, ast.BinOp | ast.Call):
            raise self.cannot(node, "the loss is only a part of it")
        if any(isinstance(target, ast.Tuple | ast.List) for target in made_by.targets):
            raise self.cannot(node, "it comes out of one call together with the loss")
        return made_by.value

    def count_variable(self, node: ast.expr, origins: list[ast.AST]) -> None:
        """Counts the gathered rows again where a variable is used that holds the number of rows."""
        origin = origins[0]
        if node not in self.facts.interp.reaching or self._is_added_to(node):
            raise self.cannot(node, "it is added to elsewhere")
        if len(origins) != 1 or not isinstance(node, ast.Name) or not isinstance(origin, ast.expr):
            raise self.cannot(node, "it is a number of rows that several places compute")
        operand = operands_of(origin)[0]
        if is_padded(self.context, operand) is not False:
            self.globalise(origin)
            return
        counted = smallest_part(self.facts, operand) or (operand.id if isinstance(operand, ast.Name) else "")
        if not counted or not self._is_itself(node) or not self._is_held_beside(counted, node):
            self.globalise(origin)
            return
        self.gatherer.add(Collapse(node, [node], counts=True, counted=counted, measured=operand))

    def _is_itself(self, node: ast.Name) -> bool:
        """Whether a variable is the number of rows, and not computed from it."""
        made: list[ast.AST] = []
        for definition in self.facts.bindings(node):
            if isinstance(definition, ast.arg):
                made += self.facts.given(definition)
            else:
                made.append(self.facts.table.statement_of(definition))
        return not any(isinstance(n, ast.BinOp) for value in made for n in walk(value))

    def _is_added_to(self, node: ast.expr) -> bool:
        bound = self.facts.bindings(node)
        return any(isinstance(self.facts.table.statement_of(d), ast.AugAssign) for d in bound)

    def cannot(self, node: ast.expr, why: str, remedy: str = ROW_BY_ROW) -> Exception:
        return Ungathered(RULE, node, why, remedy)


def _parts(node: ast.expr) -> list[ast.expr]:
    """The operands of an expression: of a method call, its receiver too, and of a list what is in it."""
    parts = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    if isinstance(node, ast.Call):
        parts += [k.value for k in node.keywords]
        if isinstance(node.func, ast.Attribute):
            parts.append(node.func.value)
    return [e for p in parts for e in (p.elts if isinstance(p, ast.List | ast.Tuple) else [p])]


def peel(node: ast.expr) -> ast.expr:
    """`x.detach().cpu().numpy()` -> `x.detach()`: what is gathered must still be a tensor on the device."""
    read = receiver(node, *READERS)
    return node if read is None else peel(read)


def operands_of(node: ast.expr) -> list[ast.expr]:
    """The expressions whose rows `node` collapses."""
    if isinstance(node, ast.Subscript):  # x.shape[0], x.size()[0]
        inner = node.value.func if isinstance(node.value, ast.Call) else node.value
        return [inner.value if isinstance(inner, ast.Attribute) else inner]
    if isinstance(node, ast.Call):
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        arguments = [a.value if isinstance(a, ast.Starred) else a for a in arguments_of(node)]
        found = [*owner, *arguments]
        return [part for o in found for part in (o.elts if isinstance(o, ast.Tuple | ast.List) else [o])]
    if isinstance(node, ast.Attribute):
        return [node.value]
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
