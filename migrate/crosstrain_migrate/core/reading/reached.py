"""What running a script may come to, by the names that its code mentions."""

from __future__ import annotations

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from crosstrain_migrate.syntax.nodes import Function, last_name, written
from crosstrain_migrate.syntax.program import Region, is_main_test, path_of
from crosstrain_migrate.syntax.walks import children, walk, walk_all

from .by_text import asks_by_name, asks_own_file, beginning, evaluates, first_named, known_in, may_mean_any
from .code import Code
from .forms import FUNCTIONS, refuses
from .keys import tabled

# Bases whose own code calls no other method of a derived class.
_CALL_NOTHING = ("object", "abc.ABC", "torch.nn.Module")
_CALLED = ("forward", "write", "flush")  # of a network, and of what is `sys.stdout`
_OF_GROUP = ("command", "group", "callback", "result_callback")


class Reached:
    """The frames and classes that a script reaches."""

    def __init__(self, script: Code) -> None:
        self.script = script

    @cached_property
    def code(self) -> set[ast.AST]:
        """Every file's top level, what it names, and what that names, by the last part of the name; of a class that nothing
        names, no method."""
        found: set[ast.AST] = set()
        waiting: dict[ast.ClassDef, list[ast.AST]] = defaultdict(list)
        work: list[ast.AST] = [*self.script.modules, *self.entry_points]
        while work:
            one = work.pop()
            if one in found:
                continue
            cls = self.script.parent(one)
            if isinstance(cls, ast.ClassDef) and cls not in found and cls not in self._found_by_text:
                waiting[cls].append(one)
                continue
            found.add(one)
            work += self._mentioned_in(one)
            work += self._imported_for_texts(one) if isinstance(one, Region) else ()
            if isinstance(one, ast.ClassDef):
                work += [*self._called_unseen(one), *waiting.pop(one, [])]
        return found

    @cached_property
    def _looks_up_by_name(self) -> bool:
        """Whether the script may find a class without naming it: in a module, or in a registry."""
        return any(
            _looks_up(self.script, node)
            for node in self.script.table.each(ast.ClassDef, ast.Call, ast.Attribute)
        )

    @cached_property
    def _found_by_text(self) -> set[ast.ClassDef]:
        """The classes that the script may find without naming them, and those that they are derived from."""
        found: set[ast.ClassDef] = set()
        work = list(filter(self._may_be_looked_up, self.script.table.each(ast.ClassDef)))
        while work and self._looks_up_by_name:
            one = work.pop()
            bases = (b for base in one.bases for b in self.script.defined.get(last_name(base), ()))
            work += [] if one in found else [b for b in bases if isinstance(b, ast.ClassDef)]
            found.add(one)
        return found

    def _mentioned_in(self, top: ast.AST) -> Iterator[Function | ast.ClassDef]:
        """What the code that runs with `top` may mean by the names that it mentions."""
        for node in _mentions_in(top):
            if isinstance(node, ast.Name):
                yield from self._meant(self.script.module(node), node.id)
                continue
            if isinstance(node, ast.Constant):
                named = self._named_in(node) if isinstance(node.value, str) else ()
                yield from (one for one in named if self._may_be_looked_up(one))
                continue
            held = held_by_file(self.script, node) if isinstance(node, ast.Attribute) else []
            if held or (isinstance(node, ast.Attribute) and _is_file(self.script, node)):
                yield from held
                continue
            name = node if isinstance(node, str) else node.attr
            # What is asked of an object that no import names is a method, not another file's function. A class may be
            # that of a module: `models[name].Net()`.
            is_member = isinstance(node, ast.Attribute) and not (
                self.script.may_be_imported(node) or self._imports_by_name
            )
            call = self.script.parent(node) if isinstance(node, ast.Attribute) else None
            # Of a class that nothing names, methods are known by their names alone.
            is_called = isinstance(call, ast.Call) and call.func is node
            call = call if is_called and not self._looks_up_by_name else None
            for one in self.script.defined.get(name, ()):
                is_method = not isinstance(self.script.parent(one), ast.Module)
                if not is_member or isinstance(one, ast.ClassDef):
                    yield one
                elif is_method and not (isinstance(call, ast.Call) and refuses(one, call)):
                    yield one  # `model.train()` is no `def train(self, epochs)`

    def _imported_for_texts(self, module: Region) -> Iterator[Function | ast.ClassDef]:
        """What a file may mean by a text that it evaluates, `eval(config["loss"])`, `eval("models." + name + ".get_net")`: what is
        in the files that it imports and never mentions."""
        nodes = list(walk(module))
        texts = [n for n in nodes if isinstance(n, ast.Call) and evaluates(n)]
        words = {
            w
            for n in walk_all(texts)
            if isinstance(n, ast.Constant)
            for w in re.findall(r"\w+", str(n.value))
        }
        named = {n.id for n in nodes if isinstance(n, ast.Name)}
        firsts = set(map(first_named, texts))
        for node in (n for n in nodes if texts and isinstance(n, ast.Import | ast.ImportFrom)):
            level, of = (node.level, node.module or "") if isinstance(node, ast.ImportFrom) else (0, "")
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                if bound not in firsts and ("" not in firsts or of or level or bound in named):
                    continue
                path = self.script.links.find(module, level, f"{of}.{alias.name}".strip("."))
                file, folder = (
                    self.script.links.region(path),
                    f"{path}/" if path and bound in firsts else None,
                )
                files = (
                    m for m in self.script.modules if m is file or (folder and path_of(m).startswith(folder))
                )
                for one in (s for m in files for s in m.body):
                    if isinstance(one, ast.ClassDef) or (isinstance(one, FUNCTIONS) and one.name in words):
                        yield one

    def _named_in(self, node: ast.Constant) -> Iterator[Function | ast.ClassDef]:
        """What a text names, and what it says that an option may name: `"MNIST (default)|CIFAR10"`; what it is compared with,
        `mode == "train"`, is looked up nowhere."""
        is_compared = isinstance(self.script.parent(node), ast.Compare)
        text = str(node.value)
        if is_compared and not text.startswith((*self._asked_of_objects,)) and not self._looks_up_by_name:
            return
        yield from self.script.defined.get(text, ())
        for word in re.findall(r"\w+", text) if "|" in text else ():
            found = self.script.defined.get(word, ())
            yield from (one for one in found if isinstance(self.script.parent(one), ast.Module))

    def _may_be_looked_up(self, one: Function | ast.ClassDef) -> bool:
        """Whether a text may name a definition: a method, what is registered, what is in a file that is asked for names."""
        module = self.script.parent(one)
        if not isinstance(module, ast.Module) or one.decorator_list:
            return True
        return self._asked_for_names is None or not self._asked_for_names.isdisjoint(_folders(module))

    @cached_property
    def _asked_for_names(self) -> set[str] | None:
        """The last parts of the imports that are more than called, `getattr(models, name)`, `find(models)`, and of what these
        files import; None: of any."""
        found: set[str] = set()
        for node in self.script.table.each(ast.Call, ast.Name, ast.Attribute):
            if isinstance(node, ast.Call) and may_mean_any(node):
                if not asks_own_file(node):
                    return None
                found.update(known_in(self.script.module(node)))
            if self.script.dotted(node) == "sys.modules":
                return None
            parent = self.script.parent(node)
            is_whole = isinstance(node, ast.Name | ast.Attribute) and not isinstance(parent, ast.Attribute)
            is_called = isinstance(parent, ast.Call) and parent.func is node
            if is_whole and not is_called and self.script.is_imported(node):
                found.add(self.script.dotted(node).removesuffix(".__dict__").rpartition(".")[2])
        return self._passed_on(found)

    def _passed_on(self, files: set[str]) -> set[str]:
        """Files, and those whose names they have by `from .nets import Net`."""
        given = [n for n in self.script.table.each(ast.ImportFrom) if n.module]
        further = {
            (one.module or "").rpartition(".")[2]
            for one in given
            if not files.isdisjoint(_folders(self.script.module(one)))
        }
        return files if further <= files else self._passed_on(files | further)

    @cached_property
    def _imports_by_name(self) -> bool:
        calls = self.script.table.each(ast.Call)
        return any(last_name(call.func) in ("import_module", "__import__") for call in calls)

    def _meant(self, module: ast.Module, name: str) -> list[Function | ast.ClassDef]:
        """The definitions that a file may mean by a name: those that it holds or imports, else all of this name."""
        defined = self.script.defined.get(name, [])
        inner = [
            d
            for d in defined
            if self.script.module(d) is module and not isinstance(self.script.parent(d), ast.Module)
        ]
        return [*inner, *_held_by(self.script, module, name, 0)] or defined

    def _called_unseen(self, cls: ast.ClassDef) -> list[Function]:
        """The methods that Python calls, or a library that an object of a derived class is given to, or that are found by
        name: `getattr(self, args.mode)()`."""
        is_derived = any(self.script.dotted(base) != "torch.nn.Module" for base in cls.bases)
        is_open = (is_derived and self._is_of_library(cls, 0)) or self._offers_methods
        begun = ("__", *(self._asked_of_objects if is_derived else ()))
        return [
            one
            for one in self.script.methods(cls)
            if one.name.startswith(begun) or one.name in _CALLED or is_open
        ]

    def _is_of_library(self, cls: ast.ClassDef, depth: int) -> bool:
        """Whether a class is derived from a library's that calls its methods; a network's are called by the script."""
        for base in cls.bases:
            own = [
                one for one in self.script.defined.get(last_name(base), ()) if isinstance(one, ast.ClassDef)
            ]
            if self.script.dotted(base) in _CALL_NOTHING:
                continue
            if not own or depth > 4 or any(self._is_of_library(one, depth + 1) for one in own):
                return True
        return False

    @cached_property
    def _offers_methods(self) -> bool:
        """Whether a library offers the methods of what it is given on the command line: `fire.Fire(Trainer)`."""
        calls = self.script.table.each(ast.Call)
        return any(last_name(call.func) in ("Fire", "CLI") and call.args for call in calls)

    @cached_property
    def _asked_of_objects(self) -> set[str]:
        """How methods begin that may be found by a text: `do_` of `getattr(self, "do_" + mode)`, nothing of `getattr(self, mode)`
        and `eval("self." + mode)`."""
        calls = self.script.table.each(ast.Call)
        given = {one for call in calls for one in call.args}  # `print(getattr(self, name))`
        asked = (c for c in calls if asks_by_name(c) and c not in given)
        asked = (c for c in asked if not isinstance(self.script.parent(c), ast.Attribute))
        found = {beginning(c.args[1]) for c in asked if not self.script.is_imported(c.args[0])}
        texts = ((call, beginning(call.args[0])) for call in calls if evaluates(call))
        imports = self.script.imports
        return found | {
            text.rpartition(".")[2]
            for call, text in texts
            if (first := first_named(call)) and not imports(self.script.module(call), first)
        }

    @cached_property
    def entry_points(self) -> list[Function]:
        """The functions that are called from outside: a bare `fire.Fire()` offers them all, and so does a script that only asks
        libraries, or for nothing, unless its author says so: `if __name__ == "__main__": pass`;
        `cli()` offers what is a command of `cli`, of click or typer, `ex.run()` what `@ex.main` has given to `ex`."""
        definitions = (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)
        acts = [s for s in self.script.entry.body if not isinstance(s, definitions)]
        calls = [node for node in walk_all(acts) if isinstance(node, ast.Call)]
        offers = any(last_name(call.func) == "Fire" and not call.args for call in calls)
        called = {written(call.func) for call in calls}
        functions = [s for s in self.script.entry.body if isinstance(s, FUNCTIONS)]
        is_empty = any(
            is_main_test(s) and isinstance(s.body[0], ast.Pass) for s in acts if isinstance(s, ast.If)
        )
        offers = offers or not (is_empty or may_act(self.script, calls))
        asked = self._asked_objects
        return [one for one in functions if offers or _is_command(one, called) or _is_given(one, asked)]

    @cached_property
    def _asked_objects(self) -> set[str]:
        """The variables of the script's top level that hold what a call has made, and that a method is called of, but not to
        decorate."""
        entry = self.script.entry
        made = {
            name.id
            for one in entry.body
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
            for name in one.targets
            if isinstance(name, ast.Name)
        }
        decorators = {node for one in entry.body for node in getattr(one, "decorator_list", ())}
        asked = (
            written(node.func.value)
            for node in walk(entry)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node not in decorators
        )
        return made & {*asked}


def _is_command(function: Function, groups: set[str]) -> bool:
    """Whether a function is a command of a group: `@cli.command()`, `@app.command`, `@cli.group()`."""
    decorators = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return any(
        isinstance(one, ast.Attribute) and one.attr in _OF_GROUP and written(one.value) in groups
        for one in decorators
    )


def _is_given(function: Function, objects: set[str]) -> bool:
    """Whether a decorator gives a function to an object, `@ex.main`."""
    decorators = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return any(isinstance(one, ast.Attribute) and written(one.value) in objects for one in decorators)


def _folders(module: ast.Module) -> list[str]:
    return path_of(module).removesuffix(".py").split("/")


def _looks_up(script: Code, node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):  # `@register("name")`
        return any(
            isinstance(one, ast.Call) and last_name(one.func) != "dataclass" for one in node.decorator_list
        )
    if not isinstance(node, ast.Call):
        return isinstance(node, ast.Attribute) and node.attr == "__dict__" and script.is_imported(node)
    if asks_by_name(node):
        return script.is_imported(node.args[0])
    return may_mean_any(node)


def _mentions_in(top: ast.AST) -> Iterator[ast.Name | ast.Attribute | ast.Constant | str]:
    """The names that code mentions which runs with `top`: not in the functions and classes of a file or a class."""
    if isinstance(top, ast.ClassDef):
        work = [*top.bases, *top.keywords, *(s for s in top.body if not isinstance(s, FUNCTIONS))]
    else:
        work = list(children(top))
    while work:
        node = work.pop()
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and isinstance(top, ast.Module):
            work += node.decorator_list
            continue
        if isinstance(node, ast.Assign) and last_name(node.targets[0]) == "__all__":
            continue
        if isinstance(node, ast.Name | ast.Attribute):
            yield node
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value.isidentifier() or "|" in node.value:
                yield node  # getattr(self, "train"), help="MNIST|CIFAR10"
        elif isinstance(node, ast.alias) and node.asname:
            yield node.name.split(".")[-1]
        work += children(node)


def held_by_file(script: Code, asked: ast.Attribute) -> list[Function | ast.ClassDef]:
    """The definitions that `gpu.select` means, where `gpu` is a file of the project that holds them or imports them."""
    return [d for one in files_named(script, asked.value) for d in _held_by(script, one, asked.attr, 0)]


def files_named(script: Code, value: ast.expr) -> Iterator[ast.Module]:
    """The files of the project that an expression names, by their imports."""
    module = script.module(value)
    if not isinstance(module, Region):
        return
    imported = filter(script.is_imported, tabled(script, value))
    names = (name for one in imported for name in script.may_name(one) if name)  # none of `Net(4).parts`
    named = (script.links.find(module, 0, name) for name in names)
    yield from (one for one in map(script.links.region, named) if one is not None)


def _is_file(script: Code, asked: ast.Attribute) -> bool:
    """Whether `tools.train` is a file, in `tools.train.restore(path)`; one that is not read is known by its package's own file:
    `from . import train`."""
    packages = (one for one in files_named(script, asked.value) if isinstance(one, Region))
    beside = (node.level and not node.module for one in packages for node, _ in one.taken.get(asked.attr, ()))
    return any(files_named(script, asked)) or any(beside)


def _held_by(script: Code, module: ast.Module, name: str, depth: int) -> list[Function | ast.ClassDef]:
    """The definitions that a name is bound to at a file's top level, there or where the file imports it from."""
    found = [d for d in script.defined.get(name, ()) if script.parent(d) is module]
    if found or depth > 4 or not isinstance(module, Region):
        return found
    for node, own in module.taken.get(name, ()):
        source = script.links.region(script.links.find(module, node.level, node.module or ""))
        found += _held_by(script, source, own, depth + 1) if source is not None else []
    return found


def may_act(script: Code, calls: list[ast.Call]) -> bool:
    """Whether the calls of a script's top level come to more than libraries, there and in plain functions of the file: to a
    method of an object, a class, another file, a function that is handed on."""
    own = {one.name: one for one in script.entry.body if isinstance(one, FUNCTIONS)}
    if any(one.decorator_list for one in own.values()):
        return bool(calls)
    work, seen = list(calls), set[str]()
    for call in work:  # grows meanwhile
        text = written(call.func)
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(written(one) in own for one in given) or not (text in own or _is_library_call(script, call)):
            return True
        if text in own and text not in seen:
            seen.add(text)
            work += [node for node in walk(own[text]) if isinstance(node, ast.Call)]
    return False


def _is_library_call(script: Code, call: ast.Call) -> bool:
    """Whether a call is a builtin's, or of a module that is none of the project's and runs nothing of it, `unittest.main()`."""
    if last_name(call.func) in ("main", "run"):
        return False
    if not script.is_imported(call.func):
        return isinstance(call.func, ast.Name) and hasattr(builtins, call.func.id)
    return script.is_of_library(call.func)
