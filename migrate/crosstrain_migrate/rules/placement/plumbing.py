"""CT106: functions are handed the accelerator

What:   A function that now mentions the accelerator gets it as a parameter, in the place of a device parameter where it
        has one; its callers pass it. Device variables and parameters that nothing uses any more go.
Why:    No global where the author had none, and no dead plumbing.
Before: `def train(args, model, device, loader):`
After:  `def train(args, model, accelerator, loader):`
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.arguments import default_of
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.rules.side_effects import is_pure
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode, line_of
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from . import construction as homes
from . import cpu_choice, moves
from .device import Placement
from .device_choices import Choice, find_choices
from .devices import is_cpu
from .option_defaults import default_statement
from .unused_devices import UnusedDevices, in_class, is_read_by_others, replace_imported, uses_of

RULE = "CT106"


class Plumbing:
    def __init__(self, context: Context, placement: Placement) -> None:
        self.context = context
        self.facts = context.facts
        self.placement = placement
        self.gone = placement.gone
        self.devices = placement.devices
        self.attributes: set[ast.Assign] = set()
        self.without_constructor: set[ast.ClassDef] = set()  # they get one, for the accelerator

    def plan(self) -> None:
        self._close_needs()
        self._dead_attributes()
        parameters = self._device_parameters()
        self._parameters(parameters)
        self._dead_attributes()  # what was handed to parameters that are gone now, too
        needed = set(self.context.needs)
        replace_imported(self.context, self.placement)
        self._ask_for_devices()
        if self.context.needs != needed:
            self._close_needs()
            parameters = self._device_parameters()
            self._parameters(parameters)
        self._thread(parameters)
        self._definitions()
        UnusedDevices(self.context, self.placement).plan()

    # -- who needs the accelerator ---------------------------------------------------------------------------

    def _close_needs(self) -> None:
        """Callers of a function that needs the accelerator need it too, up to where it is made."""
        work = list(self.context.needs)
        while work:
            function = work.pop()
            for site in self._sites(function):
                caller = self.facts.enclosing_function(site)
                before = set(self.context.needs)
                self.context.accelerator(site)
                if caller is not None and caller in self.context.needs - before:
                    work.append(caller)

    def _sites(self, function: ast.AST) -> list[ast.Call]:
        cls = self.context.method_class(function)
        if cls is not None and cls is self.context.home.cls:
            return []
        if cls is not None:
            return self.context.construction_sites(cls)
        outer = self.facts.enclosing_function(function)
        if outer is not None and self._sees_it(outer):
            return []
        return self.facts.callers.get(function, [])

    def _sees_it(self, function: ast.AST) -> bool:
        """A closure sees the accelerator of the function around it."""
        return function is self.context.home.scope.node or function in self.context.needs

    def _ask_for_devices(self) -> None:
        """A function that chooses a device of its own needs the accelerator, where that device is still used."""
        for node in self.context.device_definitions:
            if self._becomes_the_accelerators(node) and not self._unused(node) and not self._restates(node):
                self.context.device(node)
        for choice in find_choices(self.facts, self.placement, self.context.lines):
            scope = self.facts.table.of_node[choice.name].resolve(choice.name.id)
            used = scope is not None and self._residual(scope, choice.name.id)
            if used and self.context.reachable(choice.statement):
                self.context.holder(choice.statement)

    def _becomes_the_accelerators(self, node: ast.Assign) -> bool:
        if self._is_mere_text(node) or self._is_of_another_file(node):
            return False
        return self.context.has_device(node) and not in_class(self.facts.table.of_node[node])

    # -- device parameters -----------------------------------------------------------------------------------

    def _device_parameters(self) -> dict[FunctionNode, str]:
        """Functions that take a device, with the parameter's name."""
        found: dict[FunctionNode, str] = {}
        for function, sites in self.facts.callers.items():
            if not sites or not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for argument in (*function.args.args, *function.args.kwonlyargs):
                default = default_of(function, argument)
                given = [self.facts.passed(s, function, argument.arg) or default for s in sites]
                if all(p is not None and self.devices.is_device(p) and not is_cpu(p) for p in given):
                    found[function] = argument.arg
        return found

    def _residual(self, scope: Scope, name: str) -> list[ast.Name]:
        """Uses of a variable that no edit has taken away."""
        return [
            n for n in self.facts.mentions(scope, name) if isinstance(n.ctx, ast.Load) and n not in self.gone
        ]

    def _parameters(self, parameters: dict[FunctionNode, str]) -> None:
        """Parameters that can go (or turn into the accelerator), until nothing more follows from that."""
        changed = True
        settled: set[FunctionNode] = set()
        while changed:
            changed = False
            for function, name in parameters.items():
                if function in settled:
                    continue
                residual = self._residual(self.facts.table.scopes[function], name)
                if self._takes_accelerator(function):
                    for use in residual:
                        self.gone.add(use)
                        self.context.replace(use, "CT105", "the process's own device", "accelerator.device")
                elif residual:
                    continue
                settled.add(function)
                changed = True
                for site in self.facts.callers[function]:
                    passed = self.facts.passed(site, function, name)
                    if passed is not None:
                        self.gone.update(walk(passed))
        for function in list(parameters):
            if function not in settled:
                del parameters[function]

    def _takes_accelerator(self, function: ast.AST) -> bool:
        return function in self.needing_functions()

    def needing_functions(self) -> set[ast.AST]:
        """Functions that get an `accelerator` parameter: those that need it, and constructors of classes that do."""
        found: set[ast.AST] = set()
        for function in self.context.needs:
            cls = self.context.method_class(function)
            if cls is not None and cls is self.context.home.cls:
                continue
            if cls is not None:
                init = self.facts.interp.method(cls, "__init__")
                if init is not None:
                    found.add(init)
                elif self.context.can_receive(cls):
                    self.without_constructor.add(cls)
                else:
                    raise refuse(
                        RULE,
                        cls,
                        f"class {cls.name} needs the accelerator, and its constructor is that of a class of another library, "
                        "which does not take it",
                        "give it an __init__ of its own",
                    )
                continue
            outer = self.facts.enclosing_function(function)
            if outer is not None and self._sees_it(outer):
                continue
            found.add(function)
        return found

    # -- edits of signatures and calls -----------------------------------------------------------------------

    def _thread(self, parameters: dict[FunctionNode, str]) -> None:
        needing = self.needing_functions()
        swapped = {f for f, name in parameters.items() if f in needing and _may_be_required(f, name)}
        for function, name in parameters.items():
            if function in swapped:
                self._swap(function, name)
            else:
                self._drop(function, name)
        for other in sorted(needing - swapped, key=line_of):
            self._check_calls(other, needing)
            self._insert(other)
        for made in sorted(self.without_constructor, key=line_of):
            _give_constructor(self.context, made)
        for receiver in needing:
            cls = self.context.method_class(receiver)
            if cls is not None:
                code = "self.accelerator = accelerator"
                self.context.edits.append(e.InsertAtStart(receiver, RULE, code=code))

    def _swap(self, function: FunctionNode, name: str) -> None:
        reason = "the accelerator takes the place of the device"
        code = self._declared(function, name)
        self.context.edits.append(e.ReplaceParameter(function, RULE, reason, name=name, code=code))
        for site in self.facts.callers[function]:
            passed = self.facts.passed(site, function, name)
            accelerator = self.context.accelerator(site)
            if passed is not None and passed in site.args:
                self.context.edits.append(e.Replace(passed, RULE, template=accelerator))
                continue
            if passed is not None:
                self.context.edits.append(e.RemoveArgument(site, RULE, argument=passed))
            next_in_line = passed is None and _is_next(self.context, site, function, name)
            code = accelerator if next_in_line else f"accelerator={accelerator}"
            self.context.edits.append(e.InsertArgument(site, RULE, position=-1, code=code))

    def _declared(self, function: FunctionNode, name: str) -> str:
        """The parameter that takes the place of `name`, annotated where that one was and the class is imported."""
        arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        annotated = any(a.arg == name and a.annotation is not None for a in arguments)
        imported = self.facts.table.scopes[function].file is self.context.home.scope.file
        return "accelerator: Accelerator" if annotated and imported else "accelerator"

    def _drop(self, function: FunctionNode, name: str) -> None:
        self.context.edits.append(
            e.ReplaceParameter(function, RULE, "nothing in it needs a device any more", name=name)
        )
        for site in self.facts.callers[function]:
            passed = self.facts.passed(site, function, name)
            if passed is not None:
                self.context.edits.append(e.RemoveArgument(site, RULE, argument=passed))

    def _check_calls(self, function: ast.AST, needing: set[ast.AST]) -> None:
        """A call that may reach another function, too, cannot give both the same arguments."""
        for site in self._calls_of(function):
            other = next((f for f in self.facts.targets(site) if f not in needing), None)
            if other is not None:
                raise refuse(
                    RULE,
                    site,
                    f"this may call `{self._name_of(function)}`, which needs the accelerator, or `{self._name_of(other)}`, "
                    "which does not",
                    "call each by its own name, or make the accelerator a global",
                )

    def _name_of(self, function: ast.AST) -> str:
        cls = self.context.method_class(function)
        return cls.name if cls is not None else getattr(function, "name", "a lambda")

    def _calls_of(self, function: ast.AST) -> list[ast.Call]:
        """Those that must hand the accelerator on: of the function, or of its class."""
        cls = self.context.method_class(function)
        if cls is not None:
            return self.context.construction_sites(cls)
        return self.facts.callers.get(function, [])

    def _insert(self, function: ast.AST) -> None:
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        cls = self.context.method_class(function)
        position = 1 if cls is not None else 0
        self.context.edits.append(
            e.InsertParameter(
                function, RULE, "it needs the accelerator", position=position, code="accelerator"
            )
        )
        for site in self._calls_of(function):
            self.context.edits.append(
                e.InsertArgument(site, RULE, position=0, code=self.context.accelerator(site))
            )

    # -- definitions -----------------------------------------------------------------------------------------

    def _dead_attributes(self) -> None:
        """`self.device = device` of which every use is gone."""
        for node in self.facts.each(ast.Assign):
            if len(node.targets) != 1 or node in self.gone:
                continue
            target = node.targets[0]
            if not isinstance(target, ast.Attribute) or not self.devices.is_device(node.value):
                continue
            default = default_statement(self.facts, node)
            asked = set(walk(default.test)) if default is not None else set()
            loads = [
                n
                for n in self.facts.each(ast.Attribute)
                if n.attr == target.attr
                and isinstance(n.ctx, ast.Load)
                and n not in self.gone
                and n not in asked
                and (self.devices.is_device(n) or ast.unparse(n) == ast.unparse(target))
            ]
            if not loads:
                self.attributes.add(node)
                self.gone.update(walk(node))

    def _definitions(self) -> None:
        """What becomes of each statement that chose the device, and of the Accelerator itself."""
        removed: list[ast.Assign] = []
        main = self._main_definition()
        if main is None and self.placement.options:
            options = self.placement.options
            itself = next((o for o in options if isinstance(o, ast.Attribute)), options[0])
            main = ast.Assign([], itself)
        if main is not None:
            option = cpu_choice.cpu_option(self.context, main)
            if option is not None:
                self.context.options = {"cpu": option, **self.context.options}
        else:
            self._obey_guards()
        in_place_of = self._choices()
        if "cpu" not in self.context.options:
            self._obey_overrides()
        for node in self.context.device_definitions:
            if self._is_mere_text(node) or self._is_of_another_file(node):
                continue
            if node is not main:
                cpu_choice.check_other(self.context, node)
            if self._unused(node):
                removed.append(node)
                self.gone.update(walk(node))
                if node is self.context.home.statement:
                    in_place_of = node
                else:
                    whole = default_statement(self.facts, node) or node
                    self.context.remove(whole, "CT105", "nothing uses this device any more")
            elif self._restates(node):
                self.gone.update(walk(node))
                self.context.remove(node, "CT105", "it is a torch.device already")
            elif self._becomes_the_accelerators(node):
                kind = ".type" if self._is_read_as_text(node) else ""
                own = f"{self.context.device(node)}{kind}"
                self.context.replace(node.value, "CT105", "the process's own device", own)
                self.gone.update(walk(node.value))
        if self.context.requested.mapped and self._asks_processes(self.context.options.get("cpu", "")):
            del self.context.options["cpu"]  # what a script does alone is no wish for the CPU
        for stored in self.attributes:
            if stored not in self.context.device_definitions:
                self.context.remove(stored, "CT105", "nothing uses this device any more")
        homes.construct(self.context, in_place_of)
        self._orphans()

    def _obey_guards(self) -> None:
        """`if args.cuda: model.cuda()`, where nothing else chose the device."""
        option = cpu_choice.of_guards(self.context, moves.guards_of_models(self.context, self.placement))
        if option is not None:
            self.context.options = {"cpu": option, **self.context.options}

    def _obey_overrides(self) -> None:
        """`device = "cpu"`, and below it `if args.cuda: torch.cuda.manual_seed(0); device = "cuda"`."""
        option = cpu_choice.of_overrides(self.context, self.context.device_definitions)
        if option is not None:
            self.context.options = {"cpu": option, **self.context.options}

    def _asks_processes(self, test: str) -> bool:
        """Whether a test reads a variable that says how many processes there are."""
        names = {n.id for n in walk(ast.parse(test)) if isinstance(n, ast.Name)}
        stores = (s for s in self.facts.each(ast.Assign) if any(ast.unparse(t) in names for t in s.targets))
        said = (ast.unparse(statement.value) for statement in stores)
        return any(word in value for value in said for word in ("PartialState()", "environ", "getenv"))

    def _is_of_another_file(self, node: ast.stmt) -> bool:
        """At the top level of a file that has no accelerator."""
        scope = self.facts.table.of_node[node]
        return scope.parent is None and not self.context.home.is_global_in(scope)

    def _choices(self) -> ast.Assign | None:
        """A choice written as an `if` statement goes as a whole."""
        found: ast.Assign | None = None
        for choice in find_choices(self.facts, self.placement, self.context.lines):
            scope = self.facts.table.of_node[choice.name].resolve(choice.name.id)
            if scope is None or not self.context.reachable(choice.statement):
                continue
            definitions = self.context.device_definitions
            definitions[:] = [d for d in definitions if d not in choice.bindings]
            option = cpu_choice.cpu_option(self.context, ast.Assign([choice.name], choice.as_expression))
            if option is not None:
                self.context.options = {"cpu": option, **self.context.options}
            settled = self._settle(choice, bool(self._residual(scope, choice.name.id)))
            found = found or settled
        return found

    def _settle(self, choice: Choice, used: bool) -> ast.Assign | None:
        """The first branch stands for all. Returns it where it becomes the Accelerator."""
        first, home = choice.bindings[0], self.context.home
        reason = "the launcher chooses the device"
        accelerator = self.context.holder(choice.statement)
        if choice.default is not None:
            self.context.remove(choice.default, "CT105", reason)
            self.gone.update(walk(choice.default))
        self.gone.update(walk(choice.statement))
        at_home = home.statement is choice.statement
        if not at_home and not used:
            self.context.remove(choice.statement, "CT105", reason)
            return None
        arms = ("always", *("drop" for _ in choice.bindings[1:]))
        self.context.edits.append(e.Fold(choice.statement, "CT105", reason, arms=arms))
        if not at_home:
            self.context.replace(first.value, "CT105", "", f"{accelerator}.device")
            return None
        if used:
            code = f"{choice.name.id} = {accelerator}.device"
            self.context.edits.append(e.InsertAfter(first, "CT105", code=code))
        home.statement = first
        return first

    def _main_definition(self) -> ast.Assign | None:
        mine = [
            d
            for d in self.context.device_definitions
            if self.facts.table.of_node[d] is self.context.home.scope
        ]
        return next(iter(mine or self.context.device_definitions), None)

    def _unused(self, node: ast.Assign) -> bool:
        if node in self.attributes:
            return True
        target = node.targets[0]
        if not isinstance(target, ast.Name) or not is_pure_device(node.value):
            return False
        scope = self.facts.table.of_node[target].resolve(target.id)
        if scope is not None and in_class(scope):
            unread = all(use in self.gone for use in uses_of(self.facts, node))
            return unread and not is_read_by_others(self.facts, node)
        return scope is not None and not self._residual(scope, target.id)

    def _restates(self, node: ast.Assign) -> bool:
        """`device = torch.device(device)`, of another definition that becomes the accelerator's."""
        names = [n for n in walk(node.value) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        mine = [n for n in names if ast.unparse(n) == ast.unparse(node.targets[0])]
        made = {self.facts.table.statement_of(d) for n in mine for d in self.facts.interp.reaching.get(n, ())}
        others = {d for d in self.context.device_definitions if not self._is_read_as_text(d)} - {node}
        return len(mine) == 1 and bool(made) and made <= others and is_pure_device(node.value)

    def _is_mere_text(self, node: ast.Assign) -> bool:
        """`backend = "cuda"` that nothing reads at all: no device, as far as anyone can tell."""
        target = node.targets[0]
        return (
            isinstance(node.value, ast.Constant)
            and isinstance(target, ast.Name)
            and not any(
                isinstance(n, ast.Name) and n.id == target.id and isinstance(n.ctx, ast.Load)
                for n in self.facts.nodes
            )
        )

    def _is_read_as_text(self, node: ast.Assign) -> bool:
        """A device written as a string, in a variable that is compared, sliced or printed as one."""
        target = node.targets[0]
        if not isinstance(target, ast.Name) or any(
            isinstance(n, ast.Call) and _makes_object(n) for n in walk(node.value)
        ):
            return False
        scope = self.facts.table.of_node[target].resolve(target.id)
        parents = [self.facts.table.parents[use] for use in self._residual(scope, target.id)] if scope else []
        printed = [
            p for p in parents if isinstance(p, ast.Call) and "builtins.print" in self.facts.paths(p.func)
        ]
        texts = ast.Compare | ast.FormattedValue | ast.Subscript | ast.Attribute | ast.BinOp
        return bool(printed) or any(isinstance(p, texts) for p in parents)

    def _orphans(self) -> None:
        """Variables such as `use_cuda` whose every use is gone."""
        kept = " ".join(self.context.options.values())
        for node in self.facts.each(ast.Assign):
            if len(node.targets) != 1 or node in self.gone:
                continue
            target = node.targets[0]
            if (
                not isinstance(target, ast.Name)
                or not is_pure(node.value)
                or "is_available" not in ast.unparse(node.value)
            ):
                continue
            scope = self.facts.table.of_node[target].resolve(target.id)
            loads = [
                n for n in self.facts.each(ast.Name) if n.id == target.id and isinstance(n.ctx, ast.Load)
            ]
            if (
                loads
                and scope is not None
                and not self._residual(scope, target.id)
                and target.id not in kept.split()
            ):
                self.context.remove(node, "CT105", "nothing uses it any more")


def _give_constructor(context: Context, cls: ast.ClassDef) -> None:
    unit = "\t" if context.lines[cls.body[0].lineno - 1].startswith("\t") else "    "
    code = f"def __init__(self, accelerator):\n{unit}self.accelerator = accelerator"
    first = next((s for s in cls.body if not _is_text(s)), cls.body[-1])
    context.edits.append(e.InsertBefore(first, RULE, "the class needs the accelerator", code=code))
    for site in context.construction_sites(cls):
        accelerator = context.accelerator(site)
        context.edits.append(e.InsertArgument(site, RULE, position=0, code=accelerator))


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _may_be_required(function: FunctionNode, name: str) -> bool:
    """Whether the parameter in the place of `name` needs no default: none before it has one."""
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    required = len(positional) - len(function.args.defaults)
    return name not in positional or positional.index(name) <= required


def _is_next(context: Context, site: ast.Call, function: FunctionNode, name: str) -> bool:
    """Whether one more positional argument at the end of `site` is parameter `name`."""
    if site.keywords or any(isinstance(a, ast.Starred) for a in site.args):
        return False
    method = isinstance(context.facts.table.parents.get(function), ast.ClassDef)
    positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][method:]
    return positional[len(site.args) : len(site.args) + 1] == [name]


def _makes_object(call: ast.Call) -> bool:
    return not ast.unparse(call.func).endswith(("is_available", "format", "is_built"))


PURE = frozenset({"str", "torch.accelerator.current_accelerator"})


def is_pure_device(node: ast.expr) -> bool:
    """`torch.device("cuda" if torch.cuda.is_available() else "cpu")` and its relatives: no effect beyond a value."""
    for inner in walk(node):
        if isinstance(inner, ast.Call):
            name = ast.unparse(inner.func)
            if name not in PURE and not name.endswith(("is_available", "device", "format", "is_built")):
                return False
    return True
