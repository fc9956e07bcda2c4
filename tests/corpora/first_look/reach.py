"""Which code a script runs, as far as names tell: a function is reached where reached code mentions its name.

That is too much rather than too little: what is *not* reached here surely does not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from .checkout import Checkout

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Classes whose methods nobody but the mentioned names and the class's own protocol call.
PLAIN_BASES = frozenset(
    {"object", "Module", "Dataset", "IterableDataset", "Function", "ABC", "Enum", "Exception"}
)
BY_NAME = frozenset({"getattr", "globals", "locals", "eval", "exec", "vars", "attrgetter", "methodcaller"})
MOST_LOADED = 3000  # modules of one script
MOST_MODULES = 400  # that a module which is imported by a computed name may be
IMPORTERS = frozenset({"import_module", "__import__", "run_module", "run_path"})


@dataclass(eq=False)
class Unit:
    """Code that runs together: a module's top level or a function's body, without the functions inside it."""

    path: str
    node: ast.Module | Function
    parent: Unit | None
    owner: ast.ClassDef | None = None  # the class whose method it is

    @property
    def name(self) -> str:
        return "" if isinstance(self.node, ast.Module) else self.node.name

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Everything in it but what nested functions hold."""
        return list(_own_nodes(self.node))

    @cached_property
    def mentioned(self) -> frozenset[str]:
        names = [node.id for node in self.nodes if isinstance(node, ast.Name)]
        names += [node.attr for node in self.nodes if isinstance(node, ast.Attribute)]
        return frozenset(names)

    @cached_property
    def texts(self) -> frozenset[str]:
        constants = (node.value for node in self.nodes if isinstance(node, ast.Constant))
        return frozenset(text for text in constants if isinstance(text, str) and text.isidentifier())

    @cached_property
    def parameters(self) -> list[str]:
        if isinstance(self.node, ast.Module):
            return []
        given = self.node.args
        return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _own_nodes(top: ast.AST) -> Iterator[ast.AST]:
    stack = list(_inside(top, of_unit=True))[::-1]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(list(_inside(node))[::-1])


def _inside(node: ast.AST, *, of_unit: bool = False) -> Iterator[ast.AST]:
    """A node's children; of a nested function only what runs where it is defined; nothing of what never runs."""
    if isinstance(node, Function) and not of_unit:
        yield from (*node.decorator_list, *node.args.defaults, *(one for one in node.args.kw_defaults if one))
        return
    if isinstance(node, Function):
        yield from node.body
        return
    if isinstance(node, ast.If) and never(node.test):
        yield from node.orelse
        return
    yield from ast.iter_child_nodes(node)


def never(test: ast.expr) -> bool:
    """`if False:`, `if 0:`, `if TYPE_CHECKING:`."""
    if isinstance(test, ast.Constant):
        return not test.value
    return (test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")) == "TYPE_CHECKING"


def is_main_guard(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`, in either order, also as a part of a longer condition."""
    if not isinstance(node, ast.If):
        return False
    found = list(ast.walk(node.test))
    names = any(isinstance(one, ast.Name) and one.id == "__name__" for one in found)
    return names and any(isinstance(one, ast.Constant) and one.value == "__main__" for one in found)


def units_of(path: str, tree: ast.Module) -> list[Unit]:
    """The module, and every function in it."""
    top = Unit(path, tree, None)
    found = [top]
    stack: list[tuple[ast.AST, Unit, ast.ClassDef | None]] = [(tree, top, None)]
    while stack:
        node, unit, owner = stack.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                found.append(Unit(path, child, unit, owner))
                stack.append((child, found[-1], None))
            elif isinstance(child, ast.ClassDef):
                stack.append((child, unit, child))
            elif isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
                stack.append((child, unit, owner))
    return found


def _name(base: ast.expr) -> str:
    return base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")


class Reach:
    """What one script runs."""

    def __init__(self, checkout: Checkout, entry: str) -> None:
        self.checkout, self.entry = checkout, entry
        self.modules: dict[str, list[Unit]] = {}
        self.aliases: dict[str, set[str]] = {}  # `import x as y`: y to x
        self.active: dict[Unit, None] = {}  # in the order in which they are reached
        self._names: set[str] = set()
        self._texts: set[str] = set()
        self._by_name = False
        self._classes = set(PLAIN_BASES)
        self._asking: dict[str, list[Unit]] = {}  # by the names that would start them
        self._inner: dict[Unit, list[Unit]] = {}
        self._waiting: list[Unit] = []  # may have become reached
        self._load(entry)
        while self._waiting:
            unit = self._waiting.pop()
            if unit not in self.active and self._runs(unit):
                self._start(unit)

    def _load(self, path: str) -> None:
        if path in self.modules or len(self.modules) >= MOST_LOADED:
            return
        own = path == self.entry
        units = self.checkout.kept.get((path, own))
        if units is None:
            units = self.checkout.kept[path, own] = self._units(path, own)
        self.modules[path] = units
        self._classes |= {
            node.name for node in (units[0].nodes if units else ()) if isinstance(node, ast.ClassDef)
        }
        for unit in units:
            for name in (unit.name, *([unit.owner.name] if unit.owner else [])):
                self._asking.setdefault(name, []).append(unit)
            if unit.parent is not None:
                self._inner.setdefault(unit.parent, []).append(unit)
        self._waiting += reversed(units)

    def _units(self, path: str, own: bool) -> list[Unit]:
        tree = self.checkout.code(path).tree
        if tree is None:
            return []
        kept = [node for node in tree.body if own or not is_main_guard(node)]
        return units_of(path, ast.Module(kept, []))

    def _learn(self, names: Iterable[str]) -> None:
        """Code that runs mentions these names."""
        new = [name for name in names if name not in self._names]
        while new:
            name = new.pop()
            self._names.add(name)
            self._waiting += self._asking.get(name, ())
            new += [other for other in self.aliases.get(name, ()) if other not in self._names]

    def _runs(self, unit: Unit) -> bool:
        if unit.parent is None:
            return True
        if unit.parent not in self.active:
            return False
        if unit.owner is None:
            return unit.name in self._names or bool(getattr(unit.node, "decorator_list", ()))
        if unit.owner.name not in self._names:
            return False
        own = unit.name.startswith("__") or unit.name == "forward" or unit.name in self._names
        return own or not all(_name(base) in self._classes for base in unit.owner.bases)

    def _start(self, unit: Unit) -> None:
        self.active[unit] = None
        self._waiting += self._inner.get(unit, ())
        self._learn(unit.mentioned)
        self._texts |= unit.texts
        self._by_name = self._by_name or bool(unit.mentioned & BY_NAME)
        if self._by_name:
            self._learn(self._texts)
            self._texts = set()
        for node in unit.nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                for file, _ in list(self.checkout.imports(unit.path, node)):
                    self._load(file)
                for alias in node.names:
                    if alias.asname:
                        original = alias.name.rsplit(".", 1)[-1]
                        self.aliases.setdefault(alias.asname, set()).add(original)
                        if alias.asname in self._names:
                            self._learn([original])
        if unit.mentioned & IMPORTERS:
            modules = (file for file in self.checkout.files if file.endswith(".py"))
            for file in [file for file in modules if not self._trains_itself(file)][:MOST_MODULES]:
                self._load(file)

    def _trains_itself(self, path: str) -> bool:
        """Another training script, which no script means when it computes the name of a module."""
        code = self.checkout.code(path)
        guarded = code.tree is not None and any(map(is_main_guard, code.tree.body))
        return guarded and ".backward(" in code.text and ".step(" in code.text
