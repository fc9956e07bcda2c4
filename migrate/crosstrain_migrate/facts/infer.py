"""The abstract interpreter: evaluates every expression of a script to the set of values it may stand for.

It is insensitive to calling context (a parameter is the union of its arguments) and runs to a fixpoint. Sets only grow,
so it ends; `MAX_PASSES` bounds pathological scripts. Here are the passes; `statements`, `expressions` and `calls` say what
each construct means.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import FunctionNode, all_arguments
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from . import torch_api as api
from .arguments import positional_of
from .context import containers_of_batches
from .expressions import EVALUATORS, evaluate_parts
from .interpretation import Interpretation
from .previews import early_previews
from .regions import functions_that_run_a_model, loop_of, methods_of_modules
from .statements import run_body
from .values import UNKNOWN, Instance, Values

MAX_PASSES = 40


class Interpreter(Interpretation):
    """Evaluates one script or program. After `run`, `values` maps every expression to what it may be."""

    def run(self) -> None:
        """Two fixpoints: the first finds which values are modules, the second uses that everywhere."""
        self._fixpoint()
        self.touching = functions_that_run_a_model(self)
        loops = [loop_of(self, node) for node, loaders in self.iterations.items() if loaders]
        self.batch_loops = {loop for loop in loops if loop is not None}
        modules = [cls for cls in self.table.each(ast.ClassDef) if self.inherits(cls, api.MODULE_BASES)]
        parts = (node for cls in modules for node in cls.body)
        methods = {node for node in parts if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.module_methods = methods_of_modules(self, methods)
        self.in_modules = {n for method in self.module_methods for n in walk(method) if n is not method}
        self.batch_containers = containers_of_batches(self.heap)
        self.factories = {
            function
            for function, sites in self.call_sites.items()
            if len(sites) > 1 and any(self.is_made_in(v, function) for v in self.returns[function])
        }
        if self.may_preview:
            self.previews = early_previews(self)
        self.reset()
        self._fixpoint()
        self.found = {node: frozenset(values) for node, values in self.values.items()}

    def _fixpoint(self) -> None:
        """Finds what follows from calls alone; then it runs the functions that nobody calls, with unknown arguments."""
        functions = [n for n in self.table.scopes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        for self.run_orphans in (False, True):
            self.watch.settled.difference_update(function.args for function in functions)
            for _ in range(MAX_PASSES):
                self.changed = False
                for node, scope in self.table.scopes.items():
                    self._run_scope(node, scope)
                if not self.changed:
                    break

    def _run_scope(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Lambda):
            if node not in self.watch.settled:
                outer = self.watch.enter(node)
                self.merge(self.returns.cell(node), self.eval(node.body))
                self.watch.leave(outer)
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args not in self.watch.settled:
            outer = self.watch.enter(node.args)
            self._bind_defaults(node, scope)
            self.watch.leave(outer)
        assert isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        run_body(self, node.body)

    def _bind_defaults(self, node: FunctionNode, scope: Scope) -> None:
        positional = positional_of(node)
        for argument, default in zip(reversed(positional), reversed(node.args.defaults), strict=False):
            self.bind_argument(scope, argument, self.eval(default))
        for argument, kw_default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if kw_default is not None:
                self.bind_argument(scope, argument, self.eval(kw_default))
        if not self.run_orphans:
            return
        parent = self.table.parents.get(node)
        if isinstance(parent, ast.ClassDef) and positional and not self.env[scope, positional[0].arg]:
            self.bind_argument(scope, positional[0], {Instance(parent, parent)})
        for argument in all_arguments(node):
            if not self.env[scope, argument.arg]:
                self.bind_argument(scope, argument, UNKNOWN)

    def eval(self, node: ast.expr) -> Values:
        """What `node` may be now; remembers it for `of`."""
        found = EVALUATORS.get(node.__class__, evaluate_parts)(self, node)
        if self.observed:
            found = self.with_observed(node, found)
        if self.assumed:
            found = self.with_assumed(node, found)
        cell = self.values.known(node)
        if cell is None:
            cell = self.values.cell(node)
        if not cell.issuperset(found):
            self.merge(cell, found)
        return cell.as_values() if cell.remembered is None else cell.remembered
