"""What stands for which variable: through attributes, entries and parameters, and the statements that bind them."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property

from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

from .forms import Frame, is_function_frame, pairs, root_of
from .keys import Key, entry_of, is_got, is_root, parts
from .script import Script

_PARSES = ("parse_args", "parse_known_args")


class Variables:
    """The variables of a script, by where they are bound: a function's, an attribute of a class, an entry of a dictionary."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def key(self, node: ast.AST) -> Key | None:
        """What stands for the variable at the root of an expression: `d` of `d["k"].x`, an attribute of `self`."""
        while isinstance(node, ast.Subscript | ast.Call | ast.Attribute | ast.Starred):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                cls = self.class_around(node)
                return (cls, node.attr) if cls is not None else None
            node = node.func if isinstance(node, ast.Call) else node.value
        if not isinstance(node, ast.Name):
            return None
        scope = self.script.table.of_node[node].resolve(node.id)
        return (scope.node, node.id) if scope is not None else None

    def key_of(self, text: str, use: ast.AST) -> Key | None:
        """The same for the text of a variable, or an attribute, that stands at a node."""
        if text.startswith("self."):
            cls = self.class_around(use)
            return (cls, text.split(".")[1]) if cls is not None else None
        scope = self.script.table.of_node[use].resolve(text)
        return (scope.node, text) if scope is not None else None

    def entry(self, node: ast.expr) -> Key | None:
        """What stands for `d["k"]`, `d.get("k")` or `args.k`, where an expression is that or taken out of it: variables."""
        while isinstance(node, ast.Subscript | ast.Call | ast.Attribute | ast.Starred):
            inner = node.func if isinstance(node, ast.Call) else node.value
            if isinstance(node, ast.Attribute) and isinstance(inner, ast.Name) and inner.id != "self":
                key = self.key(inner)
                return (key[0], f"{key[1]}.{node.attr}") if key is not None else None
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and is_root(inner):
                key = self.key(inner)
                return entry_of(key, node.slice) if key is not None else None
            if isinstance(node, ast.Call) and is_got(node) and (key := self.key(node)) is not None:
                return entry_of(key, node.args[0])
            node = inner
        return None

    def roots(self, node: ast.expr) -> set[object]:
        """The variables that an expression may stand for, also under the names by which they were passed on."""
        found: set[object] = set()
        work = [node]
        while work:
            key = self.key(work.pop())
            if key is not None and key not in found:
                found.add(key)
                work += self.origins.get(key, ())
        return found

    def class_around(self, node: ast.AST) -> ast.ClassDef | None:
        return next((one for one in self.script.around(node) if isinstance(one, ast.ClassDef)), None)

    def item_of(self, node: ast.expr) -> list[ast.expr]:
        """`meters` of the loop `for meter in meters` around a variable that nothing else there binds: another loop may give
        that name to something else."""
        if not isinstance(node, ast.Name):
            return []
        for loop in self.script.loops_around(node):
            names = [n for n in walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            if bound := [n for n in names if n.id == node.id]:
                is_item = isinstance(loop, ast.For) and all(n in parts(loop.target) for n in bound)
                return [loop.iter] if is_item and isinstance(loop, ast.For) else []
        return []

    def is_variable(self, node: ast.expr) -> bool:
        """Whether an expression is a variable, or an attribute, that an assignment or a call binds."""
        key = self.key(node)
        return key in self.bound and key[1] != "self"

    @cached_property
    def bound(self) -> set[Key]:
        """What is bound by more than an import or a definition."""
        found = {key for key, _ in self.given}
        for frame in self.script.frames:
            found |= {(frame, name) for name in self.script.parameters(frame)}
        modules = {
            alias.asname or alias.name.partition(".")[0]
            for one in self.script.table.each(ast.Import)
            for alias in one.names
        }
        for node in self.script.table.each(ast.Name, ast.Attribute):
            if not isinstance(node.ctx, ast.Store) or (
                isinstance(node, ast.Attribute) and root_of(node) in modules
            ):
                continue  # `torch.backends.cudnn.benchmark = True` makes no variable of torch
            if (key := self.key(node)) is not None:
                found.add(key)
        return found

    @cached_property
    def options(self) -> set[Key]:
        """What holds the command line's options."""
        found = set()
        for _, node in self.statements:
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
                continue
            if last_name(node.value.func) in _PARSES:
                found |= {
                    key for t in node.targets for part in parts(t) if (key := self.key(part)) is not None
                }
        return found

    @cached_property
    def statements(self) -> list[tuple[Frame, ast.AST]]:
        """What binds or changes something in reached code."""
        kinds = (
            ast.Assign,
            ast.AnnAssign,
            ast.AugAssign,
            ast.For,
            ast.Expr,
            ast.Return,
            ast.withitem,
            ast.NamedExpr,
        )
        return [
            (f, n) for f in self.script.reached_frames for n in self.script.within(f) if isinstance(n, kinds)
        ]

    @cached_property
    def given(self) -> list[tuple[Key, ast.expr]]:
        """The parameters of the project's functions, each with what a call gives for it."""
        found: list[tuple[Key, ast.expr]] = []
        for frame in filter(is_function_frame, self.script.reached_frames):
            for name in self.script.parameters(frame):
                found += [((frame, name), one) for one, _ in self.script.given_for(frame, name)]
        return found

    @cached_property
    def origins(self) -> dict[Key, list[ast.expr]]:
        """What a variable is another name of, or is taken out of: an object changed through it changes that, too."""
        found: dict[Key, list[ast.expr]] = defaultdict(list)
        for key, given in self.given:
            found[key].append(given)
        plain = (ast.Name, ast.Attribute, ast.Subscript)
        for _, node in self.statements:
            bound: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(node, ast.For):
                bound = [(target, node.iter) for target in parts(node.target)]
            elif isinstance(node, ast.Assign):
                bound = [
                    one for t in node.targets for one in pairs(t, node.value) if isinstance(one[1], plain)
                ]
            for target, value in bound:
                variable = self.entry(target) or self.key(target)
                if variable is not None:
                    found[variable].append(value)
        return found
