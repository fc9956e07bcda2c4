"""Progress bars, experiment trackers and log files: the main process's own, silent elsewhere.

Nothing is put under an `if`: what they are given may have to be computed by all processes. Each is made so that it
writes nowhere on the other processes.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given, keyword_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e

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
        "click.echo",
        "click.secho",
        "typer.echo",
        "typer.secho",
        "rich.print",
        "pprint.pp",
        "pprint.pprint",
        "termcolor.cprint",
    }
)
CONSOLE = "rich.console.Console"
CHATTY = frozenset({"INFO", "DEBUG", "NOTSET"})
LOGGERS = frozenset({"logging.getLogger", "logging.StreamHandler"})

MADE = WRITERS | LOG_FILES | {"logging.basicConfig", "wandb.init", "visdom.Visdom"}


def plan(context: Context) -> None:
    for call in context.facts.calls_to(*BARS):
        _only_main(
            context, call, "disable", "not {0}.is_local_main_process", "{x} or not {0}.is_local_main_process"
        )
    for call in context.facts.calls_to("visdom.Visdom"):
        _only_main(context, call, "send", "{0}.is_main_process", "{x} and {0}.is_main_process")
    for call in context.facts.calls_to("wandb.init"):
        _only_main(
            context,
            call,
            "mode",
            'None if {0}.is_main_process else "disabled"',
            '{x} if {0}.is_main_process else "disabled"',
        )
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
        if (
            context.facts.paths(call.func) & ECHOES
            or _is_a_bars_write(context, call)
            or _is_a_consoles(context, call)
        ):
            _echo(context, call)


def _reached(context: Context, call: ast.Call) -> str | None:
    """The accelerator where `call` stands; without one, or for code that is told about processes already, None."""
    if not context.allows(RULE, call):
        return None
    if any("main_process" in ast.unparse(part) for part in (*call.args, *(k.value for k in call.keywords))):
        return None
    if is_the_main_processes(context, call):
        return None
    return context.accelerator(call) if context.at_hand(call) else ""


def is_the_main_processes(context: Context, node: ast.AST) -> bool:
    """Whether a test that the script has already leaves `node` to the main process."""
    around = (a for a in context.facts.table.ancestors(node) if isinstance(a, ast.If))
    return any("main_process" in ast.unparse(a.test) for a in around)


def opens_for_writing(facts: Facts, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or "builtins.open" not in facts.paths(node.func):
        return False
    mode = given(node, "mode", 1)
    return isinstance(mode, ast.Constant) and any(c in str(mode.value) for c in "wax+")


def opens_path_for_writing(facts: Facts, node: ast.AST) -> bool:
    """`path.open("w")`, of a pathlib.Path."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "open":
        return False
    if not all(path.startswith("pathlib.") for path in facts.paths(node.func)) or facts.targets(node):
        return False
    mode = given(node, "mode", 0)
    written = mode.value if isinstance(mode, ast.Constant) else None
    return isinstance(written, str) and set(written) <= set("rwaxbt+") and bool(set(written) & set("wax+"))


def writes_into(facts: Facts, block: ast.AST) -> bool:
    """`with open(path, "w") as file:` and `with path.open("w") as file:`"""
    return isinstance(block, ast.With) and any(
        opens_for_writing(facts, i.context_expr) or opens_path_for_writing(facts, i.context_expr)
        for i in block.items
    )


def keeps_a_file_open(facts: Facts, statement: ast.AST) -> bool:
    """`log = open(path, "w")`, which is the null device on the other processes."""
    return isinstance(statement, ast.Assign) and opens_for_writing(facts, statement.value)


def _only_main(context: Context, call: ast.Call, name: str, fresh: str, beside: str) -> None:
    """Gives `call` a keyword that silences it on the other processes, or adds that to the one it has."""
    accelerator = _reached(context, call)
    if accelerator is None or any(k.arg is None for k in call.keywords):
        return
    if not accelerator:
        _said_by_all(context, call)
        return
    said = keyword_of(call, name)
    reason = "shown by the main process alone"
    if said is None:
        code = f"{name}={fresh.format(accelerator)}"
        context.edits.append(e.InsertArgument(call, RULE, reason, position=-1, code=code))
    elif isinstance(said, ast.Constant) and said.value in (None, False, True):
        silent = said.value is (name == "disable")
        if not silent:
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
    if not accelerator or any(k.arg is None for k in call.keywords):
        _said_by_all(context, call)
        return
    reason = "the other processes' writers write nothing that stays"
    elsewhere = f"if {accelerator}.is_main_process else tempfile.mkdtemp()"
    folder = given(call, "log_dir", 0) or keyword_of(call, "logdir")
    if folder is None:
        context.edits.append(
            e.InsertArgument(call, RULE, reason, position=-1, code=f"log_dir=None {elsewhere}")
        )
    else:
        context.replace(folder, RULE, reason, "{x} " + elsewhere, x=folder)
    import_module(context, call, RULE, "tempfile")


def _log_file(context: Context, call: ast.Call, path: ast.expr | None) -> None:
    if path is None:
        return
    accelerator = _reached(context, call)
    if accelerator is None:
        return
    if not accelerator:
        _said_by_all(context, call)
        return
    context.replace(
        path,
        RULE,
        "the other processes log nowhere",
        "{x} if " + accelerator + ".is_main_process else os.devnull",
        x=path,
    )
    import_module(context, call, RULE, "os")


def _level(context: Context, call: ast.Call, level: ast.expr | None) -> None:
    """What is worth a warning is said by all, everything else once."""
    if level is None or not _is_chatty(context, level):
        return
    accelerator = _reached(context, call)
    if accelerator:
        template = "{x} if " + accelerator + f".is_local_main_process else {_warning(context, call, level)}"
        context.replace(level, RULE, "logged once, by the main process", template, x=level)
    elif accelerator is not None:
        _said_by_all(context, call)


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


def _is_a_bars_write(context: Context, call: ast.Call) -> bool:
    """`bar.write(...)` prints even where the bar itself is silent."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "write":
        return False
    made = (getattr(v, "site", None) for v in context.facts.of(call.func.value))
    return any(isinstance(site, ast.Call) and context.facts.paths(site.func) & BARS for site in made)


def _is_a_consoles(context: Context, call: ast.Call) -> bool:
    """`console.print(...)` of rich."""
    spoken = isinstance(call.func, ast.Attribute) and call.func.attr in {"print", "log", "rule"}
    return spoken and CONSOLE in _made_by(context, call)


def _echo(context: Context, call: ast.Call) -> None:
    """A function that prints: what it is given is computed by all processes, and one of them calls it."""
    accelerator = _reached(context, call)
    if accelerator:
        template = accelerator + ".on_local_main_process({x})"
        context.replace(call.func, RULE, "printed once, by the main process", template, x=call.func)
    elif accelerator is not None:
        _said_by_all(context, call)


def import_module(context: Context, call: ast.Call, rule: str, module: str) -> None:
    """`import os`, where the file does not have it."""
    scope = context.facts.table.of_node[call]
    if module not in scope.module.names:
        context.edits.append(e.AddImport(scope.file, rule, code=f"import {module}"))


def _said_by_all(context: Context, call: ast.Call) -> None:
    if context.facts.table.of_node[call].file is not context.home.scope.file:
        context.unguarded_output.append(call)
        return
    context.note(
        RULE,
        call,
        f"every process calls this `{ast.unparse(call.func)}`, because the Accelerator is not available here",
        "put it under `if PartialState().is_main_process:` if one process is enough",
        Severity.NOTE,
    )
