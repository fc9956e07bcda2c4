"""For CT105: devices that another file chose, and what is unused once the launcher chooses.

What:   Uses of a device that a module of the project made at its top level become the accelerator's device. Helper
        functions that only chose a device, and imports whose every use is gone, go.
Why:    The process uses its own device, and no unused code stays.
Before: `from config import device`
After:  (gone)
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Class, External, Function, Symbol, Unknown
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.program import LOCAL
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .cpu_choice import names_ordinal
from .device import Placement

RULE = "CT105"


def replace_imported(context: Context, placement: Placement) -> None:
    """Replaces uses of devices from files that see no accelerator, and from the bodies of classes, by the accelerator's
    device."""
    table = context.facts.table
    for definition in context.device_definitions:
        scope = table.of_node[definition]
        if not in_class(scope) and (scope.parent is not None or context.home.is_global_in(scope)):
            continue
        for use in uses_of(context.facts, definition):
            if use in placement.gone:
                continue
            if not context.has_device(use):
                _keep(context, definition, use)
                continue
            placement.gone.update(walk(use))
            context.replace(use, RULE, "the process's own device", context.device(use))


def _keep(context: Context, definition: ast.Assign, use: ast.expr) -> None:
    """Keeps a use that no accelerator can reach: "cuda" without a number still is the process's own GPU."""
    if any(names_ordinal(n) for n in walk(definition.value)):
        raise refuse(
            RULE,
            use,
            f"`{ast.unparse(use)}` is a GPU chosen by its number, and no accelerator reaches this place",
            "hand the device in as a parameter",
        )
    context.note(
        RULE,
        use,
        f"`{ast.unparse(use)}` stays the device that its own file chose: no accelerator reaches this place",
        "hand the device in as a parameter if the script is to train on anything but CUDA or the CPU",
    )


def in_class(scope: Scope) -> bool:
    """Whether a variable of this scope is read as an attribute: `Config.device`."""
    return isinstance(scope.node, ast.ClassDef)


def uses_of(facts: Facts, definition: ast.Assign) -> list[ast.expr]:
    """Names and attributes that read the variable itself, in any file; not variables that its value was passed to."""
    made = {v for v in facts.of(definition.value) if isinstance(v, External) and v.path == "torch.device"}
    target = definition.targets[0]
    if not isinstance(target, ast.Name):
        return []
    if in_class(facts.table.of_node[definition]):
        return _uses_in_class(facts, definition, target.id)
    reads = (n for n in facts.each(ast.Name, ast.Attribute) if isinstance(n.ctx, ast.Load))
    return [node for node in reads if facts.of(node) & made and _is_of_a_file(facts, node)]


def _is_of_a_file(facts: Facts, node: ast.Name | ast.Attribute) -> bool:
    """Whether a variable of a file's top level is read: by its name, or as an attribute of the module."""
    if isinstance(node, ast.Attribute):
        owner = facts.of(node.value)
        return any(isinstance(v, Symbol) and v.path.startswith(LOCAL) for v in owner)
    scope = facts.table.of_node[node].resolve(node.id)
    return scope is not None and scope.parent is None


def _uses_in_class(facts: Facts, definition: ast.Assign, name: str) -> list[ast.expr]:
    scope = facts.table.of_node[definition]
    attributes = [node for node in attribute_reads(facts, name) if _means(facts, node, definition)]
    return [*attributes, *(node for node in facts.mentions(scope, name) if isinstance(node.ctx, ast.Load))]


def _means(facts: Facts, node: ast.Attribute, definition: ast.Assign) -> bool:
    """Whether an attribute is what the definition made, and nothing else."""
    found, made = facts.of(node), facts.of(definition.value)
    return found <= made and any(isinstance(v, External) for v in found)


def is_read_by_others(facts: Facts, definition: ast.Assign) -> bool:
    """Whether the variable may be read from an object that is perhaps the class and perhaps something else."""
    target = definition.targets[0]
    made = {v for v in facts.of(definition.value) if isinstance(v, External)}
    return isinstance(target, ast.Name) and any(
        any(isinstance(v, Unknown) for v in facts.of(node.value))
        or (facts.of(node) & made and not _means(facts, node, definition))
        for node in attribute_reads(facts, target.id)
    )


def attribute_reads(facts: Facts, name: str) -> list[ast.Attribute]:
    return [n for n in facts.each(ast.Attribute) if n.attr == name and isinstance(n.ctx, ast.Load)]


class UnusedDevices:
    """Plans the removal of what only served removed code."""

    def __init__(self, context: Context, placement: Placement) -> None:
        self.context = context
        self.facts = context.facts
        self.gone = placement.gone

    def plan(self) -> None:
        self.gone |= self._replaced()
        self._definitions()
        helpers = self._helpers()
        self._imports()
        for function in helpers:
            self.context.remove(function, RULE, "nothing asks it for a device any more")
        self._imports()

    def _replaced(self) -> set[ast.AST]:
        """The nodes that other expressions replace."""
        found: set[ast.AST] = set()
        for edit in self.context.edits:
            if isinstance(edit, e.Replace):
                kept = {n for hole in edit.holes.values() for n in walk(hole)}
                found |= set(walk(edit.node)) - kept
        return found

    def _definitions(self) -> None:
        """Top-level devices of other files that nothing uses now."""
        for node in self.context.device_definitions:
            scope = self.facts.table.of_node[node]
            if node in self.gone or scope.parent is not None or self.context.home.is_global_in(scope):
                continue
            if any(isinstance(target, ast.Attribute) for target in node.targets):
                continue  # `args.device`: see DeviceDefinitions.drop_unread_attributes
            if all(use in self.gone for use in uses_of(self.facts, node)):
                if _reads_options(node.value):
                    self._report_lost_options(node)
                self.gone.update(walk(node))
                self.context.remove(node, RULE, "nothing uses this device any more")

    def _helpers(self) -> list[ast.FunctionDef]:
        """Functions that returned a device to removed code, and to nothing else."""
        found = []
        for function, sites in self.facts.callers.items():
            if not isinstance(function, ast.FunctionDef) or function in self.facts.interp.escaped:
                continue
            if not self._only_devices(function) or not all(site in self.gone for site in sites):
                continue
            for site in sites:
                if arguments_of(site):
                    self._report_lost_options(site)
            if not function.decorator_list and not self._mentioned(function):
                found.append(function)
                self.gone.update(walk(function))
        return found

    def _only_devices(self, function: ast.FunctionDef) -> bool:
        values = self.facts.interp.returns.get(function, ())
        devices = [v for v in values if isinstance(v, External) and v.path == "torch.device"]
        return bool(devices) and isinstance(self.facts.table.parents.get(function), ast.Module)

    def _mentioned(self, function: ast.FunctionDef) -> bool:
        """Whether a use, an import that other files may rely on, or an entry of `__all__` is left."""
        facts, value = self.facts, Function(function)
        uses = (n for n in facts.each(ast.Name, ast.Attribute) if isinstance(n.ctx, ast.Load))
        imports = (a for a in facts.each(ast.alias) if value in facts.interp.definitions.get(a, ()))
        return (
            any(value in facts.of(n) for n in uses if n not in self.gone)
            or not all(self._is_forgotten(alias) for alias in imports)
            or any(n.value == function.name for n in facts.each(ast.Constant))
        )

    def _report_lost_options(self, place: ast.AST) -> None:
        self.context.note(
            RULE,
            place,
            "the code that chose the device here had options of its own, which have no effect any more: the launcher chooses",
            "use `crosstrain launch --cpu` (or --gpu-ids) in their place",
        )

    # -- imports ---------------------------------------------------------------------------------------------

    def _imports(self) -> None:
        for node in self.facts.each(ast.Import, ast.ImportFrom):
            if node in self.gone:
                continue
            forgotten = [a for a in node.names if a not in self.gone and self._is_forgotten(a)]
            self.gone.update(forgotten)
            if not forgotten:
                continue
            if not all(a in self.gone for a in node.names):
                for alias in forgotten if isinstance(node, ast.ImportFrom) else ():
                    self.context.edits.append(e.RemoveImport(node, RULE, name=alias.asname or alias.name))
                continue
            self.context.edits[:] = [x for x in self.context.edits if x.node is not node]
            if self._only_binds(node):
                self.context.remove(node, RULE)
                self.gone.add(node)
            elif isinstance(node, ast.ImportFrom) and any(self._is_removed(a) for a in node.names):
                self.context.edits.append(e.ReplaceStatement(node, RULE, code=_for_its_effects(node)))

    def _is_removed(self, alias: ast.alias) -> bool:
        """Whether the function or class that is imported has gone."""
        values = self.facts.interp.definitions.get(alias, ())
        return any(isinstance(v, Function | Class) and v.node in self.gone for v in values)

    def _only_binds(self, node: ast.Import | ast.ImportFrom) -> bool:
        """Whether importing the modules has no effect: no call at their top level may register or set something."""
        interp = self.facts.interp
        if isinstance(node, ast.ImportFrom):
            names, level = [node.module or ""], node.level
        else:
            names, level = [alias.name for alias in node.names], 0
        if not level and all(name.split(".")[0] == "torch" for name in names):
            return True
        paths = [interp.linked(node, level, name) for name in names]
        files = [interp.links.region(path) for path in paths]
        return all(file is not None and not any(_calls(s) for s in file.body) for file in files)

    def _is_forgotten(self, alias: ast.alias) -> bool:
        """Whether the import gave something that was used, and every use of it is gone."""
        if not self._may_go(alias):
            return False
        name = alias.asname or alias.name.split(".")[0]
        scope = self.facts.table.of_node[alias].resolve(name)
        if scope is None or self._is_imported(scope, name):
            return False
        uses = self.facts.mentions(scope, name)
        return bool(uses) and all(n in self.gone for n in uses) and not self._is_written(name)

    def _is_written(self, name: str) -> bool:
        """Whether new code says `name`."""
        mention = re.compile(rf"(?<![.\w]){re.escape(name)}\b")
        texts = (getattr(x, field, "") for x in self.context.edits for field in ("template", "code"))
        return any(map(mention.search, texts))

    def _may_go(self, alias: ast.alias) -> bool:
        values = self.facts.interp.definitions.get(alias, ())
        return any(
            isinstance(v, Function | Class | External)
            or (isinstance(v, Symbol) and (v.path.startswith((LOCAL, "torch.")) or v.path == "torch"))
            for v in values
        )

    def _is_imported(self, scope: Scope, name: str) -> bool:
        """Whether another file of the program takes `name` from here."""
        interp = self.facts.interp
        for node in self.facts.taken_from_files.get(name, ()):
            if isinstance(node, ast.ImportFrom):
                paths = [interp.linked(node, node.level, node.module or "")]
            else:
                owners = (v.path for v in self.facts.of(node.value) if isinstance(v, Symbol))
                paths = [path.removeprefix(LOCAL) for path in owners if path.startswith(LOCAL)]
            if any(interp.links.region(path) is scope.file for path in paths):
                return True
        return False


def _reads_options(choice: ast.expr) -> bool:
    """Whether the choice of a device depends on more than on what the machine has."""
    names = (n for n in walk(choice) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    return any(name.id not in {"torch", "str", "bool", "int", "print"} for name in names)


def _for_its_effects(node: ast.ImportFrom) -> str:
    """The import of a module that is still run, of which nothing is used any more."""
    package, _, name = ("." * node.level + (node.module or "")).rpartition(".")
    if not node.level:
        return f"import {node.module}"
    return f"from {package if package.strip('.') else package + '.'} import {name}"


def _calls(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
