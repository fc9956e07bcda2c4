"""The abstract interpreter: evaluates every expression of a script to the set of values it may stand for.

Flow-insensitive in variables, insensitive to calling context (a parameter is the union of its arguments), run to a
fixpoint. Sets only grow, so it ends; `MAX_PASSES` bounds pathological scripts. Here: the passes and what they know;
`statements`, `expressions` and `calls` say what each construct means.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from . import containers
from . import torch_api as api
from .batches import tensor_targets
from .constants import Constants
from .context import Copies, Optional, containers_of_batches
from .expressions import evaluate
from .looks import Look, early_looks
from .memory import ANY, Cell, Cells, Heap, Watch
from .movers import moving_functions
from .program import Region, links_of
from .reach import reaching_definitions
from .regions import functions_that_run_a_model, loop_of
from .scopes import Scope, ScopeTable, all_arguments
from .stars import star_names
from .statements import run_body
from .values import (
    NOTHING,
    UNKNOWN,
    Class,
    External,
    FunctionNode,
    Instance,
    Parameters,
    Sequence,
    Shard,
    Symbol,
    Unknown,
    Value,
    Values,
)
from .walks import walk
from .widening import COVERABLE, CROWD, WIDEN_ABOVE, covered, is_attribute, widen
from .wrappers import moving_wrappers

MAX_PASSES = 40
_NOTHING_KNOWN: Values = frozenset()


class Interpreter:
    """Evaluates one script or program. After `run`, `values` maps every expression to what it may be."""

    def __init__(
        self,
        tree: ast.Module,
        table: ScopeTable,
        may_look: bool = True,
        assumed: Mapping[ast.AST, Values] | None = None,
    ) -> None:
        self.may_look = (
            may_look  # whether a batch that is drawn early may be taken for a mere look at the data
        )
        self.assumed = assumed or {}  # by place: what the code around it says it is
        self.tree = tree
        self.table = table
        self.links = links_of(tree)
        self.reaching = reaching_definitions(table)
        self.uses: dict[ast.AST, list[ast.Name]] = defaultdict(list)
        for name, definitions in self.reaching.items():
            for definition in definitions:
                self.uses[definition].append(name)
        self.assigned_attributes = _assigned_attributes(table)
        self._defaults = [
            n.args for n in table.scopes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        self.constants = Constants(tree, table)
        self.optional = Optional(table)
        self.copies = Copies()
        self.returned_parts: dict[ast.AST, list[ast.expr]] = {}  # as `context` finds them
        self.stars = star_names(tree)
        self.movers = moving_functions(table)
        self.wrappers = moving_wrappers(table, self.movers)
        self.generators = containers.generator_functions(tree, table)
        self.sole_streams = containers.sole_streams(table, self.generators)
        self.tensor_targets = tensor_targets(table, self.reaching)
        self.modules_by_evidence = Cell()
        self.touching: set[ast.AST] = set()  # functions that call a module or backward
        # Known after the first fixpoint: methods of nn.Module classes, loops that run once a batch.
        self.module_methods: set[ast.AST] = set()
        self.in_modules: set[ast.AST] = set()  # what stands in these methods
        self.batch_loops: set[ast.AST] = set()
        self.batch_containers: frozenset[ast.AST] = frozenset()
        self.factories: set[ast.AST] = set()  # functions of which each call makes a loader of its own
        self.looks: frozenset[Look] = frozenset()  # whose batches are no process's share
        self._known: dict[ast.AST, Values] | None = None  # what each expression may be, once that is found
        self._reset()

    def _reset(self) -> None:
        self.watch = Watch()
        self.modules_by_evidence.readers.clear()
        self.env: Cells[tuple[Scope, str]] = Cells(self.watch)
        self.definitions: Cells[ast.AST] = Cells(self.watch)
        self.heap = Heap(self.watch)
        self.returns: Cells[ast.AST] = Cells(self.watch)
        self.yields: Cells[ast.AST] = Cells(self.watch)
        self.values: Cells[ast.AST] = Cells(self.watch)
        self.iterations: Cells[ast.AST] = Cells(self.watch)
        self.call_sites: dict[ast.AST, set[ast.Call]] = defaultdict(set)
        self.escaped: set[ast.AST] = set()  # functions used as values, not only called
        self.iterated: set[ast.AST] = set()  # `__iter__` of objects that loops go over
        self.changed = False
        self.run_orphans = False

    def run(self) -> None:
        """Two fixpoints: the first finds which values are modules, the second uses that everywhere."""
        self._fixpoint()
        self.touching = functions_that_run_a_model(self)
        loops = [loop_of(self, node) for node, loaders in self.iterations.items() if loaders]
        self.batch_loops = {loop for loop in loops if loop is not None}
        self.module_methods = {
            node
            for cls in list(self.table.parents)  # evaluating a base may add to them
            if isinstance(cls, ast.ClassDef) and self.inherits(cls, api.MODULE_BASES)
            for node in cls.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.in_modules = {n for method in self.module_methods for n in walk(method) if n is not method}
        self.batch_containers = containers_of_batches(self.heap)
        self.factories = {
            function
            for function, sites in self.call_sites.items()
            if len(sites) > 1 and any(self.is_made_in(v, function) for v in self.returns[function])
        }
        if self.may_look:
            self.looks = early_looks(self)
        self._reset()
        self._fixpoint()
        self._known = {node: frozenset(values) for node, values in self.values.items()}

    def is_made_in(self, value: Value, function: ast.AST) -> bool:
        """Whether `value` is a loader or a model that `function` makes, and not one that it was given."""
        if not isinstance(value, External) or not (self.is_loader(value) or self.is_module(value)):
            return False
        return self.table.function_around(value.site if value.via is None else value.via) is function

    def _fixpoint(self) -> None:
        """First what follows from calls alone; then functions nobody calls run with unknown arguments."""
        for self.run_orphans in (False, True):
            self.watch.settled.difference_update(self._defaults)
            for _ in range(MAX_PASSES):
                self.changed = False
                for node, scope in self.table.scopes.items():
                    self._run_scope(node, scope)
                if not self.changed:
                    break

    def _run_scope(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Lambda):
            if node not in self.watch.settled:
                outer = self.watch.enter(node)
                self.merge(self.returns.cell(node), self.eval(node.body))
                self.watch.leave(outer)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args not in self.watch.settled:
            outer = self.watch.enter(node.args)
            self._bind_defaults(node, scope)
            self.watch.leave(outer)
        assert isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        run_body(self, node.body)

    def _bind_defaults(self, node: FunctionNode, scope: Scope) -> None:
        positional = [*node.args.posonlyargs, *node.args.args]
        for argument, default in zip(reversed(positional), reversed(node.args.defaults), strict=False):
            self.bind_argument(scope, argument, self.eval(default))
        for argument, kw_default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if kw_default is not None:
                self.bind_argument(scope, argument, self.eval(kw_default))
        if not self.run_orphans:
            return
        parent = self.table.parents.get(node)
        if isinstance(parent, ast.ClassDef) and positional and not self.env[scope, positional[0].arg]:
            self.bind_argument(scope, positional[0], {Instance(parent, parent)})
        for argument in all_arguments(node):
            if not self.env[scope, argument.arg]:
                self.bind_argument(scope, argument, UNKNOWN)

    # -- state -----------------------------------------------------------------------------------------------

    def merge(self, target: Cell, new: Iterable[Value]) -> None:
        if target.issuperset(new):
            return
        fresh = [
            value
            for value in new
            if value not in target
            and not (value.__class__ in COVERABLE and covered(value, target, self.heap))
        ]
        if len(target) + len(fresh) > CROWD:
            fresh = [value for value in fresh if not is_attribute(value)] or [*UNKNOWN - target]
            fresh = self._as_one(target, fresh)
        if not fresh:
            return
        target.update(fresh)
        if len(target) > WIDEN_ABOVE:
            widen(target)
        if target.readers:
            self.watch.changed(target.readers)
        self.changed = True

    def _as_one(self, target: Cell, fresh: list[Value]) -> list[Value]:
        """Where a value may be one of ever so many containers, they become one: each pass would go through all of them
        at every use."""
        sites = [value.site for value in (*target, *fresh) if isinstance(value, Sequence)]
        if len(sites) <= CROWD:
            return fresh
        joined = Sequence(self.heap.join(sites))
        target.difference_update([v for v in target if isinstance(v, Sequence) and v != joined])
        return [v for v in fresh if not isinstance(v, Sequence)] + [joined] * (joined not in target)

    def store(self, owner: ast.AST, key: object, values: Iterable[Value]) -> None:
        """Records what the object made at `owner` may hold under `key`: an attribute, a key or a position."""
        self.merge(self.heap.cell((owner, key)), values)

    def bind(self, scope: Scope, name: str, values: Iterable[Value], node: ast.AST) -> None:
        """Records a binding of `name`, made at `node`."""
        values = frozenset(values)
        self.merge(self.env.cell((scope, name)), values)
        self.merge(self.definitions.cell(node), values)

    def bind_argument(self, scope: Scope, argument: ast.arg, values: Iterable[Value]) -> None:
        self.bind(scope, argument.arg, values, argument)

    def merge_calls(self, function: FunctionNode, call: ast.Call) -> None:
        if call not in self.call_sites[function]:
            self.call_sites[function].add(call)
            self.changed = True

    def of(self, node: ast.AST) -> Values:
        """What `node` may be, as of the last pass."""
        if self._known is not None:
            return self._known.get(node, _NOTHING_KNOWN)
        return frozenset(self.values.get(node, ()))

    def is_module(self, value: Value) -> bool:
        """Whether `value` is a torch.nn.Module: by class, by base class, or because an optimizer got its parameters."""
        if isinstance(value, External):
            return api.is_module_class(value.path) or self._is_module_by_evidence(value)
        return isinstance(value, Instance) and (
            self.inherits(value.cls, api.MODULE_BASES) or self._is_module_by_evidence(value)
        )

    def _is_module_by_evidence(self, value: Value) -> bool:
        self.watch.read(self.modules_by_evidence.readers)
        return value in self.modules_by_evidence

    def note_modules(self, values: set[Value]) -> None:
        """An optimizer, or something like one, was given their parameters."""
        if not values <= self.modules_by_evidence:
            self.modules_by_evidence |= values
            self.watch.changed(self.modules_by_evidence.readers)

    def is_loader(self, value: Value) -> bool:
        if isinstance(value, External):
            return api.is_loader_class(value.path)
        return isinstance(value, Instance) and self.inherits(value.cls, api.LOADERS)

    def inherits(
        self, cls: ast.ClassDef, bases: frozenset[str], seen: frozenset[ast.AST] = frozenset()
    ) -> bool:
        for base in self.bases(cls):
            if isinstance(base, Symbol) and (base.path in bases):
                return True
            if isinstance(base, Symbol) and bases is api.MODULE_BASES and api.is_module_class(base.path):
                return True
            if isinstance(base, Symbol) and bases is api.LOADERS and api.is_loader_class(base.path):
                return True
            if (
                isinstance(base, Symbol)
                and bases is api.OPTIMIZER_BASES
                and api.is_optimizer_class(base.path)
            ):
                return True
            if (
                isinstance(base, Class)
                and base.node not in seen
                and self.inherits(base.node, bases, seen | {cls})
            ):
                return True
        return False

    def bases(self, cls: ast.ClassDef) -> list[Value]:
        return [value for base in cls.bases for value in self.of(base) or self.eval(base)]

    def element(self, value: Value, index: object = ANY) -> Values:
        """What `value[index]` (or unpacking position `index`) may be."""
        if isinstance(value, Sequence):
            found = set(self.heap.get((value.site, ANY), ()))
            if index is ANY:
                found.update(*(self.heap[key] for key in self.heap.keys_of(value.site)))
            else:
                found |= self.heap.get((value.site, index), set())
            return frozenset(found) or NOTHING
        if isinstance(value, Shard):
            if value.kind == "shape":
                return (
                    frozenset({Shard("count", value.loader, value.origins)}) if index in {0, ANY} else UNKNOWN
                )
            return (
                frozenset({Shard("rows", value.loader, value.origins, value.host)})
                if value.kind == "batch"
                else frozenset({value})
            )
        if isinstance(value, Parameters):
            return frozenset({value})
        if isinstance(value, Instance) and isinstance(index, int):
            names = containers.fields_of(value.cls)
            if index < len(names):
                return frozenset(self.heap.get((value.cls, names[index]), ())) or NOTHING
        return UNKNOWN

    def linked(self, node: ast.AST, level: int, dotted: str) -> str | None:
        """The linked file (or folder of such) that an import means."""
        region = self.table.of_node[node].file
        return self.links.find(region, level, dotted) if isinstance(region, Region) else None

    def loaders_of(self, values: Values) -> set[Value]:
        """The loaders that shards among `values`, or in tuples and dicts among them, come from."""
        inner = {e for v in values if isinstance(v, Sequence) for e in self.element(v)}
        return {v.loader for v in values | inner if isinstance(v, Shard)}

    def method(self, cls: ast.ClassDef, name: str) -> FunctionNode | None:
        for statement in cls.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                return statement
        for base in self.bases(cls):
            if isinstance(base, Class) and base.node is not cls:
                found = self.method(base.node, name)
                if found is not None:
                    return found
        return None

    def eval(self, node: ast.expr) -> Values:
        """What `node` may be now; remembers it for `of`."""
        found = evaluate(self, node)
        if self.assumed:
            found = self.supposed(node, found)
        cell = self.values.cell(node)
        self.merge(cell, found)
        return frozenset(cell)

    def supposed(self, place: ast.AST, found: Values) -> Values:
        """What was found at a place, with what is assumed there in place of what is not known."""
        assumed = self.assumed.get(place)
        if assumed is None:
            return found
        rows = any(isinstance(v, Shard) and v.kind == "rows" for v in assumed)
        left_out = (Unknown, External, Shard) if rows else (Unknown, External)
        return assumed | {v for v in found if not isinstance(v, left_out)}


def _assigned_attributes(table: ScopeTable) -> frozenset[str]:
    """Attribute names that the script assigns anywhere: reading one waits until its value is known."""
    return frozenset(
        n.attr for n in table.parents if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    )
