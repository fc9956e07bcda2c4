"""Statements that do nothing any more once the moves in them are gone: `x = x`, a loop around nothing, an empty test."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.side_effects import effectless, is_pure
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .removed_moves import RemovedMoves


class NoOps:
    """Removes statements that the removed moves have left without effect."""

    def __init__(self, placement: RemovedMoves) -> None:
        self.placement = placement
        self.context = placement.context
        self.facts = placement.facts

    def plan(self) -> None:
        for statement in self.facts.each(ast.Expr, ast.Assign):
            if isinstance(statement, ast.Expr):
                idle = statement.value in self.placement.stripped
            else:
                targets = statement.targets
                idle = len(targets) == 1 and self._is_identity(targets[0], statement.value)
            if idle:
                self._remove(statement)
        for node in self.facts.each(ast.If, ast.For, ast.ListComp, ast.GeneratorExp, ast.Call):
            if isinstance(node, ast.If) and self.placement.gone.issuperset(node.body):
                self._remove_test(node)
            elif isinstance(node, ast.For) and self.placement.gone.issuperset((*node.body, *node.orelse)):
                self._remove_loop(node)
            elif isinstance(node, ast.ListComp | ast.GeneratorExp) and node not in self.placement.gone:
                generator = node.generators[0]
                if len(node.generators) == 1 and not generator.ifs:
                    self._unpack_itself(node, node.elt, generator.target, generator.iter)
            elif isinstance(node, ast.Call) and "builtins.map" in self.facts.paths(node.func):
                function = node.args[0] if len(node.args) == 2 else None
                if isinstance(function, ast.Lambda) and len(function.args.args) == 1:
                    name = ast.Name(function.args.args[0].arg)
                    self._unpack_itself(node, function.body, name, node.args[1])

    def _is_identity(self, target: ast.expr, value: ast.expr) -> bool:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = zip(target.elts, value.elts, strict=False)
            return len(target.elts) == len(value.elts) and all(self._is_identity(t, v) for t, v in pairs)
        if isinstance(target, ast.Subscript) and self._writes_back(target, value):
            return True
        return self._is_unchanged(value, written(target))

    def _is_unchanged(self, value: ast.expr, name: str) -> bool:
        """Whether an expression with moves is, without them, what `name` is: itself, or made of all its elements anew."""
        if isinstance(value, ast.Call) and len(value.args) == 1 and written(value.func) in {"tuple", "list"}:
            value = value.args[0]
        if isinstance(value, ast.DictComp | ast.ListComp | ast.GeneratorExp) and len(value.generators) == 1:
            return self._copies(value, name)
        if isinstance(value, ast.IfExp) and effectless(value.test):  # net.cuda() if use_cuda else net
            arms = [arm for arm in (value.body, value.orelse) if written(arm) != name]
            return bool(arms) and all(self._is_unchanged(arm, name) for arm in arms)
        return value in self.placement.stripped and written(self._core(value)) == name

    def _core(self, node: ast.expr) -> ast.expr:
        while node in self.placement.stripped and isinstance(node, ast.Call):
            if node in self.placement.moved:
                node = self.placement.moved[node]
            elif isinstance(node.func, ast.Attribute):
                node = node.func.value
        return node

    def _writes_back(self, target: ast.Subscript, value: ast.expr) -> bool:
        """`batch[k] = v.to(device)` in `for k, v in batch.items():`"""
        if value not in self.placement.stripped:
            return False
        around = next((a for a in self.facts.table.ancestors(value) if isinstance(a, ast.For)), None)
        if around is None or not isinstance(around.target, ast.Tuple):
            return False
        pair = [written(part) for part in (target.slice, self._core(value))]
        items = f"{written(target.value)}.items()"
        return written(around.iter) == items and [written(t) for t in around.target.elts] == pair

    def _copies(self, value: ast.DictComp | ast.ListComp | ast.GeneratorExp, name: str) -> bool:
        """`{k: v.to(device) for k, v in batch.items()}`, or a list of such dictionaries."""
        element = value.value if isinstance(value, ast.DictComp) else value.elt
        generator = value.generators[0]
        source, target = generator.iter, generator.target
        function = source.func if isinstance(source, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr == "items":
            source = function.value
        bound = target.elts[-1] if isinstance(target, ast.Tuple) else target
        return not generator.ifs and written(source) == name and self._is_unchanged(element, written(bound))

    def _remove(self, node: ast.stmt) -> None:
        inner = set(walk(node))
        said = ((x.rule, x.reason) for x in self.context.edits if x.node in inner)
        rule, reason = next(said, ("CT105", ""))
        self._forget_edits(inner)
        self.context.remove(node, rule, reason)
        self.placement.gone |= inner

    def _forget_edits(self, inner: set[ast.AST]) -> None:
        self.context.edits[:] = [x for x in self.context.edits if x.node not in inner]

    def _remove_test(self, node: ast.If) -> None:
        """Removes `if use_cuda:` around nothing but moves; its `else` stays."""
        if not is_pure(node.test):
            return
        if not node.orelse and self.facts.table.is_whole_else(node):
            self._remove_last_link(node)
        elif not node.orelse:
            self._remove(node)
        elif not self._is_link(node):
            self.context.edits.append(e.Fold(node, "CT105", arms=("negate", "keep")))

    def _remove_last_link(self, node: ast.If) -> None:
        """Removes the last `elif` of a chain, or an `if` that is the whole `else` of another."""
        top, links = node, 0
        while (parent := self.facts.table.parents[top]) is not None and self.facts.table.is_whole_else(top):
            assert isinstance(parent, ast.If)
            if parent.col_offset != top.col_offset:  # `else:` with an `if` of its own in it
                self._remove(top) if top is node else None
                return
            top, links = parent, links + 1
        inner = set(walk(node))
        self._forget_edits(inner)
        self.context.edits.append(e.Fold(top, "CT105", arms=("keep",) * links + ("drop",)))
        self.placement.gone |= inner

    def _is_link(self, node: ast.If) -> bool:
        """Whether it is, or has, an `elif`."""
        return any(self.facts.table.is_whole_else(one) for one in (node, node.orelse[0]))

    def _remove_loop(self, node: ast.For) -> None:
        """Removes `for k in batch:` around nothing but moves."""
        calls = [n for n in walk(node.iter) if isinstance(n, ast.Call)]
        previews = all(isinstance(c.func, ast.Attribute) and c.func.attr in {"items", "keys"} for c in calls)
        bound, inner = set(walk(node.target)), set(walk(node))
        reaching = self.facts.interp.reaching.items()
        if previews and not any(name not in inner and made & bound for name, made in reaching):
            self._remove(node)

    def _unpack_itself(self, node: ast.expr, element: ast.expr, target: ast.expr, source: ast.expr) -> None:
        """`x, y = tuple(t.to(device) for t in batch)` unpacks the batch itself, as with a list or `map(lambda t: ..., batch)`."""
        parent = self.facts.table.parents[node]
        if isinstance(parent, ast.Call) and parent.args == [node] and self._collects(parent):
            parent = self.facts.table.parents[parent]
        if not isinstance(parent, ast.Assign) or len(parent.targets) > 1:
            return
        unpacked = isinstance(parent.targets[0], ast.Tuple | ast.List)
        moved = element in self.placement.stripped
        if not unpacked or not moved or written(self._core(element)) != written(target):
            return
        self._forget_edits(set(walk(element)))
        reason = "the prepared loader yields batches on the device"
        code = f"{self.context.source(parent.targets[0])} = {{x}}"
        self.context.edits.append(e.ReplaceStatement(parent, "CT104", reason, code=code, holes={"x": source}))

    def _collects(self, call: ast.Call) -> bool:
        """Whether a call makes a tuple or a list of its argument."""
        return bool(self.facts.paths(call.func) & {"builtins.tuple", "builtins.list"})
