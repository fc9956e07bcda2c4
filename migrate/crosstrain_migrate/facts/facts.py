"""The rules' view of a script: models, optimizers, schedulers, loaders, losses, loops, each with its evidence."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property

from crosstrain_migrate.results import RoleFact
from crosstrain_migrate.syntax.nodes import FunctionNode, line_of
from crosstrain_migrate.syntax.scopes import Scope, ScopeTable, suites
from crosstrain_migrate.syntax.walks import statements, walk

from . import containers
from . import torch_api as api
from .argument_values import parameters_in
from .arguments import arguments_of
from .assumed import Assumed, assumptions, open_loaders
from .calls.methods import closure_of
from .index import Index
from .infer import Interpreter
from .losses import Losses
from .observed import Sightings
from .regions import batch_loop_around
from .values import External, FromBatch, Instance, Member, Sequence, Value, Values, code_of, site_of

# Rounds of assumptions: the loaders, what a run has shown of their batches, their losses, what those show.
MAX_ASSUMPTIONS = 7


class Facts(Losses):
    """Answers to everything that the rules ask of a script. Build with `understand`.

    interp: the interpretation of the script, where there is one already; otherwise the first question starts one. seen:
    what an observed run has seen of it.
    """

    def __init__(
        self,
        tree: ast.Module,
        table: ScopeTable,
        interp: Interpreter | None = None,
        seen: Sightings | None = None,
        index: Index | None = None,
    ) -> None:
        super().__init__(tree, table, index)
        self.seen = seen
        self.evidence: dict[Value, str] = {}
        if interp is not None:
            self.interp = interp

    @cached_property
    def interp(self) -> Interpreter:
        """What every expression may be. Finding it takes most of the time that a script takes."""
        assumed: Assumed = {}
        known_loaders: dict[ast.AST, Values] = {}
        may_preview = True
        for _ in range(MAX_ASSUMPTIONS):
            interp = Interpreter(self.tree, self.table, may_preview, assumed, self.seen, known_loaders)
            interp.run()
            found = Facts(self.tree, self.table, interp, self.seen, self.index)
            looked = any(site_of(s.loader) in interp.previews for s in found.loss_batch_values)
            more = {} if looked else open_loaders(found)
            seen = interp.iterated_loaders()
            if not looked and not more and seen == known_loaders:
                more = assumptions(found)
                if not more:
                    break
            may_preview = may_preview and not looked  # it trains on that one batch
            known_loaders = seen
            assumed |= more
        return interp

    @property
    def is_interpreted(self) -> bool:
        """Whether `interp` is known already."""
        return "interp" in self.__dict__

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
        """The steps whose optimizer may decide by what the closure returns: a line search, or one of the script's own."""

        def searches(optimizer: Value) -> bool:
            library = isinstance(optimizer, External) and api.searches(optimizer.path)
            return library or isinstance(optimizer, Instance)

        return [
            (call, closures)
            for call, closures in self.steps_with_closure
            if isinstance(call.func, ast.Attribute) and any(map(searches, self.of(call.func.value)))
        ]

    @cached_property
    def search_closures(self) -> set[ast.AST]:
        """The functions whose loss a line search decides by."""
        return {closure for _, closures in self.line_searches for closure in closures}

    # -- roles -----------------------------------------------------------------------------------------------

    @cached_property
    def optimizers(self) -> list[Value]:
        found = self._of_class("optimizer", api.is_optimizer_class, api.OPTIMIZER_BASES)
        for value in self.all_values - found:
            if isinstance(value, External) and self._steps_parameters(value):
                self.evidence[value] = "gets a module's parameters and is stepped"
                found.add(value)
        counted = {value for value in found if self.is_reached(site_of(value))}
        return self.in_order(counted - self._inner_optimizers(found))

    def _of_class(self, role: str, is_class: Callable[[str], bool], bases: frozenset[str]) -> set[Value]:
        """The objects of torch's classes of a role, and of the script's own that inherit from them."""
        found: set[Value] = set()
        for value in self.all_values:
            if isinstance(value, External) and is_class(value.path):
                self.evidence[value] = f"made by {value.path}"
                found.add(value)
            elif isinstance(value, Instance) and self.interp.inherits(value.cls, bases):
                self.evidence[value] = f"{value.cls.name} is a torch {role}"
                found.add(value)
        return found

    def _steps_parameters(self, value: External) -> bool:
        if not isinstance(value.site, ast.Call) or not parameters_in(self.interp, value.site):
            return False
        return self._is_stepped(value) and Member(value, "zero_grad") in self.all_values

    def _inner_optimizers(self, optimizers: set[Value]) -> set[Value]:
        """Optimizers that one of the script's own makes or is given: the script steps only the outer one."""
        own = {v for v in optimizers if isinstance(v, Instance)}
        unmade = {v for v in own if v.site is v.cls}  # `self` in a class that nothing may make
        made = {v.cls for v in own - unmade}
        inner = {v for one in own for v in self._given_optimizers(one)}
        for value in optimizers - own:
            if any(around in made for around in self.table.ancestors(site_of(value))):
                inner.add(value)
        return inner | {v for v in unmade if v.cls in made}

    def _given_optimizers(self, optimizer: Value) -> set[Value]:
        """The optimizers of torch's that the constructor of one of the script's own is given."""
        if not isinstance(optimizer, Instance) or not isinstance(optimizer.site, ast.Call):
            return set()
        given = {v for argument in optimizer.site.args for v in self.of(argument)}
        return {v for v in given if isinstance(v, External) and api.is_optimizer_class(v.path)}

    def optimized_by(self, optimizer: Value) -> set[Value]:
        """The modules whose parameters an optimizer was given."""
        site = getattr(optimizer, "site", None)
        if not isinstance(site, ast.Call):
            return set()
        inner = (self.optimized_by(v) for v in self._given_optimizers(optimizer))
        observation = self.interp.observation
        owners = observation.owned_by(site) if observation is not None else set()
        return parameters_in(self.interp, site).union(*inner) or owners

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
        """The module that `module` is a part of, where there is exactly one such: `model.fc` -> `model`.

        A script may make several models of one class, to train and to predict: then it is the one from whose parameters
        `optimizer` is made, or that is mentioned around there.
        """
        seen: set[Value] = set()
        while module not in seen:
            seen.add(module)
            owners = self._owners(module)
            for near in self._mentioned_around(optimizer) if len(owners) > 1 else ():
                owners = owners & near or owners
            if len(owners) == 1:
                module = owners.pop()
        return module

    def _mentioned_around(self, optimizer: Value) -> list[set[Value]]:
        """What is mentioned in the function that makes an optimizer, and in the call that makes it."""
        site = getattr(optimizer, "site", None)
        around = (self.enclosing_function(site), site) if site is not None else ()
        mentioned = (walk(node) for node in around if node is not None)
        return [
            {v for n in nodes if isinstance(n, ast.expr) for v in self.interp.values.get(n, ())}
            for nodes in mentioned
        ]

    def _owners(self, module: Value) -> set[Value]:
        if isinstance(module, Member):
            return {module.root} if self.interp.is_module(module.root) else set()
        if isinstance(module, External) and module.path == api.SUBMODULE:
            made = (
                v for v in self.all_values if isinstance(v, External | Instance) and v.site is module.site
            )
            return {v for v in made if getattr(v, "path", "") != api.SUBMODULE}
        holders = (cls for cls, _ in self.attribute_holders(module))
        classes = {cls for cls in holders if self.interp.inherits(cls, api.MODULE_BASES)}
        objects = (v for v in self.all_values if isinstance(v, Instance) and v.site is not v.cls)
        found: set[Value] = {v for v in objects if v.cls in classes}
        for (_, key), values in self.interp.heap.items():
            if isinstance(key, tuple) and module in values and self.interp.is_module(key[0]):
                found.add(key[0])
        return found - {module}

    @cached_property
    def schedulers(self) -> list[Value]:
        optimizers = set(self.optimizers)
        found = self._of_class("scheduler", api.is_scheduler_class, api.SCHEDULER_BASES)
        for value in self.all_values - found - optimizers:
            if isinstance(value, External) and isinstance(value.site, ast.Call):
                given = {v for a in value.site.args for v in self.of(a)}
                if given & optimizers and self._is_stepped(value):
                    self.evidence[value] = "made from an optimizer and stepped"
                    found.add(value)
        # The parts of another scheduler (SequentialLR, ChainedScheduler) are not stepped.
        stepped = {v for v in found if isinstance(v, Instance) or self._is_stepped(v)}
        outer = {v for v in stepped if not any(self._stands_for(other, v) for other in stepped)}
        return self.in_order({v for v in outer if self.is_reached(site_of(v))})

    def _is_stepped(self, value: Value) -> bool:
        return Member(value, "step") in self.all_values

    def _stands_for(self, outer: Value, inner: Value) -> bool:
        """Whether a scheduler is made of another one, and a variable may hold either: what it holds is prepared."""
        site = outer.site if isinstance(outer, External) else None
        if outer == inner or not isinstance(site, ast.Call):
            return False
        given = {v for argument in arguments_of(site) for v in self.of(argument)}
        given |= {e for v in given if isinstance(v, Sequence) for e in self.interp.element(v)}
        return inner in given and bool(set(self.holders(outer)) & set(self.holders(inner)))

    @cached_property
    def loaders(self) -> list[Value]:
        iterated = {v for values in self.interp.iterations.values() for v in values}
        found = {v for v in iterated if site_of(v) not in self.interp.previews}
        for value in found:
            self.evidence[value] = "a DataLoader that is iterated"
        return self.in_order(found)

    def is_assumed_loss(self, loss: ast.expr) -> bool:
        """Whether a loss is taken for a mean over rows because a loop over a loader goes backward through it."""
        assumed = (v for place in self.places_of(loss) for v in self.interp.assumed.get(place, ()))
        return any(isinstance(v, FromBatch) and v.kind == "mean" for v in assumed)

    @cached_property
    def train_loaders(self) -> list[Value]:
        found = {s.loader for s in self.loss_batch_values}
        for value in found:
            self.evidence[value] = "its batches reach backward"
        return self.in_order(found)

    @cached_property
    def eval_loaders(self) -> list[Value]:
        return [v for v in self.loaders if v not in self.train_loaders]

    @staticmethod
    def in_order(values: set[Value]) -> list[Value]:
        """Sorted by where they were made."""
        return sorted(values, key=_position)

    # -- loops and regions -----------------------------------------------------------------------------------

    def batch_loop_around(self, node: ast.AST) -> ast.AST | None:
        """The innermost loop around `node`, in its own function, that runs once a batch."""
        return batch_loop_around(self.interp, node)

    def in_batch_loop(self, node: ast.AST, loaders: set[Value] | None = None) -> bool:
        """Whether `node` runs once a batch (of one of `loaders`): inside such a loop, or called from inside one."""
        for around, inner in self.enclosing(node):
            if isinstance(around, ast.For | ast.AsyncFor) and inner is not around.iter:
                over = self._iterated(around)
                if over and (loaders is None or loaders & over):
                    return True
        return False

    def _iterated(self, loop: ast.For | ast.AsyncFor) -> set[Value]:
        """The loaders of a loop, also where it takes batches of several at once: `zip(loader, others)`."""
        taken = (self.interp.iterations.get(n, ()) for n in walk(loop.iter) if isinstance(n, ast.Call))
        return set(self.loops.get(loop, ())) or {v for values in taken for v in values}

    # -- where values are held -------------------------------------------------------------------------------

    @cached_property
    def items(self) -> dict[Value, list[tuple[ast.AST, str | int]]]:
        """The dicts and lists that hold each model, optimizer or loader: where they are made, and its key or position,
        which is ANY in lists that a loop fills."""
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

    def name_of(self, value: Value) -> str:
        """A variable or attribute that may hold `value`, as messages call it."""
        attributes = (f"self.{name}" for _, name in self.attribute_holders(value))
        return min((*(name for _, name in self.holders(value)), *attributes), default="(unnamed)")

    @cached_property
    def roles(self) -> tuple[RoleFact, ...]:
        found = {
            "module": self.models,
            "optimizer": self.optimizers,
            "scheduler": self.schedulers,
            "training loader": self.train_loaders,
            "evaluation loader": self.eval_loaders,
        }
        return tuple(
            RoleFact(self.name_of(value), role, line_of(site_of(value)), self.evidence.get(value, ""))
            for role, values in found.items()
            for value in values
        )


def _position(value: Value) -> tuple[int | str, ...]:
    """Where a value was made, by which call, for which key, as what and of which class: for an order that is the same in
    every run."""
    places = (getattr(value, "site", None), getattr(value, "via", None))
    numbers = [getattr(place, name, 0) for place in places for name in ("lineno", "col_offset")]
    of_class = getattr(getattr(value, "cls", None), "lineno", 0)
    return (*numbers, str(getattr(value, "key", "")), getattr(value, "path", ""), of_class)


def understand(tree: ast.Module, seen: Sightings | None = None) -> Facts:
    """What can be known of a script or a program. Its tree loses the annotations that say nothing new.

    seen: what was seen in an observed run of its text.
    """
    _without_annotations(tree)
    return Facts(tree, ScopeTable(tree), seen=seen)


def _without_annotations(tree: ast.Module) -> None:
    """Makes `x = v` of `x: T = v` in place, so that no rule needs to know both; but not in classes, whose fields they are.
    An annotation that names a variable of its function stays, because the variable may be removed."""
    nodes = statements(tree)
    if not any(isinstance(node, ast.AnnAssign) for node in nodes):
        return
    table = ScopeTable(tree)
    for node in nodes:
        for suite in suites(node) if not isinstance(node, ast.ClassDef) else ():
            suite[:] = [_plain(s, table.of_node[s]) if isinstance(s, ast.AnnAssign) else s for s in suite]


def _plain(node: ast.AnnAssign, scope: Scope) -> ast.stmt:
    names = (part.id for part in walk(node.annotation) if isinstance(part, ast.Name))
    local = any(found is not None and found.is_function for found in map(scope.resolve, names))
    if node.value is None or local:
        return node
    return ast.copy_location(ast.Assign([node.target], node.value), node)
