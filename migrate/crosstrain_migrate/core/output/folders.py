"""CT402 by use: a folder may exist already, because another process has made it; what its author decides by that, one decides."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import partial

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import FUNCTIONS
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.names import KNOWN
from crosstrain_migrate.syntax.nodes import exits, last_name, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

from . import commands, on_disk
from .audience import Audience
from .files import Files
from .stamps import Stamps

RULE = "CT402"
REASON = "several processes make the folder"
ASKED = "all have asked for the folder before it is made"
GROUP = "folders"
DEPENDS = "every process makes this folder, and what follows depends on whether it was there"
GUARD = "make it under `if PartialState().is_main_process:`"


class Folders:
    """Plans how folders are made."""

    def __init__(self, plan: Plan, files: Files, audience: Audience, stamps: Stamps) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.files = files
        self.audience = audience
        self.stamps = stamps
        self._decided: set[ast.AST] = set()  # what all come to alike when they have asked
        self._new: list[str] = []  # the folders that must not be there

    def run(self) -> None:
        calls = (one for one in self.script.calls if on_disk.makes_folder(self.script, one))
        # A folder about which a test decides may decide about others too.
        for call in sorted(filter(self.audience.is_all, calls), key=lambda one: self._deciding(one) is None):
            if self.script.in_lambda(call) or call in self._decided:
                continue
            if is_statement_call(self.script, call):
                self._folder(call)
            elif self._is_kept(call) and not self._is_caught(call):
                self._stop_or_take(call)
        for loop in self.script.table.each(ast.While):
            if self.audience.is_all(loop) and self._draws_free_name(loop):
                self._wait_below(loop)
        for test in self.script.table.each(ast.If):
            asks = on_disk.listing_around(self.script, test) or test
            if (
                self._stops_if_there(test, asks)
                and self.audience.is_all(test)
                and self.audience.comes_alike(asks)
            ):
                code = f"{self.files.state(test)}.wait_for_everyone()"
                self.plan.after(asks, RULE, "all have asked before any goes on to make it", code, GROUP)
        self._questions()

    def allow(self, but: Callable[[ast.AST], bool]) -> None:
        """`if not exists(path): makedirs(path)`, and nothing else: several processes may find that it is not there."""
        for call in filter(partial(is_statement_call, self.script), self.script.calls):
            test = self.script.parent(self.script.statement(call))
            if not isinstance(test, ast.If) or len([*test.body, *test.orelse]) > 1:
                continue
            is_made = on_disk.asks_for_files(test.test) and on_disk.makes_folder(self.script, call)
            if is_made and self.audience.is_all(call) and not self._is_caught(call) and not but(call):
                self._may_exist(call)

    def _stops_if_there(self, test: ast.If, asks: ast.If | ast.For) -> bool:
        """`if exists(path) and not overwrite: raise`, or `for name in listdir(path):` around `if name == wanted: raise`, outside
        of other loops: what is made there, by whomever, is made later."""
        inner = test.orelse or self.script.table.is_whole_else(test) or self.script.loops_around(asks)
        missing = [n for n in walk(test.test) if _is_missing(n) and on_disk.asks_for_files(n)]
        answers = commands.questions_in(self.script, test)  # all wait for one
        asked = asks.iter if isinstance(asks, ast.For) else test.test
        return _stops(test.body) and not (inner or missing or answers) and on_disk.asks_for_files(asked)

    def _draws_free_name(self, loop: ast.While) -> bool:
        """`while True: name = draw(); if not isdir(name): break`"""
        asked = (n for n in loop.body if isinstance(n, ast.If) and on_disk.asks_for_files(n.test))
        return isinstance(loop.test, ast.Constant) and any(
            isinstance(one.body[-1], ast.Break) for one in asked
        )

    def _wait_below(self, loop: ast.While) -> None:
        """All have found the name to be free before one makes the folder in the same block, or below it."""
        top: ast.stmt = loop
        while isinstance(outer := self.script.parent(top), ast.If):
            top = outer
        suite = self.script.suite_of(top)
        for statement in suite[suite.index(top) + 1 :]:
            calls = [n for n in walk(statement) if isinstance(n, ast.Call)]
            makes = (commands.makes_by_command, on_disk.makes_folder)
            if any(made(self.script, one) for one in calls for made in makes):
                if self.audience.comes_alike(statement):
                    reason = "all have found the name to be free"
                    self.files.wait_above(statement, reason, RULE, GROUP, at=loop)
                return

    def _questions(self) -> None:
        """What a person, or a command that writes, is asked: by one process, where it alone goes by the answer, else for all."""
        is_asked = (commands.asks_person, commands.is_answered)
        for call in (c for c in self.script.calls if any(one(self.script, c) for one in is_asked)):
            tests = [one for one in self.script.around(call) if isinstance(one, ast.If)]
            about_files = next((one for one in reversed(tests) if on_disk.asks_for_files(one.test)), None)
            if about_files is not None and self.audience.is_all(about_files) and self._is_closed(about_files):
                self.files.guard(about_files)
            if self.audience.is_all(call):
                self.stamps.ask_once(call, about_files)

    def _is_closed(self, block: ast.AST) -> bool:
        """Whether nothing behind a block, on no process, goes by what happens in it."""
        nodes, stored = walk(block), stores_in(block)
        reads = (read for one in stored for read in self.script.reads(self.script.frame(block), written(one)))
        leaves = (ast.Return, ast.Break, ast.Continue, ast.Raise)
        return (
            all(isinstance(one, ast.Name) for one in stored)
            and all(read in nodes for read in reads)
            and not any(isinstance(n, leaves) or exits(n) for n in nodes)
        )

    def _is_kept(self, call: ast.Call) -> bool:
        """`folder = os.mkdir(path)`, which is None; another object's `mkdir` may give a folder."""
        is_of_os = self.script.dotted(call.func).startswith("os.")
        return is_of_os and isinstance(self.script.parent(call), ast.Assign)

    def _folder(self, call: ast.Call) -> None:
        deciding = self._deciding(call)
        path = on_disk.path_of_folder(call)
        if deciding is not None:
            self._one_decides(call, deciding)
        elif path is not None and self.stamps.is_for_one(path):
            self.files.guard(self.script.statement(call))
            self._wait_for_answers(call, path)
        elif self._is_caught(call) and not self._stops(call):
            return
        elif not self._main_process_asks(call, path):
            self._wait_for_answers(call, path)
            self._stop_or_take(call)

    def _deciding(self, call: ast.Call) -> ast.If | ast.Try | None:
        """What around a call does something else where the folder is there already: it warns, stops, or takes another."""
        for one in self.script.around(call):
            if isinstance(one, ast.If) and on_disk.asks_for_files(one.test):
                empties = any(isinstance(n, ast.Call) and last_name(n.func) == "rmtree" for n in walk(one))
                return one if one.orelse or (len(one.body) > 1 and empties) else None
            if isinstance(one, ast.Try):
                handled = [s for handler in one.handlers for s in handler.body]
                return None if all(isinstance(s, ast.Pass) for s in handled) else one
            if not isinstance(one, ast.Expr):
                return None
        return None

    def _one_decides(self, call: ast.Call, deciding: ast.If | ast.Try) -> None:
        """One process makes the folder and warns or stops; where it decides on a name, all would have to know it."""
        nodes = walk(deciding)
        re_raises = isinstance(deciding, ast.Try) and all(self._only_raises(h) for h in deciding.handlers)
        allowed = next((k.value for k in call.keywords if k.arg == "exist_ok"), None)
        if re_raises or (isinstance(deciding, ast.Try) and getattr(allowed, "value", False) is True):
            # `except OSError as error: if error.errno != EEXIST: raise`; one that may be there is no error
            if re_raises and any(map(self._is_unknown, walk(deciding))):
                self._may_exist(call)  # `errno` is not imported: its handler fails
            return
        if not self._is_closed(deciding) or any(
            isinstance(n, ast.Call) and self.files.meetings.is_collective(n) for n in nodes
        ):
            if not self._one_stops(call, deciding) and not self._decide_alike(call, deciding):
                self.plan.note(RULE, call, DEPENDS, GUARD)
                if isinstance(deciding, ast.If) and _is_missing(deciding.test) and not self._is_caught(call):
                    self._may_exist(call)
            return
        self.files.guard(deciding)

    def _one_stops(self, call: ast.Call, deciding: ast.If | ast.Try) -> bool:
        """`try: makedirs(path)`, `except FileExistsError: sys.exit(...)`: the folder of an earlier run stops the main process,
        and with it the run; the others find the one that it has made."""
        statement = self.script.statement(call)
        if not isinstance(deciding, ast.Try) or statement is not deciding.body[0]:
            return False
        ends = [one.body[-1] for one in deciding.handlers]
        stops = all(isinstance(one, ast.Raise) or exits(one) for one in ends)
        return stops and self._stops_main_process(call, deciding)

    def _stop_or_take(self, call: ast.Call) -> None:
        """One that must be new stops the main process; where all may not wait for that, a note says so, and it may be there."""
        path = on_disk.path_of_folder(call)
        if path is not None and self._is_plain(call) and self._must_be_new(call, path):
            if self._stops_main_process(call, call):
                return
            self.plan.note(RULE, call, DEPENDS, GUARD)
        self._may_exist(call)

    def _is_plain(self, call: ast.Call) -> bool:
        """Whether a call can be told that a folder may be there: not `os.mkdir(path, mode)`."""
        return self.script.dotted(call.func) != "os.mkdir" or len(call.args) + len(call.keywords) == 1

    def _must_be_new(self, call: ast.Call, path: ast.expr) -> bool:
        """Whether the folder of an earlier run is meant to end this one: `os.mkdir(path)`, of which nothing has asked, which
        nothing has removed, and which is not within one that is made so itself."""
        if any(k.arg == "exist_ok" and getattr(k.value, "value", None) is not False for k in call.keywords):
            return False
        frame = self.script.frame(call)
        made_by = {n for one in walk(path) if isinstance(one, ast.Call) for n in walk(one.func)}  # Path, os
        names = {n.id for n in walk(path) if isinstance(n, ast.Name) and n not in made_by}
        given = self.script.callers(frame) if isinstance(frame, FUNCTIONS) else []
        tests = [
            one.test for at in (call, *given) for one in self.script.around(at) if isinstance(one, ast.If)
        ]
        above = [n for n in walk(frame) if isinstance(n, ast.Call) and n.lineno < call.lineno]
        asked = [n for n in (*above, *tests) if on_disk.asks_for_files(n) or _acts(n)]
        is_asked = any(isinstance(n, ast.Name) and n.id in names for n in walk_all(asked))
        text = written(path)
        folders = [written(n).strip("\"'") for one in asked for n in walk(one) if isinstance(n, ast.Constant)]
        if is_asked or any(one in text for one in (*self._new, *folders)):
            return False
        self._new.append(text.strip("\"'"))
        return True

    def _stops_main_process(self, call: ast.Call, all_come_to: ast.AST) -> bool:
        """Plans that a folder which is there stops the main process, and with it the run; the others find what it has made."""
        statement, state = self.script.statement(call), self.files.state(call)
        if not self._is_plain(call) or not self.audience.comes_alike(all_come_to):
            return False
        self._may_exist(call, f"not {state}.is_main_process")
        self.plan.within(statement, RULE, REASON, f"{state}.main_process_first()", GROUP)
        return True

    def _decide_alike(self, call: ast.Call, deciding: ast.If | ast.Try) -> bool:
        """`if not exists(path): makedirs(path)`, `elif start: raise`, `else: rmtree(path); makedirs(path)`: all take the same
        way where they have asked before the main process makes, or removes, the folder."""
        chain: list[ast.AST] = [deciding]
        while isinstance(outer := self.script.parent(chain[-1]), ast.If) and outer.orelse == [chain[-1]]:
            chain.append(outer)
        top = chain[-1]
        calls = [n for n in walk(top) if isinstance(n, ast.Call)]
        acting = [one for one in calls if on_disk.makes_folder(self.script, one) or _acts(one)]
        statements = [self.script.statement(one) for one in acting]
        chain = [n for n in walk(top) if isinstance(n, ast.If)]
        if any(self.script.parent(one) not in chain for one in statements) or self.stamps.differs(
            on_disk.path_of_folder(call)
        ):
            return False
        suites = {id(suite): suite for suite in map(self.script.suite_of, statements)}.values()
        inner = [one for one in suites if any(n in s for s in suites for n in self.script.around(one[0]))]
        heads = [one[0] for one in suites if one not in inner]  # nobody waits within what another may skip
        knows = partial(self._asks_of_folder, call)
        if not all(self.audience.comes_alike(one, is_same=knows) for one in heads):
            return False
        makes = [self.script.statement(one) for one in acting if on_disk.makes_folder(self.script, one)]
        guarded = [self.files.guard(one) for one in makes]  # each says so where it is not
        if not all(guarded):
            return False
        self._decided.update(acting)
        for one in heads:
            self.files.wait_above(one, ASKED, RULE, GROUP, at=call)
        if isinstance(top, ast.If) and self.audience.comes_alike(top):
            reason = "nobody makes a folder in it before the main process has made it anew"
            self.plan.after(top, RULE, reason, f"{self.files.state(call)}.wait_for_everyone()", GROUP)
        return True

    def _asks_of_folder(self, call: ast.Call, test: ast.expr) -> bool:
        """Whether a test asks for the folder that a call makes, and else for options."""
        path = written(path_of) if (path_of := on_disk.path_of_folder(call)) is not None else ""
        calls = [n for n in walk(test) if isinstance(n, ast.Call)]
        return bool(path) and all(on_disk.asks_for_files(n) and path in written(n) for n in calls)

    def _only_raises(self, handler: ast.ExceptHandler) -> bool:
        inside = [n for n in walk_all(handler.body) if isinstance(n, ast.stmt)]
        return all(isinstance(n, ast.Raise | ast.If | ast.Pass) for n in inside) and any(
            isinstance(n, ast.If) for n in inside
        )

    def _is_unknown(self, node: ast.AST) -> bool:
        scope = self.script.table.scopes[self.script.frame(node)]
        return isinstance(node, ast.Name) and node.id not in KNOWN and scope.resolve(node.id) is None

    def _is_caught(self, call: ast.Call) -> bool:
        """Whether the error of a folder that is there already is caught, or is what a handler answers to; it is not in
        `try: os.stat(path)`, `except OSError: os.mkdir(path)`."""
        tries = [one for one in self.script.around(call) if isinstance(one, ast.Try)]
        tried = [n for one in tries for n in walk_all(one.body) if isinstance(n, ast.Call)]
        return any(one is call or on_disk.makes_folder(self.script, one) for one in tried)

    def _stops(self, call: ast.Call) -> bool:
        """Whether a folder that another process makes meanwhile ends the run: `if not exists(path): mkdir(path)` in a `try`
        whose handler stops."""
        around = (one for one in self.script.around(call) if isinstance(one, ast.Try))
        handlers = next(around).handlers
        return any(
            exits(n) or isinstance(n, ast.Raise)
            for one in handlers
            if not self._only_raises(one)
            for n in walk(one)
        )

    def _may_exist(self, call: ast.Call, where: str = "True") -> None:
        exist = next((k for k in call.keywords if k.arg == "exist_ok"), None)
        name = self.script.dotted(call.func)
        if (allowed := on_disk.decides_by_folder(call)) is not None:
            self._main_process_decides(call, allowed)
        elif exist is not None:
            if isinstance(exist.value, ast.Constant) and exist.value.value is False:
                self.plan.replace(exist.value, RULE, REASON, where, GROUP)
        elif name == "os.mkdir":
            if len(call.args) == 1 and not call.keywords and isinstance(call.func, ast.Attribute):
                template = f"{written(call.func.value)}.makedirs({{path}}, exist_ok={where})"
                self.plan.replace(call, RULE, REASON, template, GROUP, path=call.args[0])
            elif is_statement_call(self.script, call):
                self.files.guard(self.script.statement(call))
        elif len(call.args) < (3 if name == "os.makedirs" else 2):
            code = f"exist_ok={where}"
            self.plan.add(e.InsertArgument(call, RULE, REASON, transaction=GROUP, code=code))

    def _main_process_asks(self, call: ast.Call, path: ast.expr | None) -> bool:
        """Whether a person is asked, or the folder removed, where it is there: one process does it before any makes it."""
        statement = self.script.statement(call)
        suite = self.script.suite_of(statement)
        asks, behind = suite[max(suite.index(statement) - 1, 0)], self._behind(statement)
        if behind is None or path is None:
            return False
        if not isinstance(asks, ast.If) or asks.orelse or not on_disk.asks_for_files(asks.test):
            return False
        is_meant = ast.unparse(path) in ast.unparse(asks.test) and any(map(_acts, walk(asks)))
        if not is_meant or not self._is_closed(asks) or not self.audience.comes_alike(statement):
            return False
        if not self.files.guard(asks) or not self.files.guard(statement):
            return False
        reason = "the others find the folder that the main process has made"
        self.files.wait_above(behind, reason, RULE, at=statement)
        return True

    def _wait_for_answers(self, call: ast.Call, path: ast.expr | None) -> None:
        """All have asked for a folder before one makes it where its author takes the next number if it is there, and the main
        process has removed what all make anew."""
        statement, text = self.script.statement(call), written(path) if path is not None else ""
        outer = self.script.parent(statement)
        asking = [outer] if isinstance(outer, ast.If) and on_disk.asks_for_files(outer.test) else []
        alike = next(filter(self.audience.comes_alike, (statement, *asking)), None)
        if call in self.files.emptied and alike is not None:
            reason = "the main process has removed the folder before another one makes it"
            self.files.wait_above(alike, reason, RULE, GROUP, at=call)
        for asks, shared in self._questions_above(statement):
            is_meant = on_disk.asks_for_files(asks.test) and text in written(asks.test)
            if text and is_meant and self.audience.comes_alike(shared):
                self.files.wait_above(statement, ASKED, RULE, GROUP, at=call)

    def _questions_above(self, statement: ast.stmt) -> Iterator[tuple[ast.If, ast.stmt]]:
        """The tests that look for a number, `for n in range(9): if not exists(path): makedirs(path); break`, and what all
        processes must come to."""
        suite = self.script.suite_of(statement)
        outer = self.script.parent(statement)
        loop = self.script.parent(outer) if isinstance(outer, ast.If) else None
        ends = isinstance(suite[-1], ast.Return | ast.Break)
        if isinstance(outer, ast.If) and isinstance(loop, ast.For) and ends:
            yield outer, loop

    def _behind(self, statement: ast.stmt) -> ast.stmt | None:
        """The statement that all come to next, behind the branch that ends with this one."""
        suite = self.script.suite_of(statement)
        if statement is not suite[-1]:
            return suite[suite.index(statement) + 1]
        outer = self.script.parent(statement)
        return self._behind(outer) if isinstance(outer, ast.If | ast.With) else None

    def _main_process_decides(self, call: ast.Call, allowed: ast.expr) -> None:
        """`exist_ok=overwrite`: the main process makes the folder as its author says, and the others find it."""
        statement, state = self.script.statement(call), self.files.state(call)
        if not self.audience.comes_alike(statement):
            self.plan.note(RULE, call, DEPENDS, GUARD)
            return
        given = "({given})" if isinstance(allowed, ast.IfExp | ast.Lambda) else "{given}"
        template = f"{given} or not {state}.is_main_process"
        if self.plan.replace(allowed, RULE, REASON, template, GROUP, given=allowed):
            context = f"{state}.main_process_first()"
            self.plan.within(statement, RULE, REASON, context, GROUP)


def _stops(block: list[ast.stmt]) -> bool:
    """Whether a block ends with a stop, also one of two ways: `if force: rmtree(path)`, `else: raise`."""
    last = block[-1] if block else None
    is_one = isinstance(last, ast.If) and (_stops(last.body) or _stops(last.orelse))
    return is_one or isinstance(last, ast.Raise) or exits(last)


def _is_missing(node: ast.AST) -> bool:
    """`not exists(path)`, `len(listdir(path)) == 0`: what another process makes meanwhile does not stop this one."""
    is_equal = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.Lt | ast.LtE)
    return is_equal or isinstance(node, ast.UnaryOp)


def _acts(node: ast.AST) -> bool:
    """Whether a call asks a person, or removes a folder."""
    return isinstance(node, ast.Call) and last_name(node.func) in (*commands.QUESTIONS, "rmtree")
