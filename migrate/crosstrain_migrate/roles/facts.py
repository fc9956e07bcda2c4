"""The rules' view of a script: models, optimizers, schedulers, loaders, losses, loops, each with its evidence."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TypeVar, overload

from crosstrain_migrate.results import RoleFact

from . import containers, context
from . import torch_api as api
from .arguments import argument_of, arguments_of, parameters_in, shards_of
from .assumed import Assumed, assumptions
from .calls.methods import closure_of
from .contents import Contents
from .entries import entries
from .infer import Interpreter
from .nodes import line_of, place_of
from .optimizers import handed, inner_optimizers
from .program import modules_of
from .reached import reached
from .regions import batch_loop_around, in_module
from .scopes import Scope, ScopeTable
from .slices import attributes_of, slice_of
from .values import (
    External,
    FunctionNode,
    Instance,
    Member,
    Sequence,
    Shard,
    Symbol,
    Value,
    Values,
    code_of,
    site_of,
)
from .walks import statements, walk

Loop = ast.For | ast.AsyncFor
MAX_ASSUMPTIONS = 5  # rounds of them: the loaders, their losses, what those show
A = TypeVar("A", bound=ast.AST)
B = TypeVar("B", bound=ast.AST)
C = TypeVar("C", bound=ast.AST)


class Facts:
    """Everything the rules ask. Build with `understand`.

    interp: what is known of its values, where it is known; otherwise it is found out when it is first asked for.
    """

    def __init__(self, tree: ast.Module, table: ScopeTable, interp: Interpreter | None = None) -> None:
        self.tree = tree
        self.table = table
        self.evidence: dict[Value, str] = {}
        self._of_kinds: dict[tuple[type[ast.AST], ...], list[ast.AST]] = {}
        if interp is not None:
            self.interp = interp

    @cached_property
    def interp(self) -> Interpreter:
        """What every expression may be: for most of the time that a script takes."""
        assumed: Assumed = {}
        may_look = True
        for _ in range(MAX_ASSUMPTIONS):
            interp = Interpreter(self.tree, self.table, may_look, assumed)
            interp.run()
            found = Facts(self.tree, self.table, interp)
            looked = any(site_of(s.loader) in interp.looks for s in found.loss_shards)
            more = {} if looked else assumptions(found)
            if not looked and not more:
                break
            may_look = may_look and not looked  # it trains on that one batch
            assumed |= more
        return interp

    @property
    def is_interpreted(self) -> bool:
        """Whether `interp` is known already."""
        return "interp" in self.__dict__

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the script, breadth first; contexts and operators are not among them."""
        return tuple(walk(self.tree))

    @overload
    def each(self, kind: type[A], /) -> list[A]: ...
    @overload
    def each(self, kind: type[A], other: type[B], /) -> list[A | B]: ...
    @overload
    def each(self, kind: type[A], other: type[B], third: type[C], /) -> list[A | B | C]: ...
    @overload
    def each(self, *kinds: type[ast.AST]) -> list[ast.AST]: ...
    def each(self, *kinds: type[ast.AST]) -> Iterable[ast.AST]:
        """The nodes of some kinds, in the order of `nodes`."""
        found = self._of_kinds.get(kinds)
        if found is None:
            parts = [self._by_class.get(kind, []) for kind in kinds if not kind.__subclasses__()]
            if len(parts) == len(kinds) == 1:
                found = parts[0]
            else:
                found = [node for node in self.nodes if isinstance(node, kinds)]
            self._of_kinds[kinds] = found
        return found

    @cached_property
    def _by_class(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.nodes:
            found[node.__class__].append(node)
        return found

    @cached_property
    def stores(self) -> list[tuple[ast.Name | ast.Attribute, Values]]:
        """What is bound to each variable and attribute, where it is bound."""
        return [
            (node, frozenset(values))
            for node, values in self.interp.values.items()
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
        ]

    @cached_property
    def stores_in(self) -> dict[Scope | None, list[tuple[ast.Name | ast.Attribute, Values]]]:
        """`stores` by the scope that they stand in."""
        found: dict[Scope | None, list[tuple[ast.Name | ast.Attribute, Values]]] = defaultdict(list)
        for node, values in self.stores:
            found[self.table.of_node.get(node)].append((node, values))
        return found

    @cached_property
    def imports_in(self) -> dict[Scope | None, list[ast.alias]]:
        """The names that imports bind, by scope."""
        found: dict[Scope | None, list[ast.alias]] = defaultdict(list)
        for node, values in self.interp.definitions.items():
            if isinstance(node, ast.alias) and values:
                found[self.table.of_node.get(node)].append(node)
        return found

    @cached_property
    def taken_from_files(self) -> dict[str, list[ast.ImportFrom | ast.Attribute]]:
        """Where something of a file of the program may be taken, by its name: an import from it, an attribute."""
        found: dict[str, list[ast.ImportFrom | ast.Attribute]] = defaultdict(list)
        for node in self.nodes if self.interp.links.regions else ():
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.name].append(node)
            elif isinstance(node, ast.Attribute):
                found[node.attr].append(node)
        return found

    @cached_property
    def names(self) -> dict[str, list[ast.Name]]:
        """Every place that mentions a variable, by its name, in the order of `nodes`."""
        found: dict[str, list[ast.Name]] = defaultdict(list)
        for node in self.each(ast.Name):
            found[node.id].append(node)
        return found

    def mentions(self, scope: Scope, name: str) -> list[ast.Name]:
        """Every place that reads or binds the variable `name` of `scope`, in functions inside it too."""
        of_node = self.table.of_node
        return [node for node in self.names.get(name, ()) if of_node[node].resolve(name) is scope]

    def of(self, node: ast.AST) -> Values:
        return self.interp.of(node)

    def in_module(self, node: ast.AST) -> bool:
        """Whether `node` stands in a method of an nn.Module, where nothing may communicate."""
        return in_module(self.interp, node)

    # -- calls -----------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> list[ast.Call]:
        return sorted(self.each(ast.Call), key=lambda n: (n.lineno, n.col_offset))

    def paths(self, node: ast.AST) -> set[str]:
        """The imported names `node` may stand for."""
        return {v.path for v in self.of(node) if isinstance(v, Symbol)}

    def calls_to(self, *paths: str) -> list[ast.Call]:
        if len(paths) == 1:
            return self._calls_by_path.get(paths[0], [])
        wanted = {call for path in paths for call in self._calls_by_path.get(path, ())}
        return [call for call in self.calls if call in wanted] if wanted else []

    @cached_property
    def _calls_by_path(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            for path in self.paths(call.func):
                found[path].append(call)
        return found

    def method_calls(self, name: str) -> list[ast.Call]:
        return [c for c in self.calls if isinstance(c.func, ast.Attribute) and c.func.attr == name]

    def targets(self, call: ast.Call) -> list[FunctionNode]:
        """The script's own functions that `call` may run."""
        found = (code_of(value) for value in self.of(call.func))
        code = (
            self.interp.method(one, "__init__") if isinstance(one, ast.ClassDef) else one for one in found
        )
        return [function for function in code if function is not None]

    @cached_property
    def contents(self) -> Contents:
        """What the script puts into its containers and attributes."""
        return Contents(self)

    # -- losses ----------------------------------------------------------------------------------------------

    @cached_property
    def backward_calls(self) -> list[tuple[ast.Call, ast.expr]]:
        """(call, loss expression) of every `loss.backward()` and `torch.autograd.backward(loss)` that the script reaches;
        of all, where it reaches none and is a module for others."""
        return [pair for pair in self._backward_calls if self.is_reached(pair[0])]

    @cached_property
    def idle_backward_calls(self) -> list[ast.Call]:
        """Those in functions that nothing calls."""
        return [call for call, _ in self._backward_calls if not self.is_reached(call)]

    @cached_property
    def _backward_calls(self) -> list[tuple[ast.Call, ast.expr]]:
        found: list[tuple[ast.Call, ast.expr]] = []
        for call in self.method_calls("backward"):
            assert isinstance(call.func, ast.Attribute)
            if "torch.autograd.backward" in self.paths(call.func):
                if call.args:
                    found.append((call, call.args[0]))
            elif not any(self._goes_backward(v, call) for v in self.of(call.func.value)):
                found.append((call, call.func.value))
        return found

    @staticmethod
    def _goes_backward(value: Value, call: ast.Call) -> bool:
        """Whether an object goes backward by a method of its own: an engine, which is given the loss, or what is made of
        nothing, as no loss is."""
        if not isinstance(value, External):
            return isinstance(value, Instance)
        return bool(call.args) or (isinstance(value.site, ast.Call) and not arguments_of(value.site))

    @cached_property
    def steps_with_closure(self) -> list[tuple[ast.Call, list[FunctionNode]]]:
        """Every `optimizer.step(closure)`, with the functions of the script that the closure may be."""
        found = []
        for call in self.method_calls("step"):
            assert isinstance(call.func, ast.Attribute)
            given = closure_of(call)
            if given is not None and self.of(call.func.value) & set(self.optimizers):
                code = (code_of(v) for v in self.of(given))
                found.append((call, [c for c in code if isinstance(c, FunctionNode)]))
        return found

    @cached_property
    def line_searches(self) -> list[tuple[ast.Call, list[FunctionNode]]]:
        """The steps that decide by what the closure returns, or may: those of optimizers of the script's own."""
        return [
            (call, closures)
            for call, closures in self.steps_with_closure
            if isinstance(call.func, ast.Attribute)
            and any(
                isinstance(v, Instance) or (isinstance(v, External) and api.searches(v.path))
                for v in self.of(call.func.value)
            )
        ]

    @cached_property
    def search_closures(self) -> set[ast.AST]:
        """The functions whose loss a line search decides by."""
        return {closure for _, closures in self.line_searches for closure in closures}

    def returned(self, function: FunctionNode) -> list[ast.expr]:
        """What the script says after `return` in a function itself, nested ones apart."""
        return [
            n.value
            for n in ast.walk(function)
            if isinstance(n, ast.Return) and n.value is not None and self.enclosing_function(n) is function
        ]

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass; in a program, one that running the script may come to."""
        program = len(modules_of(self.tree)) > 1
        return any(not program or self._is_run(call) for call, _ in self._backward_calls)

    def is_reached(self, node: ast.AST) -> bool:
        """Whether running the script may come to `node`. Of one that trains in no code of its own, others reach all."""
        return self._is_run(node) or not self._runs_training

    def _is_run(self, node: ast.AST) -> bool:
        function = self.enclosing_function(node)
        return function is None or function in self._run

    @cached_property
    def _run(self) -> frozenset[ast.AST]:
        return reached(self)

    @cached_property
    def _runs_training(self) -> bool:
        return any(self._is_run(call) for call, _ in self._backward_calls)

    @cached_property
    def entries(self) -> set[ast.AST]:
        """The functions that a command line names."""
        return entries(self)

    @cached_property
    def loss_origins(self) -> frozenset[ast.AST]:
        """The calls that collapse rows into what `backward` gets."""
        return frozenset(o for s in self.loss_shards for o in s.origins)

    @cached_property
    def loss_slice(self) -> frozenset[ast.AST]:
        """Every use of a variable, and every call, that what `backward` gets is computed from, the script's own
        functions included.

        A Python number that the loss is multiplied with or divided by is a constant, the same on every rank.
        """
        return slice_of(self, [loss for _, loss in self.backward_calls])

    @cached_property
    def loss_attributes(self) -> frozenset[str]:
        """The names of attributes that what `backward` gets is computed from: `loss_a` of `self.loss_a + self.loss_b`."""
        return attributes_of(self, [loss for _, loss in self.backward_calls])

    def given(self, argument: ast.arg) -> list[ast.expr]:
        """What the calls of its function pass for a parameter."""
        function = self.table.of_node[argument].node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        given = (self.passed(site, function, argument.arg) for site in self.callers.get(function, ()))
        return [value for value in given if value is not None]

    def passed(self, site: ast.Call, function: FunctionNode, name: str) -> ast.expr | None:
        """The expression that a call gives to parameter `name` (None: the default, or not to be told)."""
        first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
        method = isinstance(self.table.parents.get(function), ast.ClassDef)
        bound = method and first is not None and first.arg in {"self", "cls"}
        return argument_of(site, function, name, bound)

    def comes_to(self, node: ast.AST, loaders: set[Value], entered: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether batches of `loaders` may come to `node`: a function may do more for some of its callers than for
        others, as `if opt is not None:` says."""
        function = self.enclosing_function(node)
        if function is None or function in entered:
            return True
        entered = entered | {function}
        sites = [
            site
            for site in self.callers.get(function, ())
            if loaders & {s.loader for s in shards_of(self.interp, arguments_of(site))}
        ]
        return not sites or any(
            context.comes_to(self.interp, function, site, node) and self.comes_to(site, loaders, entered)
            for site in sites
        )

    @cached_property
    def loss_shards(self) -> list[Shard]:
        found: list[Shard] = []
        for call, loss in self.backward_calls:
            for value in self.of(loss):
                if isinstance(value, Shard):
                    found += [value] if self.comes_to(call, {value.loader}) else []
                elif isinstance(value, Sequence):
                    found.extend(e for e in self.interp.element(value) if isinstance(e, Shard))
        return found

    # -- roles -----------------------------------------------------------------------------------------------

    @cached_property
    def all_values(self) -> set[Value]:
        return {v for values in self.interp.values.values() for v in values}

    @cached_property
    def optimizers(self) -> list[Value]:
        found: set[Value] = set()
        for value in self.all_values:
            if isinstance(value, External) and api.is_optimizer_class(value.path):
                self.evidence[value] = f"made by {value.path}"
                found.add(value)
            elif isinstance(value, Instance) and self.interp.inherits(value.cls, api.OPTIMIZER_BASES):
                self.evidence[value] = f"{value.cls.name} is a torch optimizer"
                found.add(value)
            elif isinstance(value, External) and self._steps_parameters(value):
                self.evidence[value] = "gets a module's parameters and is stepped"
                found.add(value)
        counted = {value for value in found if self.is_reached(site_of(value))}
        return self.in_order(counted - inner_optimizers(self, found))

    def _steps_parameters(self, value: External) -> bool:
        if not isinstance(value.site, ast.Call) or not parameters_in(self.interp, value.site):
            return False
        return Member(value, "step") in self.all_values and Member(value, "zero_grad") in self.all_values

    def optimized_by(self, optimizer: Value) -> set[Value]:
        site = getattr(optimizer, "site", None)
        if not isinstance(site, ast.Call):
            return set()
        inner = (self.optimized_by(v) for v in handed(self, optimizer))
        return parameters_in(self.interp, site).union(*inner)

    @cached_property
    def models(self) -> list[Value]:
        found: set[Value] = set()
        for optimizer in self.optimizers:
            for part in self.optimized_by(optimizer):
                model = self.whole(part, optimizer)
                if isinstance(model, External | Instance):
                    found.add(model)
                    line = line_of(site_of(optimizer))
                    self.evidence[model] = f"line {line} gives its parameters to an optimizer"
        return self.in_order(found)

    def whole(self, module: Value, optimizer: Value) -> Value:
        """The module that `module` is a part of, when there is exactly one such: `model.fc` -> `model`.

        A class may be made at several places, for training and to predict: then it is the one that `optimizer` is
        made of, or that is at hand there.
        """
        seen: set[Value] = set()
        while module not in seen:
            seen.add(module)
            owners = self._owners(module)
            for near in self._at_hand(optimizer) if len(owners) > 1 else ():
                owners = owners & near or owners
            if len(owners) == 1:
                module = owners.pop()
        return module

    def _at_hand(self, optimizer: Value) -> list[set[Value]]:
        """What the function that makes an optimizer mentions, and what the call that makes it does."""
        site = getattr(optimizer, "site", None)
        around = [node for node in (self.enclosing_function(site), site) if node is not None] if site else []
        mentioned = ([n for n in ast.walk(node) if isinstance(n, ast.expr)] for node in around)
        return [{v for n in nodes for v in self.interp.values.get(n, ())} for nodes in mentioned]

    def _owners(self, module: Value) -> set[Value]:
        if isinstance(module, Member):
            return {module.root} if self.interp.is_module(module.root) else set()
        if isinstance(module, External) and module.path == api.SUBMODULE:
            return {
                v
                for v in self.all_values
                if isinstance(v, External | Instance)
                and v.site is module.site
                and getattr(v, "path", "") != api.SUBMODULE
            }
        classes = {
            cls for cls, _ in self.attribute_holders(module) if self.interp.inherits(cls, api.MODULE_BASES)
        }
        found: set[Value] = {
            v for v in self.all_values if isinstance(v, Instance) and v.cls in classes and v.site is not v.cls
        }
        for (_, key), values in self.interp.heap.items():
            if isinstance(key, tuple) and module in values and self.interp.is_module(key[0]):
                found.add(key[0])
        return found - {module}

    @cached_property
    def schedulers(self) -> list[Value]:
        optimizers = set(self.optimizers)
        found: set[Value] = set()
        for value in self.all_values:
            if isinstance(value, External) and api.is_scheduler_class(value.path):
                self.evidence[value] = f"made by {value.path}"
                found.add(value)
            elif isinstance(value, Instance) and self.interp.inherits(value.cls, api.SCHEDULER_BASES):
                self.evidence[value] = f"{value.cls.name} is a torch scheduler"
                found.add(value)
            elif isinstance(value, External) and isinstance(value.site, ast.Call) and value not in optimizers:
                given = {v for a in value.site.args for v in self.of(a)}
                if given & optimizers and Member(value, "step") in self.all_values:
                    self.evidence[value] = "made from an optimizer and stepped"
                    found.add(value)
        found -= self._inner_schedulers
        found = {v for v in found if not any(self._stands_for(outer, v) for outer in found)}
        return self.in_order({v for v in found if self.is_reached(site_of(v))})

    def _stands_for(self, outer: Value, inner: Value) -> bool:
        """Whether a scheduler is made of another one, and the variable that holds it may hold that one instead:
        what that variable holds is prepared."""
        site = outer.site if isinstance(outer, External) else None
        if outer == inner or not isinstance(site, ast.Call):
            return False
        given = {v for part in (*site.args, *(k.value for k in site.keywords)) for v in self.of(part)}
        given |= {e for v in given if isinstance(v, Sequence) for e in self.interp.element(v)}
        return inner in given and bool(set(self.holders(outer)) & set(self.holders(inner)))

    @cached_property
    def _inner_schedulers(self) -> set[Value]:
        """Schedulers that are parts of another one (SequentialLR, ChainedScheduler): only the outer one is stepped."""
        return {
            v
            for v in self.all_values
            if isinstance(v, External)
            and api.is_scheduler_class(v.path)
            and Member(v, "step") not in self.all_values
        }

    @cached_property
    def loaders(self) -> list[Value]:
        iterated = {v for values in self.interp.iterations.values() for v in values}
        found = {v for v in iterated if site_of(v) not in self.interp.looks}
        for value in found:
            self.evidence[value] = "a DataLoader that is iterated"
        return self.in_order(found)

    def is_assumed_loss(self, loss: ast.expr) -> bool:
        """Whether a loss is taken for a mean over rows because a loop over a loader goes backward through it."""
        places = self.interp.reaching.get(loss, {loss}) if isinstance(loss, ast.Name) else {loss}
        return any(isinstance(v, Shard) for place in places for v in self.interp.assumed.get(place, ()))

    @cached_property
    def train_loaders(self) -> list[Value]:
        found = {s.loader for s in self.loss_shards}
        for value in found:
            self.evidence[value] = "its batches reach backward"
        return self.in_order(found)

    @cached_property
    def eval_loaders(self) -> list[Value]:
        return [v for v in self.loaders if v not in self.train_loaders]

    @staticmethod
    def in_order(values: set[Value]) -> list[Value]:
        """By where they were made."""
        return sorted(values, key=_position)

    # -- loops and regions -----------------------------------------------------------------------------------

    @cached_property
    def loops(self) -> dict[Loop, set[Value]]:
        """Every `for` over a loader, and the loaders it may run over."""
        return {
            n: v for n, v in self.interp.iterations.items() if isinstance(n, ast.For | ast.AsyncFor) and v
        }

    def batch_loop_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around `node`, in its own function, that runs once a batch."""
        return batch_loop_around(self.interp, node)

    @cached_property
    def callers(self) -> dict[ast.AST, list[ast.Call]]:
        found: dict[ast.AST, list[ast.Call]] = defaultdict(list)
        for function, sites in self.interp.call_sites.items():
            found[function] = sorted(sites, key=place_of)
        return found

    def in_batch_loop(self, node: ast.AST, loaders: set[Value] | None = None) -> bool:
        """Whether `node` runs once a batch (of one of `loaders`): inside such a loop, or called from inside one."""
        seen: set[ast.AST] = set()
        work: list[ast.AST] = [node]
        while work:
            current = work.pop()
            for around in self.table.ancestors(current):
                if isinstance(around, ast.For | ast.AsyncFor) and current is not around.iter:
                    over = self._gone_over(around)
                    if over and (loaders is None or loaders & set(over)):
                        return True
                if around in self.table.scopes and around not in seen:
                    seen.add(around)
                    work.extend(self.callers.get(around, ()))
                    break
        return False

    def _gone_over(self, loop: ast.For | ast.AsyncFor) -> Collection[Value]:
        """The loaders of a loop, also where it takes a batch of several at once: `zip(loader, others)`."""
        taken = (
            self.interp.iterations.get(part, ()) for part in ast.walk(loop.iter) if isinstance(part, ast.Call)
        )
        return self.loops.get(loop) or {v for values in taken for v in values}

    def enclosing_function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        return self.table.function_around(node)

    # -- where values are held -------------------------------------------------------------------------------

    @cached_property
    def items(self) -> dict[Value, list[tuple[ast.AST, str | int]]]:
        """The dicts and lists that hold each model, optimizer or loader, by where they are made, with its key or
        position; ANY in lists that are filled by a loop."""
        found: dict[Value, list[tuple[ast.AST, str | int]]] = defaultdict(list)
        for (site, key), values in self.interp.heap.items():
            if not isinstance(key, int | str) or not containers.is_changeable(self.interp, site):
                continue
            for value in values:
                if self._may_be_prepared(value):
                    found[value].append((site, key))
        return found

    def _may_be_prepared(self, value: Value) -> bool:
        optimizer = isinstance(value, External) and api.is_optimizer_class(value.path)
        return optimizer or self.interp.is_loader(value) or self.interp.is_module(value)

    def holders(self, value: Value) -> list[tuple[Scope, str]]:
        """The variables that may hold `value`, by scope."""
        return [key for key, values in self.interp.env.items() if value in values]

    def attribute_holders(self, value: Value) -> list[tuple[ast.ClassDef, str]]:
        return [
            (owner, str(key))
            for (owner, key), values in self.interp.heap.items()
            if isinstance(owner, ast.ClassDef) and value in values
        ]

    @cached_property
    def roles(self) -> tuple[RoleFact, ...]:
        named = [
            ("module", self.models),
            ("optimizer", self.optimizers),
            ("scheduler", self.schedulers),
            ("training loader", self.train_loaders),
            ("evaluation loader", self.eval_loaders),
        ]
        found: list[RoleFact] = []
        for role, values in named:
            for value in values:
                names = sorted(
                    {n for _, n in self.holders(value)}
                    | {f"self.{n}" for _, n in self.attribute_holders(value)}
                )
                line = line_of(site_of(value))
                found.append(
                    RoleFact(names[0] if names else "(unnamed)", role, line, self.evidence.get(value, ""))
                )
        return tuple(found)


def _position(value: Value) -> tuple[int | str, ...]:
    """Where a value was made, through which call, for which key, as what and of which class: every run lists them
    alike."""
    places = (getattr(value, "site", None), getattr(value, "via", None))
    numbers = [getattr(place, name, 0) for place in places for name in ("lineno", "col_offset")]
    of_class = getattr(getattr(value, "cls", None), "lineno", 0)
    return (*numbers, str(getattr(value, "key", "")), getattr(value, "path", ""), of_class)


def understand(tree: ast.Module) -> Facts:
    """What can be known of a script or a program. Its tree loses the annotations that say nothing new."""
    _without_annotations(tree)
    return Facts(tree, ScopeTable(tree))


def _without_annotations(tree: ast.Module) -> None:
    """`x: T = v` becomes `x = v` in place, but for the fields of classes: no rule needs to know both. One that names
    a variable of its function stays, because the variable may go."""
    nodes = statements(tree)
    if not any(isinstance(node, ast.AnnAssign) for node in nodes):
        return
    table = ScopeTable(tree)
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(node, name, None)
            if isinstance(suite, list):
                suite[:] = [_plain(s, table.of_node[s]) if isinstance(s, ast.AnnAssign) else s for s in suite]


def _plain(node: ast.AnnAssign, scope: Scope) -> ast.stmt:
    if node.value is None or _names_a_variable(node.annotation, scope):
        return node
    return ast.copy_location(ast.Assign([node.target], node.value), node)


def _names_a_variable(annotation: ast.expr, scope: Scope) -> bool:
    names = (part.id for part in walk(annotation) if isinstance(part, ast.Name))
    return any(found is not None and found.is_function for found in map(scope.resolve, names))
