"""What is known of a script's values, during and after the interpretation: the state that the meaning of every construct
reads and adds to. `infer` runs the passes that fill it.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from crosstrain_migrate.syntax.nodes import FunctionNode, fields_of
from crosstrain_migrate.syntax.program import Region, links_of
from crosstrain_migrate.syntax.reach import reaching_definitions
from crosstrain_migrate.syntax.scopes import Scope, ScopeTable

from . import torch_api as api
from .batches import tensor_targets
from .constants import Constants
from .memory import ANY, Cell, Cells, Copies, Heap, Watch
from .movers import moving_functions, moving_wrappers
from .observed import MODULE, Observation, Sightings
from .optional import OptionalParameters
from .star_imports import star_names
from .streams import generator_functions, sole_streams
from .values import (
    ABSENT,
    NOTHING,
    UNKNOWN,
    Class,
    External,
    FromBatch,
    Instance,
    Member,
    Parameters,
    Sequence,
    Symbol,
    Unknown,
    Value,
    Values,
)
from .widening import COVERABLE, CROWD, WIDEN_ABOVE, covered, is_attribute, widen

# Base classes that `inherits` is asked for -> the role whose classes count as such bases, too.
_BASES_OF = {api.MODULE_BASES: "module", api.LOADERS: "loader", api.OPTIMIZER_BASES: "optimizer"}


class Interpretation(ABC):
    """The values of one script or program. `eval` finds what an expression may be; `of` says what was found.

    may_preview: whether a batch that is drawn early may be a mere look at the data. assumed: by place, what the code
    around it says that it is. known_loaders: by place, the loaders made there that loops are known to iterate.
    """

    def __init__(
        self,
        tree: ast.Module,
        table: ScopeTable,
        may_preview: bool = True,
        assumed: Mapping[ast.AST, Values] | None = None,
        seen: Sightings | None = None,
        known_loaders: Mapping[ast.AST, Values] | None = None,
    ) -> None:
        self.tree = tree
        self.table = table
        self.may_preview = may_preview
        self.assumed = assumed or {}
        self.known_loaders = known_loaders or {}
        self.links = links_of(tree)
        self.reaching = reaching_definitions(table)
        self.uses: dict[ast.AST, list[ast.Name]] = defaultdict(list)
        for name, definitions in self.reaching.items():
            for definition in definitions:
                self.uses[definition].append(name)
        self.observation = Observation(seen, tree, self.reaching, self.uses) if seen is not None else None
        self.observed = self.observation.observed if self.observation is not None else {}  # by place
        stores = (node for node in table.each(ast.Attribute) if isinstance(node.ctx, ast.Store))
        # A read of an attribute of such a name waits until its value is known.
        self.assigned_attributes = frozenset(node.attr for node in stores)
        self.constants = Constants(tree, table)
        self.optional = OptionalParameters(table)
        self.copies = Copies()
        # A partial and a call of it -> both as one call.
        self.partials: dict[tuple[ast.Call, ast.Call], ast.Call] = {}
        self.returned_parts: dict[ast.AST, list[ast.expr]] = {}  # as `context` finds them
        self.stars = star_names(tree)
        self.movers = moving_functions(table)
        self.wrappers = moving_wrappers(table, self.movers)
        self.generators = generator_functions(tree, table)
        self.sole_streams = sole_streams(table, self.generators)
        self.tensor_targets = tensor_targets(table, self.uses)
        self.modules_by_evidence = Cell()
        # Known after the first fixpoint.
        self.touching: set[ast.AST] = set()  # functions that call a module or backward
        self.module_methods: set[ast.AST] = set()  # of nn.Module classes
        self.in_modules: set[ast.AST] = set()  # what stands in these methods
        self.batch_loops: set[ast.AST] = set()  # loops that run once a batch
        self.batch_containers: frozenset[ast.AST] = frozenset()
        self.factories: set[ast.AST] = set()  # functions of which each call makes a loader of its own
        self.previews: frozenset[ast.For | ast.Call] = frozenset()  # whose batches are no process's share
        self.found: dict[ast.AST, Values] | None = None  # what each expression may be, once that is known
        self.reset()

    def reset(self) -> None:
        """Forgets all values, but not which of them are modules: for the second fixpoint."""
        self.watch = Watch()
        self.only_observed: set[ast.AST] = set()  # the places of which only an observed run tells
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

    @abstractmethod
    def eval(self, node: ast.expr) -> Values:
        """What `node` may be now; remembers it for `of`."""

    # -- state -----------------------------------------------------------------------------------------------

    def merge(self, target: Cell, new: Collection[Value]) -> None:
        """Adds values to a cell; who has read it is evaluated again."""
        if target.issuperset(new):
            return
        if not target and len(new) <= WIDEN_ABOVE:  # as most cells are filled
            target.update(new)
            target.remembered = frozenset(new)
        elif not self._grows(target, new):
            return
        if target.readers:
            self.watch.changed(target.readers)
        self.changed = True

    def _grows(self, target: Cell, new: Collection[Value]) -> bool:
        """Adds what the cell neither holds nor stands for; whether there was any."""
        fresh = [
            value
            for value in frozenset(new).difference(target)
            if not (value.__class__ in COVERABLE and covered(value, target, self.heap))
        ]
        if len(target) + len(fresh) > CROWD:
            fresh = [value for value in fresh if not is_attribute(value)] or [*UNKNOWN - target]
            fresh = self._as_one(target, fresh)
        if not fresh:
            return False
        target.update(fresh)
        target.remembered = None
        if len(target) > WIDEN_ABOVE:
            widen(target)
        return True

    def _as_one(self, target: Cell, fresh: list[Value]) -> list[Value]:
        """Joins the containers that a value may be where there are very many: each pass would visit all of them at every
        use."""
        sites = [value.site for value in (*target, *fresh) if isinstance(value, Sequence)]
        if len(sites) <= CROWD:
            return fresh
        joined = Sequence(self.heap.join(sites))
        target.difference_update([v for v in target if isinstance(v, Sequence) and v != joined])
        target.remembered = None
        return [v for v in fresh if not isinstance(v, Sequence)] + [joined] * (joined not in target)

    def store(self, owner: ast.AST, key: object, values: Collection[Value]) -> None:
        """Records what the object made at `owner` may hold under `key`: an attribute, a key or a position."""
        self.merge(self.heap.cell((owner, key)), values)

    def bind(self, scope: Scope, name: str, values: Iterable[Value], node: ast.AST) -> None:
        """Records a binding of `name`, made at `node`."""
        values = frozenset(values)
        for cell in (self.env.cell((scope, name)), self.definitions.cell(node)):
            if not cell.issuperset(values):
                self.merge(cell, values)

    def bind_argument(self, scope: Scope, argument: ast.arg, values: Iterable[Value]) -> None:
        self.bind(scope, argument.arg, values, argument)

    def merge_calls(self, function: FunctionNode, call: ast.Call) -> None:
        if call not in self.call_sites[function]:
            self.call_sites[function].add(call)
            self.changed = True

    def of(self, node: ast.AST) -> Values:
        """What `node` may be, as of the last pass."""
        if self.found is not None:
            return self.found.get(node, NOTHING)
        return self.values.get(node)

    def bindings(self, node: ast.AST | None) -> frozenset[ast.AST]:
        """The bindings that may reach a use of a variable; nothing for any other node, or where they are not known."""
        return self.reaching.get(node, frozenset()) if isinstance(node, ast.Name) else frozenset()

    def is_called(self, node: ast.expr) -> bool:
        """Whether an expression is what a call calls."""
        parent = self.table.parents.get(node)
        return isinstance(parent, ast.Call) and parent.func is node

    def linked(self, node: ast.AST, level: int, dotted: str) -> str | None:
        """The linked file (or folder of such) that an import means."""
        region = self.table.of_node[node].file
        return self.links.find(region, level, dotted) if isinstance(region, Region) else None

    # -- roles -----------------------------------------------------------------------------------------------

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
        """Records that an optimizer, or something like one, was given the parameters of these values."""
        if not values <= self.modules_by_evidence:
            self.modules_by_evidence |= values
            self.watch.changed(self.modules_by_evidence.readers)

    def is_loader(self, value: Value) -> bool:
        if isinstance(value, External):
            return api.is_loader_class(value.path)
        return isinstance(value, Instance) and self.inherits(value.cls, api.LOADERS)

    def role(self, value: Value) -> str:
        """What an object is in training, by its class."""
        if self.is_module(value.root if isinstance(value, Member) else value):
            return "module"
        if self.is_loader(value):
            return "loader"
        if isinstance(value, External):
            return api.role_of(value.path)
        if not isinstance(value, Instance):
            return ""
        bases = {"optimizer": api.OPTIMIZER_BASES, "scheduler": api.SCHEDULER_BASES}
        return next((role for role, of in bases.items() if self.inherits(value.cls, of)), "")

    def inherits(
        self, cls: ast.ClassDef, bases: frozenset[str], seen: frozenset[ast.AST] = frozenset()
    ) -> bool:
        """Whether a class of the script has one of `bases` (names of torch's) among its base classes."""
        is_base = api.IS_OF_ROLE.get(_BASES_OF.get(bases, ""), bases.__contains__)
        found = self.bases(cls)
        if any(isinstance(base, Symbol) and (base.path in bases or is_base(base.path)) for base in found):
            return True
        own = (base.node for base in found if isinstance(base, Class) and base.node not in seen)
        return any(self.inherits(node, bases, seen | {cls}) for node in own)

    def bases(self, cls: ast.ClassDef) -> list[Value]:
        return [value for base in cls.bases for value in self.of(base) or self.eval(base)]

    def method(self, cls: ast.ClassDef, name: str) -> FunctionNode | None:
        """The method that objects of a class have under this name, its own or inherited."""
        for statement in cls.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement.name == name:
                return statement
        bases = (base.node for base in self.bases(cls) if isinstance(base, Class) and base.node is not cls)
        return next((found for base in bases if (found := self.method(base, name)) is not None), None)

    def is_made_in(self, value: Value, function: ast.AST) -> bool:
        """Whether `value` is a loader or a model that `function` makes, and not one that it was given."""
        if not isinstance(value, External) or not (self.is_loader(value) or self.is_module(value)):
            return False
        return self.table.function_around(value.site if value.via is None else value.via) is function

    # -- contents --------------------------------------------------------------------------------------------

    def element(self, value: Value, index: object = ANY) -> Values:
        """What `value[index]` (or unpacking position `index`) may be."""
        if isinstance(value, Sequence):
            site = value.site
            keys = self.heap.keys_of(site) if index is ANY else [(site, ANY), (site, index)]
            return NOTHING.union(*map(self.heap.get, keys))
        if isinstance(value, FromBatch):
            if value.kind == "shape":
                counts = frozenset({FromBatch("count", value.loader, value.origins)})
                return counts if index in {0, ANY} else UNKNOWN
            if value.kind == "batch":
                return frozenset({FromBatch("rows", value.loader, value.origins, value.host)})
            return frozenset({value})
        if isinstance(value, Parameters):
            return frozenset({value})
        if isinstance(value, Instance) and isinstance(index, int):
            names = fields_of(value.cls)
            if index < len(names):
                return self.heap.get((value.cls, names[index]))
        return UNKNOWN

    def loaders_of(self, values: Values) -> set[Value]:
        """The loaders that values from batches among `values`, or in tuples and dicts among them, come from."""
        inner = {e for v in values if isinstance(v, Sequence) for e in self.element(v)}
        return {v.loader for v in values | inner if isinstance(v, FromBatch)}

    # -- what an observed run has shown, and what is assumed -------------------------------------------------

    def with_observed(self, place: ast.AST, found: Values) -> Values:
        """What was found at a place; where that does not tell what it is, what stood there in an observed run."""
        here = self.observed.get(place)
        if here is None or not (found or self.run_orphans):
            return found
        if not here.values:
            trusted = here.row_wise or self._is_output(place)
            return self._with_rows(place, here.rows_of, found) if trusted else found
        if self._tells(found, here.values):
            return found
        for value in here.values:
            if isinstance(value, External) and value.path == MODULE:
                self.note_modules({value})
        self.only_observed.add(place)
        return here.values | (found & ABSENT)

    def _is_output(self, place: ast.AST) -> bool:
        """Whether a module returns it. The author wants its rows to depend on each other where they do, as batch
        normalisation makes them."""
        return isinstance(place, ast.Call) and any(map(self.is_module, self.of(place.func)))

    def iterated_loaders(self) -> dict[ast.AST, Values]:
        """The loaders that loops are known to go over, of those to whose batches tensors belonged in an observed run;
        by where they are made. The rows of other loaders are nobody's share."""
        over = {v for values in self.iterations.values() for v in values}
        sites = {here.rows_of for here in self.observed.values() if here.rows_of is not None}
        found = ((site, frozenset(v for v in self.of(site) if v in over)) for site in sites)
        return {site: values for site, values in found if values}

    def _with_rows(self, place: ast.AST, made: ast.AST | None, found: Values) -> Values:
        """A tensor that had the rows of a loader's batch, whatever else it might have been."""
        if made is None or all(isinstance(v, FromBatch) and v.kind == "rows" for v in found):
            return found
        rows = {FromBatch("rows", v) for v in self.known_loaders.get(made, ())}
        if not rows:
            return found
        self.only_observed.add(place)
        kept = (v for v in found if not isinstance(v, Unknown | External | Member | FromBatch))
        return frozenset(rows).union(kept)

    def _tells(self, found: Values, seen: Values) -> bool:
        """Whether what was found says what a value is. It does not where the value may have several roles, or a class
        that is chosen by name, or a role that the run has not shown."""
        if any(getattr(value, "path", "").endswith(api.CHOSEN) for value in found):
            return False
        there = {self.role(value) for value in seen} - {""}
        if there:
            roles = {self.role(value) for value in found} - {""}
            return len(roles) == 1 and roles == there
        return any(map(self._is_something, found))

    def _is_something(self, value: Value) -> bool:
        if isinstance(value, Member):
            value = value.root
        if isinstance(value, External):
            return bool(self.role(value)) or value.path == "torch.device"
        return not isinstance(value, Unknown) and not (isinstance(value, FromBatch) and value.kind == "other")

    def with_assumed(self, place: ast.AST, found: Values) -> Values:
        """What was found at a place, with what is assumed there in place of what is not known."""
        assumed = self.assumed.get(place)
        if assumed is None:
            return found
        rows = any(isinstance(v, FromBatch) and v.kind == "rows" for v in assumed)
        left_out = (Unknown, External, FromBatch) if rows else (Unknown, External)
        return assumed | {v for v in found if not isinstance(v, left_out)}
