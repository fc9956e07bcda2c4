"""Gives every variable, function and class of a script another name of the same length.

Only what the script itself names is renamed, and only where that changes nothing: not what it imports, not attributes
and keywords of other people's objects, not names that a string or a keyword of an unknown function may spell.
Equal lengths keep every column, and so every decision about long lines, where it was.
"""

from __future__ import annotations

import ast
import builtins
import keyword
from collections import defaultdict
from collections.abc import Iterable

import libcst as cst

# What the tool itself may call something, and what Python and PyTorch give a meaning to.
KEPT = {"accelerator", "output", "outputs", "gathered", "all_outputs", "self", "cls", "Accelerator"}
# Methods of other objects that a script's own attribute may share its name with.
_OF_TORCH = (
    "step zero_grad train eval to cuda backward forward parameters state_dict data grad device shape "
    "dtype item mean sum log save load write close dataset weight bias training params defaults state "
    "param_groups last_epoch base_lrs"
)
COMMON = {name for kind in (str, list, dict, set, tuple, bytes) for name in dir(kind)} | {*_OF_TORCH.split()}


class Names:
    """Which names of a script may get another one."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.imported: set[str] = set()
        self.bound: set[str] = set()
        self.fixed: set[str] = {*KEPT, *dir(builtins), *keyword.kwlist}
        self.parameters: dict[str, set[str]] = defaultdict(set)  # function, class or method -> its parameters
        for node in ast.walk(tree):
            self._definition(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._call(node)
        self.attributes = self._own_attributes()

    def _definition(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.imported.update((a.asname or a.name).split(".")[0] for a in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.bound.add(node.name)
            self.parameters[node.name].update(_parameters(node.args))
            self.bound.update(_parameters(node.args))
        elif isinstance(node, ast.Lambda):
            self.bound.update(_parameters(node.args))
        elif isinstance(node, ast.ClassDef):
            self._class(node)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.bound.add(node.id)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.bound.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            self.fixed.add(node.value)

    def _class(self, node: ast.ClassDef) -> None:
        self.bound.add(node.name)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self.fixed.add(statement.name)
                if statement.name == "__init__":
                    self.parameters[node.name].update(_parameters(statement.args))
            else:  # fields are attributes, and keywords of a constructor nobody wrote
                self.fixed.update(n.id for n in ast.walk(statement) if isinstance(n, ast.Name))

    def _call(self, node: ast.Call) -> None:
        """Keywords of a function that is not known to be the script's own, or an import, stay; so do `**` ones."""
        own = self.callee(node.func)
        root = node.func
        while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
            root = root.func if isinstance(root, ast.Call) else root.value
        foreign = isinstance(root, ast.Name) and (root.id in self.imported or root.id in dir(builtins))
        for given in node.keywords:
            if given.arg is None and own is not None:
                self.fixed.update(self.parameters[own])
            elif given.arg is not None and own is None and not foreign:
                self.fixed.add(given.arg)

    def callee(self, function: ast.expr) -> str | None:
        """The script's own function, class or method that a call names."""
        name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", None)
        return name if name in self.parameters and name not in self.imported else None

    def _own_attributes(self) -> set[str]:
        """Attributes that the script gives to `self` and that nothing else has."""
        stored, elsewhere = set[str](), set[str]()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute):
                mine = isinstance(node.value, ast.Name) and node.value.id == "self"
                (
                    stored if mine and isinstance(node.ctx, ast.Store) else elsewhere if not mine else set()
                ).add(node.attr)
        methods = {n.name for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef)}
        return stored - elsewhere - methods - self.imported - self.fixed - COMMON

    @property
    def free(self) -> set[str]:
        return {n for n in self.bound - self.imported - self.fixed if not n.startswith("__") and n != "_"}

    @property
    def taken(self) -> set[str]:
        """Every other name that occurs anywhere."""
        found = {*self.fixed, *self.imported}
        for node in ast.walk(self.tree):
            found.update(
                v
                for v in (getattr(node, f, None) for f in ("id", "attr", "arg", "name"))
                if isinstance(v, str)
            )
        return found - self.free - self.attributes


def _parameters(arguments: ast.arguments) -> Iterable[str]:
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    return [a.arg for a in every if a is not None]


class Renaming:
    """One consistent renaming of a script; `apply` works on the script and on what a migration made of it."""

    def __init__(self, text: str) -> None:
        names = Names(ast.parse(text))
        self.names = names
        self.new = _shifted(names.free | names.attributes, names.taken)

    def apply(self, text: str) -> str:
        return cst.parse_module(text).visit(_Renamer(self)).code


def _shifted(names: set[str], taken: set[str]) -> dict[str, str]:
    """Every letter moves by the same number of places in the alphabet, the first number that makes no clash."""
    for places in range(1, 26):
        new = {name: "".join(_letter(c, places) for c in name) for name in names}
        clashes = {n for n, other in new.items() if other in taken or keyword.iskeyword(other)}
        if not clashes:
            return new
    fewer = {n for n in names if n not in clashes}
    return _shifted(fewer, taken | clashes)


def _letter(character: str, places: int) -> str:
    for first in "aA":
        if first <= character <= chr(ord(first) + 25):
            return chr((ord(character) - ord(first) + places) % 26 + ord(first))
    return character


class _Renamer(cst.CSTTransformer):
    def __init__(self, renaming: Renaming) -> None:
        super().__init__()
        self.names, self.new = renaming.names, renaming.new

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        if original_node.value in self.names.free:
            return updated_node.with_changes(value=self.new.get(original_node.value, original_node.value))
        return updated_node

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        name = original_node.attr.value
        mine = isinstance(original_node.value, cst.Name) and original_node.value.value == "self"
        own = mine and name in self.names.attributes
        return updated_node.with_changes(attr=cst.Name(self.new.get(name, name) if own else name))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        function = original_node.func
        last = function.attr if isinstance(function, cst.Attribute) else function
        own = self.names.parameters.get(last.value, set()) if isinstance(last, cst.Name) else set()
        if isinstance(last, cst.Name) and last.value in self.names.imported:
            own = set()
        arguments = []
        for before, after in zip(original_node.args, updated_node.args, strict=True):
            name = before.keyword.value if before.keyword else None
            keep = name is not None and not (name in own and name in self.names.free)
            arguments.append(after.with_changes(keyword=before.keyword) if keep else after)
        return updated_node.with_changes(args=arguments)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        return original_node

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        return original_node
