"""Removes imports, helpers, variables and parameters that nothing uses once the distribution is gone.

What the author never used stays: only what the text before used is removed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.facts import Facts, understand
from crosstrain_migrate.facts.observed import Sightings
from crosstrain_migrate.facts.values import Class, Function, Instance, Method
from crosstrain_migrate.rules.arguments import default_of
from crosstrain_migrate.rules.side_effects import does_nothing, effectless, same_code
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode, all_arguments, place_of, written
from crosstrain_migrate.syntax.places import Places
from crosstrain_migrate.syntax.program import modules_of, parse, path_of, read_only
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import statements

from .leftover_aliases import one_name
from .name_uses import Uses
from .reduced_facts import only_takes_away, without

RULE = "CT303"
MAX_ROUNDS = 8
# What may be imported beside its package, and goes when it is not mentioned.
SUBMODULES = (
    *("torch.distributed", "torch.multiprocessing", "torch.utils.data.distributed", "torch.nn.parallel"),
    "torch.cuda.amp",
)


def remove_unused(
    before: str,
    after: str,
    keep: frozenset[str] = frozenset(),
    mapped: frozenset[str] | None = None,
    seen: Sightings | None = None,
) -> tuple[str, Facts]:
    """The text `after` without what only `before` used, and the facts of the result.

    keep: the names of variables that stay. mapped: the files that may change, by their paths in the program, in a script
    that goes on to distribute itself; there, second names of the model that are used in several lines stay, too.
    """
    from crosstrain_migrate.syntax.rewrite import rewrite

    old = Uses(read_only(before))
    facts = understand(parse(after), seen.in_text(after) if seen is not None else None)
    for _ in range(MAX_ROUNDS):
        edits = [
            edit
            for edit in _edits(facts, after, old, keep, 1 if mapped is not None else None)
            if mapped is None or path_of(facts.table.of_node[edit.node].file) in mapped
        ]
        if not edits:
            break
        after = rewrite(after, edits)
        facts = understand(parse(after), seen.in_text(after) if seen is not None else None)
    return after, facts


def _edits(facts: Facts, text: str, old: Uses, keep: frozenset[str], lines: int | None) -> list[e.Edit]:
    """What can be removed at once, including what becomes unused by the first removals."""
    found: list[e.Edit] = []
    ancestors = facts.table.ancestors
    for _ in range(MAX_ROUNDS):
        more = _UnusedCode(facts, text, old, keep, lines).edits()
        if found and any(isinstance(edit.node, ast.Import | ast.ImportFrom) for edit in more):
            break  # the blank lines below imports are only right when the text above them is done
        found += more
        if not more or not all(only_takes_away(edit) for edit in more):
            break
        facts = without(facts, more)
    gone = {edit.node for edit in found if isinstance(edit, e.RemoveStatement)}
    return [edit for edit in found if not any(a in gone for a in ancestors(edit.node))]


class _UnusedCode:
    """Finds what a text no longer uses. old: what the text before used. lines: see `one_name`."""

    def __init__(
        self, facts: Facts, text: str, old: Uses, keep: frozenset[str], lines: int | None = None
    ) -> None:
        self.facts = facts
        self.text = text
        self.old = old
        self.keep = keep
        self.lines = lines
        self.places = Places(text)
        self.now = Uses(facts.tree)
        self.found: list[e.Edit] = []
        self.gone: set[ast.AST] = set()
        self.importers = _importers(facts.tree)

    def edits(self) -> list[e.Edit]:
        """What can be removed at once: statements, else second names, else parameters, else imports."""
        for step in (
            self._empty_blocks,
            self._empty_functions,
            self._functions,
            self._identities,
            self._repeated,
            self._variables,
        ):
            step()
        for later in (self._second_names, self._parameters, self._circular_parameters, self._imports):
            if not self.found:
                later()
        return [x for x in self.found if not any(a in self.gone for a in self.facts.table.ancestors(x.node))]

    def _second_names(self) -> None:
        self.found += one_name(self.facts, self.old.assignments, self._stays, self.lines)

    def _remove(self, node: ast.stmt) -> None:
        if node not in self.gone and not any(a in self.gone for a in self.facts.table.ancestors(node)):
            self.gone.add(node)
            self.found.append(e.RemoveStatement(node, RULE))

    # -- blocks and functions that do nothing any more -------------------------------------------------------

    def _empty_blocks(self) -> None:
        """Removes `if verbose: pass`, and merges branches that are equal now."""
        for node in self.facts.each(ast.If, ast.Try, ast.For):
            if does_nothing(node.body) and _nothing_else(node):
                self._remove(node)
            elif isinstance(node, ast.If) and not self._is_elif(node) and (arms := self._same_branches(node)):
                self.found.append(e.Fold(node, RULE, arms=arms))
                return

    def _same_branches(self, node: ast.If) -> tuple[str, ...]:
        """The fates of the branches of a chain (see `Fold`), if an earlier removal made the last two or all of them equal
        and no comment tells them apart; else nothing."""
        chain, last = [node], node.orelse
        while len(last) == 1 and isinstance(last[0], ast.If) and self._is_elif(last[0]):
            chain.append(last[0])
            last = last[0].orelse
        if not last or not effectless(chain[-1].test) or not same_code(chain[-1].body, last):
            return ()
        lines = self.text.split("\n")[last[0].lineno - 2 : last[-1].end_lineno]
        if any("#" in line for line in lines) or self.old.has_same_branches(chain[-1]):
            return ()
        if all(effectless(arm.test) and same_code(arm.body, last) for arm in chain):
            return ("always", *("drop" for _ in chain))
        return (*("keep" for _ in chain[:-1]), "drop", "keep")

    def _is_elif(self, node: ast.If) -> bool:
        return self.facts.table.is_whole_else(node) and self.places.is_elif(node)

    def _empty_functions(self) -> None:
        for node in self.facts.each(ast.FunctionDef):
            if node.decorator_list or not does_nothing(node.body) or node in self.facts.interp.escaped:
                continue
            if not self.old.by_scope.get(self._path(node)):
                continue
            sites = self.facts.callers.get(node, [])
            parents = [self.facts.table.parents.get(site) for site in sites]
            statements = [parent for parent in parents if isinstance(parent, ast.Expr)]
            if not all(effectless(argument) for site in sites for argument in arguments_of(site)):
                continue
            if len(statements) == len(sites) and isinstance(self.facts.table.parents.get(node), ast.Module):
                for statement in (*statements, node):
                    self._remove(statement)

    def _path(self, node: ast.AST) -> str:
        names = [
            a.name
            for a in (node, *self.facts.table.ancestors(node))
            if isinstance(a, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        if not names:
            return ""
        return path_of(self.facts.table.of_node[node].file) + "".join(f".{n}" for n in reversed(names))

    def _functions(self) -> None:
        """Removes helpers and methods that nothing calls any more."""
        for node in (s for module in modules_of(self.facts.tree) for s in module.body):
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                path = f"{self._path(node)}."
                readers = self.old.read_in.get(node.name, ())
                if self._shared(node, node.name) or all(f"{p}.".startswith(path) for p in readers):
                    continue
                uses = self.facts.names.get(node.name, ())
                if all(self.facts.table.is_inside(use, node) for use in uses):
                    self._remove(node)
        for cls in self.facts.each(ast.ClassDef):
            for node in cls.body if len(cls.body) > 1 else ():
                if isinstance(node, ast.FunctionDef) and self._is_unused_method(node):
                    self._remove(node)

    def _is_unused_method(self, node: ast.FunctionDef) -> bool:
        """Whether a method was called by name before and is not any more."""
        if node.decorator_list or node.name.startswith("__"):
            return False
        return self._is_unused_attribute(node.name)

    # -- variables -------------------------------------------------------------------------------------------

    def _identities(self) -> None:
        """`model = model`"""
        for node in self.facts.each(ast.Assign):
            if len(node.targets) == 1:
                target = node.targets[0]
                named = isinstance(target, ast.Name | ast.Attribute) and isinstance(node.value, type(target))
                if named and written(target) == written(node.value):
                    self._remove(node)

    def _variables(self) -> None:
        """Removes assignments without effects to names and attributes that are no longer read."""
        for node in self.facts.each(ast.Assign):
            if len(node.targets) != 1:
                continue
            target = node.targets[0]
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            forgotten = [part for part in parts if self._is_unused_now(part)]
            if not forgotten or not self._has_no_effect(node.value):
                continue
            if len(forgotten) == len(parts):
                self._remove(node)
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                self._shorten(node, target, node.value, forgotten)

    def _has_no_effect(self, node: ast.expr) -> bool:
        """Whether an expression has no effect. Calls of helpers that only return something have none."""
        if effectless(node):
            return True
        if not isinstance(node, ast.Call) or not all(map(effectless, arguments_of(node))):
            return False
        functions = [v.node for v in self.facts.of(node.func) if isinstance(v, Function)]
        return bool(functions) and all(
            isinstance(f, ast.FunctionDef) and all(map(_only_returns, f.body)) for f in functions
        )

    def _shorten(
        self, node: ast.Assign, target: ast.Tuple, value: ast.Tuple, forgotten: list[ast.expr]
    ) -> None:
        if len(target.elts) == len(value.elts):
            kept = [(t, v) for t, v in zip(target.elts, value.elts, strict=True) if t not in forgotten]
            targets = ", ".join(ast.unparse(t) for t, _ in kept)
            values = ", ".join(self.places.source(v) for _, v in kept)
            self.found.append(e.ReplaceStatement(node, RULE, code=f"{targets} = {values}"))

    def _stays(self, name: ast.Name) -> bool:
        return name.id in self.keep or self._shared(name, name.id)

    def _is_unused_now(self, target: ast.expr) -> bool:
        if written(target).split(".")[-1] in self.keep:
            return False
        if isinstance(target, ast.Attribute):
            return self._is_unused_attribute(target.attr) and not self._is_shown_whole(target.value)
        if not isinstance(target, ast.Name):
            return False
        scope = self.facts.table.of_node[target].resolve(target.id)
        if scope is None or (scope.parent is None and self._shared(target, target.id)):
            return False
        if isinstance(scope.node, ast.ClassDef) and not self._is_unused_attribute(target.id):
            return False  # read as an attribute, of the class or of its objects
        return self._was_read(scope, target.id) and not self._is_read(scope, target.id)

    def _is_unused_attribute(self, name: str) -> bool:
        return name in self.old.attributes and not self._attribute_read(name)

    def _is_shown_whole(self, owner: ast.expr) -> bool:
        """`print(args)`: whether an object is shown or passed on as a whole, so that all of its attributes count as used."""
        for node in self._mentions.get(written(owner), ()):
            parent = self.facts.table.parents.get(node)
            if isinstance(parent, ast.FormattedValue):
                return True
            if isinstance(parent, ast.Call) and parent.func is not node:
                values = self.facts.of(parent.func)
                if not values or not all(isinstance(v, Function | Method | Class) for v in values):
                    return True
        return False

    @cached_property
    def _mentions(self) -> dict[str, list[ast.AST]]:
        """The places of every name and dotted name, by its spelling."""
        found: dict[str, list[ast.AST]] = defaultdict(list)
        for node in self.facts.nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                found[written(node)].append(node)
        return found

    def _was_read(self, scope: Scope, name: str) -> bool:
        return name in self.old.by_scope.get(self._path(scope.node), set())

    def _is_read(self, scope: Scope, name: str) -> bool:
        return any(isinstance(n.ctx, ast.Load) for n in self.facts.mentions(scope, name))

    def _attribute_read(self, name: str) -> bool:
        return name in self.now.attributes or (name in self._texts and self._asks_by_name)

    @cached_property
    def _texts(self) -> frozenset[str]:
        values = (node.value for node in self.facts.each(ast.Constant))
        return frozenset(value for value in values if isinstance(value, str))

    @cached_property
    def _asks_by_name(self) -> bool:
        return any(self.facts.names.get(name) for name in ("getattr", "vars", "asdict"))

    def _repeated(self) -> None:
        """Removes the second `self.model = model` where a wrapper stood between the two."""
        for node in self.facts.each(ast.stmt, ast.mod, ast.excepthandler, ast.match_case):
            for suite in (getattr(node, "body", None), getattr(node, "orelse", None)):
                if isinstance(suite, list):
                    self._repeated_in(suite)

    def _repeated_in(self, suite: list[ast.stmt]) -> None:
        since: set[str] = set()  # plain assignments that nothing has touched since
        for statement in suite:
            value = statement.value if isinstance(statement, ast.Assign) else None
            if not isinstance(statement, ast.Assign) or not isinstance(value, ast.Name | ast.Attribute):
                since.clear()
                continue
            text = ast.unparse(statement)
            if text in since and self.old.assignments[text] < 2:
                self._remove(statement)
            stored = {ast.unparse(t) for t in statement.targets}
            since = {s for s in since if not stored & set(s.split(" = "))} | {text}

    # -- parameters ------------------------------------------------------------------------------------------

    def _parameters(self) -> None:
        """Removes parameters that their function no longer reads, if their arguments have no effect."""
        for function in self._functions_in_place():
            scope = self.facts.table.scopes[function]
            stars = (function.args.vararg, function.args.kwarg)
            unread = (
                argument
                for argument in all_arguments(function)
                if argument.arg not in {"self", "cls"}
                and argument not in stars
                and self._was_read(scope, argument.arg)
                and not self._is_read(scope, argument.arg)
            )
            for argument in unread:
                if self._drop(function, argument):
                    break  # one of each function at a time

    def _functions_in_place(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions that nothing has taken away yet, and all of whose calls are seen."""
        return [
            node
            for node in self.facts.table.scopes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node in self._in_place
            and node not in self.facts.interp.escaped
        ]

    @cached_property
    def _in_place(self) -> frozenset[ast.AST]:
        return frozenset(self.facts.nodes)

    def _drop(self, function: FunctionNode, argument: ast.arg) -> bool:
        sites = self._sites(function)
        if not sites:
            return False
        edits: list[e.Edit] = [e.ReplaceParameter(function, RULE, name=argument.arg)]
        for site in sites:
            value = self.facts.passed(site, function, argument.arg)
            if value is None:
                if default_of(function, argument) is None or any(k.arg is None for k in site.keywords):
                    return False
                continue
            if not effectless(value):
                return False
            edits.append(e.RemoveArgument(site, RULE, argument=value))
        self.found.extend(edits)
        return True

    def _circular_parameters(self) -> None:
        """Removes a parameter that only sets an attribute which is only passed to that parameter: `args.gpu = gpu`."""
        for function in self._functions_in_place():
            for argument in function.args.args:
                stores = self._kept_in(function, argument.arg)
                reads = self._only_given_on(stores)
                given = {self.facts.passed(s, function, argument.arg) for s in self._sites(function)}
                if reads and given == set(reads):
                    for store in stores:
                        self._remove(store)
                    self._drop(function, argument)
                    return

    def _kept_in(self, function: FunctionNode, name: str) -> list[ast.Assign]:
        """The assignments of a parameter to one attribute, if it is used for nothing else."""
        loads = self._loads.get((function, name), [])
        parents = [self.facts.table.parents.get(n) for n in loads]
        stores = [p for p in parents if isinstance(p, ast.Assign) and isinstance(p.targets[0], ast.Attribute)]
        targets = {ast.unparse(s.targets[0]) for s in stores if len(s.targets) == 1}
        return stores if len(stores) == len(loads) and len(targets) == 1 else []

    @cached_property
    def _loads(self) -> dict[tuple[ast.AST, str], list[ast.Name]]:
        """The reads of each parameter's name in each function, those in functions inside it too."""
        found: dict[tuple[ast.AST, str], list[ast.Name]] = defaultdict(list)
        parameters = {argument.arg for argument in self.facts.each(ast.arg)}
        for node in self.facts.each(ast.Name):
            if node.id in parameters and isinstance(node.ctx, ast.Load):
                for around in self.facts.table.ancestors(node):
                    if isinstance(around, FunctionNode):
                        found[around, node.id].append(node)
        return found

    def _only_given_on(self, stores: list[ast.Assign]) -> list[ast.AST]:
        """The reads of the attribute that these assignments fill, if each of them is an argument of a call."""
        target = stores[0].targets[0] if stores else None
        if not isinstance(target, ast.Attribute):
            return []
        named = (n for n in self.facts.each(ast.Attribute) if n.attr == target.attr)
        reads: list[ast.AST] = [n for n in named if isinstance(n.ctx, ast.Load)]
        if not all(isinstance(self.facts.table.parents[r], ast.Call | ast.keyword) for r in reads):
            return []
        return [] if target.attr in self._texts or self._is_shown_whole(target.value) else reads

    def _sites(self, function: FunctionNode) -> list[ast.Call]:
        """The calls of a function that nothing has taken away yet; of a constructor, where its objects are made."""
        cls, sites = self.facts.table.parents.get(function), self.facts.callers.get(function, [])
        if isinstance(cls, ast.ClassDef) and getattr(function, "name", "") == "__init__":
            bases = (v for c in self.facts.each(ast.ClassDef) for b in c.bases for v in self.facts.of(b))
            if any(isinstance(v, Class) and v.node is cls for v in bases):
                return []
            instances = (v for v in self.facts.all_values if isinstance(v, Instance) and v.cls is cls)
            sites = sorted({v.site for v in instances if isinstance(v.site, ast.Call)}, key=place_of)
        return [site for site in sites if site in self._in_place]

    # -- imports ---------------------------------------------------------------------------------------------

    def _imports(self) -> None:
        for node in self.facts.each(ast.Import, ast.ImportFrom):
            kept = [a for a in node.names if not self._dropped(node, a)]
            if not kept:
                self._remove(node)
            elif len(kept) < len(node.names):
                names = ", ".join(f"{a.name} as {a.asname}" if a.asname else a.name for a in kept)
                head = (
                    f"from {'.' * node.level}{node.module or ''} " if isinstance(node, ast.ImportFrom) else ""
                )
                self.found.append(e.ReplaceStatement(node, RULE, code=f"{head}import {names}"))

    def _dropped(self, node: ast.Import | ast.ImportFrom, alias: ast.alias) -> bool:
        bound = alias.asname or alias.name.split(".")[0]
        file = self._file(node)
        if bound in self.now.by_file[file]:
            return isinstance(node, ast.Import) and not alias.asname and self._submodule_unused(alias.name)
        return bound in self.old.by_file.get(file, set()) and not self._shared(node, bound)

    def _file(self, node: ast.AST) -> str:
        return path_of(self.facts.table.of_node[node].file)

    def _shared(self, node: ast.AST, name: str) -> bool:
        """Whether another file of the program may use what `node` binds at the top of its own."""
        others = self.importers.get(name, set()) - {self._file(node)}
        return bool(others) or (len(self.now.by_file) > 1 and name in self.now.attributes)

    def _submodule_unused(self, name: str) -> bool:
        """`import torch.distributed` beside `import torch`, when `torch.distributed` is mentioned nowhere."""
        package = name.split(".")[0]
        aliases = (alias for node in self.facts.each(ast.Import) for alias in node.names)
        others = [a for a in aliases if a.name != name and not a.asname and a.name.split(".")[0] == package]
        if not others or not name.startswith(SUBMODULES):
            return False
        return not any(written(n).startswith(name) for n in self.facts.each(ast.Attribute))


def _only_returns(statement: ast.stmt) -> bool:
    """Whether a statement does nothing, or returns what has no effect."""
    if isinstance(statement, ast.Return):
        return statement.value is None or effectless(statement.value)
    return does_nothing([statement])


def _importers(tree: ast.Module) -> dict[str, set[str]]:
    """The files of a program that import a name from somewhere."""
    found: dict[str, set[str]] = {}
    for module in modules_of(tree):
        for node in statements(module):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found.setdefault(alias.name, set()).add(path_of(module))
    return found


def _nothing_else(node: ast.If | ast.Try | ast.For) -> bool:
    if isinstance(node, ast.For):
        return not node.orelse and effectless(node.iter)
    if isinstance(node, ast.Try):
        return not node.orelse and not node.finalbody
    return does_nothing(node.orelse) and effectless(node.test)
