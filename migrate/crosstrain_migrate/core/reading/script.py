"""What the other modules ask about a script: who calls whom, what a call makes, and what running it comes to."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property

from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, written
from crosstrain_migrate.syntax.program import Region
from crosstrain_migrate.syntax.walks import walk

from .code import Code
from .forms import Frame, is_function_frame, is_method, refuses
from .handed import handed
from .imported import is_converted, is_left
from .made import made_steps
from .reached import Reached, held_by_file

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "DDP", "compile")
_GIVE_SELF = ("to", "cuda", "cpu", "train", "eval", "float", "half", "double", "requires_grad_")
_LOOKS_AT_IT = re.compile(
    r"len|range|int|float|str|print|sum|list|tuple|is(instance|subclass)|type|zip|super"
)
_SPAWNS = re.compile(r"torch\.multiprocessing(\.spawn)?\.(spawn|start_processes)$")


class Script(Code):
    """A script with the files that it imports from its project."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._callers: dict[Function, list[ast.Call]] = {}

    @cached_property
    def converted(self) -> set[ast.Module]:
        """The script, where it uses a runtime already, and the files that were converted with another script."""
        return {one for one in self.modules if (is_converted if one is self.entry else is_left)(one)}

    # -- what a call makes ----------------------------------------------------------------------------------------

    def class_made(self, value: ast.expr) -> ast.ClassDef | None:
        """The class of this project that a call makes an object of, also where the object is moved or wrapped at once, or is
        None otherwise."""
        if isinstance(value, ast.IfExp) and isinstance(value.orelse, ast.Constant):
            value = value.body
        while isinstance(value, ast.Call):
            if made := self.classes(self.last(value.func)):
                return made[0]
            if written(value.func) == "cls":  # in a class's own factory
                return self.class_of(self.frame(value))
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
        for function in self.functions_of(call):
            given = self.returned(function)
            for value in (*given, *(one for n in given for one in self.values(function, written(n)))):
                if made := self.class_made(value):
                    return made
        return None

    def all_methods(self, cls: ast.ClassDef | None, depth: int = 4) -> list[Function]:
        """The methods of a class, and of those of the project that it derives from: `super().__init__(loader)` runs theirs."""
        named = cls.bases if cls is not None and depth else []
        bases = [base for name in named for base in self.classes(self.last(name))]
        return [*self.methods(cls), *(m for base in bases for m in self.all_methods(base, depth - 1))]

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

    # -- who calls whom -------------------------------------------------------------------------------------------

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call in reached code, in the order of the text."""
        return self.calls_that(lambda _: True)

    @cached_property
    def bars(self) -> set[str]:
        """What holds a progress bar: of tqdm, or of the package `progress`, which is told `max=`, `next()` and `finish()`."""
        ended = {written(n.func.value) for n in self.calls if is_method(n, "finish")}
        of_tqdm = [n for n in self.calls if self.dotted(n.func).startswith("tqdm.")]
        others = [n for n in self.calls if ended and any(k.arg == "max" for k in n.keywords)]
        names = {name for call in others for name in self.names_of(call)} & ended
        return names.union(*map(self.names_of, of_tqdm))

    def calls_that(self, is_one: Callable[[ast.Call], object]) -> list[ast.Call]:
        """Those calls of which something is true; what is reached, which takes long to know, is asked of these alone."""
        found = [n for n in self.table.each(ast.Call) if is_one(n) and self.is_reached(n)]
        return sorted(found, key=place_of)

    def functions_of(self, call: ast.AST | None) -> list[Function]:
        """The functions of the project that a call names, or that are given for the parameter which it calls; else none."""
        named = self.functions(self.last(call.func)) if isinstance(call, ast.Call) else []
        return named or (handed(self, call.func, self.given_for) if isinstance(call, ast.Call) else [])

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
        """Whether a method is called on a library, `torch.load(path)`, on a dictionary, on an object of its class, or of another
        class that has one of that name."""
        if is_method(call, method.name) and (
            self.is_of_library(call.func) or self.is_of_container(call.func)
        ):
            return True
        if is_method(call, method.name) and method.name not in self.table.set_attributes:
            # `self.start()` in a class that has it may be of one derived from it, `Base.start(self)` is of that one alone
            is_self = written(call.func.value) == "self"
            named = [self.class_of(self.frame(call))] if is_self else self.classes(written(call.func.value))
            own = [m for one in named for m in self.methods(one, method.name)]
            if own:
                return not any(m in own for m in (self.all_methods(cls) if is_self else [method]))
        made = classes_called(self, call.func, method) if is_method(call, method.name) else []
        classes = [one for name in made for one in self.classes(self.last(name))]
        is_known = all(self.classes(self.last(name)) or self.is_of_library(name) for name in made)
        return bool(made and is_known) and all(
            one is not cls and any(m.name == method.name for m in self.methods(one)) for one in classes
        )

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

    def above(self, *frames: Frame) -> Iterator[Frame]:
        """Frames, and the functions and files that call them, those that call these, and so on, each once."""
        found = dict.fromkeys(frames)
        work = list(found)
        for one in work:  # which grows meanwhile
            yield one
            callers = map(self.frame, self.callers(one) if is_function_frame(one) else ())
            new = [caller for caller in dict.fromkeys(callers) if caller not in found]
            found |= dict.fromkeys(new)
            work += new

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
                defines = (one for one in self.functions_of(call) if self.module(one) is source)
                return source is not self.module(function) and any(defines)
        return False

    @cached_property
    def given_by_name(self) -> dict[str, list[tuple[ast.Call, ast.keyword]]]:
        """What reached calls are given by a name."""
        found: dict[str, list[tuple[ast.Call, ast.keyword]]] = defaultdict(list)
        for call in self.calls:
            for one in call.keywords:
                found[one.arg or "**"].append((call, one))
        return found

    def classes_held(self, func: ast.expr) -> list[str]:
        """The classes that a variable may be, `kind = Plain if small else Deep`, where it is called: `kind(...)`."""
        values = self.values(self.frame(func), func.id) if isinstance(func, ast.Name) else []
        parts = [
            part
            for one in values
            for part in ([one.body, one.orelse] if isinstance(one, ast.IfExp) else [one])
        ]
        return [name for one in parts if isinstance(one, ast.Name) and self.classes(name := self.last(one))]

    @cached_property
    def _mentions(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        by_parameter: list[tuple[str, ast.Call]] = []  # `train`, a truth, beside a function `train`
        for call in self.calls:
            is_any = is_method(call, "set_defaults")  # `parser.set_defaults(run=train)` of a subcommand
            by_name = (k.value for k in call.keywords if k.arg == "fn" or is_any)  # `spawn(fn=work)`
            given = (*call.args, *by_name)
            if _LOOKS_AT_IT.fullmatch(written(call.func)):
                given = ()  # `len(train)`, beside a function of that name
            own = self.parameters(self.frame(call))
            named = {self.last(call.func), *map(self.last, given), *self.classes_held(call.func)}
            for name in named & self.defined.keys():
                is_own = name in own and self.last(call.func) != name
                by_parameter += [(name, call)] if is_own else []
                found[name] += [] if is_own else [call]
        for name, call in by_parameter:  # where the function is given for it
            if any(self.last(one.func) == getattr(self.frame(call), "name", "") for one in found[name]):
                found[name].append(call)
        return found

    @cached_property
    def spawns(self) -> list[ast.Call]:
        """Where the processes of a script's group start: `mp.spawn(work, nprocs=4)`, `mp.start_processes(work, ...)`,
        `Process(target=work, args=(rank, size))`."""
        joins = [self.frame(call) for call in self.calls if self.makes_group(call)]
        above = self.above(*joins) if joins else []
        return [
            call
            for call in self.calls
            if _SPAWNS.search(self.dotted(call.func))
            or (last_name(call.func) == "Process" and any(one in above for one in self.run_as_process(call)))
        ]

    def run_as_process(self, call: ast.Call) -> list[Function]:
        """The functions that `Process(target=work)` may run."""
        return [one for k in call.keywords if k.arg == "target" for one in self.functions(self.last(k.value))]

    def makes_group(self, call: ast.Call) -> bool:
        """Whether a call is torch's `init_process_group`, and not a function of the project with such a name."""
        name, path = "init_process_group", self.dotted(call.func)
        if path.startswith("torch.distributed.") and path.endswith(name):
            return True
        is_own = isinstance(call.func, ast.Name) or self.is_imported(call.func)
        return self.last(call.func) == name and not (is_own and self.functions(name))

    def given_for(self, frame: Frame, name: str) -> list[tuple[ast.expr, ast.Call]]:
        """What the calls of a function give for its parameter `name`; nothing for another variable."""
        calls = self.callers(frame) if is_function_frame(frame) and name in self.parameters(frame) else []
        given = ((self.argument_for(call, frame, name), call) for call in calls if is_function_frame(frame))
        return [(value, call) for value, call in given if value is not None]

    def run_by(self, call: ast.Call) -> list[Function]:
        """The functions of the project that a call may run: the constructor of a class, else the file's own of that name, else
        those of that name."""
        if (cls := self.class_made(call)) is not None:
            return self.methods(cls, "__init__")
        own = (one for one in self.functions(written(call.func)) if self.parent(one) is self.module(call))
        return [*own] or self.functions_of(call)

    def given_on(self, read: ast.AST) -> list[tuple[Function, str]]:
        """The parameters of the project's functions that an expression is given for, where a call takes it as it is."""
        use = self.parent(read)
        call = self.parent(use) if isinstance(use, ast.keyword) else use
        if not isinstance(call, ast.Call) or call.func is read:
            return []
        return [
            (f, name) for f in self.run_by(call) for name, v in self.given_by(call, f).items() if v is read
        ]

    # -- what is reached ------------------------------------------------------------------------------------------

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


def is_statement_call(script: Script, call: ast.AST) -> bool:
    """Whether a call stands alone as a statement, also with Python 2's comma behind it: `print (loss),`."""
    above = script.parent(call)
    if isinstance(above, ast.Tuple) and len(above.elts) == 1:
        above = script.parent(above)
    return isinstance(above, ast.Expr)


def calls_plain(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a call that mentions the name of a plain function can be of that function, or be given it."""
    if _is_of_object(script, call, function) and not script.is_imported(call.func):
        return False
    held = held_by_file(script, call.func) if isinstance(call.func, ast.Attribute) else []
    if not held and getattr(call.func, "attr", "") == function.name and script.is_of_library(call.func):
        return False  # `torchvision.models.resnet50()` beside `def resnet50():`
    return (not held or function in held) and not _is_given_another(script, call, function)


def _is_of_object(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a method's call gives less than a plain function of its name needs, `model.train()` for `train(model, loader)`,
    or more than it takes, is a network's own `model.train()`, or is of an object that a class was called for."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != function.name or function.decorator_list:
        return False
    is_mode = function.name in ("train", "eval") and not (call.args or call.keywords)
    is_another = is_mode or refuses(function, call) or script.is_called_alone(function)
    return is_another or bool(classes_called(script, call.func, function))


def classes_called(script: Script, method: ast.Attribute, function: Function) -> list[ast.expr]:
    """The classes, by the way they are written, that are called for all that a method's object is bound to, `kmeans =
    Kmeans(8)`, where none of them, nor an attribute that is set, is given the function."""
    text, frame = written(method.value), script.frame(method)
    made = [*script.values(frame, text), *script.values(script.module(method), text)]
    called = [
        one.func
        for one in made
        if isinstance(one, ast.Call)
        and last_name(one.func)[:1].isupper()
        and function.name not in map(last_name, (*one.args, *(k.value for k in one.keywords)))
    ]
    is_set = function.name in script.table.set_attributes
    return called if len(called) == len(made) and not is_set else []


def _is_given_another(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a call is given an object's attribute of a function's name, `batches(self.train)`, or a parameter `train` that
    is such an attribute wherever it is given."""
    if script.last(call.func) == function.name:
        return False
    return any(_is_attribute(one, function.name) for one in call.args) or any(
        _is_always_attribute(script, one) for one in call.args if written(one) == function.name
    )


def _is_attribute(node: ast.expr | None, name: str) -> bool:
    return node is not None and written(node) == f"self.{name}"


def _is_always_attribute(script: Script, argument: ast.expr) -> bool:
    frame, name = script.frame(argument), written(argument)
    if isinstance(frame, ast.Module) or name not in script.parameters(frame):
        return False
    calls = [call for call in script.calls if script.last(call.func) == frame.name]
    return bool(calls) and all(_is_attribute(script.argument_for(one, frame, name), name) for one in calls)
