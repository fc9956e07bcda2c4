"""What the other modules ask about the code of a script: who calls whom, what stands around what, what a name imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import takewhile

from crosstrain_migrate.core.reading.forms import (
    FUNCTIONS,
    LOOPS,
    Frame,
    Loop,
    bound_in,
    is_function_frame,
    is_method,
    names_no_gradient,
    plain_text,
    root_of,
    without_gradient,
)
from crosstrain_migrate.syntax.nodes import (
    Function,
    all_arguments,
    gives_itself,
    last_name,
    place_of,
    written,
)
from crosstrain_migrate.syntax.places import Places
from crosstrain_migrate.syntax.program import Region, links_of, modules_of, parse, path_of
from crosstrain_migrate.syntax.program import parts as files_of
from crosstrain_migrate.syntax.scopes import ScopeTable, suites
from crosstrain_migrate.syntax.walks import walk

from .imported import imports_of, is_converted, is_left
from .made import made_steps
from .reached import Reached, calls_plain, classes_called

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "DDP", "compile")
_GIVE_SELF = ("to", "cuda", "cpu", "train", "eval", "float", "half", "double", "requires_grad_")


class Script:
    """A script with the files that it imports from its project; the script's own file is the last module."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parse(text)
        self.table = ScopeTable(self.tree)
        self.modules = modules_of(self.tree)
        self.entry = self.modules[-1]
        self.shared = {part.path for part in files_of(text) if part.shared}
        self._places = Places(text)
        self._callers: dict[Function, list[ast.Call]] = {}
        self._dotted: dict[ast.AST, str] = {}
        self.links = links_of(self.tree)

    @cached_property
    def converted(self) -> set[ast.Module]:
        """The script, where it uses a runtime already, and the files that were converted with another script."""
        return {one for one in self.modules if (is_converted if one is self.entry else is_left)(one)}

    # -- one node ----------------------------------------------------------------------------------------------

    def source(self, node: ast.AST) -> str:
        """The text of a node, as its author wrote it."""
        return self._places.source(node)

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.table.parents.get(node)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        return self.table.ancestors(node)

    def statement(self, node: ast.AST) -> ast.stmt:
        return self.table.statement_of(node)

    def module(self, node: ast.AST) -> ast.Module:
        return self.table.of_node[node].file if not isinstance(node, ast.Module) else node

    def frame(self, node: ast.AST) -> Frame:
        """The function whose body `node` stands in, else the file; a lambda and a class body have no frame of their own."""
        return self.table.function_around(node) or self.module(node)

    def is_entry(self, node: ast.AST) -> bool:
        """Whether a node stands in the script's own file."""
        return self.module(node) is self.entry

    def is_shared(self, node: ast.AST) -> bool:
        """Whether a node stands in a file that other scripts of the project import."""
        return path_of(self.module(node)) in self.shared

    def class_of(self, frame: Frame) -> ast.ClassDef | None:
        """The class whose method a frame is."""
        parent = self.parent(frame) if isinstance(frame, FUNCTIONS) else None
        return parent if isinstance(parent, ast.ClassDef) else None

    def methods(self, cls: ast.ClassDef) -> list[Function]:
        return [node for node in cls.body if isinstance(node, FUNCTIONS)]

    def all_methods(self, cls: ast.ClassDef, depth: int = 4) -> list[Function]:
        """The methods of a class, and of those of the project that it derives from: `super().__init__(loader)` runs theirs."""
        bases = [base for name in cls.bases for base in self.classes(self.last(name))] if depth else []
        return [*self.methods(cls), *(m for base in bases for m in self.all_methods(base, depth - 1))]

    def loops_around(self, node: ast.AST) -> list[Loop]:
        """The loops of the same frame around a node, innermost first."""
        found: list[Loop] = []
        for one in self.around(node):
            if isinstance(one, FUNCTIONS):
                break
            if isinstance(one, LOOPS):
                found.append(one)
        return found

    def loop_of(self, node: ast.AST) -> Loop | None:
        """The innermost loop around a node."""
        return next((one for one in self.around(node) if isinstance(one, LOOPS)), None)

    def suite_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that a statement is one of."""
        parent = self.parent(statement)
        assert parent is not None
        return next((suite for suite in suites(parent) if statement in suite), [statement])

    def in_lambda(self, node: ast.AST) -> bool:
        return any(isinstance(one, ast.Lambda) for one in self.around(node))

    def is_without_gradient(self, node: ast.AST) -> bool:
        """Whether code stands in a `with torch.no_grad():` of its function, or that is decorated so."""
        around = (node, *self.around(node))
        own = takewhile(lambda one: not isinstance(one, FUNCTIONS), around)
        decorators = getattr(self.frame(node), "decorator_list", ())
        return any(map(names_no_gradient, decorators)) or any(
            without_gradient(one) for one in own if isinstance(one, ast.With)
        )

    # -- frames ------------------------------------------------------------------------------------------------

    def within(self, frame: Frame) -> list[ast.AST]:
        """The nodes of a frame, without those of functions inside it, in the order of the text."""
        return self._within[frame]

    @cached_property
    def _within(self) -> dict[Frame, list[ast.AST]]:
        found: dict[Frame, list[ast.AST]] = {frame: [] for frame in self.frames}
        for node in self.table.parents:
            if not isinstance(node, ast.Module):
                found[self.frame(node)].append(node)
        return {frame: sorted(nodes, key=place_of) for frame, nodes in found.items()}

    @cached_property
    def frames(self) -> list[Frame]:
        return [*self.modules, *(n for n in self.table.parents if isinstance(n, FUNCTIONS))]

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call in reached code, in the order of the text."""
        return self.calls_that(lambda _: True)

    def calls_that(self, is_one: Callable[[ast.Call], object]) -> list[ast.Call]:
        """Those calls of which something is true; what is reached, which takes long to know, is asked of these alone."""
        found = [
            n for n in self.table.parents if isinstance(n, ast.Call) and is_one(n) and self.is_reached(n)
        ]
        return sorted(found, key=place_of)

    def calls_in(self, frame: Frame) -> list[ast.Call]:
        return self._calls_in[frame]

    @cached_property
    def _calls_in(self) -> dict[Frame, list[ast.Call]]:
        return {f: [n for n in nodes if isinstance(n, ast.Call)] for f, nodes in self._within.items()}

    def parameters(self, frame: Frame) -> list[str]:
        return [] if isinstance(frame, ast.Module) else [one.arg for one in all_arguments(frame)]

    def binds(self, frame: Frame, name: str) -> bool:
        """Whether `name` is a variable of the frame itself, a parameter included."""
        scope = self.table.scopes[frame]
        return scope.resolve(name) is scope

    def stores(self, frame: Frame, text: str) -> list[ast.Name | ast.Attribute]:
        """Where a frame binds the variable or the attribute `text`."""
        return [node for node in self._names_in(frame, text) if not isinstance(node.ctx, ast.Load)]

    def reads(self, frame: Frame, text: str) -> list[ast.expr]:
        """Where a frame reads the variable or the attribute `text`."""
        return [node for node in self._names_in(frame, text) if isinstance(node.ctx, ast.Load)]

    def values(self, frame: Frame, text: str) -> list[ast.expr]:
        """What a frame's plain assignments and `with` blocks bind the variable or the attribute `text` to."""
        return self._values[frame].get(text, [])

    def _names_in(self, frame: Frame, text: str) -> list[ast.Name | ast.Attribute]:
        return self._names[frame].get(text, [])

    @cached_property
    def _names(self) -> dict[Frame, dict[str, list[ast.Name | ast.Attribute]]]:
        found: dict[Frame, dict[str, list[ast.Name | ast.Attribute]]] = {}
        for frame, nodes in self._within.items():
            own = found[frame] = defaultdict(list)
            same = {id(node.targets[0]) for node in nodes if gives_itself(node)}
            for node in nodes:
                if isinstance(node, ast.Name | ast.Attribute) and id(node) not in same:
                    own[written(node)].append(node)
        return found

    @cached_property
    def _values(self) -> dict[Frame, dict[str, list[ast.expr]]]:
        found: dict[Frame, dict[str, list[ast.expr]]] = {}
        for frame, nodes in self._within.items():
            own = found[frame] = defaultdict(list)
            others = (node for node in nodes if not gives_itself(node))
            for target, value in (bound for node in others for bound in bound_in(node)):
                own[written(target)].append(value)
        return found

    def first_statement(self, frame: Frame) -> ast.stmt:
        """The first statement of a frame behind its docstring, what it declares global, and imports from `__future__`."""
        body = frame.body
        for statement in body:
            is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
            is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not is_text and not is_future and not isinstance(statement, ast.Global | ast.Nonlocal):
                return statement
        return body[-1]

    # -- who calls whom ----------------------------------------------------------------------------------------

    @cached_property
    def defined(self) -> dict[str, list[Function | ast.ClassDef]]:
        """The functions, methods and classes of a name."""
        found: dict[str, list[Function | ast.ClassDef]] = defaultdict(list)
        for node in self.table.parents:
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                found[node.name].append(node)
        return found

    def classes(self, name: str) -> list[ast.ClassDef]:
        return [one for one in self.defined.get(name, ()) if isinstance(one, ast.ClassDef)]

    def functions(self, name: str) -> list[Function]:
        return [one for one in self.defined.get(name, ()) if isinstance(one, FUNCTIONS)]

    def class_made(self, value: ast.expr) -> ast.ClassDef | None:
        """The class of this project that a call makes an object of, also where the object is moved or wrapped at once, or is
        None otherwise."""
        if isinstance(value, ast.IfExp) and isinstance(value.orelse, ast.Constant):
            value = value.body
        while isinstance(value, ast.Call):
            if made := self.classes(self.last(value.func)):
                return made[0]
            if last_name(value.func) in _WRAPPERS and value.args:
                value = value.args[0]
            elif is_method(value, *_GIVE_SELF):
                value = value.func.value
            else:
                break
        return None

    def class_behind(self, call: ast.expr) -> ast.ClassDef | None:
        """The class of what a call makes, itself or in a function of the project that returns it."""
        if (made := self.class_made(call)) or not isinstance(call, ast.Call):
            return made
        for function in self.functions(self.last(call.func)):
            given = [n.value for n in self.within(function) if isinstance(n, ast.Return) and n.value]
            for value in (*given, *(one for n in given for one in self.values(function, written(n)))):
                if made := self.class_made(value):
                    return made
        return None

    def callers(self, function: Function) -> list[ast.Call]:
        """Where a function of this name is called, or given to a call; a class's call calls `__call__` and `forward`."""
        if function not in self._callers:
            self._callers[function] = self._find_callers(function)
        return self._callers[function]

    def _find_callers(self, function: Function) -> list[ast.Call]:
        names, cls = {function.name}, self.class_of(function)
        inside = set(map(id, walk(function)))
        if cls is not None and function.name == "__init__":
            names = {cls.name}
        elif cls is not None and function.name in ("__call__", "forward"):
            objects = self._variables_of(cls)
            if called := [c for c in self.calls if last_name(c.func) in objects and id(c) not in inside]:
                return called
            names.add(cls.name)
        found = [call for name in names for call in self._mentions.get(name, ()) if id(call) not in inside]
        if cls is None:
            found = [one for one in found if calls_plain(self, one, function)]
        elif any(self.class_of(one) is None for one in self.functions(function.name)):
            # `save(state)` is of the plain function of that name, `saver.save(state)` may be of the method
            found = [one for one in found if not isinstance(one.func, ast.Name) or one.func.id not in names]
        if cls is not None:
            found = [one for one in found if not self._is_of_another(one, function, cls)]
        if cls is not None and function.name == "__init__":  # `cls(...)` of a class's own factory
            own = (call for method in self.methods(cls) for call in self.calls_in(method))
            found += [call for call in own if written(call.func) == "cls"]
        return found

    def _is_of_another(self, call: ast.Call, method: Function, cls: ast.ClassDef) -> bool:
        """Whether a method is called on an object of a library's class, or of another class that has one of that name."""
        made = classes_called(self, call.func, method) if is_method(call, method.name) else []
        own = [one for name in made for one in self.classes(self.last(name))]
        is_known = all(self.classes(self.last(name)) or self.is_of_library(name) for name in made)
        return bool(made and is_known) and all(
            one is not cls and any(m.name == method.name for m in self.methods(one)) for one in own
        )

    def is_of_library(self, name: ast.AST) -> bool:
        """Whether an import brings a name, and from no file of the project, as `Net = CLASSES[kind]` may."""
        parts, module = self.dotted(name).split("."), self.module(name)
        paths = [".".join(parts[:n]) for n in range(1, len(parts))]
        is_own = isinstance(module, Region) and any(self.links.find(module, 0, path) for path in paths)
        return bool(paths) and self.is_imported(name) and not is_own

    def _variables_of(self, cls: ast.ClassDef) -> set[str]:
        """The names of the variables, attributes and parameters that are bound to objects of a class."""
        found = set(self._objects[cls])
        for _ in range(2):
            found |= {name for one in found for name in self._handed_on.get(one, ())}
        return found - {""}

    @cached_property
    def _objects(self) -> dict[ast.ClassDef, set[str]]:
        """By class, the names that are assigned an object of it where it is made."""
        found: dict[ast.ClassDef, set[str]] = defaultdict(set)
        for node in self.table.each(ast.Assign):
            if (cls := self.class_made(node.value)) is not None:
                found[cls] |= {last_name(target) for target in node.targets}
        return found

    @cached_property
    def _handed_on(self) -> dict[str, set[str]]:
        """By the name of a variable or an attribute, the parameters and names that get its value."""
        found: dict[str, set[str]] = defaultdict(set)
        for call in self.calls:
            name = self.last(call.func)
            inits = [m for cls in self.classes(name) for m in self.methods(cls) if m.name == "__init__"]
            for function in (*self.functions(name), *inits):
                for parameter, argument in self.given_by(call, function).items():
                    found[last_name(argument)].add(parameter)
        for node in self.table.each(ast.Assign):
            found[last_name(node.value)] |= {last_name(target) for target in node.targets}
        return found

    def direct_callers(self, function: Function) -> list[ast.Call]:
        """The calls of a function by its name."""
        return [call for call in self.callers(function) if self.last(call.func) == function.name]

    def runs_of(self, function: Function) -> list[ast.Call]:
        """The calls that run a function by its name, or by that of the class that it makes objects of."""
        cls = self.class_of(function) if function.name == "__init__" else None
        made = [call for call in self.calls if cls is not None and self.class_made(call) is cls]
        return made or self.direct_callers(function)

    def calls_other(self, call: ast.Call, function: Function) -> bool:
        """Whether the function that a call names is imported from another file of the project, which defines it."""
        name, module = written(call.func), self.module(call)
        if not isinstance(module, Region):
            return False
        for node in self.table.each(ast.ImportFrom):
            if self.module(node) is module and any((a.asname or a.name) == name for a in node.names):
                source = self.links.region(self.links.find(module, node.level, node.module or ""))
                defines = (one for one in self.functions(self.last(call.func)) if self.module(one) is source)
                return source is not self.module(function) and any(defines)
        return False

    @cached_property
    def _mentions(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            given = (*call.args, *(k.value for k in call.keywords if k.arg == "fn"))  # `spawn(fn=work)`
            named = {self.last(call.func), *map(self.last, given)}
            for name in named & self.defined.keys():
                found[name].append(call)
        return found

    def argument_for(self, call: ast.Call, function: Function, name: str) -> ast.expr | None:
        """What a call gives for the parameter `name`; None where it does not, or not for sure."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return None
        positional = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        if self.class_of(function) is not None and not _is_static(function):
            positional = positional[1:]
        index = positional.index(name) if name in positional else len(call.args)
        return call.args[index] if index < len(call.args) else None

    def given_by(self, call: ast.Call, function: Function) -> dict[str, ast.expr]:
        """What a call gives for each of a function's parameters, as far as that is sure."""
        given = ((name, self.argument_for(call, function, name)) for name in self.parameters(function))
        return {name: value for name, value in given if value is not None}

    def given_for(self, frame: Frame, name: str) -> list[tuple[ast.expr, ast.Call]]:
        """What the calls of a function give for its parameter `name`; nothing for another variable."""
        calls = self.callers(frame) if is_function_frame(frame) and name in self.parameters(frame) else []
        given = ((self.argument_for(call, frame, name), call) for call in calls if is_function_frame(frame))
        return [(value, call) for value, call in given if value is not None]

    def run_by(self, call: ast.Call) -> list[Function]:
        """The functions of the project that a call may run: the constructor of a class, else the file's own of that name, else
        those of that name."""
        if (cls := self.class_made(call)) is not None:
            return [one for one in self.methods(cls) if one.name == "__init__"]
        own = (one for one in self.functions(written(call.func)) if self.parent(one) is self.module(call))
        return [*own] or self.functions(self.last(call.func))

    # -- what is reached ---------------------------------------------------------------------------------------

    def is_reached(self, node: ast.AST) -> bool:
        """Whether running the script may come to a node. In doubt it may."""
        return self.frame(node) in self._reached.code

    @cached_property
    def reached_frames(self) -> list[Frame]:
        return [frame for frame in self.frames if frame in self._reached.code]

    def is_entry_point(self, function: Function) -> bool:
        return function in self._reached.entry_points

    @cached_property
    def _reached(self) -> Reached:
        return Reached(self)

    # -- names -------------------------------------------------------------------------------------------------

    def dotted(self, node: ast.AST) -> str:
        """A dotted name with its import written out: `torch.nn.functional.relu` for `F.relu`."""
        found = self._dotted.get(node)  # asked five times of each call of a script
        if found is None:
            text = plain_text(node)
            head, dot, rest = text.partition(".")
            found = self._imports[self.module(node)].get(head, [head])[-1] + dot + rest if text else ""
            self._dotted[node] = found
        return found

    def may_name(self, node: ast.AST) -> list[str]:
        """What `dotted` is of each import of its first name: branches may import one name from several files."""
        head, dot, rest = plain_text(node).partition(".")
        return [one + dot + rest for one in dict.fromkeys(self._imports[self.module(node)].get(head, [head]))]

    def name_of(self, module: str, node: ast.AST) -> str:
        """The name by which the file of a node knows a module, or the module's own."""
        names = self._imports[self.module(node)]
        return module if module in names else next((n for n, of in names.items() if of[-1] == module), module)

    def is_imported(self, node: ast.AST) -> bool:
        """Whether a dotted name begins with a name that its file imports."""
        return root_of(node) in self._imports[self.module(node)]

    def may_be_imported(self, node: ast.AST) -> bool:
        """Whether a dotted name begins with what its file imports, or with no name: `load()[0].train`."""
        return not root_of(node) or self.is_imported(node)

    def last(self, node: ast.AST) -> str:
        """The last part of a dotted name, as it is called where it is defined: of a training step, where a function makes it."""
        if isinstance(node, ast.Name) and (made := self._made_steps.get(node.id)):
            scope = self.table.of_node[node].resolve(node.id)
            if scope is not None and scope.node in made:
                return made[scope.node].name
        return self.dotted(node).rpartition(".")[2] or last_name(node)

    @cached_property
    def _made_steps(self) -> dict[str, dict[ast.AST, Function]]:
        return made_steps(self)

    @cached_property
    def _imports(self) -> dict[ast.Module, dict[str, list[str]]]:
        return imports_of(self.modules, self.table.parents, self.module, self.links)


def is_statement_call(script: Script, call: ast.AST) -> bool:
    """Whether a call stands alone as a statement."""
    return isinstance(script.parent(call), ast.Expr)


def _is_static(function: Function) -> bool:
    return any(last_name(one) == "staticmethod" for one in function.decorator_list)
