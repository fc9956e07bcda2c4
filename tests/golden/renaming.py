"""Gives every variable, function and class of a script another name of the same length.

Only what the script itself names is renamed, and only where that changes nothing: not what it imports, not attributes
and keywords of other people's objects, not names that a string or a keyword of its own functions may spell.
Equal lengths keep every column, and so every decision about long lines, where it was.
"""

import ast
import builtins
import keyword
from collections import defaultdict

import libcst as cst

# What the tool itself may call something, and what Python and PyTorch give a meaning to.
KEPT = {"accelerator", "output", "outputs", "gathered", "all_outputs", "self", "cls", "Accelerator", "_"}
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
        self.imported: set[str] = set()
        bound: set[str] = set()
        self.fixed: set[str] = {*KEPT, *dir(builtins), *keyword.kwlist}
        parameters: dict[str, set[str]] = defaultdict(set)  # function, class or method -> its parameters
        every = list(ast.walk(tree))
        for node in every:
            match node:
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    self.imported.update((a.asname or a.name).split(".")[0] for a in names)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    bound.add(name)
                    parameters[name].update(a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg))
                case ast.ClassDef(name=name):
                    bound.add(name)
                    for one in node.body:  # fields are attributes, and keywords of a constructor nobody wrote
                        is_method = isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                        inner = [] if is_method else list(ast.walk(one))
                        self.fixed.update(n.id for n in inner if isinstance(n, ast.Name))
                        self.fixed.update({one.name} if is_method else ())  # type: ignore[attr-defined]
                case ast.arg(arg=name) | ast.ExceptHandler(name=str(name)):
                    bound.add(name)
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    bound.add(name)
                case ast.Constant(value=str(text)) if text.isidentifier():
                    self.fixed.add(text)
        for node in every:
            if isinstance(node, ast.Call):
                self._call(node, parameters)
        self.free = {n for n in bound - self.imported - self.fixed if not n.startswith("__")}
        self.attributes = self._own_attributes(every)
        fields = ("id", "attr", "arg", "name")
        found = {value for node in every for f in fields if isinstance(value := getattr(node, f, None), str)}
        # Every other name that occurs anywhere.
        self.taken = (found | self.fixed | self.imported) - self.free - self.attributes

    def _call(self, node: ast.Call, parameters: dict[str, set[str]]) -> None:
        """Keywords of what is not known to be an import stay, and so do parameters that `**` may give."""
        root = node.func
        while isinstance(root, ast.Attribute | ast.Call | ast.Subscript):
            root = root.func if isinstance(root, ast.Call) else root.value
        foreign = isinstance(root, ast.Name) and (root.id in self.imported or root.id in dir(builtins))
        for given in node.keywords:
            if given.arg is None:
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                self.fixed.update(parameters[called] | parameters["__init__"])
            elif not foreign:
                self.fixed.add(given.arg)

    def _own_attributes(self, every: list[ast.AST]) -> set[str]:
        """Attributes that the script gives to `self` and that nothing else has."""
        stored, elsewhere = set[str](), set[str]()
        for node in every:
            match node:
                case ast.Attribute(value=ast.Name(id="self"), ctx=ctx):
                    stored.update({node.attr} if isinstance(ctx, ast.Store) else ())
                case ast.Attribute() | ast.FunctionDef():
                    elsewhere.add(node.attr if isinstance(node, ast.Attribute) else node.name)
        return stored - elsewhere - self.imported - self.fixed - COMMON


class Renaming(cst.CSTTransformer):
    """One consistent renaming of a script; `apply` works on the script and on what a migration made of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names = Names(ast.parse(text))
        self.new = _shifted(self.names.free | self.names.attributes, self.names.taken)

    def apply(self, text: str) -> str:
        return cst.parse_module(text).visit(self).code

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        name = original_node.value
        # The tool calls what it puts beside `steps` `own_steps`.
        beside, of = ("own_", name.removeprefix("own_")) if name.startswith("own_") else ("", name)
        return updated_node.with_changes(value=beside + self.new.get(of, of) if of in self.names.free else name)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        name = original_node.attr.value
        mine = isinstance(original_node.value, cst.Name) and original_node.value.value == "self"
        own = mine and name in self.names.attributes
        return updated_node.with_changes(attr=cst.Name(self.new.get(name, name) if own else name))

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        return original_node

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        return original_node


def _shifted(names: set[str], taken: set[str]) -> dict[str, str]:
    """Every letter moves by the same number of places in the alphabet, the first number that makes no clash."""
    for places in range(1, 26):
        new = {name: "".join(_letter(c, places) for c in name) for name in names}
        clashes = {n for n, other in new.items() if other in taken or keyword.iskeyword(other)}
        if not clashes:
            return new
    return _shifted(names - clashes, taken | clashes)


def _letter(character: str, places: int) -> str:
    for first in "aA":
        if first <= character <= chr(ord(first) + 25):
            return chr((ord(character) - ord(first) + places) % 26 + ord(first))
    return character
