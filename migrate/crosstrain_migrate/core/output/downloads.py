"""CT404 by use: what is fetched, or made once and kept, is there before the other processes look for it.

Data sets that fetch themselves and code that asks for its files first go under `main_process_first()`. A fetch that does not
ask is the main process's, and all wait for it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import takewhile

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import asks_rank, is_plain
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import Function, place_of
from crosstrain_migrate.syntax.walks import names_stored_in, walk, walk_all

from . import commands, fetching, on_disk, writers
from .audience import TURNS, Audience
from .files import Files

RULE = "CT404"
GROUP = "downloads"
REASON = "one process downloads, the others read"
_LEFT = "every process downloads this, and one may read what another still writes"
_WHOLE = (ast.Assign, ast.Expr, ast.AnnAssign, ast.Return, ast.If, ast.AugAssign, ast.Try)


class Downloads:
    """Plans who fetches first."""

    def __init__(self, plan: Plan, files: Files, audience: Audience) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.files = files
        self.audience = audience
        self._first_there: dict[ast.stmt, str] = {}  # each with what knows the main process
        self._left: list[ast.AST] = []  # what every process does, unless it is found to come to it in turns

    def run(self) -> None:
        self._plan_tests(self._fills_if_told)  # whole, before what it makes is looked at alone
        chosen = [call for call in self.script.calls if self._makes_chosen(call)]
        for call in chosen:  # before what these run is looked at alone
            if self.audience.is_all(call) and not self.script.in_lambda(call):
                self._first(call, self.script.statement(call))
        by_all = [self._run_first(call) for call in chosen if self.audience.is_all(call)]
        self.audience.guard(*(f for c in chosen if (run := self._run_first(c)) not in by_all for f in run))
        for call in self.script.calls:
            if not self.audience.is_all(call) or self.script.in_lambda(call):
                continue
            if fetching.fetches_itself(self.script, call):
                self._first(call, self.script.statement(call))
            elif fetching.fetches(self.script, call) or self._answers(call):
                self._fetch(call)
            elif self._commands(call) and (asking := self._asking(call)) is not None:
                asks_if_missing = any(isinstance(n, ast.UnaryOp) for n in walk(asking.test))
                # Else others would take away what the main process has made anew, or be asked about it.
                is_new = asks_if_missing or not commands.removes(self.script, call)
                if is_new and not commands.questions_in(self.script, asking):
                    self._first(call, asking)  # nobody knows what files it makes
            elif self._makes(call) and not writers.removes_file(self.script, call):
                self._kept(call, self.files.paths.of_write(call))
            elif (helper := self.files.helpers.called(call)) and self.files.helpers.writes(helper):
                paths = {text for one in call.args for text in self.files.paths.spelled(one)}
                self._kept(call, paths, helper)
        self._plan_tests(self._reads_or_makes, self._fills_folder)
        for tried in self.script.table.each(ast.Try):
            if self.script.is_reached(tried) and self.audience.is_all(tried) and self._loads_or_makes(tried):
                self._plan(tried, [tried])
        for frame in self.script.reached_frames:
            if is_function_frame(frame) and self._makes_once(frame):
                calls = self._calls_of(frame, 4)
                if all(self.audience.comes_alike(call, is_same=self._asks_for_given) for call in calls):
                    self._plan(frame, calls)
        for statement, state in self._first_there.items():
            if not any(one in self._first_there for one in self.script.around(statement)):
                context = f"{state}.main_process_first()"
                self.plan.within(statement, RULE, REASON, context, GROUP)
        for node in filter(self.audience.is_all, self._left):
            self.plan.note(RULE, node, _LEFT, "download it before training, or under `main_process_first()`")

    def _makes_chosen(self, call: ast.Call) -> bool:
        """Whether a call makes a data set of the project's that a library asks for its files, or one of a class that is chosen
        elsewhere: `args.dataset(path, download=True)`."""
        if fetching.filling(self.script, call):
            return self.script.is_reached(call)
        if not any(k.arg == "download" for k in call.keywords) or self.script.run_by(call):
            return False
        return bool(self._constructors) and fetching.fetches_itself(self.script, call)

    def _run_first(self, call: ast.Call) -> list[Function]:
        """What a data set that is made runs in the first process alone."""
        return fetching.filling(self.script, call) or self._constructors

    @cached_property
    def _constructors(self) -> list[Function]:
        """The constructors of the project that may be told to download, and that nothing calls by name."""
        classes = self.script.table.each(ast.ClassDef)
        made = [one for cls in classes for one in self.script.methods(cls) if one.name == "__init__"]
        told = [one for one in made if "download" in self.script.parameters(one)]
        return [one for one in told if not self.script.runs_of(one)]

    def _plan_tests(self, *kinds: Callable[[ast.If], bool]) -> None:
        for node in self.script.table.each(ast.If):
            is_ours = self.script.is_reached(node) and self.audience.is_all(node)
            if is_ours and any(is_kind(node) for is_kind in kinds):
                self._plan(node, [node])

    def _answers(self, call: ast.Call) -> bool:
        """Whether a call brings what its function then writes: `requests.get(url)`."""
        name = self.script.dotted(call.func)
        if name not in ("requests.get", "urllib.request.urlopen", "httpx.get"):
            return False
        calls = self.script.calls_in(self.script.frame(call))
        return any(writers.opens_to_write(self.script, one) for one in calls)

    def _makes(self, call: ast.Call) -> bool:
        return (
            writers.writes_file(self.script, call)
            or writers.opens_to_write(self.script, call)
            or writers.saves_weights(self.script, call)
        )

    def _fetch(self, call: ast.Call) -> None:
        if any(map(self.files.stamps.is_temporary, call.args)):
            return  # each process unpacks into a folder of its own
        asking = self._asking(call)
        if asking is not None:
            self._first(call, asking)
        elif self._asks_at_all(self.script.frame(call)) or self._callers_ask(self.script.frame(call)):
            self._at_calls(call)
        else:
            self._alone(call)

    def _kept(self, call: ast.Call, paths: set[str], helper: Function | None = None) -> None:
        """`if not exists(path): write(path)`, and then it is read: every process would find it half written."""
        asking = self._asking(call)
        if asking is None or self._trains(asking) or (helper and self._trains(helper)):
            return
        made = [*walk(helper)] if helper else [call]
        saves = any(isinstance(n, ast.Call) and writers.saves_weights(self.script, n) for n in made)
        if saves and self._makes_again(asking, call):
            return  # `accelerator.save` is whole for all
        returned = (n.value for n in walk(self.script.frame(call)) if isinstance(n, ast.Return) and n.value)
        is_asked = bool(paths & self.files.paths.spelled_in(asking.test))
        if is_asked and any(self.files.read.behind(one, asking, paths) for one in self.script.calls):
            self._first(call, asking)
        elif is_asked and any(paths & self.files.paths.spelled(one) for one in returned):
            self._plan(call, [asking])

    def _makes_again(self, asking: ast.If, call: ast.Call) -> bool:
        """Whether a file may be written that is there: `if not exists(path) or loss < best:`, `if exists(path):`"""
        ops = [getattr(n, "op", None) for n in walk(asking.test)]
        is_missing = any(isinstance(op, ast.Not) for op in ops) and not any(
            isinstance(op, ast.Or) for op in ops
        )
        arm = asking.body if is_missing else asking.orelse
        return not any(self.script.table.is_inside(call, one) for one in arm)

    def _commands(self, call: ast.Call) -> bool:
        """Whether a call runs a command, itself or in the function of the project that it calls."""
        helper = self.files.helpers.called(call) if is_statement_call(self.script, call) else None
        inner = self.script.calls_in(helper) if helper is not None else []
        writing = (one for one in inner if writers.writes_file(self.script, one))
        return any(commands.is_command(self.script, one) for one in (call, *writing))

    def _reads_or_makes(self, node: ast.If) -> bool:
        """`if exists(path): rows = load(path)`, `else: rows = make(path)`, where `make` writes what it made."""
        if not node.orelse or not on_disk.asks_for_files(node.test):
            return False
        arms = [[n for n in walk_all(arm) if isinstance(n, ast.Call)] for arm in (node.body, node.orelse)]
        for one, other in (arms, reversed(arms)):
            reads = any(on_disk.reads_file(self.script, call) for call in one)
            makes = [f for call in other if (f := self.files.helpers.called(call)) is not None]
            if reads and any(self.files.helpers.writes(function) for function in makes):
                return not self._trains(node)
        return False

    def _loads_or_makes(self, node: ast.Try) -> bool:
        """`try: words = load(path)`, `except OSError: save(words := build(), path)`: the others would find it half written."""
        tried = [n for n in walk_all(node.body) if isinstance(n, ast.Call)]
        reads = [call for call in tried if on_disk.reads_file(self.script, call)]
        made = [n for handler in node.handlers for n in walk(handler) if isinstance(n, ast.Call)]
        writes = [call for call in made if self._fills([call]) or writers.opens_to_write(self.script, call)]
        read, written = (
            {text for call in calls for one in call.args for text in self.files.paths.spelled(one)}
            for calls in (reads, writes)
        )
        return bool(read & written) and self.audience.comes_alike(node) and not self._trains(node)

    def _fills_folder(self, node: ast.If) -> bool:
        """`if not exists(folder):`, which makes the folder and writes into it: the others would find it half full."""
        calls = [n for n in walk_all(node.body) if isinstance(n, ast.Call)]
        makes = any(on_disk.makes_folder(self.script, call) for call in calls)
        is_asked = makes and on_disk.asks_for_files(node.test) and not node.orelse
        return is_asked and self._fills(calls) and self.audience.comes_alike(node) and not self._trains(node)

    def _fills_if_told(self, node: ast.If) -> bool:
        """`if not self.is_prepared():`, which asks a function that looks for files, and writes them: the others find none."""
        calls = [n for n in walk_all(node.body) if isinstance(n, ast.Call)]
        is_asked = self._says_whether_there(node.test) and not node.orelse
        return is_asked and self._fills(calls) and self.audience.comes_alike(node) and not self._trains(node)

    def _says_whether_there(self, test: ast.expr) -> bool:
        """Whether a test says, by a function of the project, whether files are there; `or again`, a parameter that is false."""
        if isinstance(test, ast.BoolOp):
            others = [one for one in test.values if not self._says_whether_there(one)]
            return len(others) < len(test.values) and all(
                fetching.is_off(self.script, test, one) for one in others
            )
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._says_whether_there(test.operand)
        function = self.files.helpers.called(test) if isinstance(test, ast.Call) else None
        nodes = walk_all(function.body) if function else []
        returned = [node.value for node in nodes if isinstance(node, ast.Return)]
        is_truth = all(
            (isinstance(one, ast.Constant) and isinstance(one.value, bool))
            or (isinstance(one, ast.BoolOp | ast.Call | ast.UnaryOp) and on_disk.asks_for_files(one))
            for one in returned
        )
        return bool(returned) and is_truth and any(map(on_disk.asks_for_files, nodes))

    def _makes_once(self, function: Function) -> bool:
        """Whether a function returns at once where its files are there, and makes them where they are not."""
        nodes = walk_all(function.body)
        tests = [n for n in nodes if isinstance(n, ast.If)]
        asking = [n for n in tests if on_disk.asks_for_files(n.test)]
        flags = names_stored_in(*asking)
        ways_out = [
            one
            for one in tests
            if one in function.body
            and (
                any(isinstance(n, ast.Return) for n in walk_all(one.body))
                if one in asking
                else isinstance(one.body[-1], ast.Return) and names_in(one.test) & flags
            )
        ]
        if not ways_out:
            return False
        first = min(map(place_of, ways_out))
        later = [n for n in nodes if isinstance(n, ast.Call) and place_of(n) > first]
        return self._fills(later) and not self._trains(function)

    def _asks_for_given(self, test: ast.expr) -> bool:
        """Whether a test asks for files that nothing in the script makes, so that they are there for all or for none."""
        calls = [n for n in walk(test) if isinstance(n, ast.Call) and not is_plain(n)]
        return (
            all(self.script.dotted(call.func).startswith("os.path.") for call in calls)
            and on_disk.asks_for_files(test)
            and not asks_rank(test)
            and self._made.isdisjoint(self.files.paths.spelled_in(test))
        )

    @cached_property
    def _made(self) -> set[str]:
        """How the paths are written that the script makes."""
        calls = [call for call in self.script.calls if self.script.is_reached(call)]
        folders = [on_disk.path_of_folder(one) for one in calls if on_disk.makes_folder(self.script, one)]
        made = {text for one in folders if one is not None for text in self.files.paths.spelled(one)}
        return made | {text for one in calls if self._makes(one) for text in self.files.paths.of_write(one)}

    def _fills(self, calls: list[ast.Call]) -> bool:
        """Whether calls write files that are no weights."""
        if any(writers.saves_weights(self.script, call) for call in calls):
            return False
        called = [f for call in calls if (f := self.files.helpers.called(call)) is not None]
        return any(writers.writes_file(self.script, call) for call in calls) or any(
            self.files.helpers.writes(f) and not self.files.helpers.saves_weights(f) for f in called
        )

    def _asking(self, call: ast.Call) -> ast.If | None:
        """The outermost `if` around a call, in its function, that asks for files."""
        asking = None
        for one in self._inside(call):
            if isinstance(one, ast.If) and on_disk.asks_for_files(one.test):
                asking = one
        return asking

    def _asks_at_all(self, frame: Frame) -> bool:
        return is_function_frame(frame) and any(
            isinstance(n, ast.If) and on_disk.asks_for_files(n.test) for n in walk(frame)
        )

    def _callers_ask(self, frame: Frame) -> bool:
        """Whether a function is called where its files are not there: `if not exists(root): self.download(root)`."""
        calls = self.script.callers(frame) if is_function_frame(frame) else []
        return bool(calls) and all(self._asking(one) is not None for one in calls)

    def _first(self, call: ast.Call, statement: ast.stmt) -> None:
        """The main process comes to a statement first. In a file that other scripts share, to the call of its function, if
        nothing in that is done together."""
        frame = self.script.frame(statement)
        shared = is_function_frame(frame) and self.script.is_shared(frame.body[0])
        calls = self._calls_of(frame, 4) if shared else []
        self._plan(call, calls if calls and all(map(self._may_wait, calls)) else [statement])

    def _at_calls(self, call: ast.Call) -> None:
        """The main process comes first to every call of the function around a fetch."""
        frame = self.script.frame(call)
        calls = self.script.callers(frame) if is_function_frame(frame) else []
        if not calls or not all(map(self._comes_first, calls)):
            self._plan(call, self._calls_of(frame, 4))

    def _comes_first(self, call: ast.Call) -> bool:
        return any(one in self._first_there for one in self.script.around(call))

    def _plan(self, call: ast.AST, statements: list[ast.stmt]) -> None:
        statements = [one for one in statements if not self._fails(one)]
        states = [self.files.state(one) for one in statements]
        if not statements or not all(map(self._may_wait, statements)):
            if isinstance(call, ast.Call) and (fetching.fetches(self.script, call) or not self._makes(call)):
                self._left.append(call)  # what is made here is guarded as any file is
            return
        self._first_there.update(zip(statements, states, strict=True))
        self.audience.guard(*statements, who=TURNS)

    def _may_wait(self, statement: ast.stmt) -> bool:
        return isinstance(statement, _WHOLE) and not self._trains(statement)

    def _fails(self, statement: ast.stmt) -> bool:
        """Whether something has failed before a statement, on one process perhaps."""
        handlers = (one for one in self.script.around(statement) if isinstance(one, ast.ExceptHandler))
        return any(isinstance(n, ast.Raise) for one in handlers for n in one.body)

    def _calls_of(self, frame: Frame, depth: int) -> list[ast.stmt]:
        """The statements that call a function, or the tests around them that ask for files; for those in shared files, the
        calls of the functions that they stand in, if nothing in these is done together."""
        found: list[ast.stmt] = []
        calls = self.script.callers(frame) if is_function_frame(frame) else []
        for call in calls:
            if self._comes_first(call):
                continue
            if not self.audience.is_all(call) or self.script.in_lambda(call):
                return []
            outer = self.script.frame(call)
            above = self._calls_of(outer, depth - 1) if depth and self.script.is_shared(call) else []
            found += above if above and all(map(self._may_wait, above)) else [self._asking_for(call)]
        return list(dict.fromkeys(found))

    def _asking_for(self, call: ast.Call) -> ast.stmt:
        """The statement of a call, or the test around it that asks for what the call is given: `if not exists(folder):`."""
        asking, values = self._asking(call), (*call.args, *(k.value for k in call.keywords))
        given = {text for one in values for text in self.files.paths.spelled(one)}
        is_asked = asking is not None and self.files.paths.spelled_in(asking.test) & given
        return asking if asking and is_asked and self._may_wait(asking) else self.script.statement(call)

    def _trains(self, statement: ast.AST) -> bool:
        """Whether a statement leads to training, or to anything that all processes do together."""
        calls = [n for n in walk(statement) if isinstance(n, ast.Call)]
        return any(is_method(n, "backward") or self.files.meetings.is_collective(n) for n in calls)

    def _alone(self, call: ast.Call) -> None:
        """A fetch that does not ask whether it has happened already: the main process fetches, and the others wait."""
        statement = self._block(call)
        suite = self.script.suite_of(statement)
        behind = suite[suite.index(statement) + 1 :]
        binds = bool(names_stored_in(statement))
        is_tried = any(isinstance(one, ast.Try) for one in self._inside(statement))  # one may fail alone
        if not behind or is_tried or (binds and not isinstance(statement, ast.With)):
            self._left.append(call)
            return
        if self.files.guard(statement):
            self.files.wait_above(behind[0], REASON, RULE, GROUP, at=statement)

    def _inside(self, node: ast.AST) -> Iterator[ast.AST]:
        """What stands around a node in its function."""
        frame = self.script.frame(node)
        return takewhile(lambda one: one is not frame, self.script.around(node))

    def _block(self, call: ast.Call) -> ast.stmt:
        """The outermost `with` or loop around a call in its function, or its statement."""
        found = self.script.statement(call)
        for one in self.script.around(found):
            if not isinstance(one, ast.With | ast.For):
                break
            found = one
        return found
