"""A script as the transformations see it: its tree, its variables, its loops, and the edits that make another of it."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import libcst as cst
from libcst import metadata
from libcst.helpers import get_full_name_for_node

# An edit gets the node with the edits below it already made.
Edit = Callable[[Any], Any]
Edits = dict[cst.CSTNode, Edit]

SEEN_THROUGH = {"enumerate", "tqdm", "islice", "iter", "Batches"}
DYNAMIC = re.compile(r"(?<![.\w])(exec|globals|locals|vars|eval)\(|__file__")


@dataclass(frozen=True)
class Project:
    """The files that a variation writes, by path: the script that is run, and the modules that it imports."""

    entry: str
    files: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.files[self.entry]

    def write(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8", newline="")

    def with_text(self, text: str, added: Mapping[str, str] | None = None) -> "Project":
        return replace(self, files={**self.files, self.entry: text, **(added or {})})


@dataclass(frozen=True)
class Variable:
    """A name of one scope, with every node that stores or reads it."""

    name: str
    scope: metadata.Scope
    stores: tuple[cst.Name, ...]
    loads: tuple[cst.Name, ...]
    plain: bool  # bound by nothing but assignments, loops and `with`

    @property
    def nodes(self) -> tuple[cst.Name, ...]:
        return (*self.stores, *self.loads)


@dataclass(frozen=True)
class Script:
    project: Project

    @cached_property
    def text(self) -> str:
        return self.project.text

    @cached_property
    def _wrapper(self) -> metadata.MetadataWrapper:
        return metadata.MetadataWrapper(cst.parse_module(self.text), unsafe_skip_copy=True)

    @property
    def module(self) -> cst.Module:
        return self._wrapper.module

    @cached_property
    def _scopes(self) -> Mapping[cst.CSTNode, metadata.Scope | None]:
        return self._wrapper.resolve(metadata.ScopeProvider)

    @cached_property
    def parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        return self._wrapper.resolve(metadata.ParentNodeProvider)

    @cached_property
    def _positions(self) -> Mapping[cst.CSTNode, Any]:
        return self._wrapper.resolve(metadata.PositionProvider)

    @cached_property
    def nodes(self) -> list[cst.CSTNode]:
        return list(walk(self.module))

    def line(self, node: cst.CSTNode) -> int:
        return int(self._positions[node].start.line)

    @property
    def dynamic(self) -> bool:
        """Names may be read in ways that no tree shows."""
        return DYNAMIC.search(self.text) is not None

    # Names

    @cached_property
    def _words(self) -> set[str]:
        return {word for text in self.project.files.values() for word in re.findall(r"\w+", text)} | {
            path.removesuffix(".py") for path in self.project.files
        }

    def fresh(self, name: str) -> str:
        """The name, with a number if the project has it already."""
        numbers = ("", *map(str, range(2, 100)))
        return next(name + number for number in numbers if name + number not in self._words)

    def scope(self, node: cst.CSTNode) -> metadata.Scope:
        """The scope that a module or a function makes, or that a node is in."""
        inner = node.body if isinstance(node, cst.FunctionDef) else node
        found = self._scopes[inner]
        assert found is not None
        return found

    @cached_property
    def _variables(self) -> dict[int, dict[str, Variable]]:
        return {}

    def variables(self, scope: metadata.Scope) -> dict[str, Variable]:
        """What a scope binds, imports and definitions included."""
        if id(scope) not in self._variables:
            self._variables[id(scope)] = self._bound(scope)
        return self._variables[id(scope)]

    def _bound(self, scope: metadata.Scope) -> dict[str, Variable]:
        found = {}
        for name in sorted({one.name for one in scope.assignments}):
            bound = [one for one in scope[name] if one.scope is scope]
            if not bound:
                continue
            nodes = [one.node if isinstance(one, metadata.Assignment) else None for one in bound]
            stores = tuple(node for node in nodes if isinstance(node, cst.Name))
            loads = {access.node: None for one in bound for access in one.references}
            names = tuple(node for node in loads if isinstance(node, cst.Name) and node not in stores)
            plain = len(stores) == len(nodes) and len(names) == len([n for n in loads if n not in stores])
            found[name] = Variable(name, scope, stores, names, plain)
        return found

    def globals(self) -> dict[str, Variable]:
        return self.variables(self.scope(self.module))

    def enclosing(self, node: cst.CSTNode, *kinds: type[cst.CSTNode]) -> cst.CSTNode | None:
        """The innermost node of these kinds around a node."""
        return next((one for one in self.around(node) if isinstance(one, kinds)), None)

    def around(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        above = self.parents.get(node)
        while above is not None:
            yield above
            above = self.parents.get(above)

    def function_of(self, node: cst.CSTNode) -> cst.CSTNode:
        return self.enclosing(node, cst.FunctionDef) or self.module

    def in_fstring(self, node: cst.CSTNode) -> bool:
        return self.enclosing(node, cst.FormattedStringExpression) is not None

    # What the script trains with

    def functions(self) -> list[cst.FunctionDef]:
        """Those at the top of the module."""
        return [one for one in self.module.body if isinstance(one, cst.FunctionDef)]

    def classes(self) -> list[cst.ClassDef]:
        return [one for one in self.module.body if isinstance(one, cst.ClassDef)]

    def models(self) -> list[cst.ClassDef]:
        """Classes of modules."""
        bases = ("Module", "Sequential")
        return [c for c in self.classes() if any((full_name(b.value) or "").endswith(bases) for b in c.bases)]

    def calls(self, *names: str) -> list[cst.Call]:
        return [one for one in self.nodes if isinstance(one, cst.Call) and called(one) in names]

    def training_loops(self) -> list[cst.For]:
        """The innermost loops over data that hold a backward or a step."""
        return [one for one in self._data_loops() if trains(one)]

    def evaluation_loops(self) -> list[cst.For]:
        """Innermost loops over a name without a gradient."""
        found = []
        for loop in self._data_loops():
            within = [one for one in self.around(loop) if isinstance(one, cst.With | cst.FunctionDef)]
            texts = [self.code(one) for one in within]
            evaluates = any("no_grad" in text or ".eval()" in text for text in texts)
            if evaluates and not trains(loop) and isinstance(source(loop.iter), cst.Name | cst.Attribute):
                found.append(loop)
        return found

    def _data_loops(self) -> Iterator[cst.For]:
        for one in self.nodes:
            if not isinstance(one, cst.For) or one.orelse or one.asynchronous:
                continue
            if not isinstance(one.body, cst.IndentedBlock) or called(one.iter) in ("range", "trange"):
                continue
            inner = [n for n in walk(one.body) if isinstance(n, cst.For) and called(n.iter) != "range"]
            if not any(trains(n) for n in inner):
                yield one

    # Texts

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node).strip()

    def parsed(self, code: str) -> list[cst.BaseStatement]:
        """Statements of the script's own indentation."""
        indented = code.replace("    ", self.module.default_indent)
        return list(cst.parse_module(indented, config=self.module.config_for_parsing).body)  # type: ignore[arg-type]

    def one(self, code: str) -> Any:
        return self.parsed(code)[0]

    def edited(self, edits: Edits) -> cst.Module:
        return self.module.visit(_Edited(edits))


class _Edited(cst.CSTTransformer):
    def __init__(self, edits: Edits) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        edit = self._edits.get(original_node)
        return updated_node if edit is None else edit(updated_node)


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from walk(child)


def own_walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Everything below that runs when the node runs: no bodies of functions and classes."""
    yield node
    for child in node.children:
        if isinstance(child, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            yield child
        else:
            yield from own_walk(child)


def full_name(node: cst.CSTNode) -> str:
    return get_full_name_for_node(node) or ""


def called(node: cst.CSTNode) -> str:
    """The last part of the name that a call calls; "" for what is no call."""
    if not isinstance(node, cst.Call):
        return ""
    function = node.func
    last = function.attr if isinstance(function, cst.Attribute) else function
    return last.value if isinstance(last, cst.Name) else ""


def trains(node: cst.CSTNode) -> bool:
    return any(called(one) in ("backward", "step") for one in own_walk(node))


def source(iterated: cst.BaseExpression) -> cst.BaseExpression:
    """What a loop reads, seen through `enumerate` and bars."""
    while isinstance(iterated, cst.Call) and called(iterated) in SEEN_THROUGH and iterated.args:
        iterated = iterated.args[0].value
    return iterated


def name_targets(target: cst.CSTNode) -> list[str]:
    """The names in a loop's target."""
    return [one.value for one in walk(target) if isinstance(one, cst.Name)]


def leaves_early(node: cst.CSTNode, inside: bool = False) -> bool:
    """Whether a statement returns, yields, or breaks out of a loop around it."""
    if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        return False
    if isinstance(node, cst.Return | cst.Yield | cst.Await | cst.Global | cst.Nonlocal | cst.Del):
        return True
    if isinstance(node, cst.Break | cst.Continue) and not inside:
        return True
    inside = inside or isinstance(node, cst.For | cst.While)
    return any(leaves_early(child, inside) for child in node.children)


def is_docstring(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    return isinstance(first, cst.Expr) and isinstance(first.value, cst.SimpleString | cst.ConcatenatedString)


def is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(one, cst.Import | cst.ImportFrom) for one in statement.body
    )


def is_guard(statement: cst.CSTNode) -> bool:
    """`if __name__ == "__main__":`"""
    test = statement.test if isinstance(statement, cst.If) else None
    return isinstance(test, cst.Comparison) and "__name__" in name_targets(test)


def with_top(module: cst.Module, *statements: cst.BaseStatement) -> cst.Module:
    """The module with statements behind its docstring and its first imports."""
    body = list(module.body)
    first = (n for n, one in enumerate(body) if not is_docstring(one) and not is_import(one))
    index = next(first, len(body))
    return module.with_changes(body=[*body[:index], *statements, *body[index:]])


def with_import(module: cst.Module, line: str) -> cst.Module:
    """The module with an import, behind its docstring and what it imports from the future."""
    body = list(module.body)
    if any(module.code_for_node(one).strip() == line for one in body):
        return module
    index = 0
    while index < len(body) and (
        is_docstring(body[index]) or "from __future__" in module.code_for_node(body[index])
    ):
        index += 1
    statement = cst.parse_statement(line)
    if index < len(body):
        first = body[index]
        statement = statement.with_changes(leading_lines=first.leading_lines)  # type: ignore[union-attr]
        body[index] = first.with_changes(leading_lines=[])
    return module.with_changes(body=[*body[:index], statement, *body[index:]])


def text_name(name: str) -> Edit:
    """The edit that writes an expression in a name's place."""
    expression = cst.parse_expression(name)
    return lambda updated: expression.with_changes(
        lpar=[*expression.lpar, *updated.lpar], rpar=[*expression.rpar, *updated.rpar]
    )
