"""Where the code of a script can have the accelerator, and by which expression."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cached_property

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Instance
from crosstrain_migrate.rules.distribution.requested_options import Requested
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import all_arguments, line_of, place_of
from crosstrain_migrate.syntax.scopes import Scope, suites

STATE = "PartialState"  # of both runtimes: what a process knows of the others without an accelerator
# Classes other than modules whose objects a library calls.
_LIBRARY_BASES = frozenset(
    {
        "torch.utils.data.Dataset",
        "torch.utils.data.dataset.Dataset",
        "torch.utils.data.IterableDataset",
        "torch.utils.data.Sampler",
        "torch.autograd.Function",
    }
)


@dataclass
class Home:
    """Where the Accelerator lives. `scope` is the module, a function, or the method of a class."""

    scope: Scope
    holder: str  # "accelerator" or "self.accelerator"
    cls: ast.ClassDef | None = None
    statement: ast.stmt | None = None  # the statement it is constructed before (or in place of)

    def is_global_in(self, scope: Scope) -> bool:
        """Whether it is a module-level name in the file that `scope` belongs to."""
        return self.scope.parent is None and scope.module is self.scope


@dataclass
class Access:
    """Finds the way from the Accelerator's home to any node, and records what must change for it."""

    facts: Facts
    runtime: str
    home: Home
    requested: Requested = field(default_factory=Requested)  # what the script's own distribution asks for
    edits: list[e.Edit] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)  # Accelerator(...) arguments
    needs: set[ast.AST] = field(default_factory=set)  # functions whose code now mentions the accelerator

    # -- expressions -------------------------------------------------------------------------------------------

    def accelerator(self, node: ast.AST) -> str:
        """The expression for the accelerator where `node` stands; records that its function needs it."""
        if not self._can_be_given(node) and (making := self._made_above(node)) is not None:
            # All Accelerators of a process share their state: behind the call that makes it, another is the same one.
            if not any(isinstance(x, e.InsertAfter) and x.node is making for x in self.edits):
                self.edits.append(e.InsertAfter(making, "CT102", code="accelerator = Accelerator()"))
            return "accelerator"
        function = self.facts.enclosing_function(node)
        is_home = function is self.home.scope.node and self.home.cls is None
        if function is None or is_home or self.sees_global(node):
            return "accelerator"
        if (given := self.given_holder(function)) is not None:
            return f"{given}.accelerator"
        self.needs.add(function)
        return "accelerator" if self.method_class(function) is None else "self.accelerator"

    def accelerator_at(self, node: ast.AST, loads: bool = True) -> str | None:
        """The expression for the accelerator that prepares what is made at `node`: the first one where it can be
        passed there, else a new one with its options, which is enough for a loader (`loads`) alone.

        None where `node` may run before the first is made."""
        if self.reachable(node):
            return self.accelerator(node)
        if not self._runs_after_home(node, frozenset()):
            return None
        if self.sees_global(node):
            return "accelerator"
        if not loads:
            return None  # another accelerator would not know what the first has prepared
        file = self.facts.table.of_node[node].file
        if file is not self.home.scope.file:
            self._import(file, "CT101", "Accelerator")
        weighing = self.options.get("loss_reduction")
        return "Accelerator()" if weighing is None else f"Accelerator(loss_reduction={weighing})"

    def process(self, node: ast.AST, rule: str) -> str:
        """What tells code at `node`, which is reachable, its process: the accelerator, or the state that it shares."""
        if self.at_hand(node):
            return self.accelerator(node)
        self._import(self.facts.table.of_node[node].file, rule, STATE)
        return f"{STATE}()"

    def holder(self, node: ast.AST) -> str:
        """What tells code at `node` its device: in a mapped script, whose functions stay as they are, the state where
        the accelerator is not at hand."""
        return self.process(node, "CT105") if self.requested.mapped else self.accelerator(node)

    def device(self, node: ast.AST) -> str:
        """The expression for the process's own device where `node` stands."""
        return f"{self.holder(node)}.device"

    def _import(self, file: ast.Module, rule: str, name: str) -> None:
        self.edits.append(e.AddImport(file, rule, code=f"from {self.runtime} import {name}"))

    # -- where it can be had -----------------------------------------------------------------------------------

    def reachable(self, node: ast.AST) -> bool:
        """Whether code at `node` can have the accelerator at all."""
        return self._can_be_given(node) or self._made_above(node) is not None

    def has_device(self, node: ast.AST) -> bool:
        """Whether code at `node` can ask for the process's own device: in a mapped script, whatever runs in the
        process itself, and not in a loader's worker."""
        if not self.requested.mapped or self.reachable(node):
            return self.reachable(node)
        function = self.facts.enclosing_function(node)
        cls = self.method_class(function)
        by_library = cls is not None and self.is_library_class(cls)
        return not by_library and function is not None and function not in self.facts.interp.escaped

    def at_hand(self, node: ast.AST) -> bool:
        """Whether code at `node` can have the accelerator, and no function of another file changes for it alone, nor
        one that a call may reach instead of another.

        For what only prints, writes or downloads; asked when all else that needs the accelerator is known.
        """
        if not self.reachable(node):
            return False
        function = self.facts.enclosing_function(node)
        if function is None or self.sees_global(node) or self.given_holder(function) is not None:
            return True
        if function is self.home.scope.node:
            return True
        cls = self.method_class(function)
        if self.requested.mapped:  # no function changes for what the state of the processes can tell
            return (cls is not None and cls is self.home.cls) or function in self._given()
        own = self.facts.table.of_node[node].file == self.home.scope.file
        if own and not any(len(set(self.facts.targets(site))) > 1 for site in self._entries(function)):
            return True
        return any(f is function or (cls is not None and self.method_class(f) is cls) for f in self._given())

    def sees_global(self, node: ast.AST) -> bool:
        """Whether the accelerator is a module-level name where `node` stands."""
        return self.home.is_global_in(self.facts.table.of_node[node])

    def after_home(self, node: ast.AST) -> bool:
        """Whether `node` runs after the Accelerator was made (both in the same scope)."""
        return self.home.statement is None or line_of(node) >= self.home.statement.lineno

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

    def _made_above(self, node: ast.AST) -> ast.stmt | None:
        """The statement, in the suite of `node` or in one around it, whose call has made the Accelerator."""
        table = self.facts.table
        if self.home.scope.parent is None or table.of_node[node].file != self.home.scope.file:
            return None
        current = table.statement_of(node)
        while True:
            parent = table.parents[current]
            suite = next(block for block in suites(parent) if current in block)
            for statement in suite[: suite.index(current)]:
                if statement in self._making:
                    return statement
            if not isinstance(parent, ast.stmt) or isinstance(parent, ast.FunctionDef | ast.ClassDef):
                return None
            current = parent

    @cached_property
    def _making(self) -> set[ast.stmt]:
        """The statements that call the function of the Accelerator, or one that calls it."""
        found: set[ast.stmt] = set()
        functions: list[ast.AST] = [self.home.scope.node]
        for function in functions:  # which grows meanwhile
            for site in self.facts.callers.get(function, ()):
                found.add(self.facts.table.statement_of(site))
                caller = self.facts.enclosing_function(site)
                if caller is not None and caller not in functions:
                    functions.append(caller)
        return {s for s in found if isinstance(s, ast.Expr | ast.Assign)}

    def _given(self) -> list[ast.AST]:
        """The functions that get the accelerator: those that need it, and those that pass it on to them."""
        found = list(self.needs)
        for function in found:  # which grows meanwhile
            callers = (self.facts.enclosing_function(site) for site in self._entries(function))
            found += {c for c in callers if c not in (None, self.home.scope.node)} - set(found)
        return found

    def _runs_after_home(self, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
        """Whether every call that is known to lead to `node` comes behind the statement that makes the Accelerator."""
        function = self.facts.enclosing_function(node)
        if function is self.home.scope.node or (function is None and self.sees_global(node)):
            return self.after_home(node)
        if function is None or function in seen:
            return function in seen
        sites = self.facts.callers.get(function, [])
        return bool(sites) and all(self._runs_after_home(site, seen | {function}) for site in sites)

    def _runs_before_home(self, function: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether the module calls `function`, directly or not, above the statement that makes the Accelerator."""
        if function in seen:
            return False
        for site in self.facts.callers.get(function, ()):
            caller = self.facts.enclosing_function(site)
            if caller is None and not self.after_home(site):
                return True
            if caller is not None and self._runs_before_home(caller, seen | {function}):
                return True
        return False

    # -- functions and classes it is passed through --------------------------------------------------------------

    def threadable(self, function: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether every caller of `function` is known and can itself reach the accelerator."""
        if function in seen:
            return True
        if function in self.facts.interp.escaped or isinstance(function, ast.Lambda):
            return False
        cls = self.method_class(function)
        if cls is not None and cls is self.home.cls:
            return True
        if cls is not None and (
            self.is_library_class(cls) or self.facts.interp.method(cls, "__init__") is None
        ):
            return False  # a library makes its objects, or nothing can receive the accelerator
        sites = self._entries(function)
        return bool(sites) and all(self._site_reaches(site, seen | {function}) for site in sites)

    def _site_reaches(self, site: ast.Call, seen: frozenset[ast.AST]) -> bool:
        caller = self.facts.enclosing_function(site)
        if self.sees_global(site):
            return caller is not None or self.after_home(site)
        if caller is self.home.scope.node:
            return self.after_home(site)
        return caller is not None and self.threadable(caller, seen)

    def _entries(self, function: ast.AST) -> list[ast.Call]:
        """The calls that can pass the accelerator to a function; for a method those that make its object."""
        cls = self.method_class(function)
        return self.facts.callers.get(function, []) if cls is None else self.construction_sites(cls)

    def construction_sites(self, cls: ast.ClassDef) -> list[ast.Call]:
        """The calls that make objects of a class."""
        found = {
            v.site
            for v in self.facts.all_values
            if isinstance(v, Instance) and v.cls is cls and isinstance(v.site, ast.Call)
        }
        return sorted(found, key=place_of)

    def method_class(self, function: ast.AST | None) -> ast.ClassDef | None:
        """The class whose method `function` is, or whose method it is nested in."""
        while function is not None:
            parent = self.facts.table.parents.get(function)
            if isinstance(parent, ast.ClassDef):
                return parent
            function = self.facts.enclosing_function(function)
        return None

    def can_receive(self, cls: ast.ClassDef) -> bool:
        """Whether a class without a constructor can be given one: no base of it may have its own."""
        return not cls.bases and not cls.decorator_list

    def is_library_class(self, cls: ast.ClassDef) -> bool:
        """A module, data set or other class whose objects a library calls: it cannot be given an accelerator."""
        interp = self.facts.interp
        return interp.inherits(cls, api.MODULE_BASES) or interp.inherits(cls, _LIBRARY_BASES)

    def is_called_by_a_library(self, function: ast.AST) -> bool:
        """Whether a library may run `function`; a module's `fit` or `evaluate` only the script does."""
        cls = self.method_class(function)
        if cls is None or not self.is_library_class(cls):
            return False
        if not self.facts.interp.inherits(cls, api.MODULE_BASES):
            return True
        return self.facts.in_module(function) or function in self.facts.interp.module_methods
