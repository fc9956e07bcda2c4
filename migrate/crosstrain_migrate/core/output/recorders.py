"""CT401, CT403 by use: bars, trackers, event files and log files are one process's, from where they are made."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from functools import cached_property

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import asks_rank
from crosstrain_migrate.core.reading.forms import is_function_frame, is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import defaults_by_name, last_name, words, written
from crosstrain_migrate.syntax.walks import texts_in, walk

from .audience import ONE, Audience
from .files import FILE, Files
from .helpers import import_for, null_device
from .passed_on import Holder, holders_of, passed_to, reads_of

PRINT = "CT401"
_HANDLERS = words("RotatingFileHandler TimedRotatingFileHandler WatchedFileHandler")
_LOG_FILES = {"logging.FileHandler", *(f"logging.handlers.{name}" for name in _HANDLERS)}
# What opens the log files that a dictionary or a file names; without it a process logs its warnings alone.
_CONFIGURES = frozenset({"logging.config.dictConfig", "logging.config.fileConfig"})
_VISDOM = "visdom.Visdom"
# What makes it, and the keyword that makes it silent on the other processes.
_SILENT = {
    "wandb.init": ("mode", 'mode=None if {0}.is_main_process else "disabled"'),
    "swanlab.init": ("mode", 'mode=None if {0}.is_main_process else "disabled"'),
    _VISDOM: ("send", "send={0}.is_main_process"),
    "comet_ml.Experiment": ("disabled", "disabled=not {0}.is_main_process"),
    "comet_ml.OfflineExperiment": ("disabled", "disabled=not {0}.is_main_process"),
}
# What a bar that is switched off does not count.
_COUNTED = frozenset(
    {"n", "last_print_n", "last_print_t", "start_t", "format_dict", "_time", "desc", "postfix", "unit"}
)
# Its functions write one event file: `configure` opens it, and the others stop where it is not open.
_EVENTS = "tensorboard_logger"
_EVENT_FILE = f"{_EVENTS}.Logger"  # one of its own
_FILMS = frozenset({"cv2.VideoWriter", "imageio.get_writer", "imageio.v2.get_writer"})
_LEVELS = frozenset({"debug", "info", "warning", "error"})
_STREAMS = frozenset({"sys.stdout", "sys.stderr"})
_LOG = re.compile(r"log", re.I)
_WRITERS = frozenset({"SummaryWriter", "FileWriter", "create_file_writer"})  # of torch, and of TensorFlow
# Functions of libraries that only say something.
_SAYS = words(
    "torch_geometric.logging.log torch_geometric.logging.init_wandb pprint.pprint click.echo"
    " typer.echo rich.print glog.info glog.logger.info loguru.logger.info loguru.logger.debug loguru.logger.success"
)


class Recorders:
    """Plans that one process shows and records."""

    def __init__(
        self, plan: Plan, files: Files, audience: Audience, of_others: Callable[[ast.Call], bool]
    ) -> None:
        """of_others: whether what a call shows may be another script's."""
        self.plan = plan
        self.script: Script = plan.script
        self.files = files
        self.audience = audience
        self._of_others = of_others
        self._key: str | None = None  # of the writer in a dictionary, whose uses are looked at

    def run(self) -> None:
        for call in self.script.calls:
            name = self.script.dotted(call.func)
            if self.script.in_lambda(call) or self.audience.is_guarded(call):
                continue
            if name in _LOG_FILES or name == "logging.basicConfig":
                self._log_file(call)
            elif name in _CONFIGURES and is_statement_call(self.script, call) and self.audience.is_all(call):
                self.files.guard(self.script.statement(call))
            is_film = name in _FILMS and self.audience.is_all(call)
            if self._makes_writer(call) or name == _EVENT_FILE or is_film:
                self._event_file(call)
            if name in _SILENT:
                self._give(call, FILE, "trackers", *_SILENT[name])
                if name == _VISDOM:
                    self._asks_connection()
            is_bar = name.startswith("tqdm.") and last_name(call.func) in ("tqdm", "trange")
            if self._of_others(call):
                if is_bar or self._level_of(call) is not None:
                    does = (
                        "bar that other scripts use as well shows"
                        if is_bar
                        else "logger that other scripts use as well logs"
                    )
                    self.plan.note(PRINT, call, f"a {does} on every process", "nothing needs to be done")
                continue
            if is_bar:
                self._bar(call)
            elif is_method(call, "add") and self._is_loguru(call.func.value):
                self._sink(call)
            elif self.script.names_of(call) & self.script.bars and name != "enumerate":
                self.plan.note(PRINT, call, "every process draws this bar", "nothing needs to be done")
            elif isinstance(self.script.statement(call), ast.Expr) and (
                name in _SAYS or (name == "wandb.log" and self._shows_media(call))
            ):
                self.files.guard(self.script.statement(call))
            elif (level := self._level_of(call)) is not None:
                self._level(*level)
        if _EVENTS in self.script.text:
            self._event_functions()

    def _shows_media(self, call: ast.Call) -> bool:
        """`wandb.log({"sample": wandb.Image(path)})`: a silent process would read the file too, which one process has written."""
        made = (n for n in walk(call) if isinstance(n, ast.Call) and n is not call)
        return self.audience.is_all(call) and any(
            self.script.dotted(n.func).startswith("wandb.") for n in made
        )

    def _bar(self, call: ast.Call) -> None:
        """`tqdm(...)`: one process shows it, except where the script counts with the bar, which a silent one does not."""
        names = self.script.names_of(call)
        reads = (n for n in walk(self.script.frame(call)) if isinstance(n, ast.Attribute))
        counted = next((n for n in reads if n.attr in _COUNTED and written(n.value) in names), None)
        given = next((k.value for k in call.keywords if k.arg == "disable"), None)
        if counted is None and given is not None and self._is_option(given):
            code = f"{{it}} or not {self.files.state(call)}.is_main_process"
            self.plan.replace(given, PRINT, "one process shows the progress", code, "bars", it=given)
        elif counted is None:
            self._give(call, PRINT, "bars", "disable", "disable=not {0}.is_main_process")
        else:
            reason = f"every process shows this bar: the script computes with `{written(counted)}`"
            self.plan.note(PRINT, call, reason, "count by yourself, and give it `disable=`")

    def _is_option(self, given: ast.expr) -> bool:
        """Whether `disable=not verbose` says the same on all processes: nothing in it knows a rank."""
        if not isinstance(given, ast.Name | ast.Attribute | ast.UnaryOp | ast.Subscript):
            return False
        texts = texts_in(given)
        frames = (self.script.frame(given), self.script.module(given))
        values = [value for frame in frames for text in texts for value in self.script.values(frame, text)]
        return not any(asks_rank(one) for one in (given, *values))

    def _give(self, call: ast.Call, rule: str, group: str, keyword: str, template: str) -> None:
        """Plans another keyword of a call, which silences it on the other processes."""
        given = next((k.value for k in call.keywords if k.arg == keyword), None)
        if given is not None and keyword == "mode" and self._is_option(given):
            template = f'{{it}} if {self.files.state(call)}.is_main_process else "disabled"'
            self.plan.replace(given, rule, "one process records the run", template, group, it=given)
        if given is not None:
            return
        if any(k.arg is None for k in call.keywords) and keyword in self._keywords:
            return  # `**options` may say it
        reason = "one process shows the progress" if rule == PRINT else "one process records the run"
        code = template.format(self.files.state(call))
        self.plan.add(e.InsertArgument(call, rule, reason, transaction=group, code=code))

    def _asks_connection(self) -> None:
        """`assert viz.check_connection()`: a Visdom that sends nothing has none, which is no reason to stop."""
        for call in self.script.calls:
            if is_method(call, "check_connection") and not self.plan.is_replaced(call):
                template = f"({{asked}} or not {self.files.state(call)}.is_main_process)"
                self.plan.replace(call, FILE, "one process records the run", template, "trackers", asked=call)

    @cached_property
    def _keywords(self) -> set[str]:
        """The keywords of all calls, and the keys of all dictionaries: what a call's `**options` may hold."""
        named = {k.arg for call in self.script.calls for k in call.keywords if k.arg is not None}
        keys = (key for one in self.script.table.each(ast.Dict) for key in one.keys)
        return named | {
            key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }

    # -- logs --------------------------------------------------------------------------------------------------

    def _log_file(self, call: ast.Call) -> None:
        path = next((k.value for k in call.keywords if k.arg == "filename"), None)
        if path is None and call.args and last_name(call.func) != "basicConfig":
            path = call.args[0]
        if path is None:
            return
        if not self.audience.is_all(call):
            self.files.leave(call)
            return
        null_device(
            self.plan, path, self.files.state(call), FILE, "the other processes log nowhere", "log files"
        )

    def _is_loguru(self, of: ast.expr) -> bool:
        """loguru's one logger, also where it is given to a function or kept in an attribute."""
        text = written(of)
        given = self.script.given_for(self.script.frame(of), text)
        bound = [of, *self.script.values_anywhere(text), *(one for one, _ in given)]
        return "loguru.logger" in map(self.script.dotted, bound)

    def _sink(self, call: ast.Call) -> None:
        """`logger.add("run.log")`: one process writes it; of what goes to the terminal the others keep the warnings."""
        to = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "sink")]
        level = next((k.value for k in call.keywords if k.arg == "level"), None)
        if not _STREAMS.isdisjoint(map(self.script.dotted, to)) and level is not None:
            self._level(level, '"WARNING"')
        elif not _STREAMS.isdisjoint(map(self.script.dotted, to)):
            self._give(
                call, PRINT, "log levels", "level", 'level="DEBUG" if {0}.is_main_process else "WARNING"'
            )
        elif self.audience.is_all(call):
            guard = self.files.guard if is_statement_call(self.script, call) else self.files.leave
            guard(self.script.statement(call))

    def _level_of(self, call: ast.Call) -> tuple[ast.expr, str] | None:
        """The level that a call sets, where more than warnings are logged from it on, and how it names that of warnings."""
        given: list[ast.expr] = [k.value for k in call.keywords if k.arg == "level"]
        name = last_name(call.func)
        given += call.args[:1] if name == "setLevel" else []
        if not given or (name != "setLevel" and self.script.dotted(call.func) != "logging.basicConfig"):
            return None
        frame, text = self.script.frame(call), written(given[0])
        of = [*self.script.values(frame, text), *(value for value, _ in self.script.given_for(frame, text))]
        if is_function_frame(frame) and text in (default := defaults_by_name(frame.args)):
            of.append(default[text])
        of = of or given[:1]
        low = {_warnings(one, self.script.dotted(one)) for one in of}
        return (given[0], low.pop()) if len(low) == 1 and "" not in low else None

    def _level(self, level: ast.expr, warnings: str) -> None:
        """Every process logs warnings; everything below is logged once."""
        template = f"{{level}} if {self.files.state(level)}.is_main_process else {warnings}"
        self.plan.replace(level, PRINT, "logged once", template, "log levels", level=level)

    # -- event files -------------------------------------------------------------------------------------------

    def _makes_writer(self, call: ast.Call) -> bool:
        """`SummaryWriter(...)`, `tf.summary.FileWriter(...)`, or an object of a class of the project that is one."""
        cls = self.script.class_made(call)
        bases = map(last_name, cls.bases) if cls is not None else [last_name(call.func)]
        return any(one in _WRITERS and not self.script.functions(one) for one in bases)

    def _event_file(self, call: ast.Call) -> None:
        """`SummaryWriter(...)`: the other processes make none, where all that uses it is the main process's."""
        statement, test = self.script.statement(call), f"{self.files.state(call)}.is_main_process"
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
        reason, template = "one process records the run", f"{{writer}} if {test} else None"
        if isinstance(statement, ast.With):
            template = f"({{writer}} if {test} else nullcontext())"
            module, code = self.script.module(call), "from contextlib import nullcontext"
            self.plan.add(e.AddImport(module, FILE, reason, transaction="event files", code=code))
        self.plan.replace(call, FILE, reason, template, "event files", writer=call)

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
            null_device(self.plan, paths[0], state, FILE, "one process records the run", "event files", other)
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

    def _event_functions(self) -> None:
        """`tensorboard_logger.configure(...)`, `log_value(...)`: one process opens the file, where all that writes to it is its
        own, by the module or the functions by themselves; each `Logger` of that library is a file by itself."""
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


def _warnings(level: ast.expr, name: str) -> str:
    """The level of warnings, written like one below it, `logging.INFO` or `"INFO"`; empty for any other. What the environment
    may say is by default what the script says: `os.environ.get("LEVEL", "INFO")`; an option, `getattr(logging, args.level)`, mostly
    one below."""
    if isinstance(level, ast.Call) and written(level.func) == "getattr":
        return "logging.WARNING" if [*map(written, level.args[:1])] == ["logging"] else ""
    if isinstance(level, ast.Call) and written(level.func) in ("os.environ.get", "os.getenv"):
        return _warnings(level.args[-1], "") if level.args else ""
    if isinstance(level, ast.Constant):
        return '"WARNING"' if level.value in ("INFO", "DEBUG") else ""
    if isinstance(level, ast.Attribute) and name in ("logging.INFO", "logging.DEBUG"):
        return f"{written(level.value)}.WARNING"
    return ""
