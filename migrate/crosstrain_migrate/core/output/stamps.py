"""Paths that differ by process: they hold the time, a random name, or a number of what is in a folder already.

Where all processes read again what one has written under such a path, or its author decides by the folder that is there,
each takes the main process's time or name.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

from . import on_disk, writers
from .audience import Audience
from .stamp_sources import DRAWS, IDS, LISTS, MADE, NAMES, NUMBERS, OWN, Sources, is_of_system

RULE = "CT502"
GROUP = "stamps"
REASON = "all processes have the main process's path"
_COPIES = frozenset({"shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.copytree"})
_ASKS = frozenset({"os.path.exists", "os.path.isfile", "os.path.isdir"})
_MISSING = frozenset({"FileNotFoundError", "IOError", "OSError"})  # a file is missing on every process


class Stamps:
    """Answers which paths differ by process, when `run` has planned which are the main process's."""

    def __init__(self, plan: Plan, accelerators: Accelerators, audience: Audience) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.audience = audience
        self._read_again: dict[ast.Call, None] = {}  # in their order
        self.sources = Sources(self.script, accelerators.roles)
        self._starts: list[ast.stmt] = []
        # In which the main process finds a name, and makes the folder as well.
        self.of_one: list[ast.stmt] = []

    def run(self) -> None:
        for call in self.script.calls:
            if on_disk.makes_folder(self.script, call) and self.audience.is_all(call):
                self._take_free_name(call)
        written_to = {
            one
            for path in (writers.path_of_write(self.script, call) for call in self._writes())
            if (found := self.sources.of(path)) and not self._is_removed(path)
            for one in found
        }
        decided = [one for call in self._decided() for one in self.sources.of(on_disk.path_of_folder(call))]
        self._read_again |= dict.fromkeys(decided)
        self.sources.reads = True
        for call in self.script.calls:
            is_read = written_to and call.args and on_disk.reads_file(self.script, call)
            if is_read and self.audience.is_all(call):
                self._read_again |= dict.fromkeys(
                    one for one in self.sources.of(call.args[0]) if one in written_to
                )
            elif call.args and (self._copies_by(call) or self._stops_without(call)):
                self._read_again |= dict.fromkeys(self.sources.of(call.args[0]))
        self.sources.reads = False
        stamps = sorted(filter(self._may_be_common, self._read_again), key=place_of)
        for call in self.script.calls:
            self._take_name(call)
        for stamp in stamps:
            if set(stamps).isdisjoint(self.script.around(stamp)):
                self._start(stamp)
                self._make_common(stamp)
            else:
                self.sources.common.add(stamp)  # `now()` of `now().strftime(...)`

    def differs(self, path: ast.expr | None) -> bool:
        """Whether a path is put together from such a text, here or where its parts are bound."""
        return bool(self.sources.of(path))

    def is_for_one(self, path: ast.expr | None) -> bool:
        """Whether it is, and nothing is read there again: the main process's file is enough."""
        found = self.sources.of(path)
        return bool(found) and self._read_again.keys().isdisjoint(found)

    def is_temporary(self, path: ast.expr | None) -> bool:
        """Whether a path is in a temporary file or folder, which each process makes for itself, or has a random name and is
        removed in the same function."""
        return bool(self.sources.of(path, MADE)) or self._is_removed(path)

    def _is_removed(self, path: ast.expr | None) -> bool:
        drawn = [one for one in self.sources.of(path, OWN) if last_name(one.func) in IDS or is_of_system(one)]
        calls = self.script.calls_in(self.script.frame(path)) if path is not None and drawn else []
        removed = (c for c in calls if c.args and writers.removes_file(self.script, c))
        return any(one in drawn for call in removed for one in self.sources.of(call.args[0], OWN))

    def is_own_number(self, path: ast.expr | None) -> bool:
        """Whether a path holds a number of training, each process's own, and nothing is read there again."""
        reads = [c.args[0] for c in self.script.calls if c.args and on_disk.reads_file(self.script, c)]
        return self._holds_number(path) and not any(map(self._holds_number, reads))

    def _holds_number(self, path: ast.expr | None) -> bool:
        return any(last_name(one.func) in NUMBERS for one in self.sources.of(path, NUMBERS))

    def _writes(self) -> list[ast.Call]:
        makes = (writers.saves_weights, writers.writes_file, writers.opens_to_write)
        return [
            call
            for call in self.script.calls
            if self.audience.is_all(call) and any(one(self.script, call) for one in makes)
        ]

    def _decided(self) -> list[ast.Call]:
        """The folders that may exist already where the script says so, `path.mkdir(exist_ok=overwrite)`, those that it makes
        before it spawns its processes, and those that it numbers by what is in a folder which it makes as well."""
        calls = [
            c for c in self.script.calls if on_disk.makes_folder(self.script, c) and self.audience.is_all(c)
        ]
        is_first, made = self.audience.is_first, {ast.unparse(on_disk.path_of_folder(c) or c) for c in calls}
        return [c for c in calls if is_first or on_disk.decides_by_folder(c) or self._is_numbered(c, made)]

    def _is_numbered(self, folder: ast.Call, made: set[str]) -> bool:
        found = self.sources.of(on_disk.path_of_folder(folder))
        lists = [one for one in found if last_name(one.func) in LISTS and self._may_be_common(one)]
        return (
            bool(found)
            and lists == found
            and any(ast.unparse(one.args[0]) in made for one in lists if one.args)
        )

    def _copies_by(self, call: ast.Call) -> bool:
        """`if not os.path.exists(path): shutil.copy(settings, folder)`: whether one is there decides about a copy."""
        statement = self.script.statement(call)
        inside = walk(statement) if isinstance(statement, ast.If) and call in walk(statement.test) else []
        names = {self.script.dotted(n.func) for n in inside if isinstance(n, ast.Call)}
        asks = self.script.dotted(call.func) in _ASKS
        return asks and not names.isdisjoint(_COPIES) and self.audience.is_all(call)

    def _stops_without(self, call: ast.Call) -> bool:
        """`if not os.path.exists(path): raise ValueError(path)`: each process asks for the folder that one has made."""
        statement = self.script.statement(call)
        if not isinstance(statement, ast.If) or self.script.dotted(call.func) not in _ASKS:
            return False
        is_negated = any(isinstance(n, ast.Not) for n in walk(statement.test))
        missing = statement.body if is_negated else statement.orelse
        stops = any(isinstance(one, ast.Raise) for one in missing)
        return stops and call in walk(statement.test) and self.audience.is_all(call)

    def _may_be_common(self, stamp: ast.Call) -> bool:
        name = last_name(stamp.func)
        is_value = name in NAMES - {"iglob"} or (name in DRAWS and self._is_drawn_once(stamp))
        return is_value and self._is_agreed_on(stamp) and not self.script.in_lambda(stamp)

    def _is_drawn_once(self, stamp: ast.Call) -> bool:
        """Whether no loop draws again and again: the file of each step's rows is each process's own."""
        return not any(self.script.loops_around(way) for way in self.audience.ways(stamp))

    def _is_agreed_on(self, node: ast.AST) -> bool:
        """Whether all processes come to a place."""
        return self.audience.is_all(node) and self.audience.comes_alike(node)

    def _take_name(self, call: ast.Call) -> None:
        """`if os.path.exists(path): path = another(path)`, and `while os.path.exists(f"run{n}"): n += 1`, above what makes the
        folder: the main process, which has found what was there before, says which path it is, or which number."""
        statement, at = self.script.statement(call), call.args[0] if call.args else None
        if is_method(call, "exists", "is_dir") and at is None:  # `Path(path).exists()`
            at = call.func.value
        elif self.script.dotted(call.func) not in ("os.path.exists", "os.path.isdir"):
            return
        if at is None or not isinstance(statement, ast.If | ast.While) or call not in walk(statement.test):
            return
        frame, path = self.script.frame(call), written(at)
        asked = {path, *map(written, self.script.values(frame, path)), *names_in(at)}
        bound = set(map(written, stores_in(*statement.body)))
        renamed = sorted(bound & asked)
        makes = [c for c in self.script.calls_in(frame) if on_disk.makes_folder(self.script, c)]
        paths = [at for c in makes if (at := on_disk.path_of_folder(c)) is not None]
        made = {text for at in paths for text in (written(at), *names_in(at))}
        is_above = bool(made) and all(place_of(statement) < place_of(one) for one in makes)
        if made & {*renamed} and is_above and self._is_agreed_on(statement):
            self._start(statement)
            called = (f for n in walk_all(statement.body) for f in self.script.functions_of(n))
            inner = (c for f in called for c in self.script.calls_in(f))
            if bound <= made and any(on_disk.makes_folder(self.script, c) for c in inner):
                self.of_one.append(statement)
            for text in sorted(made & {*renamed}):
                self._import(statement)
                code = f"{text} = broadcast_object_list([{text}])[0]"
                self.plan.after(statement, RULE, REASON, code, GROUP)

    def _take_free_name(self, call: ast.Call) -> None:
        """`path = free_name(path)`, above what makes the folder: a name that a function has counted up to is the main
        process's."""
        path, frame = on_disk.path_of_folder(call), self.script.frame(call)
        text = written(path) if isinstance(path, ast.Name) else ""
        values = self.script.values(frame, text)
        if len(values) == len(self.script.stores(frame, text)) == 1 and place_of(values[0]) < place_of(call):
            (value,) = values
            is_counted = (
                isinstance(value, ast.Call) and value not in self.sources.common and self._counts(value)
            )
            if isinstance(value, ast.Call) and is_counted and self._is_agreed_on(value):
                self._start(value)
                self._make_common(value)

    def _counts(self, call: ast.Call, depth: int = 3) -> bool:
        """Whether a function of the project looks for a name that is free, or calls one that does."""
        functions = self.script.functions_of(call) if depth else []
        return any(
            any(isinstance(n, ast.While) and on_disk.asks_for_files(n.test) for n in self.script.within(one))
            or any(self._counts(inner, depth - 1) for inner in self.script.calls_in(one))
            for one in functions
        )

    def _start(self, stamp: ast.AST) -> None:
        if not self._is_started(stamp):
            self._starts.append(self.script.statement(stamp))
            reason = "the processes know each other when they agree on a path"
            self.plan.before(self.script.statement(stamp), RULE, reason, self.plan.state(stamp, GROUP), GROUP)

    def _is_started(self, node: ast.AST, depth: int = 4) -> bool:
        """Whether the processes know each other by then: an accelerator is there, or was where the function is called."""
        statement, frame = self.script.statement(node), self.script.frame(node)
        above = [s for s in self._starts if s in self.script.suite_of(statement)]
        if self.accelerators.at_hand(node) or any(place_of(s) <= place_of(statement) for s in above):
            return True
        calls = self.script.callers(frame) if is_function_frame(frame) and depth else []
        return bool(calls) and all(self._is_started(call, depth - 1) for call in calls)

    def _make_common(self, stamp: ast.Call) -> None:
        self.sources.common.add(stamp)
        code, outer = "{stamp}", self.script.parent(stamp)
        if last_name(stamp.func) == "glob" and self.script.dotted(stamp.func) != "glob.glob":  # a generator
            is_listed = isinstance(outer, ast.Call) and written(outer.func) in ("list", "sorted", "tuple")
            stamp, code = (
                (outer, code) if isinstance(outer, ast.Call) and is_listed else (stamp, "list({stamp})")
            )
        code = f"broadcast_object_list([{code}])[0]"
        if self.plan.replace(stamp, RULE, REASON, code, GROUP, stamp=stamp):
            self._import(stamp)

    def ask_once(self, question: ast.Call, above: ast.If | None) -> None:
        """A person answers the main process, for all, where they come to the question alike.

        above: a test that asks for files before that, which the main process does for all as well.
        """
        first, test = above or question, above.test if above is not None else question
        if self.script.in_lambda(question) or (above is not None and not self._is_agreed_on(above)):
            return
        if not self.audience.comes_alike(
            question, is_same=lambda one: one is test or question in walk(one) or written(one) in _MISSING
        ):
            return
        self._start(first)
        asked = test if question in walk(test) else question
        if asked is not test:
            self.plan.replace(test, RULE, REASON, "broadcast_object_list([{test}])[0]", GROUP, test=test)
        knows = self.accelerators.state(first, GROUP)
        code = f"broadcast_object_list([{{asked}} if {knows}.is_main_process else None])[0]"
        if self.plan.replace(asked, RULE, "one process asks", code, GROUP, asked=asked):
            self._import(question)

    def _import(self, node: ast.AST) -> None:
        code = f"from {self.plan.runtime}.utils import broadcast_object_list"
        self.plan.add(e.AddImport(self.script.module(node), RULE, transaction=GROUP, code=code))
