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
import sys
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field

from .walks import children, statements, walk

_IMPLICIT = frozenset(
    (
        *(
            "__annotations__",
            "__builtins__",
            "__cached__",
            "__class__",
            "__conditional_annotations__",
            "__debug__",
        ),
        *(
            "__dict__",
            "__doc__",
            "__file__",
            "__loader__",
            "__module__",
            "__name__",
            "__package__",
            "__path__",
        ),
        *("__qualname__", "__spec__", "WindowsError"),
    )
)
KNOWN = frozenset(dir(builtins)) | _IMPLICIT

Function = ast.FunctionDef | ast.AsyncFunctionDef
if sys.version_info >= (3, 11):
    _Try = ast.Try | ast.TryStar
else:
    _Try = ast.Try
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ANNOTATED = {ast.arg, ast.AnnAssign, ast.FunctionDef, ast.AsyncFunctionDef}
_BINDERS = {
    *(*_SCOPES, *_COMPREHENSIONS, ast.Name, ast.Import, ast.ImportFrom, ast.ExceptHandler),
    *(ast.MatchAs, ast.MatchStar, ast.MatchMapping),
}


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
    declared = {name for node in statements(tree) if isinstance(node, ast.Global) for name in node.names}
    if not _has_star_import(tree):
        own = _bindings(tree.body) - declared - KNOWN
        flow = _Flow("module", own, needs=_global_needs(tree, own))
        flow.run(tree.body)
        found.update(flow.early)
    for scope, function in functions(tree):
        if scope in but:
            continue
        # Names bound by an enclosing function, by `global` or by `nonlocal` are not this scope's.
        outer = {
            name
            for node in statements(function)
            if isinstance(node, ast.Global | ast.Nonlocal)
            for name in node.names
        }
        arguments = _arguments(function.args)
        flow = _Flow(scope, _bindings(function.body) - outer - arguments)
        flow.run(function.body)
        found.update(flow.early)
    return found


def own_names(function: Function) -> set[str]:
    """The names that a function binds itself, its parameters among them."""
    return _bindings(function.body) | _arguments(function.args)


@dataclass(slots=True)
class _Flow:
    """One scope's statements in order of execution. `bound`: what may be bound here; None: never reached."""

    scope: str
    own: set[str]
    needs: dict[str, set[str]] = field(default_factory=dict)
    bound: set[str] | None = field(default_factory=set)
    early: dict[tuple[str, str], int] = field(default_factory=dict)

    def run(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if self.bound is None:
                return
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self._reads(node.test)
            self._branches([node.body, node.orelse])
        elif isinstance(node, ast.For | ast.AsyncFor):
            self._reads(node.iter)
            self._loop(node, [node.target])
        elif isinstance(node, ast.While):
            self._may_bind(_bindings(node.body))
            self._reads(node.test)
            self._loop(node, [])
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self._reads(item.context_expr)
                if item.optional_vars is not None:
                    self._reads(item.optional_vars)
                    self._may_bind(_bindings_of(item.optional_vars))
            self._guarded(node.body)  # the context may swallow an exception
        elif isinstance(node, ast.Match):
            self._reads(node.subject)
            self._match(node)
        elif isinstance(node, _Try):
            self._try(node)
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        else:
            self._simple(node)

    def _simple(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self._reads(part)
        elif isinstance(node, ast.Delete):
            self._reads(node)
            if self.bound is not None:
                self.bound -= {target.id for target in node.targets if isinstance(target, ast.Name)}
            return
        elif isinstance(node, ast.AnnAssign):
            if node.value is None:
                return  # `x: int` binds nothing
            self._reads(node.value)
        else:
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self._read(node.target.id, node.lineno)
            self._reads(node)
        self._may_bind(_bindings([node]))
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue):
            self.bound = None

    def _class(self, node: ast.ClassDef) -> None:
        for part in [*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)]:
            self._reads(part)
        if self.bound is not None:
            inner = _Flow(
                self.scope, self.own - _bindings(node.body), self.needs, set(self.bound), self.early
            )
            inner.run(node.body)
        self._may_bind({node.name})

    def _branches(self, bodies: Sequence[Sequence[ast.stmt]]) -> None:
        start = self.bound
        merged: set[str] | None = None
        for body in bodies:
            self.bound = None if start is None else set(start)
            self.run(body)
            merged = _union(merged, self.bound)
        self.bound = merged

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, targets: Sequence[ast.expr]) -> None:
        for target in targets:
            self._reads(target)
            self._may_bind(_bindings_of(target))
        self._may_bind(_bindings(node.body))  # by an earlier turn
        after = None if self.bound is None else set(self.bound)
        self.run(node.body)
        self.bound = after
        self._branches([node.orelse, []])

    def _guarded(self, body: Sequence[ast.stmt]) -> None:
        anywhere = _union(self.bound, None if self.bound is None else self.bound | _bindings(body))
        self.run(body)
        self.bound = _union(self.bound, anywhere)

    def _try(self, node: _Try) -> None:
        start = None if self.bound is None else self.bound | _bindings(node.body)
        self.run(node.body)
        self.run(node.orelse)
        merged = self.bound
        for handler in node.handlers:
            self.bound = None if start is None else set(start)
            if handler.type is not None:
                self._reads(handler.type)
            self._may_bind({handler.name} if handler.name else set())
            self.run(handler.body)
            merged = _union(merged, self.bound)
        self.bound = _union(merged, start) if node.finalbody else merged
        self.run(node.finalbody)
        if self.bound is not None:
            self.bound = merged if merged is None else merged | _bindings(node.finalbody)

    def _match(self, node: ast.Match) -> None:
        start = self.bound
        merged = start
        for case in node.cases:
            self.bound = None if start is None else set(start)
            self._may_bind(_bindings_of(case.pattern))
            if case.guard is not None:
                self._reads(case.guard)
            self.run(case.body)
            merged = _union(merged, self.bound)
        self.bound = merged

    def _reads(self, node: ast.AST) -> None:
        """Every name that evaluating `node` reads at once: not inside lambdas and generator bodies."""
        if isinstance(node, ast.Lambda):
            for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
                self._reads(default)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehension(node)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load | ast.Del):
                self._read(node.id, node.lineno)
        else:
            if isinstance(node, ast.NamedExpr):
                self._reads(node.value)
                self._may_bind({node.target.id})
                return
            for child in children(node):
                self._reads(child)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for name in self.needs.get(node.func.id, ()):
                    self._read(name, node.lineno)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        first = node.generators[0]
        self._reads(first.iter)
        self._may_bind({part.target.id for part in walk(node) if isinstance(part, ast.NamedExpr)})
        if isinstance(node, ast.GeneratorExp):
            return
        hidden = set().union(*(_bindings_of(generator.target) for generator in node.generators))
        own, self.own = self.own, self.own - hidden
        for child in children(node):
            if child is not first:
                self._reads(child)
        for condition in first.ifs:
            self._reads(condition)
        self.own = own

    def _read(self, name: str, line: int) -> None:
        if self.bound is not None and name in self.own and name not in self.bound:
            self.early.setdefault((self.scope, name), line)

    def _may_bind(self, names: set[str]) -> None:
        if self.bound is not None:
            self.bound |= names


def _union(left: set[str] | None, right: set[str] | None) -> set[str] | None:
    if left is None or right is None:
        return right if left is None else left
    return left | right


def _bindings(body: Sequence[ast.AST]) -> set[str]:
    return set().union(*(_bindings_of(node) for node in body))


def _bindings_of(node: ast.AST) -> set[str]:
    """Names that a node binds in its own scope."""
    names: set[str] = set()
    stack = [node]
    while stack:
        one = stack.pop()
        if one.__class__ not in _BINDERS:
            stack += children(one)
            continue
        match one:
            case ast.Name():
                if isinstance(one.ctx, ast.Store):
                    names.add(one.id)
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(one.name)
                stack += one.decorator_list
                continue
            case ast.Lambda():
                continue
            case ast.Import():
                names |= {alias.asname or alias.name.partition(".")[0] for alias in one.names}
            case ast.ImportFrom():
                names |= {alias.asname or alias.name for alias in one.names}
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name) if name:
                names.add(name)
            case ast.MatchMapping(rest=str(name)):
                names.add(name)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                names |= {part.target.id for part in walk(one) if isinstance(part, ast.NamedExpr)}
                continue
        stack += children(one)
    return names


def _arguments(arguments: ast.arguments) -> set[str]:
    return {
        one.arg
        for one in [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        if one is not None
    }


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Every function, with its qualified name, which redefinitions share."""
    stack: list[tuple[str, ast.AST]] = [("", tree)]
    while stack:
        prefix, node = stack.pop()
        for child in children(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, child
                stack.append((name + ".", child))
            elif not isinstance(child, ast.expr):
                stack.append((prefix, child))


def _global_needs(tree: ast.Module, own: set[str]) -> dict[str, set[str]]:
    """Function of the module -> the module's names that a call of it reads for certain, callees included."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reads: dict[str, set[str]] = {}
    for name, function in functions.items():
        local = _bindings(function.body) | _arguments(function.args)
        reads[name] = {one for statement in function.body for one in _certain_reads(statement)} - local
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
        if isinstance(node, (*_SCOPES, *_COMPREHENSIONS, ast.IfExp, ast.BoolOp)):
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
        match node:
            case (
                ast.arg(annotation=ast.Constant(value=str(text)))
                | ast.AnnAssign(annotation=ast.Constant(value=str(text)))
            ):
                pass
            case (
                ast.FunctionDef(returns=ast.Constant(value=str(text)))
                | ast.AsyncFunctionDef(returns=ast.Constant(value=str(text)))
            ):
                pass
            case _:
                continue
        if text.replace(".", "").isidentifier():
            names.add(text.partition(".")[0])
    return names
