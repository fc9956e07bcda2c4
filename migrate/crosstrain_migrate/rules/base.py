"""What every rule is given, and what it may give back."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ParamSpec

from crosstrain_migrate.assumptions import CONTRADICTED, how_checked
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.losses import Loop
from crosstrain_migrate.facts.values import Instance, Value
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.rules.distribution.requested_options import Requested
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import all_arguments, line_of, place_of
from crosstrain_migrate.syntax.places import Places
from crosstrain_migrate.syntax.scopes import Scope, suites

Allows = Callable[[str, ast.AST], bool]
STATE = "PartialState"  # of both runtimes: what a process knows of the others without an accelerator
P = ParamSpec("P")


def everywhere(rule: str, node: ast.AST) -> bool:
    """No selection and no comment keeps a rule away."""
    return True


class Refusal(Exception):
    """The core conversion cannot be made safely. Carries the finding that says where and why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


def refuse(rule: str, node: ast.AST, reason: str, remedy: str) -> Refusal:
    return Refusal(finding(rule, node, reason, remedy, Severity.REFUSED))


class Reasons:
    """Why a script is not converted: what each rule that refuses says, once."""

    def __init__(self) -> None:
        self._found: dict[Finding, None] = {}

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(self._found)

    def agrees(self, rule: Callable[P, None], *given: P.args, **named: P.kwargs) -> bool:
        """Asks a rule. False, and its reason is kept, where it refuses."""
        try:
            rule(*given, **named)
        except Refusal as refusal:
            self._found[refusal.finding] = None
            return False
        return True


def finding(rule: str, node: ast.AST, reason: str, remedy: str, severity: Severity) -> Finding:
    return Finding(
        rule, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, reason, remedy, severity
    )


@dataclass
class Home:
    """Where the Accelerator lives. `scope` is the module, a function, or the method of a class."""

    scope: Scope
    holder: str  # "accelerator" or "self.accelerator"
    cls: ast.ClassDef | None = None
    statement: ast.stmt | None = None  # the statement it is constructed before (or in place of)

    def is_global_in(self, scope: Scope) -> bool:
        """Visible as a module-level name in the file that `scope` belongs to."""
        return self.scope.parent is None and scope.module is self.scope


@dataclass
class Subject:
    """What is prepared, and where."""

    scope: Scope
    models: list[Value]
    optimizers: list[Value]
    train_loaders: list[Value]
    eval_loaders: list[Value] = field(default_factory=list)  # those proven to evaluate right when sharded
    schedulers: list[Value] = field(default_factory=list)
    unnamed: list[Value] = field(
        default_factory=list
    )  # training loaders that are prepared where they are made
    # Where training goes in stages, each in a function of its own: what is prepared there, and not in `scope`.
    stages: dict[Value, Scope] = field(default_factory=dict)
    on_the_cpu: set[Value] = field(
        default_factory=set
    )  # loaders whose batches the script works on, and then moves

    @property
    def scopes(self) -> list[Scope]:
        """Every scope that prepares something, the one that holds the loaders first."""
        return list(dict.fromkeys([self.scope, *self.stages.values()]))

    @property
    def named(self) -> list[Value]:
        """The models and the training loaders that variables hold."""
        return [*self.models, *(v for v in self.train_loaders if v not in self.unnamed)]

    @property
    def loaders(self) -> set[Value]:
        return {*self.train_loaders, *self.eval_loaders}

    @property
    def placing(self) -> set[Value]:
        """The loaders that surely place their batches: one that is only taken for a DataLoader may be none."""
        placed = self.loaders - self.on_the_cpu
        return {v for v in placed if getattr(v, "path", "") != api.ASSUMED_LOADER}


@dataclass
class Context:
    """The state of one file's planning."""

    facts: Facts
    runtime: str
    text: str
    home: Home
    subject: Subject
    edits: list[e.Edit] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    needs: set[ast.AST] = field(default_factory=set)  # functions whose code now mentions the accelerator
    in_turn: set[ast.AST] = field(
        default_factory=set
    )  # functions that the main process runs before the others
    speaking: list[ast.Call] = field(default_factory=list)  # in other files, on every process
    collective: set[ast.AST] = field(default_factory=set)  # nodes whose new code communicates
    below_collective: set[ast.stmt] = field(
        default_factory=set
    )  # statements above which new code communicates
    # What is computed from rows that were gathered before it.
    gathered: set[ast.AST] = field(default_factory=set)
    averaged: set[ast.AST] = field(default_factory=set)  # of these: a mean of numbers, the same of equal ones
    device_definitions: list[ast.Assign] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)  # Accelerator(...) arguments
    # A rule whose edits nothing else relies on asks before it plans one: may it act at this node?
    allows: Allows = everywhere
    requested: Requested = field(
        default_factory=Requested
    )  # what the script's own precision and distribution ask for

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _places(self) -> Places:
        return Places(self.text)

    def source(self, node: ast.AST) -> str:
        """What the script says at a node."""
        return self._places.source(node)

    def note(
        self, rule: str, node: ast.AST, reason: str, remedy: str, severity: Severity = Severity.NOTE
    ) -> None:
        """Say something of code that the script reaches."""
        if self.facts.is_reached(node):
            self.findings.append(finding(rule, node, reason, remedy, severity))

    def assume(self, kind: str, rule: str, node: ast.AST, claim: str, about: ast.AST | None = None) -> None:
        """Record what the conversion takes for granted at a node; `kind` is a key of `assumptions.CHECKS`.

        about: the value that it is about, where that is not what stands at the node: an observed run may have seen it.
        """
        checked = how_checked(kind, self.runtime)
        made = replace(finding(rule, node, claim, checked, Severity.ASSUMED), kind=kind)
        observation = self.facts.interp.observation
        seen = observation.verdict(kind, about or node) if observation is not None else None
        if seen is not None and seen.holds:
            made = replace(made, severity=Severity.OBSERVED, remedy=seen.said)
        elif seen is not None:
            remedy = f"find out which of the two is meant: {seen.said}"
            made = replace(
                made,
                status=CONTRADICTED,
                reason=f"{claim}: that is what the code around it says",
                remedy=remedy,
            )
        self.findings.append(made)

    def observed(self, kind: str, rule: str, node: ast.AST, claim: str) -> None:
        """Record what only a run has shown."""
        observation = self.facts.interp.observation
        if observation is not None:
            made = finding(rule, node, claim, f"seen in {observation.run}", Severity.OBSERVED)
            self.findings.append(replace(made, kind=kind))

    # -- reaching the accelerator ----------------------------------------------------------------------------

    def accelerator(self, node: ast.AST) -> str:
        """The expression for the accelerator where `node` stands; records that its function needs it."""
        function = self.facts.enclosing_function(node)
        if self._given_nowhere(node):
            self._make_again(node)
            return "accelerator"
        if function is None or self.sees_global(node):
            return "accelerator"
        if function is self.home.scope.node and self.home.cls is None:
            return "accelerator"
        given = self.given_holder(function)
        if given is not None:
            return f"{given}.accelerator"
        self.needs.add(function)
        cls = self.method_class(function)
        return "self.accelerator" if cls is not None else "accelerator"

    def accelerator_at(self, node: ast.AST, loads: bool = True) -> str | None:
        """The expression for the accelerator that prepares what is made at `node`: handed there, or, where nothing can
        be handed to, one with the options of the first, which is enough where `loads` says it is a loader.
        None where `node` may run before the first is made."""
        if self.reachable(node):
            return self.accelerator(node)
        if not self._runs_after_home(node, frozenset()):
            return None
        if self.sees_global(node):
            return "accelerator"
        if not loads:
            return None  # what another accelerator has prepared, it would not know
        file = self.facts.table.of_node[node].file
        code = f"from {self.runtime} import Accelerator"
        if file is not self.home.scope.file:
            self.edits.append(e.AddImport(file, "CT101", code=code))
        weighing = self.options.get("loss_reduction")
        return "Accelerator()" if weighing is None else f"Accelerator(loss_reduction={weighing})"

    def _runs_after_home(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        """Whether every call that is known to lead to `node` comes behind the statement that makes the Accelerator."""
        function = self.facts.enclosing_function(node)
        if function is self.home.scope.node or (function is None and self.sees_global(node)):
            return self.after_home(node)
        if function is None or function in seen:
            return function in seen
        sites = self.facts.callers.get(function, [])
        return bool(sites) and all(self._runs_after_home(site, seen | {function}) for site in sites)

    def given_holder(self, function: ast.AST) -> str | None:
        """The parameter by which a function is given the trainer that holds the accelerator: a hook's `runner`."""
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or self.requested.mapped:
            return None
        scope, own = self.facts.table.scopes[function], self.method_class(function)
        for argument in all_arguments(function):
            values = self.facts.interp.env.get((scope, argument.arg), ())
            classes = {v.cls if isinstance(v, Instance) else None for v in values}
            cls = classes.pop() if len(classes) == 1 else None
            if cls is None or cls is own or not self._trains(cls) or self._called_early(function, cls):
                continue
            return argument.arg
        return None

    def _trains(self, cls: ast.ClassDef) -> bool:
        """Whether methods of a class go backward, so that its objects hold the accelerator."""
        if cls is self.home.cls:
            return True
        methods = [self.facts.enclosing_function(call) for call, _ in self.facts.backward_calls]
        return any(
            method is not None and self.facts.table.parents.get(method) is cls and self.threadable(method)
            for method in methods
        )

    def _called_early(self, function: ast.AST, cls: ast.ClassDef) -> bool:
        """Whether the constructor of the class calls the function, perhaps before it has the accelerator."""
        made = self.facts.interp.method(cls, "__init__")
        sites = self.facts.callers.get(function, ())
        return any(self.facts.enclosing_function(site) is made for site in sites)

    def sees_global(self, node: ast.AST) -> bool:
        """Whether the accelerator is a module-level name where `node` stands."""
        return self.home.is_global_in(self.facts.table.of_node[node])

    def method_class(self, function: ast.AST) -> ast.ClassDef | None:
        """The class whose method `function` is, or whose method it is nested in."""
        current: ast.AST | None = function
        while current is not None:
            parent = self.facts.table.parents.get(current)
            if isinstance(parent, ast.ClassDef):
                return parent
            current = self.facts.enclosing_function(current)
        return None

    def reachable(self, node: ast.AST) -> bool:
        """Whether code at `node` can have the accelerator at all."""
        return self._can_be_given(node) or self._made_above(node) is not None

    def _can_be_given(self, node: ast.AST) -> bool:
        function = self.facts.enclosing_function(node)
        if function is None:
            return self.sees_global(node) and self.after_home(node)
        if self.given_holder(function) is not None:
            return True
        if self.is_called_by_a_library(function):
            return False
        if self.sees_global(node):
            return not self._runs_before_home(function)
        return self.after_home(node) if function is self.home.scope.node else self.threadable(function)

    # All Accelerators of a process share their state: behind a call of what makes it, `Accelerator()` is the same one.

    def _given_nowhere(self, node: ast.AST) -> bool:
        return not self._can_be_given(node) and self._made_above(node) is not None

    def _made_above(self, node: ast.AST) -> ast.stmt | None:
        """The statement, in the suite of `node` or in one around it, whose call has made the Accelerator."""
        table = self.facts.table
        if self.home.scope.parent is None or table.of_node[node].file != self.home.scope.file:
            return None
        current = table.statement_of(node)
        while True:
            for statement in _above(table.parents[current], current):
                if statement in self._making:
                    return statement
            parent = table.parents[current]
            if not isinstance(parent, ast.stmt) or isinstance(parent, ast.FunctionDef | ast.ClassDef):
                return None
            current = parent

    @cached_property
    def _making(self) -> set[ast.stmt]:
        """The statements that call the function of the Accelerator, or one that calls it."""
        found: set[ast.stmt] = set()
        seen: set[ast.AST] = set()
        work = [self.home.scope.node]
        while work:
            function = work.pop()
            if function in seen:
                continue
            seen.add(function)
            for site in self.facts.callers.get(function, ()):
                found.add(self.facts.table.statement_of(site))
                caller = self.facts.enclosing_function(site)
                work += [caller] if caller is not None else []
        return {s for s in found if isinstance(s, ast.Expr | ast.Assign)}

    def _make_again(self, node: ast.AST) -> None:
        making = self._made_above(node)
        assert making is not None
        if not any(isinstance(x, e.InsertAfter) and x.node is making for x in self.edits):
            self.edits.append(e.InsertAfter(making, "CT102", code="accelerator = Accelerator()"))

    def has_device(self, node: ast.AST) -> bool:
        """Whether code at `node` can ask for the process's own device: in a mapped script, whatever runs in the
        process itself, and not in a loader's worker."""
        if not self.requested.mapped or self.reachable(node):
            return self.reachable(node)
        function = self.facts.enclosing_function(node)
        cls = self.method_class(function) if function is not None else None
        by_library = cls is not None and self.is_library_class(cls)
        return not by_library and function is not None and function not in self.facts.interp.escaped

    def device(self, node: ast.AST) -> str:
        """The expression for the process's own device where `node` stands."""
        return f"{self.holder(node)}.device"

    def holder(self, node: ast.AST) -> str:
        """What tells code at `node` its device: in a mapped script, whose functions stay as they are, the state where
        the accelerator is not at hand."""
        return self.process(node, "CT105") if self.requested.mapped else self.accelerator(node)

    def at_hand(self, node: ast.AST) -> bool:
        """Whether code at `node` can have the accelerator, and no function of another file changes for it alone, nor
        one that a call may reach instead of another.

        For what only speaks, writes or downloads; asked when all else that needs the accelerator is known.
        """
        if not self.reachable(node):
            return False
        function = self.facts.enclosing_function(node)
        own = self.facts.table.of_node[node].file == self.home.scope.file
        if function is None or self.sees_global(node) or self.given_holder(function) is not None:
            return True
        if self.requested.mapped:  # no function changes for what the state of the processes can tell
            mine = self.home.cls is not None and self.method_class(function) is self.home.cls
            return function is self.home.scope.node or mine or function in self._given()
        if function is self.home.scope.node or (own and not self._shares_calls(function)):
            return True
        cls = self.method_class(function)
        return any(f is function or (cls is not None and self.method_class(f) is cls) for f in self._given())

    def _shares_calls(self, function: ast.AST) -> bool:
        """Whether a call of a function, or of its class, may reach another one."""
        cls = self.method_class(function)
        sites = self.construction_sites(cls) if cls is not None else self.facts.callers.get(function, ())
        return any(len(set(self.facts.targets(site))) > 1 for site in sites)

    def process(self, node: ast.AST, rule: str) -> str:
        """What tells code at `node`, which is reachable, its process: the accelerator, or the state that it shares."""
        if self.at_hand(node):
            return self.accelerator(node)
        code = f"from {self.runtime} import {STATE}"
        self.edits.append(e.AddImport(self.facts.table.of_node[node].file, rule, code=code))
        return f"{STATE}()"

    def _given(self) -> set[ast.AST]:
        """The functions that get the accelerator: those that need it, and those through which it comes to them."""
        found, work = set(self.needs), list(self.needs)
        while work:
            function = work.pop()
            cls = self.method_class(function)
            sites = self.construction_sites(cls) if cls is not None else self.facts.callers.get(function, [])
            callers = {self.facts.enclosing_function(site) for site in sites} - {None, self.home.scope.node}
            fresh = {caller for caller in callers if caller is not None} - found
            found |= fresh
            work += fresh
        return found

    def _runs_before_home(self, function: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether the module calls `function`, directly or not, above the statement that makes the Accelerator."""
        if function in seen:
            return False
        for site in self.facts.callers.get(function, ()):
            caller = self.facts.enclosing_function(site)
            early = (
                not self.after_home(site)
                if caller is None
                else self._runs_before_home(caller, seen | {function})
            )
            if early:
                return True
        return False

    def after_home(self, node: ast.AST) -> bool:
        """Whether `node` runs after the Accelerator was made (both in the same scope)."""
        if self.home.statement is None:
            return True
        return line_of(node) >= self.home.statement.lineno

    def trains_at(self, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether the code runs once a batch of training: in such a loop, or in what one calls."""
        facts = self.facts
        loop = facts.batch_loop_around(node)
        if loop is not None:
            over = facts.loops.get(loop, set()) if isinstance(loop, Loop) else set()
            return not over or bool(over & set(self.subject.train_loaders))
        function = facts.enclosing_function(node)
        if function is None or function in seen:
            return False
        return any(self.trains_at(site, seen | {function}) for site in facts.callers.get(function, ()))

    def is_library_class(self, cls: ast.ClassDef) -> bool:
        """A module, data set or other class whose objects a library calls: it cannot be given an accelerator."""
        bases = {
            "torch.utils.data.Dataset",
            "torch.utils.data.dataset.Dataset",
            "torch.utils.data.IterableDataset",
            "torch.utils.data.Sampler",
            "torch.autograd.Function",
        }
        interp = self.facts.interp
        return interp.inherits(cls, api.MODULE_BASES) or interp.inherits(cls, frozenset(bases))

    def is_called_by_a_library(self, function: ast.AST) -> bool:
        """Whether a library may run `function`; a module's `fit` or `evaluate` only the script does."""
        cls = self.method_class(function)
        if cls is None or not self.is_library_class(cls):
            return False
        if not self.facts.interp.inherits(cls, api.MODULE_BASES):
            return True
        return self.facts.in_module(function) or function in self.facts.interp.module_methods

    def threadable(self, function: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether every caller of `function` is known and can itself reach the accelerator."""
        if function in seen:
            return True
        if function in self.facts.interp.escaped or isinstance(function, ast.Lambda):
            return False
        cls = self.method_class(function)
        sites = self.construction_sites(cls) if cls is not None else self.facts.callers.get(function, [])
        if self.home.cls is not None and cls is self.home.cls:
            return True
        if cls is not None and (
            self.is_library_class(cls) or self.facts.interp.method(cls, "__init__") is None
        ):
            return False  # a library makes its objects, or nothing can receive the accelerator
        if not sites:
            return False
        return all(self._site_reaches(site, seen | {function}) for site in sites)

    def can_receive(self, cls: ast.ClassDef) -> bool:
        """Whether a class that has no constructor can be given one: it has no bases that may have their own."""
        return not cls.bases and not cls.decorator_list

    def _site_reaches(self, site: ast.Call, seen: frozenset[ast.AST]) -> bool:
        caller = self.facts.enclosing_function(site)
        if caller is None:
            return self.sees_global(site) and self.after_home(site)
        if caller is self.home.scope.node:
            return self.after_home(site)
        if self.sees_global(site):
            return True
        return self.threadable(caller, seen)

    def construction_sites(self, cls: ast.ClassDef) -> list[ast.Call]:
        found = {
            v.site
            for v in self.facts.all_values
            if isinstance(v, Instance) and v.cls is cls and isinstance(v.site, ast.Call)
        }
        return sorted(found, key=place_of)

    # -- edits -----------------------------------------------------------------------------------------------

    def replace(self, node: ast.expr, rule: str, reason: str, template: str, **holes: ast.expr) -> None:
        self.edits.append(e.Replace(node, rule, reason, template=template, holes=holes))

    def remove(self, node: ast.stmt, rule: str, reason: str = "") -> None:
        self.edits.append(e.RemoveStatement(node, rule, reason))


def _above(parent: ast.AST, statement: ast.stmt) -> list[ast.stmt]:
    suite = next(block for block in suites(parent) if statement in block)
    return suite[: suite.index(statement)]


class Apart(Context):
    """For rules that make their edits without an accelerator."""

    def accelerator(self, node: ast.AST) -> str:
        return f"{STATE}()"

    def at_hand(self, node: ast.AST) -> bool:
        return True

    def reachable(self, node: ast.AST) -> bool:
        return True
