"""Where the parts of a path come from: the calls that draw a name, ask the time, or list a folder."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cached_property

from crosstrain_migrate.core.placing.options import Options
from crosstrain_migrate.core.reading.forms import Frame, is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.program import Region
from crosstrain_migrate.syntax.walks import walk_all

NAMES = frozenset(
    {
        *("now", "today", "utcnow", "time", "time_ns", "strftime", "ctime", "asctime", "localtime"),
        *("uuid4", "uuid1", "getpid", "glob", "iglob", "listdir"),
    }
)
LISTS = frozenset({"glob", "listdir"})
DRAWS = frozenset({"randint", "randrange", "getrandbits", "token_hex", "random", "choice", "choices"})
# A number or letters of a name, where a module of this name draws them.
_OF_RANDOM = re.compile(r"(random|choices?)$")
# On disk, by each process for itself.
MADE = frozenset({"mkdtemp", "mkstemp", "TemporaryDirectory", "NamedTemporaryFile"})
IDS = frozenset({"uuid4", "uuid1", "token_hex", "getpid"})
OWN = IDS | DRAWS  # by which no two processes, nor two runs, have the same name
NUMBERS = frozenset({"item"})  # of the batches that a process trains on
_DEPTH = 9


class Sources:
    """Answers for any path. common: the calls whose text all have from the main process."""

    def __init__(self, script: Script, roles: Roles) -> None:
        self.script = script
        self.roles = roles
        self.common: set[ast.Call] = set()
        self.reads = False  # whether paths that are read are asked about
        self._keys: set[str] = set()  # of the entries under which something is written
        self._options = Options(script)

    def of(self, path: ast.expr | None, names: frozenset[str] = NAMES | DRAWS | MADE) -> list[ast.Call]:
        """The calls from which such a text comes; those of which all have the main process's are none any more."""
        found: list[ast.Call] = []
        parts = [path] if path is not None else []
        seen: set[ast.expr] = set(parts)
        for _ in range(_DEPTH):
            below = [value for node in walk_all(parts) for value in self._sources(node, names, found)]
            parts = [value for value in dict.fromkeys(below) if value not in seen]
            seen |= set(parts)
        return [one for one in found if one not in self.common]

    def _sources(self, node: ast.AST, names: frozenset[str], found: list[ast.Call]) -> list[ast.expr]:
        """Where a part of a path comes from; a call that makes such a text joins `found`."""
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            option = self._options.read_by(node) if isinstance(node, ast.Attribute) else None
            default = [option.default] if option is not None and option.default is not None else []
            items = _items_of(self.script, node) if names is MADE else []
            bound = [*_bound_to(self.script, node), *self._entries_of(node)]
            return [*bound, *self._added_to(node), *default, *items]
        if not isinstance(node, ast.Call) or node in self.common:
            return []
        if last_name(node.func) in names and self._may_draw(node):
            if names is not NUMBERS or self._is_trained(node):
                found.append(node)
            return []
        if is_method(node, "format"):  # `"{rate}-{time}".format(**options)`, where `options["time"] = now()`
            held = {written(k.value) for k in node.keywords if k.arg is None}
            return [value for value, of in self._entries if of in held]
        if written(node.func) == "int":  # `for name in listdir(path): last = int(name)`
            return [one.iter for one in self.script.loops_around(node) if isinstance(one, ast.For)]
        functions = self.script.functions_of(node)
        return [n.value for n in walk_all(functions) if isinstance(n, ast.Return | ast.Yield) and n.value]

    @cached_property
    def _entries(self) -> list[tuple[ast.expr, str]]:
        """What is bound to an entry of a dictionary, and to which one's."""
        bound = [(one.value, t) for one in self.script.table.each(ast.Assign) for t in one.targets]
        return [(value, written(t.value)) for value, t in bound if isinstance(t, ast.Subscript)]

    def _entries_of(self, node: ast.expr) -> list[ast.expr]:
        """What is bound to the entries of a dictionary within another, `options["path"][key] = value`, whatever holds that; to one
        that is read, `options["path"]["old"]`, only where something is written under it."""
        of = node.value if isinstance(node, ast.Subscript) else None
        if not isinstance(node, ast.Subscript) or not isinstance(of, ast.Subscript):
            return []
        if self.reads and written(node.slice) not in self._keys:
            return []
        self._keys.add(written(node.slice))
        entries = ((t, one.value) for one in self.script.table.each(ast.Assign) for t in one.targets)
        return [
            value
            for entry, value in entries
            if isinstance(entry, ast.Subscript) and isinstance(entry.value, ast.Subscript)
            if written(entry.value.slice) == written(of.slice)
            if isinstance(entry.slice, ast.Name) or written(entry.slice) == written(node.slice)
        ]

    def _added_to(self, node: ast.Name | ast.Attribute | ast.Subscript) -> list[ast.expr]:
        """What is added to a variable in its function or file, to an attribute or an entry anywhere."""
        frame, is_own = self.script.frame(node), isinstance(node, ast.Name)
        added = self._additions.get(written(node), ())
        return [one.value for one in added if not is_own or self.script.frame(one) is frame]

    @cached_property
    def _additions(self) -> dict[str, list[ast.AugAssign]]:
        found: dict[str, list[ast.AugAssign]] = defaultdict(list)
        for one in self.script.table.each(ast.AugAssign):
            found[written(one.target)].append(one)
        return found

    def _may_draw(self, call: ast.Call) -> bool:
        """Whether what is called like a draw is one: `SystemRandom().random()`, and no method of the project's."""
        of = self.script.dotted(call.func).rpartition(".")[0] or ast.unparse(call.func).rpartition(".")[0]
        return not _OF_RANDOM.match(last_name(call.func)) or of.lower().endswith(("random", "random()"))

    def _is_trained(self, node: ast.AST) -> bool:
        """Whether a number comes up in a pass that trains, and in no loop within it: an evaluation's."""
        passes = [data.loop for data in self.roles.data]
        return any(one in passes for one in self.script.loops_around(node)[:1])


def _items_of(script: Script, node: ast.expr) -> list[ast.expr]:
    """What a variable is one of, in the loops around it, and what is appended to a list."""
    loops = [one for one in script.loops_around(node) if isinstance(one, ast.For)]
    calls = [c for c in script.calls_in(script.frame(node)) if is_method(c, "append")]
    return [
        *(one.iter for one in loops if written(node) in names_in(one.target)),
        *(
            c.args[0]
            for c in calls
            if isinstance(c.func, ast.Attribute) and written(c.func.value) == written(node)
        ),
    ]


def _bound_to(script: Script, node: ast.Name | ast.Attribute | ast.Subscript) -> list[ast.expr]:
    """What a variable is bound to in its function or file, an attribute or an entry anywhere, a parameter where it is given."""
    frame = script.frame(node)
    if not isinstance(node, ast.Name):
        named = script.functions(node.attr) if isinstance(node, ast.Attribute) else []
        properties = (one for one in named if "property" in map(written, one.decorator_list))
        returned = [n.value for one in properties for n in script.within(one) if isinstance(n, ast.Return)]
        text = written(node)
        kept = [*script.values_anywhere(text), *_of_another_file(script, node), *_of_class(script, node)]
        kept = kept or _of_object(script, node)
        return [*kept, *(value for value in returned if value is not None)]
    # `handle, path = tempfile.mkstemp()`
    parts = [call for call, _ in script.unpacked(frame, node.id) if last_name(call.func) in MADE]
    if values := [*script.values(frame, node.id), *parts]:
        return values
    if node.id not in script.parameters(frame):
        return _globals(script, script.module(node), node.id) or _of_another_file(script, node)
    given = [value for value, _ in script.given_for(frame, node.id)]
    if given or getattr(frame, "name", "") != "__init__":
        return given
    return [k.value for call, k in script.given_by_name.get(node.id, ()) if _makes(script, call, frame)]


def _of_class(script: Script, node: ast.Attribute | ast.Subscript) -> list[ast.expr]:
    """What a class of the project itself binds to an attribute of its own, `Paths.folder`."""
    classes = script.classes(script.last(node.value)) if isinstance(node, ast.Attribute) else []
    bound = [one for cls in classes for one in cls.body if isinstance(one, ast.Assign)]
    return [
        one.value
        for one in bound
        if isinstance(node, ast.Attribute) and node.attr in map(written, one.targets)
    ]


def _of_object(script: Script, node: ast.Attribute | ast.Subscript) -> list[ast.expr]:
    """What the methods of a class bind to an attribute of its object, `logger.folder` of `logger = Logger()`."""
    if not isinstance(node, ast.Attribute):
        return []
    of = node.value
    made = [
        *script.values(script.frame(of), written(of)),
        *(v for v, _ in script.given_for(script.frame(of), written(of))),
    ]
    classes = [cls for value in made if (cls := script.class_behind(value)) is not None]
    methods = [m for cls in classes for m in script.all_methods(cls)]
    return [value for m in methods for value in script.values(m, f"self.{node.attr}")]


def _of_another_file(script: Script, node: ast.Name | ast.Attribute | ast.Subscript) -> list[ast.expr]:
    """What another file of the project binds a global to, `settings.folder`, or `folder` of `from settings import folder`."""
    here, (path, _, name) = script.module(node), script.dotted(node).rpartition(".")
    linked = script.links.find(here, 0, path) if path and isinstance(here, Region) else None
    module = script.links.region(linked)
    return _globals(script, module, name) if module is not None else []


def _globals(script: Script, module: ast.Module, name: str) -> list[ast.expr]:
    """What a file binds a name to, at its head or in the functions that call it global."""
    frames = (one for one in script.frames_in(module) if one is module or not script.binds(one, name))
    return [value for one in frames for value in script.values(one, name)]


def _makes(script: Script, call: ast.Call, init: Frame) -> bool:
    """Whether a call makes an object which an `__init__` fills, also one of a class that hands on what it is given by name."""
    names = (script.last(call.func), *script.classes_held(call.func))
    return any(init in script.all_methods(one) for name in names for one in script.classes(name))


def is_of_system(draw: ast.Call) -> bool:
    """`random.SystemRandom().choice(letters)`, which no seed makes alike."""
    return isinstance(draw.func, ast.Attribute) and "SystemRandom" in ast.unparse(draw.func.value)
