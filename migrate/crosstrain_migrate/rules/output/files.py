"""CT402: directories may exist already
CT403: one process writes files

What:   `os.makedirs` gets `exist_ok=True`; statements and `with` blocks that write files go under
        `if accelerator.is_main_process:`; a file kept open is the null device on the other processes.
Why:    Processes race to create a directory, and several writers ruin a file.
Leaves: (finding) a block that writes a file and also computes something all processes take part in.

Example CT402 (imports):
    import os
And (setup):
    os.makedirs("out")
Becomes (setup):
    os.makedirs("out", exist_ok=True)
Example CT403 (end):
    with open("done.txt", "w") as file:
        file.write("done")
Becomes (end):
    if accelerator.is_main_process:
        with open("done.txt", "w") as file:
            file.write("done")
Stays CT403 (setup):
    with open("names.txt") as file:
        names = file.read().split()
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import arguments_of, keyword_of
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.placement import construction
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import all_arguments, line_of
from crosstrain_migrate.syntax.walks import walk

from . import communication
from .loggers import is_for_main
from .opened_files import open_null_device, opens_for_writing, opens_path_for_writing, writes_into
from .waits import Writes, called

DIRECTORY, FILE = "CT402", "CT403"
WRITERS = {
    *("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt"),
    *("matplotlib.pyplot.savefig", "torchvision.utils.save_image", "imageio.imwrite"),
    *("pickle.dump", "json.dump", "yaml.dump", "torch.jit.save"),
    *("shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.move", "shutil.rmtree"),
    *("os.remove", "os.unlink", "os.rename", "os.replace"),
}
WRITING_METHODS = {
    *("to_csv", "to_pickle", "to_json", "to_excel", "to_parquet", "savefig"),
    *("write_text", "write_bytes", "unlink", "tofile", "save_pretrained", "push_to_hub"),
}
ALREADY_THERE = {"OSError", "FileExistsError", "Exception", "EnvironmentError"}
_PATHS = (ast.Name, ast.Attribute, ast.Call, ast.JoinedStr, ast.BinOp)


def plan(context: Context) -> None:
    guarded = {
        x.node for x in context.edits if isinstance(x, e.Within | e.Guard) and isinstance(x.node, ast.stmt)
    }
    _directories(context)
    communication.lift(context)
    for node in context.facts.each(ast.With):
        if writes_into(context.facts, node):
            _guard(context, node, guarded)
    by_one: set[ast.Call] = set()
    for call in context.facts.calls:
        statement = context.facts.table.statement_of(call)
        if not _within(context, statement, guarded):
            _leave_to_one(context, call, statement, guarded, by_one)
    by_one |= {c for s in guarded for c in walk(s) if isinstance(c, ast.Call)}
    _wait_before_reads(context, by_one)
    _join_neighbours(context)


def _leave_to_one(
    context: Context, call: ast.Call, statement: ast.stmt, guarded: set[ast.stmt], by_one: set[ast.Call]
) -> None:
    """Leaves a call that writes a file to the main process, or reports it; `by_one` gets those that stand unguarded."""
    facts = context.facts
    whole = isinstance(statement, ast.Expr | ast.Assign) and statement.value is call
    is_assigned = isinstance(statement, ast.Assign)
    if whole and not is_assigned and (writes_file(context, call) or _saves_itself(context, call)):
        _guard(context, statement, guarded)
    elif whole and is_assigned and opens_for_writing(facts, call) and not is_for_main(context, call):
        _null_device(context, call)
        by_one.add(call)
    elif is_assigned and opens_path_for_writing(facts, call):
        _note_opened(context, call)
    elif _exports(context, call):
        context.note(
            FILE,
            call,
            "every process writes this file, because computing what goes into it may need the model, and all processes must take part in that",
            "write it after training, in a run with one process",
        )


def _wait_before_reads(context: Context, calls: set[ast.Call]) -> None:
    """What the main process wrote in this run, in `calls`, is there before any process reads it."""
    facts = context.facts
    written: dict[str, list[ast.Call]] = {}
    for call in calls:
        opens = opens_for_writing(facts, call) or opens_path_for_writing(facts, call)
        if opens or writes_file(context, call):
            for path in _paths(context, call):
                written.setdefault(path, []).append(call)
    for call in facts.calls if written else ():
        if call in calls or not _reads(context, call):
            continue
        writes = [w for path in _paths(context, call) for w in written.get(path, ())]
        if writes:
            Writes(context, writes).wait_before(call, FILE)


def _paths(context: Context, call: ast.Call) -> set[str]:
    """What may name the file in a call: an argument, or what a method of a path is called on; also the file's own name,
    because one path may be written whole and the other put together."""
    named = arguments_of(call)
    if isinstance(call.func, ast.Attribute) and not context.facts.paths(call.func):
        named.append(call.func.value)
    spelled = {ast.unparse(n) for n in named if isinstance(n, _PATHS) or isinstance(_text_of(n), str)}
    texts = [_text_of(n) for part in named for n in walk(part)]
    names = {t.replace("\\", "/").rsplit("/", 1)[-1] for t in texts if isinstance(t, str)}
    return spelled | {n for n in names if "." in n.strip(".")}


def _text_of(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _reads(context: Context, call: ast.Call) -> bool:
    """Whether a call reads a file: itself, or in a function of the script's own that is given its name."""
    return _reads_itself(context, call) or any(
        _reads_a_parameter(context, function) for function in called(context, call)
    )


def _reads_itself(context: Context, call: ast.Call) -> bool:
    if "builtins.open" in context.facts.paths(call.func):
        return not opens_for_writing(context.facts, call)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return name.startswith(("load", "read", "imread"))


def _reads_a_parameter(context: Context, function: ast.AST) -> bool:
    """Whether a function reads the file that one of its parameters names."""
    if not isinstance(function, ast.FunctionDef):
        return False
    parameters = {a.arg for a in all_arguments(function)}
    calls = [n for n in walk(function) if isinstance(n, ast.Call)]
    return any(_reads_itself(context, call) and parameters & _paths(context, call) for call in calls)


def _join_neighbours(context: Context) -> None:
    """Guarded statements that follow each other share one `if`."""
    guards = sorted((x for x in context.edits if isinstance(x, e.Guard)), key=lambda x: line_of(x.node))
    joined: list[e.Guard] = []
    for guard in guards:
        if joined and _follows(context, guard, joined[-1]):
            joined[-1] = replace(joined[-1], last=guard.last)
        else:
            joined.append(guard)
    context.edits[:] = [*(x for x in context.edits if not isinstance(x, e.Guard)), *joined]


def _follows(context: Context, guard: e.Guard, previous: e.Guard) -> bool:
    """Whether one guard can go on where the other ends: nothing stands between them, communication neither."""
    assert isinstance(guard.node, ast.stmt)
    if previous.test != guard.test or guard.node in context.below_collective:
        return False
    suite = suite_of(context.facts, guard.node)
    return previous.last in suite and suite.index(previous.last) + 1 == suite.index(guard.node)


def _directories(context: Context) -> None:
    facts = context.facts
    for call in _allowed(context, facts.calls_to("os.makedirs")):
        exist_ok = keyword_of(call, "exist_ok")
        if exist_ok is None and len(call.args) < 3:
            if not _is_caught(context, call):
                _may_exist(context, call)
        elif isinstance(exist_ok, ast.Constant) and not exist_ok.value:
            _must_be_new(context, call)
    for call in _allowed(context, facts.calls_to("os.mkdir")):
        if isinstance(call.func, ast.Name):
            _must_be_new(context, call)
        if len(call.args) == 1 and not call.keywords and isinstance(call.func, ast.Attribute):
            makedirs = f"{context.source(call.func.value)}.makedirs"
            context.edits.append(e.Replace(call.func, DIRECTORY, transaction="directory", template=makedirs))
            _may_exist(context, call)
    for call in _allowed(context, facts.method_calls("mkdir")):
        own = facts.targets(call) or facts.paths(call.func)
        if not own and keyword_of(call, "exist_ok") is None:
            _may_exist(context, call)


def _allowed(context: Context, calls: Iterable[ast.Call]) -> list[ast.Call]:
    """The calls that may change, less those that the main process makes before the others."""
    first = {x.node for x in context.edits if isinstance(x, e.Within)}
    ancestors = context.facts.table.ancestors
    return [c for c in calls if context.allows(DIRECTORY, c) and not first & set(ancestors(c))]


def _is_caught(context: Context, call: ast.Call) -> bool:
    """Whether the author goes on where the directory exists: `except OSError`."""
    inner: ast.AST = call
    for around in context.facts.table.ancestors(call):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
        if isinstance(around, ast.Try) and inner in around.body:
            types = [h.type for h in around.handlers]
            caught = {n.id for t in types if t for n in walk(t) if isinstance(n, ast.Name)}
            if None in types or caught & ALREADY_THERE:
                return True
        inner = around
    return False


def _may_exist(context: Context, call: ast.Call) -> None:
    context.edits.append(
        e.InsertArgument(
            call,
            DIRECTORY,
            "another process may have made it",
            position=-1,
            code="exist_ok=True",
            transaction="directory",
        )
    )


def _must_be_new(context: Context, call: ast.Call) -> None:
    context.note(
        DIRECTORY,
        call,
        "every process makes this directory, and all but the first fail because it exists",
        "use os.makedirs(..., exist_ok=True), or make it on the main process only",
    )


def writes_file(context: Context, call: ast.Call) -> bool:
    """Whether a call writes a file under a name that it is given."""
    if context.facts.paths(call.func) & WRITERS:
        return True
    if isinstance(call.func, ast.Attribute) and call.func.attr in WRITING_METHODS:
        return not context.facts.paths(call.func)
    return False


def _saves_itself(context: Context, call: ast.Call) -> bool:
    """`torch.save` in a model's own method, where the accelerator cannot come; other saves become the accelerator's."""
    return "torch.save" in context.facts.paths(call.func) and _in_method_of_model(context, call)


def _in_method_of_model(context: Context, node: ast.AST) -> bool:
    """Whether code runs in a method of a model that the training calls: it cannot be given the accelerator, but there
    is one by then."""
    function = context.facts.enclosing_function(node)
    if function is None or context.reachable(node):
        return False
    cls = context.method_class(function)
    if cls is None or not context.facts.interp.inherits(cls, api.MODULE_BASES):
        return False
    sites = context.facts.callers.get(function, [])
    return bool(sites) and all(context.reachable(site) for site in sites)


def _exports(context: Context, call: ast.Call) -> bool:
    if context.facts.paths(call.func) & {"torch.onnx.export", "torch.export.save"}:
        return True
    made = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "save" else None
    if isinstance(made, ast.Name):
        made = construction.only_definition(context.facts, made)
    return isinstance(made, ast.Call) and bool(
        context.facts.paths(made.func) & {"torch.jit.script", "torch.jit.trace"}
    )


def _within(context: Context, statement: ast.stmt, guarded: set[ast.stmt]) -> bool:
    return any(a in guarded for a in (statement, *context.facts.table.ancestors(statement)))


def _guard(context: Context, statement: ast.stmt, guarded: set[ast.stmt]) -> None:
    if _within(context, statement, guarded):
        return
    if not context.reachable(statement) and not _in_method_of_model(context, statement):
        return
    function = context.facts.enclosing_function(statement)
    if not context.allows(FILE, statement) or function in context.main_process_first:
        return
    blocked = cannot_be_guarded(context, statement)
    if blocked is not None:
        reason = f"every process writes this file: it cannot be left to the main process, because {blocked}"
        remedy = "compute first, then write under `if accelerator.is_main_process:`"
        context.note(FILE, statement, reason, remedy)
        return
    test = f"{context.process(statement, FILE)}.is_main_process"
    guarded.add(statement)
    reason = "written by the main process alone"
    context.edits.append(e.Guard(statement, FILE, reason, last=statement, test=test, transaction="file"))


def cannot_be_guarded(context: Context, statement: ast.stmt) -> str | None:
    """Why a statement must run on all processes: it communicates, or binds names that are read afterwards."""
    inner = set(walk(statement))
    communicates = takes_all_processes(context, statement)
    if communicates is not None:
        return communicates
    if any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in inner):
        return "it leaves the function or the loop"
    stored = {n for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for name, definitions in context.facts.interp.reaching.items():
        if name not in inner and definitions & stored:
            return f"`{name.id}` is read after it"
    return None


def takes_all_processes(context: Context, statement: ast.stmt) -> str | None:
    """Why processes cannot run a statement one after the other."""
    for node in walk(statement):
        if node in context.collective or (node in context.below_collective and node is not statement):
            return "it communicates inside"
        if isinstance(node, ast.Call) and _runs_a_model(context, node):
            return "it runs the model inside"
        if isinstance(node, ast.For) and context.facts.interp.iterations.get(node):
            return "it iterates a loader inside"
    return None


def _runs_a_model(context: Context, call: ast.Call) -> bool:
    """A model that is prepared may communicate when it runs."""
    if any(v in context.subject.models for v in context.facts.of(call.func)):
        return True
    return any(t in context.facts.interp.touching for t in context.facts.targets(call))


def _note_opened(context: Context, call: ast.Call) -> None:
    context.note(FILE, call, "every process opens this file for writing", "open it on the main process only")


def _null_device(context: Context, call: ast.Call) -> None:
    if not context.allows(FILE, call):
        return
    if not context.reachable(call) or not call.args:
        _note_opened(context, call)
        return
    process = context.process(call, FILE)
    open_null_device(context, call.args[0], FILE, "the other processes write nowhere", process)
