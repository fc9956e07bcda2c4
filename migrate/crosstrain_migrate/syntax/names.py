"""Which names a text uses without anything binding them: by scope, and by order of execution.

Two questions, both answered without running anything. `unbound_names`: which names are read that neither
the module nor builtins bind (from `symtable`, the compiler's own view). `early_uses`: which names are read at
a place that no execution can reach with the name bound. Every doubt is decided for the text: star imports
leave the module's names open, a loop's body may have run before, an exception may have come from anywhere.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Container, Iterable, Iterator

from .bindings import assignments_inside, bindings, functions, own_names
from .nodes import COMPREHENSIONS, Function, all_arguments, defaults
from .reach import Flow, Loop, State, join
from .walks import children, statements, walk

_IMPLICIT = {
    *("__annotations__", "__builtins__", "__cached__", "__class__", "__conditional_annotations__"),
    *("__debug__", "__dict__", "__doc__", "__file__", "__loader__", "__module__", "__name__", "__package__"),
    *("__path__", "__qualname__", "__spec__", "WindowsError"),
}
KNOWN = frozenset({*dir(builtins), *_IMPLICIT})

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_SOMEWHERE = ast.AST()  # stands for a binding at an unknown place
_ANNOTATED = {ast.arg, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef}


def unbound_names(text: str, tree: ast.Module) -> dict[str, int]:
    """Names used as globals that nothing binds, with a line that does (0: in `__all__` or quoted)."""
    if _has_star_import(tree):
        return {}
    bound: set[str] = set()
    used = _exported(tree) | _quoted_annotations(tree)
    for table in _tables(symtable.symtable(text, "<checked>", "exec")):
        whole = table.get_type() == "module"
        for symbol in table.get_symbols():
            if (whole or symbol.is_declared_global()) and (
                symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            ):
                bound.add(symbol.get_name())
            if symbol.is_referenced() and symbol.is_global():
                used.add(symbol.get_name())
    missing = used - bound - KNOWN
    if not missing:
        return {}
    lines: dict[str, int] = {}
    for node in walk(tree):
        if isinstance(node, ast.Name) and node.id in missing:
            lines.setdefault(node.id, node.lineno)
    return {name: lines.get(name, 0) for name in missing}


def early_uses(tree: ast.Module, but: Container[str] = ()) -> dict[tuple[str, str], int]:
    """(scope, name) -> line of a read that comes before every binding of the name in that scope.

    A call, in the module's own statements, of a function that needs a global counts as a read of that global. Functions
    whose scope is among `but` are not looked into.
    """
    found: dict[tuple[str, str], int] = {}
    if not _has_star_import(tree):
        own = bindings(tree.body) - _declared(tree, ast.Global) - KNOWN
        found |= _EarlyUses("module", own, _global_needs(tree, own)).found_in(tree.body)
    for scope, function in functions(tree):
        if scope not in but:
            # Names bound by an enclosing function, by `global` or by `nonlocal` are not this scope's.
            own = bindings(function.body) - _declared(function, ast.Global, ast.Nonlocal)
            own -= {argument.arg for argument in all_arguments(function)}
            found |= _EarlyUses(scope, own, {}).found_in(function.body)
    return found


def _declared(node: ast.AST, *kinds: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    return {name for one in statements(node) if isinstance(one, kinds) for name in one.names}


class _EarlyUses(Flow):
    """One scope's reads of the names that it binds. `needs`: the globals that a call of a function reads."""

    passes = 1

    def __init__(self, scope: str, own: set[str], needs: dict[str, set[str]]) -> None:
        super().__init__()
        self.scope = scope
        self.own = own
        self.needs = needs
        self.early: dict[tuple[str, str], int] = {}

    def found_in(self, body: list[ast.stmt]) -> dict[tuple[str, str], int]:
        self.body(body)
        return self.early

    def use(self, node: ast.Name) -> None:
        self.read(node.id, node.lineno)

    def read(self, name: str, line: int) -> None:
        if self.state is not None and name in self.own and name not in self.state:
            self.early.setdefault((self.scope, name), line)

    def may_bind(self, nodes: Iterable[ast.AST]) -> None:
        for name in bindings(nodes):
            super().define(name, _SOMEWHERE)

    def define(self, name: str, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Del):
            self.use(node)
            (self.state or {}).pop(name, None)
        else:
            super().define(name, node)

    # -- statements: some may have run before, or may end in the middle ----------------------------------------------

    def definition(self, node: Function | ast.ClassDef) -> None:
        if isinstance(node, ast.ClassDef):
            own, state = self.own, self.copied()
            self.own = own - bindings(node.body)
            self.body(node.body)
            self.own, self.state = own, state
        super().definition(node)

    def with_body(self, body: list[ast.stmt]) -> None:
        before = self.copied()
        self.body(body)
        self.state = join(self.state, self.raised(before, body))  # the context may swallow an exception

    def try_body(self, before: State | None, body: list[ast.stmt]) -> State | None:
        self.body(body)
        return self.raised(before, body)

    def raised(self, before: State | None, body: list[ast.stmt]) -> State | None:
        """The state in which an exception may leave `body`, which has just run; `before` is the state above it."""
        after, self.state = self.state, dict(before) if before is not None else None
        self.may_bind(body)
        found, self.state = self.state, after
        return found

    def finally_body(self, body: list[ast.stmt], anywhere: State | None) -> None:
        after = self.copied()
        self.state = join(after, anywhere)
        self.body(body)
        if self.state is not None:
            self.state = after
            self.may_bind(body)

    def loop(self, node: Loop) -> None:
        self.may_bind(node.body if isinstance(node, ast.While) else [node.target, *node.body])
        before = self.copied()
        super().loop(node)
        self.state = join(self.state, before)

    # -- expressions: only those that are evaluated at once ----------------------------------------------------------------------

    def expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.GeneratorExp):
            self.expression(node.generators[0].iter)
            self.may_bind(assignments_inside(node))
        elif isinstance(node, ast.Lambda):
            for default in defaults(node.args):
                self.expression(default)
        elif isinstance(node, COMPREHENSIONS):
            hidden = bindings(one.target for one in node.generators) - (self.state or {}).keys()
            super().expression(node)
            for name in hidden:
                (self.state or {}).pop(name, None)
        else:
            super().expression(node)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for name in self.needs.get(node.func.id, ()):
                    self.read(name, node.lineno)


def _global_needs(tree: ast.Module, own: set[str]) -> dict[str, set[str]]:
    """Function of the module -> the module's names that a call of it reads for certain, callees included."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reads: dict[str, set[str]] = {}
    for name, function in functions.items():
        certain = {one for statement in function.body for one in _certain_reads(statement)}
        reads[name] = certain - own_names(function)
    needs = {name: (used & own) - functions.keys() for name, used in reads.items()}
    for _ in functions:  # calls among them, to a fixpoint
        grown = {
            name: used.union(*(needs.get(callee, ()) for callee in reads[name]))
            for name, used in needs.items()
        }
        if grown == needs:
            break
        needs = grown
    return needs


def _certain_reads(statement: ast.stmt) -> Iterator[str]:
    """Names read whenever the statement runs: nothing inside branches, loops or inner scopes."""
    if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return):
        stack: list[ast.AST] = [statement]
    elif isinstance(statement, ast.For):
        stack = [statement.iter]
    elif isinstance(statement, ast.With):
        stack = [item.context_expr for item in statement.items]
        for inner in statement.body:
            yield from _certain_reads(inner)
    else:
        return
    while stack:
        node = stack.pop()
        if isinstance(node, (*_SCOPES, *COMPREHENSIONS, ast.IfExp, ast.BoolOp)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        stack += children(node)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


def _has_star_import(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in statements(tree))


def _exported(tree: ast.Module) -> set[str]:
    """What a literal `__all__` promises; a module's `__getattr__` may keep any promise."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef(name="__getattr__"):
                return set()
            case ast.Assign(
                targets=[ast.Name(id="__all__")], value=ast.List(elts=items) | ast.Tuple(elts=items)
            ):
                names = {
                    one.value for one in items if isinstance(one, ast.Constant) and isinstance(one.value, str)
                }
    return names


def _quoted_annotations(tree: ast.Module) -> set[str]:
    """Names at the front of annotations written as strings: `def f(device: "torch.device")` needs `torch`."""
    names: set[str] = set()
    for node in walk(tree):
        if node.__class__ not in _ANNOTATED:
            continue
        match getattr(node, "annotation", None) or getattr(node, "returns", None):
            case ast.Constant(value=str(text)) if text.replace(".", "").isidentifier():
                names.add(text.partition(".")[0])
    return names
