"""What the cells of a notebook read and write, also through the functions and classes that they use."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from crosstrain_migrate.files.notebooks.linked import Cells, is_mark, string_of
from crosstrain_migrate.syntax.bindings import bindings

from .local_modules import Definition, Module, outside
from .statement_forms import calls_method, end_of, first_of, names_in

_BUILTINS = frozenset(dir(builtins))


class Obstacle(Exception):
    """The training cannot be moved into a function. line: of the migrated text."""

    def __init__(self, line: int, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.line, self.reason, self.remedy = line, reason, remedy


class Statements:
    """The top level of a linked text. Raises Obstacle where its names cannot be resolved."""

    def __init__(self, text: str, modules: Sequence[Module] = ()) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self.outside = outside(modules, self.tree)
        self.cells = Cells(text)
        self.defined: dict[str, Definition] = {s.name: s for s in self.tree.body if isinstance(s, Definition)}
        self.imported = bindings(s for s in self.tree.body if isinstance(s, ast.Import | ast.ImportFrom))
        try:
            self._table = symtable.symtable(text, "cells", "exec")
        except SyntaxError as error:
            reason = f"this is no valid Python ({error.msg})"
            raise Obstacle(error.lineno or 1, reason, "Correct the syntax") from error

    def sharing_lines(self, statement: ast.stmt) -> list[ast.stmt]:
        """The other statements that share a line with this one."""
        first, last = first_of(statement), end_of(statement)
        return [s for s in self.tree.body if s is not statement and s.lineno <= last and first <= end_of(s)]

    @cached_property
    def running(self) -> list[ast.stmt]:
        """The statements that do something when their cell runs: no definitions, imports or strings."""
        quiet = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
        return [s for s in self.tree.body if not isinstance(s, quiet) and string_of(s) is None]

    def cell(self, statement: ast.stmt) -> int:
        """The number of the cell in which a statement stands."""
        return self.cells(statement.lineno)[0]

    def of_cell(self, number: int) -> list[ast.stmt]:
        return [s for s in self.tree.body if self.cell(s) == number and not is_mark(s)]

    # -- reading ---------------------------------------------------------------------------------------------

    @cached_property
    def reads(self) -> dict[str, frozenset[str]]:
        """The notebook's variables that each function or class reads, itself or through others that it uses."""
        own = {table.get_name(): _globals(table) for table in self._table.get_children()}
        found = {name: own.get(name, frozenset()) for name in self.defined}
        while True:
            wider = {name: names.union(*self._through(names, found)) for name, names in found.items()}
            if wider == found:
                return found
            found = wider

    def _through(self, names: Iterable[str], reads: dict[str, frozenset[str]]) -> Iterator[frozenset[str]]:
        """The variables that using each of these names reads."""
        for name in names:
            for used in (name, *self.made.get(name, ())):
                yield reads.get(used, frozenset())

    @cached_property
    def made(self) -> dict[str, frozenset[str]]:
        """Variables that hold what a class of the notebook made: using one is using the class."""
        found: dict[str, frozenset[str]] = {}
        for name, value in assignments(self.running):
            called = {getattr(n.func, "id", "") for n in ast.walk(value) if isinstance(n, ast.Call)}
            classes = {n for n in called if isinstance(self.defined.get(n), ast.ClassDef)}
            if classes:
                found[name] = found.get(name, frozenset()) | classes
        return found

    def reach(self, statements: Iterable[ast.stmt]) -> frozenset[str]:
        """All names that these statements read, also in the functions and classes that they use."""
        names = names_in(*statements)
        made = {cls for name in names for cls in self.made.get(name, ())}
        return frozenset(names | made).union(*self._through(names, self.reads))

    def uses(self, statements: Iterable[ast.stmt]) -> list[Definition]:
        """The functions and classes that run when these statements do, those of local modules included."""
        reach = self.reach(statements)
        inner = [node for name, node in self.defined.items() if name in reach]
        return inner + [node for name, nodes in self.outside.items() if name in reach for node in nodes]

    @cached_property
    def training(self) -> list[ast.stmt]:
        """The statements that train: they go backward, in a cell that makes a step.

        A gradient that nothing steps by is looked at: a saliency map. Where no cell steps, weights are set by hand.
        """
        used = [(s, {s, *self.uses([s])}) for s in self.running]
        nodes = set().union(*(found for _, found in used))
        backwards = {node for node in nodes if calls_method(node, "backward")}
        steps = {node for node in nodes if calls_method(node, "step")}
        backward = [s for s, found in used if found & backwards]
        cells = {self.cell(s) for s, found in used if found & steps}
        return [s for s in backward if self.cell(s) in cells] or backward

    # -- writing ---------------------------------------------------------------------------------------------

    def written_by(self, statements: Iterable[ast.stmt]) -> frozenset[str]:
        """The notebook's variables that functions used by these statements declare `global` and assign."""
        tables = {table.get_name(): table for table in self._table.get_children()}
        used = [node.name for node in self.uses(statements) if self.defined.get(node.name) is node]
        symbols = _symbols(*(tables[name] for name in used if name in tables))
        return frozenset(s.get_name() for s in symbols if s.is_declared_global() and s.is_assigned())

    @cached_property
    def _bound(self) -> set[str]:
        """The variables of the notebook; `iter = 0` is one although Python has an `iter` too."""
        return bindings(self.running)

    def used_after(self, last: ast.stmt) -> dict[str, ast.stmt]:
        """The names that the statements after `last` read before they assign them, each with its first reader."""
        return self.read_by([s for s in self.running if s.lineno > last.lineno])

    def read_by(self, statements: Iterable[ast.stmt]) -> dict[str, ast.stmt]:
        """The names that must be bound before the statements run, each with its first reader."""
        found: dict[str, ast.stmt] = {}
        fresh: set[str] = set()
        for statement in statements:
            known = frozenset(fresh)
            for name in sorted(_read_first([statement], fresh)):
                for read in sorted({name} | (self.reach([ast.Expr(ast.Name(name, ast.Load()))]) - known)):
                    if read not in _BUILTINS or read in self._bound:
                        found.setdefault(read, statement)
        return found


def _read_first(statements: Iterable[ast.stmt], bound: set[str]) -> set[str]:
    """Names that the statements read before they have surely bound them; adds the names that they bind to `bound`."""
    found: set[str] = set()
    for statement in statements:
        match statement:
            case ast.Assign():
                found |= _loads(statement) - bound
                bound |= bindings(statement.targets)
            case ast.For():
                found |= _loads(statement.iter) - bound
                found |= _read_first(statement.body, bound | bindings([statement.target]))
                found |= _read_first(statement.orelse, set(bound))
            case ast.If() | ast.While():
                found |= _loads(statement.test) - bound
                found |= _read_first(statement.body, set(bound)) | _read_first(statement.orelse, set(bound))
            case ast.With():
                found |= {n for item in statement.items for n in _loads(item)} - bound
                bound |= bindings(item.optional_vars for item in statement.items if item.optional_vars)
                found |= _read_first(statement.body, bound)
            case ast.AugAssign():
                found |= (_loads(statement) | bindings([statement.target])) - bound
            case _:
                found |= _loads(statement) - bound
    return found


def _loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def assignments(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """Each (name, value) of the assignments in `statements`; a tuple gives a pair for each element."""
    for node in (n for s in statements for n in ast.walk(s)):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield from _pairs(node.target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List):
        given = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        if len(given) != len(target.elts):
            given = [value] * len(target.elts)
        for inner, part in zip(target.elts, given, strict=True):
            yield from _pairs(inner, part)


def _globals(table: symtable.SymbolTable) -> frozenset[str]:
    """The global names that a function or class reads, those of inner ones included."""
    return frozenset(s.get_name() for s in _symbols(table) if s.is_global() and s.is_referenced())


def _symbols(*tables: symtable.SymbolTable) -> Iterator[symtable.Symbol]:
    for table in tables:
        yield from table.get_symbols()
        yield from _symbols(*table.get_children())
