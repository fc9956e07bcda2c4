"""Sinks: the places where a number that depends on a process's share of the batch leaves the tensors.

It must be the global number where it is printed, logged, saved, summed over batches, compared or read into Python.
This module lists these places; `training` and `evaluation` decide what becomes of each.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import arguments_of, keyword_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.lifetimes import accumulated, carried, outlives, within_batch
from crosstrain_migrate.facts.regions import in_mover
from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.facts.values import (
    Class,
    External,
    FromBatch,
    Function,
    Instance,
    Member,
    Method,
    Sequence,
    Symbol,
    Value,
    Values,
)
from crosstrain_migrate.syntax.nodes import last_name, place_of
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values, held_batch_values, kinds_of, local_batch_values
from .bindings import receiver
from .module_state import COLLECTS, kept_in_module
from .opaque_calls import is_opaque, is_term

_TAKES = COLLECTS | {"write", "writerow", "log"}  # methods that store what they are given
_READS = api.HOST_BUILTINS | {"builtins.round", "builtins.abs"}
_SHOWS = frozenset({"builtins.print", "builtins.sum", "builtins.max", "builtins.min"})
# What a sink may stand in.
_PLACES = (
    *(ast.Call, ast.comprehension, ast.FormattedValue, ast.If, ast.While, ast.IfExp, ast.Assert, ast.BoolOp),
    *(ast.UnaryOp, ast.BinOp, ast.For, ast.AsyncFor, ast.AugAssign, ast.Assign, ast.Return, ast.Yield),
)


@dataclass(frozen=True)
class Sink:
    """`node` is the expression whose value leaves.

    how: host, print, store, test, collect, call, opaque; index (it says where something is stored), rows (a loop goes
    over it row by row), state (a module keeps it).
    """

    node: ast.expr
    how: str
    at: ast.AST


class SinkFinder:
    """Walks a whole script for sinks of values from batches of `loaders`: of tensors, or with `host` of the Python
    numbers read from them."""

    def __init__(self, facts: Facts, loaders: set[Value], host: bool = False) -> None:
        self.facts = facts
        self.loaders = loaders
        self.host = host
        self.found: list[Sink] = []
        self._seen: set[ast.AST] = set()

    def run(self) -> list[Sink]:
        for node in self.facts.each(*_PLACES):
            if in_mover(self.facts.interp, node):
                continue
            if self.facts.in_module(node):
                self._module_state(node)
            else:
                self._visit(node)
        return sorted(self.found, key=lambda sink: place_of(sink.node))

    def _visit(self, node: ast.AST) -> None:
        match node:
            case ast.Call():
                self._call(node)
            case ast.FormattedValue(value):
                self._add(value, "print", node)
            case ast.If(test) | ast.While(test) | ast.IfExp(test) | ast.Assert(test):
                self._test(test, node)
            case ast.BoolOp():
                for part in node.values:
                    self._test(part, node)
            case ast.UnaryOp(ast.Not(), operand):
                self._add(operand, "test", node)
            case ast.For() | ast.AsyncFor():
                self._row_loop(node)
            case ast.comprehension():
                self._picked(node)
            case ast.AugAssign():
                self._augmented(node)
            case ast.Assign():
                self._assigned(node)
            case ast.BinOp(left, ast.Mod(), right) if _is_text(left):
                for part in right.elts if isinstance(right, ast.Tuple) else [right]:
                    self._add(part, "print", node)
            case ast.Return(ast.expr() as value):
                if self.facts.enclosing_function(node) in self.facts.search_closures:
                    self._add(value, "host", node)  # a line search decides by it
            case ast.Yield(ast.expr() as value) if not self._is_followed(node):
                self._add(value, "call", node)

    def _is_followed(self, node: ast.Yield) -> bool:
        """Whether it is known who gets what is yielded: loops go over the generator function, or it is only called."""
        function = self.facts.enclosing_function(node)
        interp = self.facts.interp
        return (
            function in interp.generators
            and function not in interp.escaped | interp.touching
            and bool(interp.call_sites.get(function) or function in interp.iterated)
        )

    def _add(self, node: ast.expr, how: str, at: ast.AST) -> None:
        if isinstance(node, ast.Starred):
            node = node.value
        if node in self._seen:
            return
        held = self._holds(self.facts.of(node))
        if held and isinstance(node, ast.Tuple | ast.List | ast.Dict):
            for part in node.values if isinstance(node, ast.Dict) else node.elts:
                self._add(part, how, at)
        elif held or self._local(node):
            self._record(node, how, at)

    def _record(self, node: ast.expr, how: str, at: ast.AST) -> None:
        if node not in self._seen and self.facts.comes_to(node, self.loaders):
            self._seen.add(node)
            self.found.append(Sink(node, how, at))

    def _local(self, *nodes: ast.AST) -> list[FromBatch]:
        return [s for n in nodes for s in local_batch_values(self.facts, n, self.loaders, self.host)]

    def _holds(self, values: Values) -> bool:
        """Whether a container has a share in it, or pairs of them: `zip(guesses, labels)`."""
        if held_batch_values(self.facts, values, self.loaders, self.host):
            return True
        return any(
            self._holds(self.facts.interp.element(value))
            for value in values
            if isinstance(value, Sequence) and zip_of(self.facts, value) is not None
        )

    def _call(self, node: ast.Call) -> None:
        function = node.func
        if is_opaque(self.facts, node, self.loaders):
            self._record(node, "opaque", node)
            return
        read, formatted = receiver(node, *api.HOST_METHODS), receiver(node, "format")
        paths = self.facts.paths(function)
        if read is not None:
            self._add(read, "host", node)
        elif formatted is not None and _is_text(formatted):
            self._arguments(node, "print")
        elif "torch.save" in paths and node.args:
            self._add(node.args[0], "store", node)
        elif self._changes_older(node):
            self._arguments(node, "store")
        elif paths & _READS:
            self._arguments(node, "host")
        elif paths & _SHOWS:
            if not (self._measures_sizes(node) or self._adds_losses(node) or node in self.facts.loss_slice):
                self._arguments(node, "print")
        elif (
            not self._sizes_an_array(node)
            and self._is_foreign(node)
            and not self._stays_in_batch(node)
            and not self._is_trained(node)
        ):
            self._arguments(node, "call" if receiver(node, *_TAKES) is None else "collect")

    def _changes_older(self, node: ast.Call) -> bool:
        """Whether a call changes a tensor that is older than the batch: `torch.maximum(most, x.amax(0), out=most)`, and a
        bank of rows that is rolled on by the size of this share."""
        out = keyword_of(node, "out")
        if out is not None and any(path.startswith("torch.") for path in self.facts.paths(node.func)):
            return self._outlives(out, self.facts.table.statement_of(node))
        if last_name(node.func) != "roll":
            return False
        held = node.func.value if isinstance(node.func, ast.Attribute) else None
        first = node.args[0] if self.facts.paths(node.func) and node.args else held
        return first is not None and not batch_values(self.facts, first)

    def _is_trained(self, node: ast.Call) -> bool:
        """Whether a call gives a loss of another package: it gets rows, and the trained loss is computed from its result."""
        given = {s.kind for s in self._local(*arguments_of(node))}
        return node in self.facts.loss_slice and given <= PER_SAMPLE | {"other"}

    def _measures_sizes(self, node: ast.Call) -> bool:
        """`min(len(x), 8)`: arithmetic with the size of this share, which is a slice's bound more often than a number to show."""
        bounds = self.facts.paths(node.func) <= {"builtins.max", "builtins.min"}
        return bounds and all(s.kind == "count" for s in self._local(*node.args))

    def _adds_losses(self, node: ast.Call) -> bool:
        """`sum(losses.values())` is a loss again, and `sum(m(x) for m in models)` rows, which leave their batch where
        they are read."""
        found = [s for s in batch_values(self.facts, node) if s.loader in self.loaders]
        adds = self.facts.paths(node.func) == {"builtins.sum"}
        return adds and bool(found) and all(s.kind in {"mean", "sum", "rows"} and not s.host for s in found)

    def _sizes_an_array(self, node: ast.Call) -> bool:
        """`np.random.normal(0, 1, (len(x), 3))`: as many rows as this share has."""
        if not any(api.makes_array(path) for path in self.facts.paths(node.func)):
            return False
        sizes = (p for a in node.args for p in (a.elts if isinstance(a, ast.Tuple | ast.List) else [a]))
        return {s.kind for p in sizes for s in local_batch_values(self.facts, p, self.loaders)} == {"count"}

    def _arguments(self, node: ast.Call, how: str) -> None:
        for argument in arguments_of(node):
            self._add(argument, how, node)

    def _is_foreign(self, node: ast.Call) -> bool:
        """A call whose effect we cannot see: not torch, not a module, not one of the script's own functions."""
        if any(map(self._is_seen_into, self.facts.of(node.func))):
            return False
        return not isinstance(node.func, ast.Name) or bool(self.facts.of(node.func))

    def _is_seen_into(self, value: Value) -> bool:
        """Whether the effect of calling a value is known."""
        interp = self.facts.interp
        if isinstance(value, Function | Method | Class | FromBatch | Instance) or interp.is_module(value):
            return True
        if isinstance(value, Symbol):
            return value.path == "torch" or value.path.startswith(("torch.", "builtins."))
        if isinstance(value, Member):
            owner = value.receiver
            return isinstance(owner, FromBatch) or interp.is_module(owner) or owner in self.facts.optimizers
        return isinstance(value, External) and value.path.startswith("torch.")

    def _test(self, test: ast.expr, at: ast.AST) -> None:
        compound = isinstance(test, ast.BoolOp | ast.UnaryOp)
        ends = isinstance(at, ast.Assert) and self._compares_sizes(test)
        if not compound and not ends and not self._asks_for_rows(test):
            self._add(test, "test", at)

    def _asks_for_rows(self, test: ast.expr) -> bool:
        """`len(y) > 0` and `len(y)`: no process is given an empty share, so all of them say the same."""
        match test:
            case ast.Compare(asked, [_], [ast.Constant(0)]) | (ast.Call() | ast.Subscript() as asked):
                kinds = {s.kind for s in self._local(asked)}
                return isinstance(asked, ast.Call | ast.Subscript) and kinds == {"count"}
        return False

    def _compares_sizes(self, test: ast.expr) -> bool:
        """`pred.size() == target.size()`: where that fails for one process, the job ends, and nothing is decided."""
        if not isinstance(test, ast.Compare):
            return False
        sides = [kinds_of(self.facts, side) for side in (test.left, *test.comparators)]
        return all(kinds and kinds <= {"count", "shape"} for kinds in sides)

    def _stays_in_batch(self, node: ast.Call) -> bool:
        """`outputs.append(x)` to a list that is made anew for every batch."""
        taking = receiver(node, *_TAKES)
        held = self.facts.of(taking) if taking is not None else frozenset()
        return bool(held) and all(
            isinstance(v, Sequence) and within_batch(self.facts.interp, v.site, node) for v in held
        )

    def _row_loop(self, node: ast.For | ast.AsyncFor) -> None:
        """A loop over the rows of a share that leaves something behind."""
        over = looped_over(self.facts, node.iter, self.loaders)
        if over and any(self._leaves(inner) for inner in walk(node)):
            for part in over:
                self._add(part, "rows", node)

    def _picked(self, node: ast.comprehension) -> None:
        """The tests of a comprehension, `[i for i in range(len(y)) if y[i] > 0]`. One that picks the rows to train on
        picks among the process's own."""
        whole = self.facts.table.parents[node]
        if not any(n in self.facts.loss_slice for n in walk(whole)):
            for test in node.ifs:
                self._test(test, node)

    def _leaves(self, inner: ast.AST) -> bool:
        if isinstance(inner, ast.Assign | ast.AugAssign) and is_term(self.facts, inner.value):
            return False
        if isinstance(inner, ast.AugAssign):
            return self._outlives(inner.target, inner)
        if isinstance(inner, ast.Assign):
            return any(
                isinstance(t, ast.Attribute | ast.Subscript) and self._outlives(t, inner)
                for t in inner.targets
            )
        if not isinstance(inner, ast.Call):
            return False
        if receiver(inner, *_TAKES) is not None:
            return not self._stays_in_batch(inner) and not any(is_term(self.facts, a) for a in inner.args)
        return "builtins.print" in self.facts.paths(inner.func)

    def _module_state(self, node: ast.AST) -> None:
        for kept in kept_in_module(self.facts, node):
            self._add(kept, "state", node)
            for part in walk(kept):
                if kept not in self._seen and isinstance(part, ast.expr):
                    self._add(part, "state", node)

    def _augmented(self, node: ast.AugAssign) -> None:
        self._index(node.target, node)
        if self._outlives(node.target, node):
            self._add(node.value, "store", node)

    def _assigned(self, node: ast.Assign) -> None:
        added = accumulated(self.facts.interp, node)
        for target in node.targets:
            self._index(target, node)
            if isinstance(target, ast.Attribute) and target.attr in self.facts.loss_attributes:
                continue  # it is trained, and made global where it is read
            if isinstance(target, ast.Attribute | ast.Subscript) and self._outlives(target, node):
                self._add(node.value if added is None else added, "store", node)
        if carried(self.facts.interp, node):
            self._add(node.value, "store", node)
        if added is not None:
            self._add(added, "store", node)

    def _index(self, target: ast.expr, at: ast.stmt) -> None:
        """`seen[idx] += 1`: the rows tell where something is stored."""
        if isinstance(target, ast.Subscript) and self._outlives(target, at):
            parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
            for part in parts:
                self._add(part, "index", at)
                for bound in (part.lower, part.upper) if isinstance(part, ast.Slice) else ():
                    if bound is not None:
                        self._add(bound, "host", at)  # `bank[at : at + len(x)] = x`

    def _outlives(self, target: ast.expr, at: ast.stmt) -> bool:
        return outlives(self.facts.interp, target, at)


def zip_of(facts: Facts, pair: Sequence) -> ast.Call | None:
    """The `zip(x, y)` that gives a pair; None for any other container."""
    around = facts.table.parents.get(pair.site)
    return around if isinstance(around, ast.Call) and around.func is pair.site else None


def looped_over(facts: Facts, iterated: ast.expr, loaders: set[Value]) -> list[ast.expr]:
    """What a loop over `iterated` goes over, when rows of a share are among it: `x` of `range(len(x))`, and both of
    `enumerate(zip(x, y))`."""
    over: list[ast.expr] = [iterated]
    if isinstance(iterated, ast.Call):
        paths = facts.paths(iterated.func)
        if "builtins.range" in paths:
            over = iterated.args
        elif paths & {"builtins.zip", "builtins.enumerate"}:
            over = [a for part in iterated.args for a in _zipped(facts, part)]
    return over if any(local_batch_values(facts, o, loaders) for o in over) else []


def _zipped(facts: Facts, node: ast.expr) -> list[ast.expr]:
    """`a` and `b` of the `zip(a, b)` in `enumerate(zip(a, b))`."""
    zipped = isinstance(node, ast.Call) and "builtins.zip" in facts.paths(node.func)
    return node.args if zipped and isinstance(node, ast.Call) else [node]


def _is_text(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, str)) or isinstance(node, ast.JoinedStr)
