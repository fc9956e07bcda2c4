"""CT402, CT403 by use: one process writes files and opens windows; what it wrote is there before all read it.

A statement that does nothing else, a block, and the call of a function that only writes go under a guard. Any other file
that is opened for writing is the null device on the other processes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from crosstrain_migrate.core.output.helpers import null_device
from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_function_frame, is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import Function, place_of, written
from crosstrain_migrate.syntax.walks import walk

from . import commands, on_disk, writers
from .audience import OWN, Audience
from .called_helpers import GuardedCalls
from .helpers import Helpers, Meetings, draws
from .paths import Paths, Reads
from .stamps import Stamps

FILE = "CT403"
GROUP = "files"
REASON = "one process writes"
# As the main process leaves the random numbers, all go on; until it is there, they wait.
_SHARE_DRAWS = 'synchronize_rng_states(["python", "numpy", "torch"])'
_HANDLED = frozenset({"pickle.dump", "json.dump", "yaml.dump", "yaml.safe_dump", "dill.dump", "cPickle.dump"})


class Files:
    """Plans the guards, and the null devices."""

    def __init__(self, plan: Plan, accelerators: Accelerators, audience: Audience, stamps: Stamps) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.audience = audience
        self.stamps = stamps
        self.helpers = Helpers(plan)
        self.paths = Paths(plan.script)
        self._guards: list[ast.stmt] = []
        self._waited: list[ast.stmt] = []  # guards above which all wait
        self._ended: list[ast.stmt] = []  # guards behind which all wait
        self._drawing: list[ast.stmt] = []  # those of them in which random numbers are drawn
        self.taken: set[ast.stmt] = set()  # whose file is bound above them
        self.emptied: set[ast.AST] = set()  # what makes a folder again that the main process has removed
        self.read = Reads(plan.script, audience, self.paths)
        self.meetings = Meetings(plan, self.helpers, self._ended)

    def run(self) -> None:
        self._calls_of_helpers()
        for node in reversed([*self.script.table.each(ast.With)]):  # a guarded block's reads need no wait
            if self.script.is_reached(node) and self.audience.is_all(node):
                self._block(node)
        for call in self.script.calls:
            if writers.stands_alone(self.script, call) and self._is_written_alone(call):
                self._take_oldest(call)
                self.guard(self.script.statement(call), call)
        for call in self.script.calls:
            if writers.opens_to_write(self.script, call) and self.audience.is_all(call):
                self._opened(call)
            elif (
                writers.writes_file(self.script, call)
                and self.audience.is_all(call)  # and every process makes something of what it returns
                and not writers.stands_alone(self.script, call)
                and not self._is_temporary(call)
            ):
                self.leave(call)

    # -- guards ------------------------------------------------------------------------------------------------

    def _is_written_alone(self, call: ast.Call) -> bool:
        if self.script.in_lambda(call):
            return False
        if not self.audience.is_all(call):  # in a dealt evaluation the main process speaks of its batches
            is_own = self.audience.of(call) == {OWN} and not self.script.is_shared(call)
            return is_own and writers.speaks(self.script, call)
        if writers.shows(self.script, call):
            return not (writers.speaks(self.script, call) and self.script.is_shared(call))
        if not writers.writes_file(self.script, call):
            return False
        # A file that is given was opened for one process.
        return not self._is_given_file(call) and not self._is_temporary(call)

    def _take_oldest(self, call: ast.Call) -> None:
        """`os.remove(saved.pop(0))`, `saved.pop(0).unlink()`: all forget the file, and one removes it."""
        removed = call.args[0] if writers.removes_file(self.script, call) and call.args else None
        if is_method(call, "unlink"):
            removed = call.func.value
        statement = self.script.statement(call)
        if (
            removed is None
            or not self.helpers.effects.is_needed(removed)
            or not isinstance(statement, ast.Expr)
        ):
            return
        name = self.script.free_name("oldest", "oldest_file")
        self.plan.before(statement, FILE, REASON, f"{name} = {self.script.source(removed)}", GROUP)
        self.plan.replace(removed, FILE, "", name, GROUP)
        self.taken.add(statement)

    def _is_temporary(self, call: ast.Call) -> bool:
        """Whether each process writes a temporary file of its own, which it reads again."""
        return self.stamps.is_temporary(writers.path_of_write(self.script, call))

    def _is_given_file(self, call: ast.Call) -> bool:
        path = writers.path_of_write(self.script, call)
        if self.script.dotted(call.func) in _HANDLED:
            return not any(writers.opens_to_write(self.script, one) for one in call.args)
        values = self.script.values(self.script.frame(call), written(path)) if path is not None else []
        return any(writers.opens_to_write(self.script, value) for value in values)

    def guard(
        self, statement: ast.stmt, call: ast.Call | None = None, reads: Sequence[ast.Call] = ()
    ) -> bool:
        """Plans that one process comes to a statement, and that all wait for it at `reads`; False, with a note, where that is
        not sure to be right."""
        if self._guarded(statement, call, reads):
            return True
        self.leave(statement)
        return False

    def let_one(self, statement: ast.stmt) -> None:
        """Plans that one process comes to a statement of which it is known that no other needs it."""
        self._guards.append(statement)
        self.audience.guard(statement)

    def _guarded(
        self, statement: ast.stmt, call: ast.Call | None = None, reads: Sequence[ast.Call] = ()
    ) -> bool:
        paths = self.paths.of_write(call) if call is not None else set()
        if (
            self._is_needed_by_all(statement)
            or not self._may_wait_at(reads)
            or not self._waits_before_reads(statement, paths, writers.happens_once(self.script, call))
        ):
            return False
        for read in reads:
            self._wait_before(read)
        if call is not None:
            self._wait_for_readers(call, paths)
        if call is not None and (again := self.read.made_again(call, paths)) is not None:
            self.emptied.update(() if self._wait_behind(statement) else [again])
        elif call is not None and self.read.by_kind(call, paths, self.accelerators.roles.backwards):
            self._wait_behind(statement)
        self._ended += self.read.filled(call, statement) if call is not None else []
        self.let_one(statement)
        return True

    def _wait_for_readers(self, write: ast.Call, paths: set[str]) -> None:
        """Plans that the main process removes a file, or writes it anew, when all have read it, where they may wait."""
        statement, removes = self.script.statement(write), writers.removes_file(self.script, write)
        given = {text for text in paths if not text.startswith("in ")}  # not any file of its folder
        given = {text for one in write.args for text in self.paths.spelled(one)} if removes else given
        reads = [c for c in self.script.calls if given and self.read.behind(c, statement, given, before=True)]
        if not removes:
            reads = [c for c in reads if not self.meetings.may_be_between(c, statement)]
        if reads and self._may_wait_at([write]):
            self._waited.append(statement)
            self.wait_above(statement, "all have read what the main process changes", at=write)
        elif reads:
            reason = "the main process may change this file before another one has read it"
            self.plan.note(FILE, write, reason, "wait before it: `accelerator.wait_for_everyone()`")

    def _may_wait_at(self, reads: Sequence[ast.AST]) -> bool:
        return all(self.audience.comes_alike(read) for read in reads)

    def _is_needed_by_all(self, statement: ast.stmt) -> bool:
        """Whether every process must come to a statement: they meet in it, or draw the same random numbers."""
        nodes = walk(statement)
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        if statement in self.taken:  # what it changes stands above it
            return False
        if (
            self.meetings.are_at(nodes)
            or any(map(self.meetings.is_collective, calls))
            or self.helpers.effects.is_needed(statement)
        ):
            return True
        passes = [data.loop for data in self.accelerators.roles.data]
        in_pass = any(loop in passes for loop in self.script.loops_around(statement))
        is_last = self._is_behind_training(statement)
        return not (in_pass or is_last) and any(map(draws, calls))  # in a pass each draws for itself

    def _is_behind_training(self, statement: ast.stmt) -> bool:
        """Whether a statement ends a script, or the one run of the function that trains: `torch.onnx.export(model, randn(1), path)`."""
        passes, frame = self.accelerators.roles.backwards, self.script.frame(statement)
        calls = self.script.callers(frame) if is_function_frame(frame) else []
        is_once = frame is self.script.entry or (
            len(calls) == 1 and any(one.frame is frame for one in passes)
        )
        return (
            is_once
            and not any(map(self.script.loops_around, (statement, *calls)))
            and all(place_of(one.call) < place_of(statement) for one in passes)
        )

    def ask_before(self, opening: ast.stmt, path: ast.expr) -> None:
        """Plans that all have asked for a file before the main process opens it, where what they do depends on it."""
        if self.read.decided_by(opening, path) and self._may_wait_at([opening]):
            self.wait_above(opening, "all have looked for the file before it is there", at=opening)

    def leave(self, node: ast.AST) -> None:
        """Says that a file stays every process's."""
        remedy = "write it under `if PartialState().is_main_process:` where the others do not need it"
        self.plan.note(FILE, node, "every process writes this file", remedy)

    def state(self, node: ast.AST) -> str:
        """What knows the main process at a node."""
        return self.accelerators.state(node, GROUP)

    def plan_guards(self) -> None:
        """Guarded neighbours share one `if`."""
        for one in dict.fromkeys(self._ended):
            reason = "what the main process wrote is there before another one looks for it"
            code = _SHARE_DRAWS if one in self._drawing else f"{self.state(one)}.wait_for_everyone()"
            self.plan.after(one, FILE, reason, code, GROUP)
            if one in self._drawing:
                code = f"from crosstrain.utils import {_SHARE_DRAWS.partition('(')[0]}"
                self.plan.add(e.AddImport(self.script.module(one), FILE, transaction=GROUP, code=code))
        runs: list[list[ast.stmt]] = []
        loops = [on_disk.listing_around(self.script, one) for one in self._guards]
        alone = [s for s in self._guards if s not in self._ended]  # all wait behind the others
        self._guards += [one for one in loops if one is not None and all(s in alone for s in one.body)]
        outer = [s for s in self._guards if not any(one in self._guards for one in self.script.around(s))]
        for statement in sorted(outer, key=place_of):
            suite = self.script.suite_of(statement)
            last = runs[-1][-1] if runs else None
            is_next = last in suite and suite.index(last) + 1 == suite.index(statement)
            is_apart = statement in self._waited or last in self._ended
            if is_next and not self.accelerators.is_made_above(statement) and not is_apart:
                runs[-1].append(statement)
            else:
                runs.append([statement])
        for run in runs:
            test = f"{self.state(run[0])}.is_main_process"
            self.plan.add(e.Guard(run[0], FILE, REASON, transaction=GROUP, last=run[-1], test=test))

    # -- what is read again ------------------------------------------------------------------------------------

    def _waits_before_reads(
        self, statement: ast.stmt, paths: set[str], happens_once: bool = False, *, closes: bool = True
    ) -> bool:
        """Plans that all wait for the main process where they read what it wrote; False where they cannot, unless it is known
        that a second process would fail there.

        closes: behind the statement the file is whole.
        """
        reads = [c for c in self.script.calls if paths and self.read.behind(c, statement, paths)]
        reads = [c for c in reads if not self.read.is_of_earlier_run(c, statement)]
        apart = (read for read in reads if not commands.is_answered(self.script, read))
        if any(self.stamps.differs(path) for read in apart for path in read.args):
            return False  # each reads a file of its own
        surely = {text for text in paths if not text.startswith("in ")}
        reads = [one for one in reads if self._may_wait_at([one]) or self.read.behind(one, statement, surely)]
        waits = [one for one in reads if self._may_wait_at([one])]
        if len(waits) < len(reads) and not happens_once:
            return closes and self._wait_behind(statement)
        kept = None if reads else self.read.handed_on(statement, paths)
        if kept is not None and self.audience.comes_alike(kept):
            self._wait_before(kept)
        for read in waits:
            if self._is_first(read, waits, statement):
                self._wait_before(read)
        for read in reads:
            if read not in waits:
                reason = (
                    "the main process may not have moved or removed this file yet when another one reads it"
                )
                self.plan.note(FILE, read, reason, "wait before it: `accelerator.wait_for_everyone()`")
        return True

    def _is_first(self, read: ast.Call, waits: list[ast.Call], statement: ast.stmt) -> bool:
        """Whether all wait there: not where they have waited in the same block, and nothing was written since."""
        suite, frame = self.script.suite_of(self.script.statement(read)), self.script.frame(read)
        writes = [place_of(w) for w in self.audience.ways(statement) if self.script.frame(w) is frame]
        above = (one for one in waits if self.script.suite_of(self.script.statement(one)) is suite)
        return all(
            any(place_of(one) < at < place_of(read) for at in writes)
            for one in above
            if place_of(one) < place_of(read)
        )

    def _wait_behind(self, statement: ast.stmt) -> bool:
        """Plans that all wait where the main process has written, since a file's being there decides who reads it."""
        if not self.audience.comes_alike(statement):
            return False
        self._ended.append(statement)
        return True

    def _wait_before(self, read: ast.AST) -> None:
        reason = "what the main process wrote is there before all read it"
        self.wait_above(self.script.statement(read), reason, at=read)

    def wait_above(
        self, statement: ast.stmt, reason: str, rule: str = FILE, group: str = GROUP, *, at: ast.AST
    ) -> None:
        """Plans that all wait for each other above a statement. at: where it is asked what knows the processes."""
        self.plan.before(statement, rule, reason, f"{self.state(at)}.wait_for_everyone()", group)

    # -- functions that only write -----------------------------------------------------------------------------

    def _calls_of_helpers(self) -> None:
        guarded = GuardedCalls(self.plan, self.accelerators, self.audience, self.helpers)
        for function in self.script.frames:
            if not isinstance(function, ast.Module) and self.script.is_reached(function.body[0]):
                for call in guarded.of(function):
                    self._call(call, function)

    def _call(self, call: ast.Call, function: Function) -> None:
        statement = self.script.statement(call)
        if not self.helpers.only_writes(function):
            self._drawing.append(statement)
        paths = {path for one in self.helpers.writing(function) for path in self.paths.of_write(one)}
        paths |= {
            path for one in self.helpers.given_paths(call, function) for path in self.paths.spelled(one)
        }
        weights = self.helpers.saves_weights(function)
        reads = [
            c
            for c in self.script.calls
            if (self.read.behind(c, statement, paths) and not self.audience.is_part(c, function))
            or (
                weights
                and self.script.dotted(c.func) == "torch.load"
                and self.audience.is_all(c)
                and self.audience.comes_after(c, call)
            )
        ]
        is_behind = statement in self._drawing or not self._may_wait_at(reads)
        if is_behind and (self.script.loops_around(statement) or not self.audience.comes_alike(statement)):
            return  # what the function writes is guarded there
        if self._guarded(statement, reads=[] if is_behind else reads):
            filled = [
                end for one in self.helpers.writing(function) for end in self.read.filled(one, statement)
            ]
            self._ended += [statement] if is_behind else filled

    # -- files that are opened ---------------------------------------------------------------------------------

    def _block(self, node: ast.With) -> None:
        """`with open(path, "w") as file:` whose body only writes."""
        opener = node.items[0].context_expr
        opens = len(node.items) == 1 and writers.opens_to_write(self.script, opener)
        if not opens or not self.meetings.only_writes(node):
            return
        assert isinstance(opener, ast.Call)
        if self._is_temporary(opener):
            return
        target = node.items[0].optional_vars
        reads = self.script.reads_behind(node, target.id) if isinstance(target, ast.Name) else []
        closings = [self.script.statement(read) for read in reads]
        if not all(s in self.script.suite_of(node) and _closes(s) for s in closings):
            return  # the others would miss the name
        if self.guard(node, opener):
            for statement in closings:
                self._guards.append(statement)
                self.audience.guard(statement)

    def _opened(self, call: ast.Call) -> None:
        """A file that stays open is the null device on the other processes."""
        if self._is_temporary(call):
            return
        path, state = writers.opened_path(self.script, call), self.state(call)
        statement, other = self.script.statement(call), "os.devnull"
        if path is None and is_method(call, "open"):
            made = self.script.name_of("pathlib.Path", call)  # by which a file that makes paths knows them
            is_path = "." not in made and not self.script.is_imported(call.func)
            path, other = call.func.value if is_path else None, f"{made}(os.devnull)"
        if path is None or not self._waits_before_reads(statement, self.paths.of_write(call), closes=False):
            self.leave(call)
            return
        self.ask_before(statement, path)
        null_device(self.plan, path, state, FILE, "the other processes write nowhere", GROUP, other)
        for sync in self.script.calls:  # which the null device refuses
            is_sync = self.script.dotted(sync.func) == "os.fsync" and is_statement_call(self.script, sync)
            is_near = self.script.module(sync) is self.script.module(call)
            statement = self.script.statement(sync)
            if is_sync and is_near and statement not in self._guards:
                self._guarded(statement)


def _closes(statement: ast.stmt) -> bool:
    """Whether a statement does nothing but close or flush a file."""
    return isinstance(statement, ast.Expr) and is_method(statement.value, "close", "flush")
