"""CT901, CT202 and CT905: training of which nothing is converted, and why. No script that trains is left without a word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.computed_imports import IMPORTS, computed_imports
from crosstrain_migrate.syntax.program import is_main_test, path_of
from crosstrain_migrate.syntax.walks import walk

from .distributed.mapping import distributes_itself
from .distributed.wrappers import has_wrapper
from .plan import Plan, finding_at
from .reading.forms import Frame, is_function_frame, is_method
from .reading.frameworks import FRAMEWORKS, HIDDEN, LOOPS, TRAINERS
from .reading.imported import imported
from .reading.script import Script

BUILT_ON, BACKWARD, UNREACHED = "CT901", "CT202", "CT905"
# Calls by which code is found by its name, so that nobody can say what runs.
_BY_NAME = frozenset({"getattr", "globals", "locals", "vars", "eval", "exec"})


def written_for_accelerate(tree: ast.Module) -> list[Finding]:
    """A script that somebody has written for Accelerate, or migrated to it."""
    paths = [(path, node) for path, node in imported(tree) if path.split(".")[0] == "accelerate"]
    for path, node in paths:
        if path in ("accelerate", "accelerate.Accelerator"):
            return [_built_on(node, "Accelerate", "import from crosstrain instead")]
    reason = "a file that this script runs imports from Accelerate, and may be written for it: nothing is converted"
    remedy = "leave it as it is, or take that import out"
    return [finding_at(node, BUILT_ON, reason, remedy, Severity.NOTE) for _, node in paths[:1]]


def handed_over(script: Script, frames: Iterable[Frame]) -> list[Finding]:
    """A script that hands the training of another file to Slurm, by submitit: its own process trains nothing.

    frames: the functions that train.
    """
    submits: list[ast.Call] = [
        c for c in script.calls if is_method(c, "submit", "map_array") and script.is_entry(c)
    ]
    is_imported = any(path.split(".")[0] == "submitit" for path, _ in imported(script.entry))
    if not submits or not is_imported or _comes_to(script, frames, submits):
        return []
    reason = "this script submits a job and trains nothing itself: it is left as it is"
    return [finding_at(submits[0], UNREACHED, reason, "migrate the script that the job runs", Severity.NOTE)]


def _comes_to(script: Script, frames: Iterable[Frame], submits: list[ast.Call]) -> bool:
    """Whether the script's own file trains, or calls what does otherwise than in a method or by what it submits."""
    work: list[Frame] = [*frames]
    for frame in work:  # which grows meanwhile
        if script.is_entry(frame) and (not is_function_frame(frame) or script.class_of(frame) is None):
            return True
        if is_function_frame(frame) and not script.is_entry(frame):
            calls = [c for c in script.direct_callers(frame) if c not in submits and not _is_own(script, c)]
            work += [caller for call in calls if (caller := script.frame(call)) not in work]
    return False


def _is_own(script: Script, call: ast.Call) -> bool:
    """Whether a call in the script's own file means that file's function: `main()`, beside `training.main(args)`."""
    named = script.functions(call.func.id) if isinstance(call.func, ast.Name) else []
    return script.is_entry(call) and any(map(script.is_entry, named))


def unseen_training(script: Script) -> list[Finding]:
    return (
        [*_frameworks(script)]
        or [*_hidden(script)]
        or _own_gradients(script)
        or _unreached(script)
        or _imported_by_name(script)
        or _steps_unseen(script)
    )


def _frameworks(script: Script) -> Iterator[Finding]:
    """Frameworks and trainers that a script calls outside of the classes it gives them."""
    told = set()

    def names(call: ast.Call) -> tuple[str | None, str | None]:
        path = script.dotted(call.func)
        return FRAMEWORKS.get(path.split(".")[0]) or _entry(path, TRAINERS), _entry(path, LOOPS)

    for call in script.calls_that(lambda one: any(names(one))):
        what, loop = names(call)
        inside = any(isinstance(one, ast.ClassDef) for one in script.around(call))
        if what is not None and what not in told and not inside:
            told.add(what)
            yield _built_on(call, what)
        elif loop is not None and loop not in told and not inside:
            told.add(loop)
            reason, remedy = f"{loop} trains, in a loop of its own", "write the loop in plain PyTorch first"
            yield finding_at(call, BUILT_ON, reason, remedy, Severity.NOTE)


def trains_in_wrapper(script: Script) -> bool:
    """Whether a script that distributes itself trains a wrapped model by a library's call: the wrapper is prepared, and the
    gradients of a prepared model are averaged, whoever goes backward."""
    return any(True for _ in _hidden(script)) and distributes_itself(script) and has_wrapper(script)


def _hidden(script: Script) -> Iterator[Finding]:
    for call in script.calls_that(lambda one: _entry(script.dotted(one.func), HIDDEN)):
        what = _entry(script.dotted(call.func), HIDDEN)
        reason = f"this script trains through {what}, which goes backward inside its call"
        remedy = "call loss.backward() and optimizer.step() in the loop: the Accelerator scales the loss"
        yield finding_at(call, BACKWARD, reason, remedy, Severity.REFUSED)


def _own_gradients(script: Script) -> list[Finding]:
    """Gradients by `torch.autograd.grad`, and an optimizer that is stepped."""
    calls = script.calls_that(lambda one: script.dotted(one.func) == "torch.autograd.grad")
    if not calls:
        return []
    made = any(script.dotted(call.func).startswith("torch.optim.") for call in script.calls)
    if not made or not any(is_method(call, "step") for call in script.calls):
        return []
    reason = "the gradients this script trains with come from `torch.autograd.grad`: they are not averaged over processes"
    remedy = "call backward on the loss, or train it on one process"
    return [finding_at(calls[0], BACKWARD, reason, remedy, Severity.REFUSED)]


def _steps_unseen(script: Script) -> list[Finding]:
    """A backward in the script's own file, whose optimizers a library steps in a block of its own."""
    passes = [c for c in script.calls if is_method(c, "backward") and script.is_entry(c)]
    made = any(
        re.fullmatch(r"torch\.optim\.\w+", script.dotted(call.func)) for call in script.calls
    )  # no schedule
    if not passes or not made or any(is_method(call, "step") for call in script.calls):
        return []
    reason = "this script goes backward, but nothing in sight steps its optimizers: it is left as it is"
    return [finding_at(passes[0], BUILT_ON, reason, "call `optimizer.step()` in the loop", Severity.NOTE)]


def _unreached(script: Script) -> list[Finding]:
    """A loop in the script's own file that no call leads to; where names are looked up, it may still be run."""
    own = [n for n in walk(script.entry) if is_method(n, "backward") and not script.is_reached(n)]
    if not own:
        return []
    frame = script.frame(own[0])
    name = f"`{frame.name}`" if is_function_frame(frame) else "this function"
    looked_up = next((call for call in script.calls if any(map(_looks_up, walk(call.func)))), None)
    if looked_up is None:
        reason = f"nothing that this script runs reaches the training in {name}: it is left as it is"
        remedy = "call it from the top level of the script"
        return [finding_at(own[0], UNREACHED, reason, remedy, Severity.NOTE)]
    text = f"`{ast.unparse(looked_up)}` in line {looked_up.lineno}"
    reason = f"no call leads to the training in {name}; the script looks up by name what it runs ({text})"
    return [finding_at(own[0], UNREACHED, reason, f"call {name} by its own name", Severity.REFUSED)]


def note_unread(plan: Plan) -> None:
    """Modules whose names are computed: nobody knows which, so that they are not converted with the script."""
    for call in _computed_imports(plan.script):
        reason = "modules that are imported by a computed name are not read: a `.cuda()` in them stays"
        plan.note("CT105", call, reason, "convert them by hand, or import them by their names")


def _imported_by_name(script: Script) -> list[Finding]:
    """A program without a training that imports a module by a computed name, and asks it for something or calls it."""
    for call in _computed_imports(script):
        if isinstance(script.parent(call), ast.Attribute | ast.Assign | ast.Call) and _is_program(
            script.entry
        ):
            text = f"`{ast.unparse(call)}` in line {call.lineno}"
            reason = f"nothing here trains, but what {text} imports may: its name is computed"
            remedy = "import the module that trains by its name, then migrate again"
            return [finding_at(call, UNREACHED, reason, remedy, Severity.NOTE)]
    return []


def _computed_imports(script: Script) -> list[ast.Call]:
    """The calls that import a module by a text, of which no file was found."""
    if not any(word in script.text for word in IMPORTS):
        return []
    files = [path_of(module).removesuffix(".py").replace("/", ".") for module in script.modules]
    found = (one for module in script.modules for one in computed_imports(module).items())
    unknown = [call for call, name in found if "*" in name and not any(_is_named(one, name) for one in files)]
    return [call for call in unknown if script.is_reached(call)]


def _is_named(file: str, pattern: str) -> bool:
    """Whether a file is one that a text means. Packages are folders: `models.small.__init__`."""
    known = pattern.lstrip(".")
    module = f".{file.removesuffix('.__init__')}"
    return "*" not in known.split(".")[0] and fnmatchcase(module, f"*.{known}")


def _is_program(module: ast.Module) -> bool:
    """Whether a file does something when it is run, beside definitions."""
    return any(
        (isinstance(one, ast.If) and is_main_test(one))
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Call))
        for one in module.body
    )


def _looks_up(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return called in _BY_NAME or called == "import_module"


def _entry(path: str, names: dict[str, str]) -> str | None:
    """The entry of `names` for a dotted name, or for a name that it begins with."""
    return next((what for name, what in names.items() if path == name or path.startswith(name + ".")), None)


def _built_on(node: ast.AST, what: str, instead: str = "write the loop in plain PyTorch first") -> Finding:
    reason = f"the script is built on {what}, which distributes training itself"
    remedy = f"leave it as it is, or {instead}"
    return finding_at(node, BUILT_ON, reason, remedy, Severity.NOTE)
