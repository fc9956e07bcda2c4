"""Which options are constants, and which branches on them are never taken.

A loss of the script's own often branches on `self.reduction`: what it returns is known once that is. The text alone tells
it: of an attribute that only the constructor sets, of a parameter all of whose calls are seen.
"""

from __future__ import annotations

import ast
from collections import defaultdict

from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.scopes import ScopeTable, suites
from crosstrain_migrate.syntax.walks import walk

from .arguments import argument_of, pairs_of, positional_of

Constant = str | bool | int | float | None
KnownValues = frozenset[Constant]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_HAVE_SUITES = (ast.stmt, ast.mod, ast.excepthandler, ast.match_case)
MAX_DEPTH = 4  # constants handed on through calls


class Constants:
    """Answers for one script. `known`: what an expression may be; `decided`: what a test says; `dead`: the statements that
    never run."""

    def __init__(self, tree: ast.Module, table: ScopeTable) -> None:
        self._table = table
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._stores: dict[str, list[ast.Attribute]] = defaultdict(list)
        self._set: dict[ast.AST, set[str]] = {}  # function -> names it assigns
        self._escaped: set[str] = set()  # names of functions and classes that are used as values
        self.dead: set[ast.stmt] = set()
        nodes = walk(tree)
        self._find_uses(nodes)
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
        match node:
            case ast.Constant(value=str() | bool() | int() | float() | None as value):
                return frozenset({value})
            case ast.Name() if depth <= MAX_DEPTH:
                return self._of_parameter(node, depth)
            case ast.Attribute(value=ast.Name()) if depth <= MAX_DEPTH:
                return self._of_attribute(node, depth)
        return None

    def _of_parameter(self, name: ast.Name, depth: int) -> KnownValues | None:
        function = self._table.function_around(name)
        scope = self._table.of_node[name].resolve(name.id)
        if (
            function is None
            or scope is None
            or scope.node is not function
            or name.id in self._set_in(function)
        ):
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
        statement = self._table.statement_of(stores[0])
        in_branch = self._table.parents[statement] is not function
        return None if in_branch else self.known(_assigned(statement, stores[0]), depth + 1)

    def _given(self, function: Function, name: str, depth: int) -> KnownValues | None:
        """What the calls of a function give for a parameter; None where one of them is not seen, or gives no constant."""
        parent = self._table.parents.get(function)
        method = isinstance(parent, ast.ClassDef)
        called = (
            parent.name if isinstance(parent, ast.ClassDef) and function.name == "__init__" else function.name
        )
        if called in self._escaped or not self._calls[called] or function.decorator_list:
            return None  # a decorator may call it with what a command line says
        found: set[Constant] = set()
        for call in self._calls[called]:
            known = self.known(_argument(call, function, name, method), depth + 1)
            if known is None:
                return None
            found |= known
        return frozenset(found)

    # -- branches --------------------------------------------------------------------------------------------

    def decided(self, test: ast.expr) -> bool | None:
        """What `test` says in every run; None where that is not known."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.decided(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            return self._compared(test.left, test.ops[0], test.comparators[0])
        known = self.known(test) if isinstance(test, ast.Attribute | ast.Name) else None
        return _only({bool(value) for value in known or ()})

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> bool | None:
        known, other = self.known(left), self.known(right)
        if known is None or other is None or len(other) != 1:
            return None
        same = _only({value in other for value in known})
        if same is None or isinstance(op, ast.Eq | ast.Is):
            return same
        return not same if isinstance(op, ast.NotEq | ast.IsNot) else None

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
        """Whether nothing after a statement is reached: a `return`, a `raise`, or an `if` all of whose branches end so."""
        if not isinstance(statement, ast.If):
            return isinstance(statement, ast.Return | ast.Raise)
        said = self.decided(statement.test)
        taken = ([statement.body] if said is not False else []) + ([statement.orelse] if not said else [])
        return all(suite and self._ends(suite[-1]) for suite in taken)


def _only(answers: set[bool]) -> bool | None:
    return answers.pop() if len(answers) == 1 else None


def _assigned(statement: ast.stmt, target: ast.Attribute) -> ast.expr | None:
    """What an assignment gives to one of its targets, or to a part of one."""
    if not isinstance(statement, ast.Assign):
        return None
    pairs = (pair for one in statement.targets for pair in pairs_of(one, statement.value))
    return next((value for part, value in pairs if part is target), None)


def _argument(call: ast.Call, function: Function, name: str, method: bool) -> ast.expr | None:
    """What a call gives for a parameter, its default included; None where the call does not tell."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
        return None
    found = argument_of(call, function, name, method)
    if found is not None:
        return found
    defaults = zip(reversed(positional_of(function)), reversed(function.args.defaults), strict=False)
    keyword_only = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return next((default for a, default in (*defaults, *keyword_only) if a.arg == name), None)
