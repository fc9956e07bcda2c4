"""The abstract interpreter: evaluates every expression of a script to the set of values it may stand for.

Flow-insensitive in variables, insensitive to calling context (a parameter is the union of its arguments), run to a
fixpoint. Sets only grow, so it ends; `MAX_PASSES` bounds pathological scripts.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from . import calls, containers, tensors
from . import torch_api as api
from .batches import tensor_targets
from .constants import Constants
from .context import Copies, Optional, containers_of_batches
from .memory import Cell, Cells, Heap, Watch
from .movers import moving_functions
from .program import LOCAL, Region, links_of
from .reach import reaching_definitions
from .scopes import Scope, ScopeTable, all_arguments
from .stars import star_names
from .values import (
    NOTHING,
    UNKNOWN,
    Class,
    External,
    Function,
    FunctionNode,
    Generator,
    Instance,
    Iterator,
    Member,
    Method,
    Parameters,
    Sequence,
    Shard,
    Symbol,
    Value,
    Values,
)
from .walks import children

MAX_PASSES = 40
WIDEN_ABOVE = 6  # values that differ only in their origins are joined when a set grows beyond this
# Attributes of things we know nothing of are told apart up to this depth, and in sets up to this size.
DEEPEST, CROWD = 4, 40
LONGEST = 6  # parts of a dotted name that surely names something in a module
ANY = "*"  # heap key of an element whose position is not known


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class Interpreter:
    """Evaluates one script or program. After `run`, `values` maps every expression to what it may be."""

    def __init__(self, tree: ast.Module, table: ScopeTable) -> None:
        self.tree = tree
        self.table = table
        self.links = links_of(tree)
        self._evaluators: dict[type[ast.expr], Callable[[Any], Values]] = {}
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
        self.stars = star_names(tree)
        self.movers = moving_functions(table)
        self.generators = containers.generator_functions(tree, table)
        self.tensor_targets = tensor_targets(table, self.reaching)
        self.modules_by_evidence = Cell()
        self.touching: set[ast.AST] = set()  # functions that call a module or backward
        # Known after the first fixpoint: methods of nn.Module classes, loops that run once a batch.
        self.module_methods: set[ast.AST] = set()
        self.batch_loops: set[ast.AST] = set()
        self.batch_containers: frozenset[ast.AST] = frozenset()
        self.factories: set[ast.AST] = set()  # functions of which each call makes a loader of its own
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
        self.changed = False
        self.run_orphans = False

    def run(self) -> None:
        """Two fixpoints: the first finds which values are modules, the second uses that everywhere."""
        self._fixpoint()
        self.find_touching()
        loops = [self._loop_of(node) for node, loaders in self.iterations.items() if loaders]
        self.batch_loops = {loop for loop in loops if loop is not None}
        self.module_methods = {
            node
            for cls in list(self.table.parents)  # evaluating a base may add to them
            if isinstance(cls, ast.ClassDef) and self.inherits(cls, api.MODULE_BASES)
            for node in cls.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        self.batch_containers = containers_of_batches(self.heap)
        self.factories = {
            function
            for function, sites in self.call_sites.items()
            if len(sites) > 1 and any(self.is_made_in(v, function) for v in self.returns[function])
        }
        self._reset()
        self._fixpoint()

    def is_made_in(self, value: Value, function: ast.AST) -> bool:
        """Whether `value` is a loader or a model that `function` makes, and not one that it was given."""
        if not isinstance(value, External) or not (calls.is_loader(self, value) or self.is_module(value)):
            return False
        return self.function_around(value.site if value.via is None else value.via) is function

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
        self.run_body(node.body)

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
        fresh = [value for value in new if value not in target and not _covered(value, target)]
        if len(target) + len(fresh) > CROWD:
            fresh = [value for value in fresh if not _is_attribute(value)] or [*UNKNOWN - target]
        if not fresh:
            return
        target.update(fresh)
        if len(target) > WIDEN_ABOVE:
            _widen(target)
        self.watch.changed(target.readers)
        self.changed = True

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

    def inherits(
        self, cls: ast.ClassDef, bases: frozenset[str], seen: frozenset[ast.AST] = frozenset()
    ) -> bool:
        for base in self.bases(cls):
            if isinstance(base, Symbol) and (base.path in bases):
                return True
            if isinstance(base, Symbol) and bases is api.MODULE_BASES and api.is_module_class(base.path):
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

    def _loop_of(self, node: ast.AST) -> ast.AST | None:
        """The loop that runs once a batch of what `node` iterates: itself, or the one around `next(batches)`."""
        if isinstance(node, ast.For | ast.AsyncFor) or not isinstance(node, ast.Call):
            return node if isinstance(node, ast.For | ast.AsyncFor) else None
        for around in self.table.ancestors(node):
            if isinstance(around, ast.For | ast.AsyncFor | ast.While):
                return around
            if around in self.table.scopes:
                break
        return None

    def find_touching(self) -> None:
        """Functions that (through any depth of calls) call a module or backward."""
        direct: set[ast.AST] = set()
        callers: dict[ast.AST, set[ast.AST]] = defaultdict(set)
        for node in self.table.parents:
            if not isinstance(node, ast.Call):
                continue
            around = next((a for a in self.table.ancestors(node) if a in self.table.scopes), self.tree)
            for value in self.of(node.func):
                if self.is_module(value) or (isinstance(value, Member) and value.name == "backward"):
                    direct.add(around)
                target = value.function.node if isinstance(value, Method) else getattr(value, "node", None)
                if target is not None:
                    callers[target].add(around)
        work = list(direct)
        self.touching = set(direct)
        while work:
            for caller in callers[work.pop()]:
                if caller not in self.touching:
                    self.touching.add(caller)
                    work.append(caller)

    # -- statements ------------------------------------------------------------------------------------------

    def run_body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if statement in self.constants.dead:
                continue
            if statement in self.watch.settled:
                for suite in _inner_suites(statement):
                    self.run_body(suite)
                continue
            outer = self.watch.enter(statement)
            handler: Callable[[ast.stmt], None] | None = getattr(
                self, f"_do_{type(statement).__name__}", None
            )
            if handler is not None:
                handler(statement)
            else:
                self._do_parts(statement)
            self.watch.leave(outer)

    def _do_parts(self, node: ast.AST) -> None:
        """Anything without meaning of its own: evaluate its expressions, run its suites."""
        for child in children(node):
            if isinstance(child, ast.expr):
                self.eval(child)
            elif isinstance(child, ast.stmt):
                self.run_body([child])
            elif isinstance(child, ast.withitem):
                self._do_withitem(child)
            elif isinstance(child, ast.ExceptHandler | ast.match_case):
                self._do_parts(child)

    def _do_withitem(self, item: ast.withitem) -> None:
        values = self.eval(item.context_expr)
        if item.optional_vars is not None:
            self.assign(item.optional_vars, values)

    def _do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.eval(decorator)
        self.bind(self.table.of_node[node], node.name, {Function(node)}, node)

    _do_AsyncFunctionDef = _do_FunctionDef

    def _do_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.bases, *node.decorator_list):
            self.eval(part)
        self.bind(self.table.of_node[node], node.name, {Class(node)}, node)

    def _do_Import(self, node: ast.Import) -> None:
        scope = self.table.of_node[node]
        for alias in node.names:
            name = alias.asname or alias.name.split(".")[0]
            path = alias.name if alias.asname else name
            linked = self.linked(node, 0, path)
            self.bind(scope, name, {Symbol(path) if linked is None else Symbol(LOCAL + linked)}, alias)

    def _do_ImportFrom(self, node: ast.ImportFrom) -> None:
        scope = self.table.of_node[node]
        linked = self.linked(node, node.level, node.module or "")
        prefix = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                continue
            if linked is not None:
                values = self._of_file(linked, alias.name)
            else:
                values = frozenset({Symbol(api.canonical(f"{prefix}.{alias.name}"))})
            self.bind(scope, alias.asname or alias.name, values, alias)

    def linked(self, node: ast.AST, level: int, dotted: str) -> str | None:
        """The linked file (or folder of such) that an import means."""
        region = self.table.of_node[node].file
        return self.links.find(region, level, dotted) if isinstance(region, Region) else None

    def _of_file(self, path: str, name: str) -> Values:
        """The attribute `name` of a linked module: what it binds, or a module of its package."""
        region = self.links.region(path)
        if region is not None and name in self.table.scopes[region].names:
            return frozenset(self.env[self.table.scopes[region], name])
        inner = self.links.child(path, name)
        return UNKNOWN if inner is None else frozenset({Symbol(LOCAL + inner)})

    def _do_Assign(self, node: ast.Assign) -> None:
        values = self.eval(node.value)
        if self.accumulated(node) is not None or self.carried(node):
            values = as_kept(values)
        for target in node.targets:
            self.assign(target, values)

    def _do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.eval(node.value))

    def _do_AugAssign(self, node: ast.AugAssign) -> None:
        """`total += x` makes `total` what `x` is: its start value is a constant as far as shares go."""
        values = self.eval(node.value)
        before = self.before_augmentation(node)
        shards = frozenset(v for v in before if isinstance(v, Shard))
        if isinstance(node.op, ast.Add | ast.Sub) and not shards:
            result = values | before
        else:
            result = self._combine(node.op, shards or before, values, node)
        self.assign(node.target, as_kept(result) if self.outlives(node.target, node) else result)

    def before_augmentation(self, node: ast.AugAssign) -> Values:
        """What the target was before `node` changed it."""
        if isinstance(node.target, ast.Name):
            reaching = self.reaching.get(node.target, frozenset())
            return frozenset(v for d in reaching for v in self.definitions[d])
        return self.eval(node.target)

    def _do_For(self, node: ast.For | ast.AsyncFor) -> None:
        items = self.iterate(self.eval(node.iter), node)
        self.assign(node.target, items)
        self.run_body(node.body)
        self.run_body(node.orelse)

    _do_AsyncFor = _do_For

    def _do_Return(self, node: ast.Return) -> None:
        values = self.eval(node.value) if node.value is not None else UNKNOWN
        function = next(
            (a for a in self.table.ancestors(node) if isinstance(a, ast.FunctionDef | ast.AsyncFunctionDef)),
            None,
        )
        if function is not None:
            self.merge(self.returns.cell(function), values)

    def assign(self, target: ast.expr, values: Values | set[Value]) -> None:
        if target in self.tensor_targets:
            values = frozenset(
                replace(v, kind="rows") if isinstance(v, Shard) and v.kind == "batch" else v for v in values
            )
        self.merge(self.values.cell(target), values)
        if isinstance(target, ast.Name):
            scope = self.table.of_node[target].resolve(target.id)
            if scope is not None:
                self.bind(scope, target.id, values, target)
        elif isinstance(target, ast.Attribute):
            for owner in self.eval(target.value):
                if isinstance(owner, Instance):
                    self.merge(self.heap.cell((owner.cls, target.attr)), values)
                elif isinstance(owner, Member | External):
                    self.merge(self.heap.cell((self.tree, (owner, target.attr))), values)
        elif isinstance(target, ast.Subscript):
            self.eval(target.slice)
            for owner in self.eval(target.value):
                if isinstance(owner, Sequence):
                    self.merge(self.heap.cell((owner.site, self._key(target.slice))), values)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, values)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, part in enumerate(target.elts):
                self.assign(part, frozenset(v for value in values for v in self.element(value, index)))

    @staticmethod
    def _key(index: ast.expr) -> object:
        return index.value if isinstance(index, ast.Constant) else ANY

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
            names = fields_of(value.cls)
            if index < len(names):
                return frozenset(self.heap.get((value.cls, names[index]), ())) or NOTHING
        return UNKNOWN

    def iterate(self, values: Values, node: ast.AST) -> Values:
        """What a loop over `values` binds its target to; remembers which loaders `node` iterates."""
        found: set[Value] = set()
        for value in values:
            if isinstance(value, Iterator):
                inner = self.iterate(frozenset({value.of}), node)
                if value.counted:
                    pair = Sequence(value.site)
                    self.merge(self.heap.cell((value.site, 0)), UNKNOWN)
                    self.merge(self.heap.cell((value.site, 1)), inner)
                    found.add(pair)
                else:
                    found |= inner
            elif calls.is_loader(self, value):
                self.merge(self.iterations.cell(node), {value})
                found.add(Shard("batch", value))
            elif isinstance(value, Sequence):
                found |= self.element(value)
            elif isinstance(value, Generator):
                yielded = frozenset(self.heap[value.site, ANY])
                self.merge(self.iterations.cell(node), self.loaders_of(yielded))
                found |= yielded
            elif isinstance(value, Shard):
                found.add(
                    Shard(
                        "rows" if value.kind == "batch" else "other",
                        value.loader,
                        value.origins | {node},
                        value.host,
                    )
                )
            elif isinstance(value, Instance):
                found |= self._iterate_instance(value, node)
            elif isinstance(value, External) and self.is_module(value):
                found.add(External(api.SUBMODULE, value.site))
            else:
                found |= self.element(value)
        return frozenset(found)

    def loaders_of(self, values: Values) -> set[Value]:
        """The loaders that shards among `values`, or in tuples and dicts among them, come from."""
        inner = {e for v in values if isinstance(v, Sequence) for e in self.element(v)}
        return {v.loader for v in values | inner if isinstance(v, Shard)}

    def _iterate_instance(self, value: Instance, node: ast.AST) -> Values:
        method = self.method(value.cls, "__iter__")
        return frozenset(self.returns[method]) if method is not None else UNKNOWN

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

    # -- what outlives a batch -------------------------------------------------------------------------------

    def batch_loop_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost batch loop around `node` in its own function."""
        for around in self.table.ancestors(node):
            if around in self.batch_loops:
                return around
            if around in self.table.scopes:
                return None
        return None

    def in_module(self, node: ast.AST) -> bool:
        """Whether `node` stands in a method of an nn.Module."""
        return bool(self.module_methods) and any(a in self.module_methods for a in self.table.ancestors(node))

    def in_mover(self, node: ast.AST) -> bool:
        """Whether `node` stands in a function that moves what it is given, and does nothing else with it."""
        return bool(self.movers) and self.function_around(node) in self.movers

    def outlives(self, target: ast.expr, at: ast.stmt) -> bool:
        """Whether `target` was there before this batch: an accumulator, an attribute, an outer container."""
        if self.in_module(at):
            return False
        if isinstance(target, ast.Subscript | ast.Attribute):
            return not any(isinstance(v, Shard) for v in self.of(target.value))
        loop = self.batch_loop_around(at)
        if isinstance(target, ast.Name) and self._is_of_outer_scope(target):
            return True
        if loop is None or not isinstance(target, ast.Name):
            return False
        reaching = self.reaching.get(target, frozenset())
        return any(not self.inside(d, loop) for d in reaching) or not reaching

    def _is_of_outer_scope(self, name: ast.Name) -> bool:
        """Declared `global` or `nonlocal`: the variable outlives the function, and every batch."""
        scope = self.table.of_node[name]
        return name.id in scope.globals or name.id in scope.nonlocals

    def accumulated(self, node: ast.Assign) -> ast.expr | None:
        """`x` of `total = total + x` or `total = torch.cat([total, x])`, where `total` outlives the batch."""
        value, target = node.value, node.targets[0]
        if isinstance(value, ast.Call) and isinstance(target, ast.Name):
            return self._appended(value, target.id, node)
        if (
            not isinstance(value, ast.BinOp)
            or not isinstance(value.op, ast.Add)
            or not isinstance(target, ast.Name)
        ):
            return None
        for read, other in ((value.left, value.right), (value.right, value.left)):
            if isinstance(read, ast.Name) and read.id == target.id and self.outlives(read, node):
                return other
        return None

    def carried(self, node: ast.Assign) -> bool:
        """`previous = loss.detach()`, read when the next batch is at work: kept as the number of all processes."""
        target, loop = node.targets[0], self.batch_loop_around(node)
        kinds = {v.kind for v in self.of(node.value) if isinstance(v, Shard)}
        if not isinstance(target, ast.Name) or loop is None or not kinds or not kinds <= {"mean", "sum"}:
            return False
        return any(
            name.lineno < node.lineno and self.inside(name, loop) for name in self.uses.get(target, ())
        )

    def _appended(self, call: ast.Call, name: str, node: ast.Assign) -> ast.expr | None:
        joins = {v.path.rsplit(".", 1)[-1] for v in self.of(call.func) if isinstance(v, Symbol)} & api.JOINS
        if not joins or not call.args:
            return None
        first = call.args[0]
        parts = first.elts if isinstance(first, ast.Tuple | ast.List) else call.args[:2]
        if len(parts) != 2 or not isinstance(parts[0], ast.Name) or parts[0].id != name:
            return None
        return parts[1] if self.outlives(parts[0], node) else None

    def inside(self, node: ast.AST, around: ast.AST) -> bool:
        return node is around or any(a is around for a in self.table.ancestors(node))

    def kept(self, values: Values, site: ast.AST, at: ast.AST) -> Values:
        """What a container made at `site` holds after `values` were put into it at `at`."""
        return values if self.within_batch(site, at) else as_kept(values)

    def within_batch(self, site: ast.AST, at: ast.AST) -> bool:
        """Whether a container made at `site` lives no longer than the batch (or the call) that `at` belongs to."""
        if self.in_module(at):
            return True
        loop = self.batch_loop_around(at)
        if loop is not None:
            return self.inside(site, loop)
        function = self.function_around(at)
        return (
            function is not None
            and function is self.function_around(site)
            and not self._loops_over_batches(function)
        )

    def function_around(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        for around in self.table.ancestors(node):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                return around
        return None

    def _loops_over_batches(self, function: ast.AST) -> bool:
        return any(self.inside(loop, function) for loop in self.batch_loops)

    # -- expressions -----------------------------------------------------------------------------------------

    def eval(self, node: ast.expr) -> Values:
        kind = type(node)
        if kind not in self._evaluators:
            self._evaluators[kind] = getattr(self, f"_eval_{kind.__name__}", self._eval_parts)
        found = self._evaluators[kind](node)
        cell = self.values.cell(node)
        self.merge(cell, found)
        return frozenset(cell)

    def _eval_parts(self, node: ast.expr) -> Values:
        for child in children(node):
            if isinstance(child, ast.expr):
                self.eval(child)
        return UNKNOWN

    def _eval_Name(self, node: ast.Name) -> Values:
        scope = self.table.of_node[node].resolve(node.id)
        if scope is None:
            return frozenset({Symbol(self.stars.get(node.id, f"builtins.{node.id}"))})
        reaching = self.reaching.get(node)
        if reaching is not None:
            found = frozenset(v for d in reaching for v in self.definitions[d])
        else:
            found = frozenset(self.env[scope, node.id])
        parent = self.table.parents.get(node)
        if not (isinstance(parent, ast.Call) and parent.func is node):
            self.escaped.update(v.node for v in found if isinstance(v, Function))
        return found

    def _eval_Attribute(self, node: ast.Attribute) -> Values:
        found: set[Value] = set()
        for owner in self.eval(node.value):
            found |= self.attribute(owner, node.attr, node)
        parent = self.table.parents.get(node)
        if not (isinstance(parent, ast.Call) and parent.func is node):
            self.escaped.update(v.function.node for v in found if isinstance(v, Method))
        return frozenset(found)

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Values:
        if isinstance(owner, Symbol):
            if owner.path.startswith(LOCAL):
                return self._of_file(owner.path.removeprefix(LOCAL), name)
            return frozenset({Symbol(api.canonical(f"{owner.path}.{name}"))})
        if isinstance(owner, Instance):
            return self._instance_attribute(owner, name)
        if isinstance(owner, Class):
            method = self.method(owner.node, name)
            return frozenset({Function(method)}) if method is not None else UNKNOWN
        if isinstance(owner, Shard):
            return self._shard_attribute(owner, name, node)
        stored = self.heap.get((self.tree, (owner, name)))
        if isinstance(owner, Sequence) and (owner.site, name) in self.heap:
            return frozenset(self.heap[owner.site, name])  # a field of a named tuple
        return frozenset(stored or ()) | ({Member(owner, name)} if _may_have(owner, name) else UNKNOWN)

    def _instance_attribute(self, owner: Instance, name: str) -> Values:
        method = self.method(owner.cls, name)
        if method is not None:
            decorators = {getattr(d, "id", "") for d in getattr(method, "decorator_list", ())}
            if "property" in decorators:
                return frozenset(self.returns[method])
            if "staticmethod" in decorators:
                return frozenset({Function(method)})
            return frozenset({Method(owner, Function(method))})
        found: set[Value] = set(self.heap.get((owner.cls, name), ()))
        for base in self.bases(owner.cls):
            if isinstance(base, Class):
                found |= self.heap.get((base.node, name), set())
        if not found and name in self.assigned_attributes:
            return NOTHING
        class_scope = self.table.scopes.get(owner.cls)
        if class_scope is not None and name in class_scope.names:
            found |= self.env[class_scope, name]
        return frozenset(found) or frozenset({Member(owner, name)})

    @staticmethod
    def _shard_attribute(owner: Shard, name: str, node: ast.AST) -> Values:
        if name in {"data", "T", "mT", "grad", "H", "shape", "real"}:
            found = tensors.apply(name, owner, node, [], {})
            return frozenset({found}) if found is not None else UNKNOWN
        if name in {"device", "dtype", "ndim", "is_cuda", "requires_grad", "grad_fn"}:
            return UNKNOWN
        if name == "loss":  # a model output that carries its own loss: its reduction is not known
            return frozenset({tensors.other(owner, node)})
        if owner.kind == "batch":
            return frozenset({Member(owner, name), Shard("rows", owner.loader, owner.origins, owner.host)})
        return frozenset({Member(owner, name)})

    def _eval_Subscript(self, node: ast.Subscript) -> Values:
        owners, index = self.eval(node.value), self.eval(node.slice)
        row_index = any(isinstance(v, Shard) and v.kind in tensors.PER_SAMPLE for v in index)
        found: set[Value] = set()
        for owner in owners:
            if isinstance(owner, Shard):
                shard = tensors.subscript(owner, node.slice, node, row_index)
                found |= {shard} if shard is not None else UNKNOWN
            elif isinstance(owner, Symbol) and owner.path.endswith(".__dict__"):
                found.add(Symbol(f"{owner.path.removesuffix('.__dict__')}.{api.CHOSEN}"))
            elif isinstance(owner, External) and self.is_module(owner):
                found.add(External(api.SUBMODULE, owner.site))
            elif row_index and not isinstance(owner, Sequence | Instance | External):
                found |= self._looked_up(index, node)
            else:
                found |= self.element(owner, self._key(node.slice))
        return frozenset(found)

    @staticmethod
    def _looked_up(index: Values, node: ast.Subscript) -> Values:
        """`table[labels]`: one row of the table for each of the batch; a mask picks another number of them."""
        mask = isinstance(node.slice, ast.Compare | ast.UnaryOp | ast.BoolOp)
        shards = [v for v in index if isinstance(v, Shard) and v.kind in tensors.PER_SAMPLE]
        return frozenset(tensors.other(s, node) if mask else s for s in shards)

    def _eval_Tuple(self, node: ast.Tuple | ast.List | ast.Set) -> Values:
        for index, part in enumerate(node.elts):
            key = ANY if isinstance(part, ast.Starred) or isinstance(node, ast.Set) else index
            self.merge(self.heap.cell((node, key)), self.eval(part))
        return frozenset({Sequence(node)})

    _eval_List = _eval_Tuple
    _eval_Set = _eval_Tuple

    def _eval_Dict(self, node: ast.Dict) -> Values:
        for key, value in zip(node.keys, node.values, strict=True):
            values = self.eval(value)
            if key is None:
                values = frozenset(e for v in values for e in self.element(v))
            else:
                self.eval(key)
            self.merge(self.heap.cell((node, self._key(key) if key is not None else ANY)), values)
        return frozenset({Sequence(node)})

    def _comprehension(self, node: Comprehension) -> Values:
        for generator in node.generators:
            self.assign(generator.target, self.iterate(self.eval(generator.iter), generator))
            for test in generator.ifs:
                self.eval(test)
        if isinstance(node, ast.DictComp):
            self.eval(node.key)
            element = self.eval(node.value)
        else:
            element = self.eval(node.elt)
        if containers.told_apart(self, node, element):
            return frozenset({Sequence(node)})
        shards = frozenset(v for v in element if isinstance(v, Shard))
        if shards:  # one element per tensor of a batch is a batch again; anything else is per-row bookkeeping
            return frozenset(self._collected(shard, node) for shard in shards)
        self.merge(self.heap.cell((node, ANY)), element)
        return frozenset({Sequence(node)})

    def _collected(self, shard: Shard, node: Comprehension) -> Shard:
        iterated = [v for generator in node.generators for v in self.of(generator.iter)]
        from_batch = any(
            (isinstance(v, Shard) and v.kind == "batch")
            or (isinstance(v, Member) and isinstance(v.receiver, Shard))
            for v in iterated
        )
        over = [v for v in iterated if isinstance(v, Shard)]
        if all(v.kind == "batch" for v in over) and shard.kind in {"mean", "sum"}:
            return shard  # `[criterion(out, y) for out in outputs]`
        if (from_batch or not over) and shard.kind == "rows":
            return Shard("batch", shard.loader, shard.origins, shard.host)
        return tensors.other(shard, node)

    _eval_ListComp = _comprehension
    _eval_SetComp = _comprehension
    _eval_GeneratorExp = _comprehension
    _eval_DictComp = _comprehension

    def _eval_IfExp(self, node: ast.IfExp) -> Values:
        self.eval(node.test)
        said = self.constants.decided(node.test)
        if said is not None:
            return self.eval(node.body if said else node.orelse)
        return self.eval(node.body) | self.eval(node.orelse)

    def _eval_BoolOp(self, node: ast.BoolOp) -> Values:
        return frozenset(v for part in node.values for v in self.eval(part))

    def _eval_NamedExpr(self, node: ast.NamedExpr) -> Values:
        values = self.eval(node.value)
        self.assign(node.target, values)
        return values

    def _eval_Starred(self, node: ast.Starred) -> Values:
        return frozenset(e for v in self.eval(node.value) for e in self.element(v))

    def _eval_Await(self, node: ast.Await) -> Values:
        return self.eval(node.value)

    def _eval_Lambda(self, node: ast.Lambda) -> Values:
        return frozenset({Function(node)})

    def _eval_Yield(self, node: ast.Yield) -> Values:
        values = self.eval(node.value) if node.value is not None else UNKNOWN
        self._yielded(node, values)
        return UNKNOWN

    def _eval_YieldFrom(self, node: ast.YieldFrom) -> Values:
        self._yielded(node, self.iterate(self.eval(node.value), node))
        return UNKNOWN

    def _yielded(self, node: ast.expr, values: Values) -> None:
        function = self.function_around(node)
        if function is not None:
            self.merge(self.yields.cell(function), values)

    def _eval_UnaryOp(self, node: ast.UnaryOp) -> Values:
        found: set[Value] = set()
        for value in self.eval(node.operand):
            if isinstance(value, Shard):
                keeps = not isinstance(node.op, ast.Not)
                found.add(value if keeps else tensors.other(value, node))
            else:
                found.add(value)
        return frozenset(found)

    def _eval_BinOp(self, node: ast.BinOp) -> Values:
        left, right = self.eval(node.left), self.eval(node.right)
        if isinstance(node.op, ast.Add) and any(isinstance(v, Sequence | Parameters) for v in left | right):
            return containers.concatenated(self, node) or left | right
        if (
            isinstance(node.op, ast.Mod)
            and isinstance(node.left, ast.Constant | ast.JoinedStr)
            and not _is_number(node.left)
        ):
            return UNKNOWN  # text
        return self._combine(node.op, left, right, node)

    def _eval_Compare(self, node: ast.Compare) -> Values:
        found = self.eval(node.left)
        if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):  # identity reads no numbers
            for comparator in node.comparators:
                self.eval(comparator)
            return UNKNOWN
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            found = self._combine(op, found, self.eval(comparator), node)
        return found

    @staticmethod
    def _combine(op: ast.operator | ast.cmpop, left: Values, right: Values, node: ast.AST) -> Values:
        if not left or not right:
            return NOTHING
        left_shards: list[Shard | None] = [*(v for v in left if isinstance(v, Shard))] or [None]
        right_shards: list[Shard | None] = [*(v for v in right if isinstance(v, Shard))] or [None]
        found: set[Value] = set()
        for a in left_shards:
            for b in right_shards:
                result = tensors.binary(op, a, b, node)
                if result is None:
                    found |= UNKNOWN
                    continue
                found.add(result)
                if a is not None and b is not None and a.loader != b.loader:
                    found.add(Shard(result.kind, b.loader, result.origins, result.host))
        return frozenset(found)

    def _eval_Call(self, node: ast.Call) -> Values:
        return calls.evaluate(self, node)

    def _eval_Constant(self, node: ast.Constant) -> Values:
        if isinstance(node.value, str) and api.DEVICE_STRING.match(node.value):
            return frozenset({External("torch.device", node)})
        return UNKNOWN

    def _eval_JoinedStr(self, node: ast.JoinedStr) -> Values:
        self._eval_parts(node)
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and str(first.value) in api.DEVICE_F_STRINGS:
            return frozenset({External("torch.device", node)})
        return UNKNOWN

    def _eval_FormattedValue(self, node: ast.FormattedValue) -> Values:
        return self.eval(node.value)


def _inner_suites(node: ast.stmt) -> Iterable[list[ast.stmt]]:
    """The suites that belong to a statement of this scope, in the order in which they stand."""
    if isinstance(node, DEFINITIONS) or not (hasattr(node, "body") or isinstance(node, ast.Match)):
        return
    for name in node._fields:
        parts = getattr(node, name)
        if isinstance(parts, list) and parts:
            if isinstance(parts[0], ast.stmt):
                yield parts
            elif isinstance(parts[0], ast.ExceptHandler | ast.match_case):
                for part in parts:
                    yield part.body


def as_kept(values: Iterable[Value]) -> Values:
    """Values that leave their batch: the rules make them global at that place, so they are read like Python numbers."""
    return frozenset(replace(v, host=True) if isinstance(v, Shard) else v for v in values)


def fields_of(cls: ast.ClassDef) -> list[str]:
    """The annotated fields of a dataclass or a NamedTuple, in order."""
    return [s.target.id for s in cls.body if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)]


def _assigned_attributes(table: ScopeTable) -> frozenset[str]:
    """Attribute names that the script assigns anywhere: reading one waits until its value is known."""
    return frozenset(
        n.attr for n in table.parents if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    )


def _is_attribute(value: Value) -> bool:
    """Whether `value` may be one of ever more attributes of attributes."""
    if isinstance(value, Symbol):
        return value.path.count(".") >= (2 if value.path.startswith("builtins.") else LONGEST)
    return isinstance(value, Member)


def _may_have(owner: Value, name: str) -> bool:
    """Whether `owner.name` is worth telling apart: `node = node.next` in a loop would give values without end."""
    depth = 0
    while isinstance(owner, Member):
        depth += 1
        if owner.name == name or depth >= DEEPEST:
            return False
        owner = owner.receiver
    return True


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _covered(value: Value, values: set[Value]) -> bool:
    """Whether a widened value already stands for this one: without this test, sets would grow and shrink for ever."""
    return isinstance(value, Shard) and any(
        isinstance(v, Shard)
        and v.kind == value.kind
        and v.loader == value.loader
        and v.host == value.host
        and v.origins >= value.origins
        for v in values
    )


def _widen(values: set[Value]) -> None:
    groups: dict[tuple[str, Value, bool], frozenset[ast.AST]] = {}
    for value in [v for v in values if isinstance(v, Shard)]:
        key = (value.kind, value.loader, value.host)
        groups[key] = groups.get(key, frozenset()) | value.origins
        values.discard(value)
    values.update(Shard(kind, loader, origins, host) for (kind, loader, host), origins in groups.items())
