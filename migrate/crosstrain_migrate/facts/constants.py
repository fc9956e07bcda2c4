"""Which options are constants, and which branches on them are never taken.

A loss of the script's own often branches on `self.reduction`: what it returns is known once that is. Told from the text
alone: an attribute that only the constructor sets, a parameter of which every call is seen.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.scopes import ScopeTable, suites
from crosstrain_migrate.syntax.walks import walk

from .arguments import keyword_of

Constant = str | bool | int | float | None
KnownValues = frozenset[Constant]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_HAVE_SUITES = (ast.stmt, ast.mod, ast.excepthandler, ast.match_case)
MAX_DEPTH = 4  # constants handed on through calls


class Constants:
    """`known` tells what an expression may be, `decided` what a test says, `dead` which statements never run."""

    def __init__(self, tree: ast.Module, table: ScopeTable) -> None:
        self._table = table
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._stores: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._set: dict[ast.AST, set[str]] = {}  # function -> names it assigns
        self._escaped: set[str] = set()  # names of functions and classes that are used as values
        nodes = walk(tree)
        self._find_uses(nodes)
        self.dead: set[ast.stmt] = set()
        for node in nodes:
            for suite in suites(node) if isinstance(node, _HAVE_SUITES) else ():
                self._find_dead(suite)

    def _find_uses(self, nodes: list[ast.AST]) -> None:
        called: set[ast.AST] = set()
        for node in nodes:
            if isinstance(node, ast.Constant):
                continue
            if isinstance(node, ast.Call):
                called.add(node.func)
                name = last_name(node.func)
                self._calls[name].append(node)
                if name == "super":
                    called.update(node.args)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
                self._stores[node.attr].append(node)
            elif isinstance(node, ast.Name | ast.Attribute) and node not in called:
                self._escaped.add(last_name(node))

    # -- values ----------------------------------------------------------------------------------------------

    def known(self, node: ast.expr | None, depth: int = 0) -> KnownValues | None:
        """The constants that `node` may be; None where it may be something else."""
        if isinstance(node, ast.Constant):
            value = node.value
            return frozenset({value}) if isinstance(value, str | bool | int | float | None) else None
        if node is None or depth > MAX_DEPTH:
            return None
        if isinstance(node, ast.Name):
            return self._of_parameter(node, depth)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._of_attribute(node, depth)
        return None

    def _of_parameter(self, name: ast.Name, depth: int) -> KnownValues | None:
        function = self._table.function_around(name)
        scope = self._table.of_node[name].resolve(name.id)
        if function is None or scope is None or scope.node is not function:
            return None
        if name.id in self._set_in(function):
            return None
        return self._given(function, name.id, depth)

    def _set_in(self, function: Function) -> set[str]:
        """The names that are assigned or deleted in a function."""
        if function not in self._set:
            names = (n for n in walk(function) if isinstance(n, ast.Name))
            self._set[function] = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        return self._set[function]

    def _of_attribute(self, node: ast.Attribute, depth: int) -> KnownValues | None:
        """`self.reduction`, set once, in the constructor."""
        cls = next((a for a in self._table.ancestors(node) if isinstance(a, ast.ClassDef)), None)
        stores = self._stores[node.attr]
        if cls is None or len(stores) != 1 or written(stores[0]) != written(node):
            return None
        function = self._table.function_around(stores[0])
        if function is None or function.name != "__init__" or self._table.parents[function] is not cls:
            return None
        return self.known(self._stored(stores[0]), depth + 1)

    def _stored(self, target: ast.Attribute) -> ast.expr | None:
        statement = self._table.statement_of(target)
        if not isinstance(statement, ast.Assign) or self._table.parents[
            statement
        ] is not self._table.function_around(target):
            return None  # set in a branch
        for one in statement.targets:
            if one is target:
                return statement.value
            if isinstance(one, ast.Tuple) and isinstance(statement.value, ast.Tuple) and target in one.elts:
                given = statement.value.elts
                return given[one.elts.index(target)] if len(given) == len(one.elts) else None
        return None

    def _given(self, function: Function, name: str, depth: int) -> KnownValues | None:
        """What every call gives for a parameter, its default included."""
        called, skipped = self._called_as(function)
        if called in self._escaped or not self._calls[called] or function.decorator_list:
            return None  # a decorator may call it with what a command line says
        positional = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        found: set[Constant] = set()
        for call in self._calls[called]:
            known = self.known(self._argument(call, function, positional, name, skipped), depth + 1)
            if known is None:
                return None
            found |= known
        return frozenset(found)

    def _called_as(self, function: Function) -> tuple[str, int]:
        """The name that calls of it use, and how many of its parameters they do not give."""
        parent = self._table.parents.get(function)
        if not isinstance(parent, ast.ClassDef):
            return function.name, 0
        return (parent.name if function.name == "__init__" else function.name), 1

    @staticmethod
    def _argument(
        call: ast.Call, function: Function, positional: list[str], name: str, skipped: int
    ) -> ast.expr | None:
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return None
        keyword = keyword_of(call, name)
        if keyword is not None:
            return keyword
        position = positional.index(name) - skipped if name in positional else -1
        if 0 <= position < len(call.args):
            return call.args[position]
        defaults = dict(zip(reversed(positional), reversed(function.args.defaults), strict=False))
        only = zip((a.arg for a in function.args.kwonlyargs), function.args.kw_defaults, strict=True)
        return {**defaults, **dict(only)}.get(name)

    # -- branches --------------------------------------------------------------------------------------------

    def decided(self, test: ast.expr) -> bool | None:
        """What `test` says in every run; None where that is not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.decided(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compared(test)
        known = self.known(test) if isinstance(test, ast.Attribute | ast.Name) else None
        answers = {bool(value) for value in known or ()}
        return answers.pop() if len(answers) == 1 else None

    def _compared(self, test: ast.Compare) -> bool | None:
        known, other = self.known(test.left), self.known(test.comparators[0])
        if known is None or other is None or len(other) != 1:
            return None
        (right,) = other
        same = {left == right for left in known}
        if len(same) != 1:
            return None
        if isinstance(test.ops[0], ast.Eq | ast.Is):
            return same.pop()
        return not same.pop() if isinstance(test.ops[0], ast.NotEq | ast.IsNot) else None

    def _find_dead(self, suite: list[ast.stmt]) -> None:
        for position, statement in enumerate(suite):
            if isinstance(statement, ast.If):
                said = self.decided(statement.test)
                if said is not None:
                    self.dead.update(statement.orelse if said else statement.body)
            if self._ends(statement):
                self.dead.update(suite[position + 1 :])
                return

    def _ends(self, statement: ast.stmt) -> bool:
        """Whether what follows an `if` is never reached, because a branch that is always taken returns."""
        if isinstance(statement, ast.Return | ast.Raise):
            return True
        if not isinstance(statement, ast.If):
            return False
        said = self.decided(statement.test)
        taken = (
            [statement.body, statement.orelse]
            if said is None
            else [statement.body if said else statement.orelse]
        )
        return all(bool(suite) and self._ends(suite[-1]) for suite in taken)
