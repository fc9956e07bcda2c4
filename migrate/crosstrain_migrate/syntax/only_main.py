"""Names that only the main process binds and all processes read: a NameError on the others."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from .bindings import bound_name, functions
from .walks import walk

MAIN = ("is_main_process", "is_local_main_process")
ENDS = ast.Return | ast.Continue | ast.Raise | ast.Break
INNER = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


def read_by_all(tree: ast.Module) -> dict[tuple[str, str], int]:
    """(scope, name) -> a line of each scope that reads what only `if accelerator.is_main_process:` has bound there."""
    if not any(isinstance(node, ast.Attribute) and node.attr in MAIN for node in walk(tree)):
        return {}
    scopes: list[tuple[str, list[ast.stmt], ast.arguments | None]] = [("the module", tree.body, None)]
    scopes += [(name, function.body, function.args) for name, function in functions(tree)]
    found: dict[tuple[str, str], int] = {}
    for scope, body, given in scopes:
        flow = _Scope()
        flow.suite(body, guarded=False)
        own = {a.arg for a in walk(given) if isinstance(a, ast.arg)} if given is not None else set()
        for name in (flow.guarded & flow.read.keys()) - flow.free - own:
            found[scope, name] = flow.read[name]
    return found


@dataclass
class _Scope:
    """What one scope binds for the main process, binds for all, and reads for all (name -> line)."""

    guarded: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)
    read: dict[str, int] = field(default_factory=dict)

    def suite(self, body: Iterable[ast.stmt], guarded: bool) -> None:
        for statement in body:
            self.visit(statement, guarded)
            if isinstance(statement, ast.If) and _is_others(statement.test):
                guarded = guarded or isinstance(statement.body[-1], ENDS)

    def visit(self, node: ast.AST, guarded: bool) -> None:
        if isinstance(node, INNER):
            self.bind(getattr(node, "name", ""), guarded)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self.free.update(node.names)
        elif isinstance(node, ast.Name):
            self.name(node, guarded)
        elif isinstance(node, ast.alias):
            self.bind(bound_name(node), guarded)
        elif isinstance(node, ast.ExceptHandler):
            self.bind(node.name or "", guarded)
            self.suite(node.body, guarded)
        elif isinstance(node, ast.If | ast.IfExp):
            self.choice(node, guarded)
        else:
            self.parts(node, guarded)

    def name(self, node: ast.Name, guarded: bool) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.bind(node.id, guarded)
        elif not guarded:
            self.read.setdefault(node.id, node.lineno)

    def bind(self, name: str, guarded: bool) -> None:
        (self.guarded if guarded else self.free).add(name)

    def choice(self, node: ast.If | ast.IfExp, guarded: bool) -> None:
        self.visit(node.test, guarded)
        of_main = guarded or _is_main(node.test)
        if isinstance(node, ast.IfExp):
            self.visit(node.body, of_main)
            self.visit(node.orelse, guarded)
        else:
            self.suite(node.body, of_main)
            self.suite(node.orelse, guarded or _is_others(node.test))

    def parts(self, node: ast.AST, guarded: bool) -> None:
        together = isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And) and _is_main(node)
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self.suite(value, guarded)
            else:
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, ast.AST):
                        self.visit(part, guarded or together)


def _is_main(test: ast.expr) -> bool:
    """`accelerator.is_main_process`, alone or beside other conditions."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return any(map(_is_main, test.values))
    return isinstance(test, ast.Attribute) and test.attr in MAIN


def _is_others(test: ast.expr) -> bool:
    """`not accelerator.is_main_process`."""
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and _is_main(test.operand)
