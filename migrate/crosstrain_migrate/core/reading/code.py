"""A script's code: what stands around what, what a frame binds and reads, what a name is defined or imported as."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import takewhile

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

from .forms import (
    FUNCTIONS,
    LOOPS,
    Frame,
    Loop,
    bound_in,
    is_function_frame,
    makes_container,
    names_no_gradient,
    plain_text,
    root_of,
    without_gradient,
)
from .imported import imports_of


class Code:
    """The files of a script; its own is the last module."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = parse(text)
        self.table = ScopeTable(self.tree)
        self.modules = modules_of(self.tree)
        self.entry = self.modules[-1]
        self.shared = {part.path for part in files_of(text) if part.shared}
        self.links = links_of(self.tree)
        self._places = Places(text)
        self._dotted: dict[ast.AST, str] = {}

    # -- one node -------------------------------------------------------------------------------------------------

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

    def methods(self, cls: ast.ClassDef | None, name: str = "") -> list[Function]:
        """The methods of a class itself, those of a name or all; none where there is no class."""
        body = cls.body if cls is not None else ()
        return [node for node in body if isinstance(node, FUNCTIONS) and name in ("", node.name)]

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

    def is_always_above(self, store: ast.AST, read: ast.AST) -> bool:
        """Whether all come to a store on their way to a read: its statement stands around it, or beside what does."""
        around = [one for one in (read, *self.around(read)) if isinstance(one, ast.stmt)]
        beside = (one for around_it in around for one in self.suite_of(around_it))
        return place_of(store) < place_of(read) and self.statement(store) in beside

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

    # -- frames ---------------------------------------------------------------------------------------------------

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
        return [*self.modules, *self.table.each(*FUNCTIONS)]

    def frames_in(self, module: ast.Module) -> list[Frame]:
        """A file's top level and its functions."""
        return [one for one in self.frames if self.module(one) is module]

    def homes(self, frame: Frame, text: str) -> list[Frame]:
        """Where a variable of a frame is bound: there, and an attribute of `self` in the methods of its class."""
        methods = self.methods(self.class_of(frame)) if text.startswith("self.") else []
        return [*methods] or [frame]

    def unpacked(self, frame: Frame, text: str) -> list[tuple[ast.Call, int]]:
        """The calls of whose results a variable is one part, and which: `loss, scores = criterion(out, y)`."""
        found = []
        for store in self.stores(frame, text):
            target, bound = self.parent(store), self.statement(store)
            made = bound.value if isinstance(bound, ast.Assign) else None
            if isinstance(made, ast.Call) and isinstance(target, ast.Tuple | ast.List):
                found.append((made, target.elts.index(store)))
        return found

    def names_of(self, call: ast.expr) -> set[str]:
        """What holds the result of a call: `bar` of `bar = tqdm()` and of `with tqdm() as bar:`."""
        statement, held = self.statement(call), list[ast.expr | None]()
        if isinstance(statement, ast.With):
            held = [one.optional_vars for one in statement.items if one.context_expr is call]
        elif isinstance(statement, ast.Assign) and statement.value is call:
            held = [*statement.targets]
        return {written(one) for one in held if one is not None}

    def is_generator(self, function: Frame) -> bool:
        return any(isinstance(node, ast.Yield | ast.YieldFrom) for node in self.within(function))

    def returned(self, function: Frame) -> list[ast.expr]:
        """What a function returns, by each `return` that says something."""
        return [n.value for n in self.within(function) if isinstance(n, ast.Return) and n.value is not None]

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
        return [node for node in self._names[frame].get(text, []) if not isinstance(node.ctx, ast.Load)]

    def reads(self, frame: Frame, text: str) -> list[ast.expr]:
        """Where a frame reads the variable or the attribute `text`."""
        return [node for node in self._names[frame].get(text, []) if isinstance(node.ctx, ast.Load)]

    def is_called_alone(self, function: Function) -> bool:
        """Whether a function within another is only called there, by its name, and given to nothing that may hold it."""
        around = self.frame(function)
        return is_function_frame(around) and all(
            isinstance(above := self.parent(one), ast.Call) and above.func is one
            for one in self.reads(around, function.name)
        )

    def reads_behind(self, block: ast.stmt, text: str) -> list[ast.expr]:
        """Where a variable is read behind a block, `total /= n` too, before something else is bound to it in any case."""
        frame, end = self.frame(block), (block.end_lineno or 0, block.end_col_offset or 0)
        stores = [one for one in self.stores(frame, text) if place_of(one) > end]
        changed = [one for one in stores if isinstance(self.parent(one), ast.AugAssign)]
        reads = [one for one in (*self.reads(frame, text), *changed) if place_of(one) > end]
        return [
            read
            for read in reads
            if not any(
                self.is_always_above(s, read) and self.statement(s) is not self.statement(read)
                for s in stores
            )
        ]

    def values(self, frame: Frame, text: str) -> list[ast.expr]:
        """What a frame's plain assignments and `with` blocks bind the variable or the attribute `text` to."""
        return self._values[frame].get(text, [])

    def values_anywhere(self, text: str) -> list[ast.expr]:
        """The same of every frame."""
        return self._values_anywhere.get(text, [])

    @cached_property
    def _values_anywhere(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = defaultdict(list)
        for frame in self.frames:
            for text, values in self._values[frame].items():
                found[text] += values
        return found

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

    def free_name(self, *wanted: str) -> str:
        """The first of some names that nothing in the script has."""
        taken = {name.id for name in self.table.each(ast.Name)}
        return next((name for name in wanted if name not in taken), f"{wanted[0]}_")

    # -- definitions ----------------------------------------------------------------------------------------------

    @cached_property
    def defined(self) -> dict[str, list[Function | ast.ClassDef]]:
        """The functions, methods and classes of a name."""
        found: dict[str, list[Function | ast.ClassDef]] = defaultdict(list)
        for node in sorted(self.table.each(*FUNCTIONS, ast.ClassDef), key=place_of):
            found[node.name].append(node)
        return found

    def classes(self, name: str) -> list[ast.ClassDef]:
        return [one for one in self.defined.get(name, ()) if isinstance(one, ast.ClassDef)]

    def functions(self, name: str) -> list[Function]:
        return [one for one in self.defined.get(name, ()) if isinstance(one, FUNCTIONS)]

    def is_of_container(self, method: ast.Attribute) -> bool:
        """Whether all that a method's object is bound to is a container of Python's: `state = model.state_dict()`."""
        text = written(method.value)
        homes = dict.fromkeys([*self.homes(self.frame(method), text), self.module(method)])
        made = [value for home in homes for value in self.values(home, text)]
        return bool(made) and all(map(makes_container, made))

    def argument_for(self, call: ast.Call, function: Function, name: str) -> ast.expr | None:
        """What a call gives for the parameter `name`; None where it does not, or not for sure."""
        for keyword in call.keywords:
            if keyword.arg == name:
                return keyword.value
            if keyword.arg is None and (value := self._entry_of(keyword.value, name)) is not None:
                return value
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return None
        positional = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        is_static = any(last_name(one) == "staticmethod" for one in function.decorator_list)
        if self.class_of(function) is not None and not is_static:
            positional = positional[1:]
        index = positional.index(name) if name in positional else len(call.args)
        return call.args[index] if index < len(call.args) else None

    def _entry_of(self, options: ast.expr, name: str) -> ast.expr | None:
        """What a dictionary that is written out has under a name, `dict(path=path)`, itself or as a variable that holds no other."""
        if isinstance(options, ast.Name):
            frame, text = self.frame(options), options.id
            made = self.values(frame, text)
            parts = (n for n in self.within(frame) if isinstance(n, ast.Subscript | ast.Attribute))
            of_it = [
                n for n in parts if written(n.value) == text
            ]  # `options.update(path=other)` may change any
            is_changed = any(isinstance(n, ast.Attribute) or isinstance(n.ctx, ast.Store) for n in of_it)
            if len(made) != 1 or len(self.stores(frame, text)) != 1 or is_changed:
                return None
            (options,) = made
        if isinstance(options, ast.Call) and written(options.func) == "dict":
            return next((k.value for k in options.keywords if k.arg == name), None)
        if not isinstance(options, ast.Dict):
            return None
        entries = zip(options.keys, options.values, strict=True)
        return next((v for k, v in entries if isinstance(k, ast.Constant) and k.value == name), None)

    def given_by(self, call: ast.Call, function: Function) -> dict[str, ast.expr]:
        """What a call gives for each of a function's parameters, as far as that is sure."""
        given = ((name, self.argument_for(call, function, name)) for name in self.parameters(function))
        return {name: value for name, value in given if value is not None}

    # -- names ----------------------------------------------------------------------------------------------------

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

    def imports(self, module: ast.Module, name: str) -> bool:
        """Whether a file imports a name."""
        return name in self._imports[module]

    def is_imported(self, node: ast.AST) -> bool:
        """Whether a dotted name begins with a name that its file imports."""
        return self.imports(self.module(node), root_of(node))

    def may_be_imported(self, node: ast.AST) -> bool:
        """Whether a dotted name begins with what its file imports, or with no name: `load()[0].train`."""
        return not root_of(node) or self.is_imported(node)

    def is_of_library(self, name: ast.AST) -> bool:
        """Whether an import brings a name, and from no file of the project, as `Net = CLASSES[kind]` may."""
        parts, module = self.dotted(name).split("."), self.module(name)
        paths = [".".join(parts[:n]) for n in range(1, len(parts))]
        is_own = (module, root_of(name)) in self._beside
        is_own = is_own or (isinstance(module, Region) and any(self.links.find(module, 0, p) for p in paths))
        return bool(paths) and self.is_imported(name) and not is_own

    @cached_property
    def _beside(self) -> set[tuple[ast.Module, str]]:
        """The names that files import from beside them: `from . import nets`, which may hand on what others define."""
        relative = [n for n in self.table.each(ast.ImportFrom) if n.level]
        return {(self.module(n), one.asname or one.name) for n in relative for one in n.names}

    @cached_property
    def _imports(self) -> dict[ast.Module, dict[str, list[str]]]:
        statements = sorted(self.table.each(ast.Import, ast.ImportFrom), key=place_of)
        return imports_of(self.modules, statements, self.module, self.links)
