"""CT106: functions are handed the accelerator

What:   A function that now mentions the accelerator gets it as a parameter, in place of its device parameter where it
        has one, and its callers pass it. Device variables and parameters that nothing uses any more go.
Why:    The script gets no global that the author did not have, and keeps no unused parameters.
Before: `def train(args, model, device, loader):`
After:  `def train(args, model, accelerator, loader):`
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.arguments import default_of
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode, all_arguments, line_of
from crosstrain_migrate.syntax.walks import walk

from .device import Placement
from .device_definitions import DeviceDefinitions
from .devices import is_cpu
from .unused_devices import UnusedDevices, replace_imported

RULE = "CT106"
Parameters = dict[FunctionNode, str]  # functions that take a device, with the parameter's name


class Plumbing:
    def __init__(self, context: Context, placement: Placement) -> None:
        self.context = context
        self.facts = context.facts
        self.placement = placement
        self.gone = placement.gone
        self.devices = placement.devices
        self.without_constructor: set[ast.ClassDef] = set()  # they get one, for the accelerator

    def plan(self) -> None:
        definitions = DeviceDefinitions(self.placement)
        self._close_needs()
        definitions.drop_unread_attributes()
        parameters = self._released(self._device_parameters())
        definitions.drop_unread_attributes()  # what was handed to parameters that are gone now, too
        needed = set(self.context.needs)
        replace_imported(self.context, self.placement)
        definitions.ask_for_the_accelerator()
        if self.context.needs != needed:
            self._close_needs()
            parameters = self._released(self._device_parameters())
        self._thread(parameters)
        definitions.plan()
        UnusedDevices(self.context, self.placement).plan()

    # -- who needs the accelerator ---------------------------------------------------------------------------

    def _close_needs(self) -> None:
        """Callers of a function that needs the accelerator need it too, up to where it is made."""
        work = list(self.context.needs)
        while work:
            for site in self._sites(work.pop()):
                before = set(self.context.needs)
                self.context.accelerator(site)
                work += self.context.needs - before

    def _sites(self, function: ast.AST) -> list[ast.Call]:
        """The calls that must hand the accelerator to a function, or to the class that it is a method of."""
        cls = self.context.method_class(function)
        if cls is not None and cls is self.context.home.cls:
            return []
        return [] if cls is None and self._is_closure(function) else self._calls_of(function)

    def _calls_of(self, function: ast.AST) -> list[ast.Call]:
        cls = self.context.method_class(function)
        return self.facts.callers.get(function, []) if cls is None else self.context.construction_sites(cls)

    def _is_closure(self, function: ast.AST) -> bool:
        """Whether a function sees the accelerator of the function around it."""
        outer = self.facts.enclosing_function(function)
        return outer is not None and (outer is self.context.home.scope.node or outer in self.context.needs)

    def _receivers(self) -> set[ast.AST]:
        """Functions that get an `accelerator` parameter: those that need it, and constructors of classes that do."""
        found: set[ast.AST] = set()
        for function in self.context.needs:
            cls = self.context.method_class(function)
            if cls is None:
                found |= set() if self._is_closure(function) else {function}
            elif cls is not self.context.home.cls:
                init = self.facts.interp.method(cls, "__init__")
                if init is not None:
                    found.add(init)
                elif self.context.can_receive(cls):
                    self.without_constructor.add(cls)
                else:
                    raise refuse(
                        RULE,
                        cls,
                        f"class {cls.name} needs the accelerator, but inherits its constructor from another library's class, "
                        "which does not take one",
                        "give it an __init__ of its own",
                    )
        return found

    # -- device parameters -----------------------------------------------------------------------------------

    def _device_parameters(self) -> Parameters:
        """The parameters that every call gives a device other than the CPU."""
        found: Parameters = {}
        for function, sites in self.facts.callers.items():
            if not sites or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for argument in (*function.args.args, *function.args.kwonlyargs):
                default = default_of(function, argument)
                given = [self.facts.passed(s, function, argument.arg) or default for s in sites]
                if all(p is not None and self.devices.is_device(p) and not is_cpu(p) for p in given):
                    found[function] = argument.arg
        return found

    def _released(self, parameters: Parameters) -> Parameters:
        """Those of the parameters that can go or become the accelerator. One that goes may free another: the parameter
        that its caller passed on."""
        found: set[FunctionNode] = set()
        while more := {f for f, name in parameters.items() if f not in found and self._release(f, name)}:
            found |= more
        return {function: name for function, name in parameters.items() if function in found}

    def _release(self, function: FunctionNode, name: str) -> bool:
        """Marks what calls pass for a parameter as gone, where the parameter can go."""
        uses = self.placement.reads_left(self.facts.table.scopes[function], name)
        if uses and function not in self._receivers():
            return False
        for use in uses:
            self.gone.add(use)
            self.context.replace(use, "CT105", "the process's own device", "accelerator.device")
        for _, passed in self._passed(function, name):
            if passed is not None:
                self.gone.update(walk(passed))
        return True

    def _passed(self, function: FunctionNode, name: str) -> list[tuple[ast.Call, ast.expr | None]]:
        """Every call of a function, with what it passes for a parameter."""
        return [(s, self.facts.passed(s, function, name)) for s in self.facts.callers[function]]

    # -- edits of signatures and calls -----------------------------------------------------------------------

    def _thread(self, parameters: Parameters) -> None:
        receivers = self._receivers()
        swapped = {f for f, name in parameters.items() if f in receivers and _may_be_required(f, name)}
        for function, name in parameters.items():
            if function in swapped:
                self._swap(function, name)
            else:
                self._drop(function, name)
        for other in sorted(receivers - swapped, key=line_of):
            self._check_calls(other, receivers)
            self._insert(other)
        for made in sorted(self.without_constructor, key=line_of):
            self._give_constructor(made)
        for receiver in receivers:
            if self.context.method_class(receiver) is not None:
                code = "self.accelerator = accelerator"
                self.context.edits.append(e.InsertAtStart(receiver, RULE, code=code))

    def _swap(self, function: FunctionNode, name: str) -> None:
        reason = "the accelerator takes the place of the device"
        code = self._declared(function, name)
        self.context.edits.append(e.ReplaceParameter(function, RULE, reason, name=name, code=code))
        for site, passed in self._passed(function, name):
            accelerator = self.context.accelerator(site)
            if passed is not None and passed in site.args:
                self.context.edits.append(e.Replace(passed, RULE, template=accelerator))
                continue
            if passed is not None:
                self.context.edits.append(e.RemoveArgument(site, RULE, argument=passed))
            next_in_line = passed is None and self._is_next(site, function, name)
            code = accelerator if next_in_line else f"accelerator={accelerator}"
            self.context.edits.append(e.InsertArgument(site, RULE, position=-1, code=code))

    def _declared(self, function: FunctionNode, name: str) -> str:
        """The parameter that takes the place of `name`, annotated where that one was and the class is imported."""
        annotated = any(a.arg == name and a.annotation is not None for a in all_arguments(function))
        imported = self.facts.table.scopes[function].file is self.context.home.scope.file
        return "accelerator: Accelerator" if annotated and imported else "accelerator"

    def _is_next(self, site: ast.Call, function: FunctionNode, name: str) -> bool:
        """Whether one more positional argument at the end of `site` is parameter `name`."""
        if site.keywords or any(isinstance(a, ast.Starred) for a in site.args):
            return False
        method = isinstance(self.facts.table.parents.get(function), ast.ClassDef)
        return _positional(function)[method:][len(site.args) : len(site.args) + 1] == [name]

    def _drop(self, function: FunctionNode, name: str) -> None:
        reason = "nothing in it needs a device any more"
        self.context.edits.append(e.ReplaceParameter(function, RULE, reason, name=name))
        for site, passed in self._passed(function, name):
            if passed is not None:
                self.context.edits.append(e.RemoveArgument(site, RULE, argument=passed))

    def _check_calls(self, function: ast.AST, receivers: set[ast.AST]) -> None:
        """Raises Refusal where a call may also reach a function that takes no accelerator."""
        for site in self._calls_of(function):
            other = next((f for f in self.facts.targets(site) if f not in receivers), None)
            if other is not None:
                raise refuse(
                    RULE,
                    site,
                    f"this may call `{self._name_of(function)}`, which needs the accelerator, or `{self._name_of(other)}`, "
                    "which does not",
                    "call each by its own name, or make the accelerator a global variable",
                )

    def _name_of(self, function: ast.AST) -> str:
        cls = self.context.method_class(function)
        return cls.name if cls is not None else getattr(function, "name", "a lambda")

    def _insert(self, function: ast.AST) -> None:
        position = 0 if self.context.method_class(function) is None else 1
        reason = "it needs the accelerator"
        insert = e.InsertParameter(function, RULE, reason, position=position, code="accelerator")
        self.context.edits.append(insert)
        self._pass_first(self._calls_of(function))

    def _give_constructor(self, cls: ast.ClassDef) -> None:
        unit = "\t" if self.context.lines[cls.body[0].lineno - 1].startswith("\t") else "    "
        code = f"def __init__(self, accelerator):\n{unit}self.accelerator = accelerator"
        first = next((s for s in cls.body if not _is_docstring(s)), cls.body[-1])
        self.context.edits.append(e.InsertBefore(first, RULE, "the class needs the accelerator", code=code))
        self._pass_first(self.context.construction_sites(cls))

    def _pass_first(self, sites: list[ast.Call]) -> None:
        for site in sites:
            code = self.context.accelerator(site)
            self.context.edits.append(e.InsertArgument(site, RULE, position=0, code=code))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _may_be_required(function: FunctionNode, name: str) -> bool:
    """Whether the parameter in the place of `name` needs no default: none before it has one."""
    positional = _positional(function)
    required = len(positional) - len(function.args.defaults)
    return name not in positional or positional.index(name) <= required


def _positional(function: FunctionNode) -> list[str]:
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
