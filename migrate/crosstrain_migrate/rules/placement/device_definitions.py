"""For CT105: what becomes of statements that choose a device, and of variables that only say whether there is a GPU."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.side_effects import is_pure
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

from . import cpu_choice, moves
from .construction import construct
from .device import OTHER, Placement
from .device_choices import Choice, find_choices
from .devices import default_statement
from .unused_devices import attribute_reads, in_class, is_read_by_others, uses_of

# Calls in the choice of a device that have no effect beyond their value.
PURE = frozenset({"str", "torch.accelerator.current_accelerator"})
PURE_ENDS = ("is_available", "device", "format", "is_built")
TEXTS = ast.Compare | ast.FormattedValue | ast.Subscript | ast.Attribute | ast.BinOp
UNUSED = "nothing uses this device any more"


class DeviceDefinitions:
    """The definitions of a script: each becomes the Accelerator's device, or goes if nothing uses it any more."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.context = placement.context
        self.facts = placement.facts
        self.gone = placement.gone
        self.unread_attributes: set[ast.Assign] = set()

    def drop_unread_attributes(self) -> None:
        """Finds each `self.device = device` whose every use is gone."""
        for node in self.facts.each(ast.Assign):
            target = node.targets[0]
            if len(node.targets) != 1 or not isinstance(target, ast.Attribute) or node in self.gone:
                continue
            if self.placement.devices.is_device(node.value) and not self._is_attribute_read(node, target):
                self.unread_attributes.add(node)
                self.gone.update(walk(node))

    def _is_attribute_read(self, node: ast.Assign, target: ast.Attribute) -> bool:
        default = default_statement(self.facts, node)
        asked = set(walk(default.test)) if default is not None else set()
        reads = [n for n in attribute_reads(self.facts, target.attr) if n not in asked and n not in self.gone]
        is_device = self.placement.devices.is_device
        return any(is_device(n) or ast.unparse(n) == ast.unparse(target) for n in reads)

    def ask_for_the_accelerator(self) -> None:
        """Hands the accelerator to each function that chooses a device of its own, if that device is still used."""
        for node in self.context.device_definitions:
            goes = self._is_unused(node) or self._restates(node)
            if not goes and self._becomes_the_accelerators(node):
                self.context.device(node)
        for choice in self._choices():
            if self.placement.reads_left_of(choice.name) and self.context.reachable(choice.statement):
                self.context.holder(choice.statement)

    def _choices(self) -> list[Choice]:
        return find_choices(self.facts, self.placement, self.context.lines)

    def plan(self) -> None:
        """Decides on every definition, then makes the Accelerator with the options that they set."""
        main = self._main_definition()
        if main is not None:
            self._obey(cpu_choice.cpu_option(self.context, main))
        else:
            guards = moves.guards_of_models(self.context, self.placement)
            self._obey(cpu_choice.of_guards(self.context, guards))
        in_place_of = self._fold_choices()
        if "cpu" not in self.context.options:
            self._obey(cpu_choice.of_overrides(self.context, self.context.device_definitions))
        for node in self.context.device_definitions:
            if self._is_mere_text(node) or self._is_of_another_file(node):
                continue
            if node is not main:
                cpu_choice.check_other(self.context, node)
            if not self._is_unused(node):
                self._take_accelerators(node)
                continue
            self.gone.update(walk(node))
            if node is self.context.home.statement:
                in_place_of = node
            else:
                self.context.remove(default_statement(self.facts, node) or node, OTHER, UNUSED)
        if self.context.requested.mapped and self._asks_processes(self.context.options.get("cpu", "")):
            # A script that tells one process from several does not ask for the CPU.
            del self.context.options["cpu"]
        for stored in sorted(self.unread_attributes - {*self.context.device_definitions}, key=line_of):
            self.context.remove(stored, OTHER, UNUSED)
        construct(self.context, in_place_of)
        self._drop_unread_tests()

    def _main_definition(self) -> ast.Assign | None:
        """The choice that `cpu=` obeys: the first in the scope of the Accelerator, or in any; if there is none, a
        command-line option to which something was moved."""
        found, options = self.context.device_definitions, self.placement.options
        mine = [d for d in found if self.facts.table.of_node[d] is self.context.home.scope]
        if not found and options:
            return ast.Assign([], next((o for o in options if isinstance(o, ast.Attribute)), options[0]))
        return next(iter(mine or found), None)

    def _obey(self, option: str | None) -> None:
        """Sets `cpu=` of the Accelerator, unless an earlier choice has."""
        if option is not None:
            self.context.options = {"cpu": option, **self.context.options}

    def _take_accelerators(self, node: ast.Assign) -> None:
        if self._restates(node):
            self.gone.update(walk(node))
            self.context.remove(node, OTHER, "it is a torch.device already")
        elif self._becomes_the_accelerators(node):
            kind = ".type" if self._is_read_as_text(node) else ""
            own = f"{self.context.device(node)}{kind}"
            self.context.replace(node.value, OTHER, "the process's own device", own)
            self.gone.update(walk(node.value))

    def _asks_processes(self, test: str) -> bool:
        """Whether a test reads a variable that says how many processes there are."""
        names = {n.id for n in walk(ast.parse(test)) if isinstance(n, ast.Name)}
        stores = (s for s in self.facts.each(ast.Assign) if any(ast.unparse(t) in names for t in s.targets))
        said = (ast.unparse(statement.value) for statement in stores)
        return any(word in value for value in said for word in ("PartialState()", "environ", "getenv"))

    # -- a choice written as an `if` statement ---------------------------------------------------------------

    def _fold_choices(self) -> ast.Assign | None:
        """Folds each such choice into one statement. Returns the branch that becomes the Accelerator, if one does."""
        found: ast.Assign | None = None
        for choice in self._choices():
            if not self.context.reachable(choice.statement):
                continue
            definitions = self.context.device_definitions
            definitions[:] = [d for d in definitions if d not in choice.bindings]
            chosen = ast.Assign([choice.name], choice.as_expression)
            self._obey(cpu_choice.cpu_option(self.context, chosen))
            folded = self._fold(choice, bool(self.placement.reads_left_of(choice.name)))
            found = found or folded
        return found

    def _fold(self, choice: Choice, used: bool) -> ast.Assign | None:
        """Keeps only the first branch. Returns it if it becomes the Accelerator."""
        first, home = choice.bindings[0], self.context.home
        reason = "the launcher chooses the device"
        accelerator = self.context.holder(choice.statement)
        if choice.default is not None:
            self.context.remove(choice.default, OTHER, reason)
            self.gone.update(walk(choice.default))
        self.gone.update(walk(choice.statement))
        at_home = home.statement is choice.statement
        if not at_home and not used:
            self.context.remove(choice.statement, OTHER, reason)
            return None
        arms = ("always", *("drop" for _ in choice.bindings[1:]))
        self.context.edits.append(e.Fold(choice.statement, OTHER, reason, arms=arms))
        if not at_home:
            self.context.replace(first.value, OTHER, "", f"{accelerator}.device")
            return None
        if used:
            code = f"{choice.name.id} = {accelerator}.device"
            self.context.edits.append(e.InsertAfter(first, OTHER, code=code))
        home.statement = first
        return first

    # -- what a definition is --------------------------------------------------------------------------------

    def _becomes_the_accelerators(self, node: ast.Assign) -> bool:
        if self._is_mere_text(node) or self._is_of_another_file(node):
            return False
        return self.context.has_device(node) and not in_class(self.facts.table.of_node[node])

    def _is_of_another_file(self, node: ast.stmt) -> bool:
        """Whether a statement stands at the top level of a file that has no accelerator."""
        scope = self.facts.table.of_node[node]
        return scope.parent is None and not self.context.home.is_global_in(scope)

    def _is_unused(self, node: ast.Assign) -> bool:
        if node in self.unread_attributes:
            return True
        target = node.targets[0]
        if not isinstance(target, ast.Name) or not _is_pure_device(node.value):
            return False
        if in_class(self.facts.table.of_node[target]):
            unread = all(use in self.gone for use in uses_of(self.facts, node))
            return unread and not is_read_by_others(self.facts, node)
        return not self.placement.reads_left_of(target)

    def _restates(self, node: ast.Assign) -> bool:
        """`device = torch.device(device)`, of another definition that becomes the accelerator's."""
        names = [n for n in walk(node.value) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        mine = [n for n in names if ast.unparse(n) == ast.unparse(node.targets[0])]
        made = {self.facts.table.statement_of(d) for n in mine for d in self.facts.bindings(n)}
        others = {d for d in self.context.device_definitions if not self._is_read_as_text(d)} - {node}
        return len(mine) == 1 and bool(made) and made <= others and _is_pure_device(node.value)

    def _is_mere_text(self, node: ast.Assign) -> bool:
        """Whether it is text that nothing reads, such as `backend = "cuda"`, and so perhaps no device at all."""
        target = node.targets[0]
        constant = isinstance(node.value, ast.Constant) and isinstance(target, ast.Name)
        return constant and isinstance(target, ast.Name) and not self._is_name_read(target.id)

    def _is_name_read(self, name: str) -> bool:
        return any(isinstance(n.ctx, ast.Load) for n in self.facts.names.get(name, ()))

    def _is_read_as_text(self, node: ast.Assign) -> bool:
        """Whether it is a string, in a variable that is compared, sliced or printed as one."""
        target = node.targets[0]
        makes_object = any(isinstance(n, ast.Call) and _makes_object(n) for n in walk(node.value))
        if makes_object or not isinstance(target, ast.Name):
            return False
        parents = [self.facts.table.parents[use] for use in self.placement.reads_left_of(target)]
        calls = (p for p in parents if isinstance(p, ast.Call))
        printed = any("builtins.print" in self.facts.paths(call.func) for call in calls)
        return printed or any(isinstance(p, TEXTS) for p in parents)

    # -- what only asked for a GPU ---------------------------------------------------------------------------

    def _drop_unread_tests(self) -> None:
        """Removes variables such as `use_cuda` whose every use is gone."""
        kept = " ".join(self.context.options.values()).split()
        for node in self.facts.each(ast.Assign):
            target = node.targets[0]
            if len(node.targets) != 1 or not isinstance(target, ast.Name) or node in self.gone:
                continue
            asks = is_pure(node.value) and "is_available" in ast.unparse(node.value)
            unread = self._is_name_read(target.id) and not self.placement.reads_left_of(target)
            if asks and unread and target.id not in kept:
                self.context.remove(node, OTHER, "nothing uses it any more")


def _makes_object(call: ast.Call) -> bool:
    return not ast.unparse(call.func).endswith(("is_available", "format", "is_built"))


def _is_pure_device(node: ast.expr) -> bool:
    """`torch.device("cuda" if torch.cuda.is_available() else "cpu")` and its relatives: no effect beyond a value."""
    called = [ast.unparse(n.func) for n in walk(node) if isinstance(n, ast.Call)]
    return all(name in PURE or name.endswith(PURE_ENDS) for name in called)
