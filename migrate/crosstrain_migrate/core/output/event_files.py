"""CT403 by use: event files, films and the runs of a tracker are one process's, from where they are made, where all that uses
them can be."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

from .audience import ONE, Audience
from .files import FILE, Files
from .helpers import import_for, null_device
from .passed_on import Holder, holders_of, passed_to, reads_of

REASON = "one process records the run"
# Its functions write one event file: `configure` opens it, and the others stop where it is not open.
_EVENTS = "tensorboard_logger"
_EVENT_FILE = f"{_EVENTS}.Logger"  # one of its own
_FILMS = frozenset({"cv2.VideoWriter", "imageio.get_writer", "imageio.v2.get_writer"})
_LEVELS = frozenset({"debug", "info", "warning", "error"})
_LOG = re.compile(r"log", re.I)
_WRITERS = frozenset({"SummaryWriter", "FileWriter", "create_file_writer"})  # of torch, and of TensorFlow


class EventFiles:
    """Plans that one process writes them."""

    def __init__(self, plan: Plan, files: Files, audience: Audience, give: Callable[..., None]) -> None:
        """give: plans another keyword of a call, which silences it on the other processes."""
        self.plan = plan
        self.script: Script = plan.script
        self.files = files
        self.audience = audience
        self._give = give
        self._key: str | None = None  # of the writer in a dictionary, whose uses are looked at

    def is_made(self, call: ast.Call) -> bool:
        """Whether a call makes one."""
        name = self.script.dotted(call.func)
        return (
            self._makes_writer(call) or name == _EVENT_FILE or (name in _FILMS and self.audience.is_all(call))
        )

    def _makes_writer(self, call: ast.Call) -> bool:
        """`SummaryWriter(...)`, `tf.summary.FileWriter(...)`, or an object of a class of the project that is one."""
        cls = self.script.class_made(call)
        bases = map(last_name, cls.bases) if cls is not None else [last_name(call.func)]
        return any(one in _WRITERS and not self.script.functions(one) for one in bases)

    def plan_made(self, call: ast.Call) -> None:
        """`SummaryWriter(...)`: the other processes make none, where all that uses it is the main process's."""
        statement = self.script.statement(call)
        names, self._key = self._kept_as(call, statement), self._key_of(call)
        made = call if isinstance(statement, ast.With) else statement
        reads = [one for one in self._reads(names) if not self.script.table.is_inside(one, made)]
        if not names or not all(map(self._is_ours, reads)):
            if all(
                re.match(r"tensorboardX\..*SummaryWriter", one) for one in self.script.may_name(call.func)
            ):
                for read in reads:  # what can be is the main process's: a table of all that it was told
                    self._is_ours(read)
                self._give(call, FILE, "event files", "write_to_disk", "write_to_disk={0}.is_main_process")
            elif self.script.dotted(call.func) in _FILMS:
                self.files.leave(call)
            elif self._asks_folder(reads) or not self.script.dotted(call.func).startswith("torch.utils.tens"):
                self._say_event_file(call)
            else:
                self._elsewhere(call)
            return
        if isinstance(statement, ast.With):
            self._enter_nothing_else(call)
        else:
            template = f"{{writer}} if {self.files.state(call)}.is_main_process else None"
            self.plan.replace(call, FILE, REASON, template, "event files", writer=call)

    def _enter_nothing_else(self, call: ast.Call) -> None:
        """`with SummaryWriter(path) as writer:`: the other processes enter a block of nothing."""
        template = f"({{writer}} if {self.files.state(call)}.is_main_process else nullcontext())"
        module, code = self.script.module(call), "from contextlib import nullcontext"
        self.plan.add(e.AddImport(module, FILE, REASON, transaction="event files", code=code))
        self.plan.replace(call, FILE, REASON, template, "event files", writer=call)

    def plan_run(self, call: ast.Call) -> None:
        """`mlflow.start_run()`, and `with mlflow.start_run():`, which nothing asks for more than that it is there, also where it has
        a name that nothing reads."""
        statement = self.script.statement(call)
        items = statement.items if isinstance(statement, ast.With) else []
        if is_statement_call(self.script, call):
            self.files.guard(statement)
        elif any(one.context_expr is call and not self._is_read(one.optional_vars) for one in items):
            self._enter_nothing_else(call)

    def _is_read(self, name: ast.expr | None) -> bool:
        return name is not None and bool(self.script.reads(self.script.frame(name), written(name)))

    def _asks_folder(self, reads: list[ast.expr]) -> bool:
        """Whether the script asks a writer for its folder, from which every process may read."""
        kept = [one.attr for one in map(self.script.parent, reads) if isinstance(one, ast.Attribute)]
        anywhere = {one.attr for one in self.script.table.each(ast.Attribute)}
        return "log_dir" in kept or "get_logdir" in anywhere

    def _elsewhere(self, call: ast.Call) -> None:
        """What uses the writer may be anything: the other processes write into a folder that nobody looks for."""
        state, other = self.files.state(call), "tempfile.mkdtemp()"
        paths = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "log_dir")]
        if paths:
            null_device(self.plan, paths[0], state, FILE, REASON, "event files", other)
        else:
            self._give(
                call, FILE, "event files", "log_dir", f"log_dir=None if {{0}}.is_main_process else {other}"
            )
            import_for(self.plan, call, other, FILE, "event files")

    def _kept_as(self, call: ast.Call, statement: ast.stmt) -> set[Holder]:
        """What holds a new writer: `writer = SummaryWriter(...)`, `writers["train"] = ...`, `writers.append(...)`,
        `state = {"writer": SummaryWriter(...), "steps": 0}`"""
        if isinstance(statement, ast.Assign) and statement.value is call:
            return holders_of(self.script, statement.targets)
        if isinstance(statement, ast.With):
            items = (one.optional_vars for one in statement.items if one.context_expr is call)
            return holders_of(self.script, (one for one in items if isinstance(one, ast.Name)))
        outer = self.script.parent(call)
        if self._key_of(call) is not None and isinstance(statement, ast.Assign) and statement.value is outer:
            return holders_of(self.script, statement.targets)
        if (
            isinstance(outer, ast.Call)
            and is_method(outer, "append")
            and is_statement_call(self.script, outer)
        ):
            return holders_of(self.script, [outer.func.value])
        return set()

    def _key_of(self, call: ast.Call) -> str | None:
        """`writer` of `{"writer": SummaryWriter(...), "steps": 0}`, whose other parts are no writers, and of
        `state["writer"] = SummaryWriter(...)`, where the dictionary has others."""
        outer, key = self.script.parent(call), None
        if isinstance(outer, ast.Dict):
            pairs = zip(outer.keys, outer.values, strict=True)
            key = next(name for name, value in pairs if value is call)
        elif isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Subscript):
            key = outer.targets[0].slice
        return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None

    def _is_other_part(self, read: ast.expr) -> bool:
        """`state["steps"]`, `state.get("steps")`, which are no writer."""
        part = self.script.parent(read)
        asked = self.script.parent(part) if isinstance(part, ast.Attribute) else None
        if isinstance(part, ast.Subscript) and part.value is read:
            key = part.slice
        elif isinstance(asked, ast.Call) and asked.func is part and is_method(asked, "get") and asked.args:
            key = asked.args[0]
        else:
            return False
        return self._key is not None and isinstance(key, ast.Constant) and key.value != self._key

    def plan_functions(self) -> None:
        """`tensorboard_logger.configure(...)`, `log_value(...)`: one process opens the file, where all that writes to it is its
        own, by the module or the functions by themselves; each `Logger` of that library is a file by itself."""
        if _EVENTS not in self.script.text:
            return
        modules = (one for node in self.script.table.each(ast.Import) for one in node.names)
        names = {one.asname or one.name for one in modules if one.name == _EVENTS}
        taken = (node for node in self.script.table.each(ast.ImportFrom) if node.module == _EVENTS)
        names |= {one.asname or one.name for node in taken for one in node.names}
        asked = {read: self.script.parent(read) for read in self._reads({(None, one) for one in names})}
        used = {
            read: of for read, of in asked.items() if not isinstance(of, ast.Compare)
        }  # where it is missing
        parts = {read: of if isinstance(of, ast.Attribute) else read for read, of in used.items()}
        named = {read: self.script.dotted(part) for read, part in parts.items()}
        opens = [read for read, name in named.items() if name.endswith(".configure")]
        writes = [read for read, name in named.items() if read not in opens and name != _EVENT_FILE]
        if (opens or writes) and not (opens and all(map(self._is_ours, (*writes, *opens)))):
            self._say_event_file((opens or writes)[0])

    def _is_called_by_one(self, function: ast.expr) -> bool:
        """Whether the main process alone calls a function here, or can be made to."""
        call = self.script.parent(function)
        is_alone = (
            isinstance(call, ast.Call) and call.func is function and is_statement_call(self.script, call)
        )
        return self.audience.of(function) == {ONE} or (
            is_alone
            and not self.audience.is_own(function)
            and self.files.guard(self.script.statement(function))
        )

    def _say_event_file(self, node: ast.AST) -> None:
        remedy = "make it and use it under `if PartialState().is_main_process:`"
        self.plan.note(FILE, node, "every process writes an event file", remedy)

    def _reads(self, holders: set[Holder]) -> Sequence[ast.expr]:
        return reads_of(self.script, holders, self._is_other_part)

    def _is_ours(self, read: ast.expr) -> bool:
        """Whether a use of a writer is the main process's, can be made so, passes it on, or asks whether there is one."""
        if self.audience.of(read) == {ONE}:
            return True
        statement = self.script.statement(read)
        if isinstance(statement, ast.If | ast.While) and read in walk(statement.test):
            return not isinstance(self.script.parent(read), ast.Attribute)  # `if film.isOpened():`
        if passed_to(self.script, read):
            return True
        parent = self.script.parent(read)
        if isinstance(parent, ast.Subscript) and parent.value is read:  # one of several
            parent = self.script.parent(parent)
        if self._is_called_by_one(parent if isinstance(parent, ast.Attribute) else read):
            return True
        return self._only_says(statement) and not self.audience.is_own(read) and self.files.guard(statement)

    def _only_says(self, statement: ast.AST) -> bool:
        """Whether a statement prints or logs, `print(writer.log_dir)`, or records: `with writer.as_default(): scalar(...)`."""
        if isinstance(statement, ast.With) and is_method(statement.items[0].context_expr, "as_default"):
            return all(isinstance(one, ast.Expr) for one in statement.body)
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call):
            return False
        is_log = last_name(call.func) in _LEVELS and _LOG.search(written(call.func)) is not None
        return is_log or self.script.dotted(call.func) == "print"
