"""CT401, CT403 by use: bars, trackers, event files and log files are one process's, from where they are made."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cached_property

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import asks_rank
from crosstrain_migrate.core.reading.forms import is_function_frame, is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import defaults_by_name, last_name, words, written
from crosstrain_migrate.syntax.walks import texts_in, walk

from .audience import Audience
from .event_files import REASON, EventFiles
from .files import FILE, Files
from .helpers import null_device

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
    "torchinfo.summary": ("verbose", "verbose=int({0}.is_main_process)"),
}
_ARTIFACTS = ("Artifact", "log_artifact")
# What a bar that is switched off does not count.
_COUNTED = frozenset(
    {"n", "last_print_n", "last_print_t", "start_t", "format_dict", "_time", "desc", "postfix", "unit"}
)
_STREAMS = frozenset({"sys.stdout", "sys.stderr"})
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
        self._events = EventFiles(plan, files, audience, self._give)

    def run(self) -> None:
        for call in self.script.calls:
            name = self.script.dotted(call.func)
            if self.script.in_lambda(call) or self.audience.is_guarded(call):
                continue
            if name in _LOG_FILES or name == "logging.basicConfig":
                self._log_file(call)
            elif name in _CONFIGURES and is_statement_call(self.script, call) and self.audience.is_all(call):
                self.files.guard(self.script.statement(call))
            if self._events.is_made(call):
                self._events.plan_made(call)
            elif name == "mlflow.start_run" and self.audience.is_all(call):
                self._events.plan_run(call)
            if name in _SILENT:
                self._give(call, FILE, "trackers", *_SILENT[name])
                if name == _VISDOM:
                    self._asks_connection()
            is_bar = name.startswith("tqdm.") and last_name(call.func) in ("tqdm", "trange")
            if self._of_others(call):
                if name in _SAYS and is_statement_call(self.script, call):
                    self.files.guard(self.script.statement(call))
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
                name in _SAYS
                or (name == "wandb.log" and self._shows_media(call))
                or (self._is_of_artifact(call) and self.audience.is_all(call))
            ):
                self.files.guard(self.script.statement(call))
            elif (level := self._level_of(call)) is not None:
                self._level(*level)
        self._events.plan_functions()

    def _is_of_artifact(self, call: ast.Call) -> bool:
        """What a run of wandb is told of files, which a silent one does not keep: `artifact.add_file(path)`, `artifact.wait()`."""
        if last_name(call.func) == "log_artifact":
            return True
        if not is_method(call, "add_file", "add_dir", "add_reference", "wait"):
            return False
        of = call.func.value
        made = [of, *self.script.values(self.script.frame(call), written(of))]
        return any(isinstance(one, ast.Call) and last_name(one.func) in _ARTIFACTS for one in made)

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
        if given is not None and keyword == "mode" and self._may_be_online(given):
            it = "({it})" if isinstance(given, ast.IfExp) else "{it}"
            template = f'{it} if {self.files.state(call)}.is_main_process else "disabled"'
            self.plan.replace(given, rule, REASON, template, group, it=given)
        if given is not None:
            return
        if any(k.arg is None for k in call.keywords) and keyword in self._keywords:
            return  # `**options` may say it
        reason = "one process shows the progress" if rule == PRINT else REASON
        code = template.format(self.files.state(call))
        self.plan.add(e.InsertArgument(call, rule, reason, transaction=group, code=code))

    def _may_be_online(self, mode: ast.expr) -> bool:
        """`mode=args.mode`, `mode="online" if args.log else "disabled"`, and not `mode="disabled"`."""
        parts = [mode.body, mode.orelse] if isinstance(mode, ast.IfExp) else [mode]
        texts = [one.value for one in parts if isinstance(one, ast.Constant)]
        is_known = len(texts) == len(parts) or all(map(self._is_option, parts))
        return is_known and not asks_rank(mode) and texts != ["disabled"]

    def _asks_connection(self) -> None:
        """`assert viz.check_connection()`: a Visdom that sends nothing has none, which is no reason to stop."""
        for call in self.script.calls:
            if is_method(call, "check_connection") and not self.plan.is_replaced(call):
                template = f"({{asked}} or not {self.files.state(call)}.is_main_process)"
                self.plan.replace(call, FILE, REASON, template, "trackers", asked=call)

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
        self.files.ask_before(self.script.statement(call), path)
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
