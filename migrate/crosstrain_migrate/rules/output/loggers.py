"""Progress bars, experiment trackers and log files work on the main process, and are silent on the others.

Nothing goes under an `if`, because all processes may have to compute what is shown or written: each is made so that it
writes nowhere on the other processes.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of, given, keyword_of
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e

from .opened_files import import_module, open_null_device

RULE = "CT401"
TQDM = ("tqdm", "tqdm.auto", "tqdm.std", "tqdm.notebook", "tqdm.autonotebook", "tqdm.rich")
BARS = frozenset(f"{module}.{name}" for module in TQDM for name in ("tqdm", "trange", "tqdm_notebook"))
WRITERS = frozenset(
    {
        "torch.utils.tensorboard.SummaryWriter",
        "torch.utils.tensorboard.writer.SummaryWriter",
        "tensorboardX.SummaryWriter",
    }
)
LOG_FILES = frozenset(
    {
        "logging.FileHandler",
        "logging.handlers.RotatingFileHandler",
        "logging.handlers.TimedRotatingFileHandler",
        "logging.handlers.WatchedFileHandler",
    }
)
ECHOES = frozenset(
    {
        *(f"{bar}.write" for bar in BARS),
        *("click.echo", "click.secho", "typer.echo", "typer.secho"),
        *("rich.print", "pprint.pp", "pprint.pprint", "termcolor.cprint"),
    }
)
CONSOLE = "rich.console.Console"
CHATTY = frozenset({"INFO", "DEBUG", "NOTSET"})
LOGGERS = frozenset({"logging.getLogger", "logging.StreamHandler"})

# What makes it, the keyword that silences it, its value, and its value beside another one `{x}`.
SILENCERS = (
    (BARS, "disable", "not {0}.is_local_main_process", "{x} or not {0}.is_local_main_process"),
    (("visdom.Visdom",), "send", "{0}.is_main_process", "{x} and {0}.is_main_process"),
    (
        ("wandb.init",),
        "mode",
        'None if {0}.is_main_process else "disabled"',
        '{x} if {0}.is_main_process else "disabled"',
    ),
)
MADE = WRITERS | LOG_FILES | {"logging.basicConfig", "wandb.init", "visdom.Visdom"}


def plan(context: Context) -> None:
    for makers, keyword, fresh, beside in SILENCERS:
        for call in context.facts.calls_to(*makers):
            _only_main(context, call, keyword, fresh, beside)
    for call in context.facts.calls_to(*WRITERS):
        _throw_away(context, call)
    for call in context.facts.calls_to(*LOG_FILES):
        _log_file(context, call, given(call, "filename", 0))
    for call in context.facts.calls_to("logging.basicConfig"):
        _log_file(context, call, keyword_of(call, "filename"))
        _level(context, call, keyword_of(call, "level"))
    for call in context.facts.method_calls("setLevel"):
        if _made_by(context, call) & LOGGERS:
            _level(context, call, given(call, "level", 0))
    for call in context.facts.calls:
        prints = context.facts.paths(call.func) & ECHOES
        if prints or _is_write_of_bar(context, call) or _is_call_of_console(context, call):
            _echo(context, call)


def _reached(context: Context, call: ast.Call) -> str | None:
    """The accelerator where `call` stands. None where `call` stays: its code asks for the main process already, or the
    accelerator is not available, which is reported."""
    if not context.allows(RULE, call) or is_for_main(context, call):
        return None
    if any("main_process" in ast.unparse(part) for part in arguments_of(call)):
        return None
    if context.at_hand(call):
        return context.accelerator(call)
    _report(context, call)
    return None


def is_for_main(context: Context, node: ast.AST) -> bool:
    """Whether a test that the script has already leaves `node` to the main process."""
    around = (a for a in context.facts.table.ancestors(node) if isinstance(a, ast.If))
    return any("main_process" in ast.unparse(a.test) for a in around)


def _only_main(context: Context, call: ast.Call, name: str, fresh: str, beside: str) -> None:
    """Gives `call` the keyword that silences it on the other processes, or joins that with the value it has.

    fresh: the keyword's value; beside: what becomes of the value `{x}` that the call gives already.
    """
    if _spreads_options(call):
        return  # they may say it already
    accelerator = _reached(context, call)
    if accelerator is None:
        return
    said = keyword_of(call, name)
    reason = "shown by the main process alone"
    if said is None:
        code = f"{name}={fresh.format(accelerator)}"
        context.edits.append(e.InsertArgument(call, RULE, reason, position=-1, code=code))
    elif isinstance(said, ast.Constant) and said.value in (None, False, True):
        is_silent = said.value is (name == "disable")
        if not is_silent:
            context.replace(said, RULE, reason, fresh.format(accelerator))
    else:
        simple = isinstance(said, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
        hole = "{x}" if simple else "({x})"
        context.replace(said, RULE, reason, beside.format(accelerator, x=hole), x=said)


def _throw_away(context: Context, call: ast.Call) -> None:
    """The writers of the other processes write to a directory that nobody looks at."""
    accelerator = _reached(context, call)
    if accelerator is None:
        return
    if _spreads_options(call):
        _report(context, call)
        return
    reason = "the other processes' writers write nothing that stays"
    elsewhere = f"if {accelerator}.is_main_process else tempfile.mkdtemp()"
    folder = given(call, "log_dir", 0) or keyword_of(call, "logdir")
    if folder is None:
        code = f"log_dir=None {elsewhere}"
        context.edits.append(e.InsertArgument(call, RULE, reason, position=-1, code=code))
    else:
        context.replace(folder, RULE, reason, "{x} " + elsewhere, x=folder)
    import_module(context, call, RULE, "tempfile")


def _log_file(context: Context, call: ast.Call, path: ast.expr | None) -> None:
    accelerator = _reached(context, call) if path is not None else None
    if path is not None and accelerator is not None:
        open_null_device(context, path, RULE, "the other processes log nowhere", accelerator)


def _level(context: Context, call: ast.Call, level: ast.expr | None) -> None:
    """Every process logs warnings; everything below is logged once."""
    if level is None or not _is_chatty(context, level):
        return
    accelerator = _reached(context, call)
    if accelerator is not None:
        template = "{x} if " + accelerator + f".is_local_main_process else {_warning(context, call, level)}"
        context.replace(level, RULE, "logged once, by the main process", template, x=level)


def _is_chatty(context: Context, level: ast.expr) -> bool:
    if isinstance(level, ast.Constant):
        return level.value in CHATTY
    return any(path.removeprefix("logging.") in CHATTY for path in context.facts.paths(level))


def _warning(context: Context, call: ast.Call, level: ast.expr) -> str:
    """The level of warnings, in the spelling of `level`."""
    if isinstance(level, ast.Attribute):
        return f"{context.source(level.value)}.WARNING"
    if isinstance(level, ast.Constant):
        return '"WARNING"'
    scope = context.facts.table.of_node[call]
    if "WARNING" not in scope.module.names:
        context.edits.append(e.AddImport(scope.file, RULE, code="from logging import WARNING"))
    return "WARNING"


def _made_by(context: Context, call: ast.Call) -> set[str]:
    """What made the object whose method `call` calls."""
    if not isinstance(call.func, ast.Attribute):
        return set()
    return {v.path for v in context.facts.of(call.func.value) if isinstance(v, External)}


def _is_write_of_bar(context: Context, call: ast.Call) -> bool:
    """`bar.write(...)` prints even where the bar itself is silent."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "write":
        return False
    made = (getattr(v, "site", None) for v in context.facts.of(call.func.value))
    return any(isinstance(site, ast.Call) and context.facts.paths(site.func) & BARS for site in made)


def _is_call_of_console(context: Context, call: ast.Call) -> bool:
    """`console.print(...)` of rich."""
    spoken = isinstance(call.func, ast.Attribute) and call.func.attr in {"print", "log", "rule"}
    return spoken and CONSOLE in _made_by(context, call)


def _echo(context: Context, call: ast.Call) -> None:
    """A function that prints: every process computes its arguments, and one calls it."""
    accelerator = _reached(context, call)
    if accelerator is not None:
        template = accelerator + ".on_local_main_process({x})"
        context.replace(call.func, RULE, "printed once, by the main process", template, x=call.func)


def _spreads_options(call: ast.Call) -> bool:
    """Whether a call is given `**options`, which may hold any."""
    return any(k.arg is None for k in call.keywords)


def _report(context: Context, call: ast.Call) -> None:
    context.note_unguarded(
        RULE,
        call,
        f"every process calls this `{ast.unparse(call.func)}`, because the Accelerator is not available here",
        "put it under `if PartialState().is_main_process:` if one process is enough",
    )
