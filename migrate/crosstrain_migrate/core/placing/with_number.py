"""The number of the author's GPU, and the GPUs that are made visible, at the author's choice of a device."""

from __future__ import annotations

import ast
from dataclasses import replace

from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk, walk_all

from .asked import holds_options
from .first import needs_accelerator, tells_visible
from .known import Choice, Place, calls_to, frames_to_training, imports_of, set_by_calls
from .numbered import gpu_number, numbers_among
from .options import Options, root_of_text
from .sides import is_about_gpu, side_of


def with_number(
    script: Script, roles: Roles, choice: Choice | None, home: Frame, at: ast.stmt, *, mapped: bool
) -> Choice | None:
    """The choice, with the number of the author's GPU where that is known when the accelerator is made.

    at: the statement above which it is made in `home` where nothing is chosen. mapped: the script distributes itself, and
    a number is that of one of its processes, unless it is an option's.
    """
    if mapped and gpu_number(script, home)[1].rpartition(".")[2] not in Options(script).by_name:
        return choice
    found = _with_number(script, roles, choice, home, at)
    if mapped and found is not None and found.frame is not home:
        return choice  # the group is made beside the accelerator
    if found is not None and _are_several(script, found.device):
        return choice
    listed = found.device.removesuffix("[0]") if found is not None else ""
    if found is None or listed == found.device:
        return found
    # `args.gpus[0]`, above the line that makes numbers of the text: `args.gpus = [int(i) for i in args.gpus.split(",")]`
    stores, values = script.stores(found.frame, listed), script.values(found.frame, listed)
    split = values[0] if len(stores) == len(values) == 1 else None
    is_below = isinstance(split, ast.ListComp | ast.Call) and place_of(split) >= place_of(found.before)
    is_own = split is not None and listed in ast.unparse(split)
    return replace(found, device=f"{ast.unparse(split)}[0]") if split and is_below and is_own else found


def _are_several(script: Script, device: str) -> bool:
    """Whether an option holds a list of numbers: `add_argument("--gpu", nargs="*", type=int)`."""
    option = Options(script).by_name.get(device.rpartition(".")[2])
    nargs = option.keyword("nargs") if option is not None else None
    return isinstance(nargs, ast.Constant) and nargs.value not in ("?", None)


def _with_number(
    script: Script, roles: Roles, choice: Choice | None, home: Frame, at: ast.stmt
) -> Choice | None:
    frame, number = gpu_number(script, home, choice.before if choice is not None else None)
    if choice is not None and number and _says_cpu_or_gpu(script, choice.device):
        choice = replace(choice, code=f'{choice.device} == "cpu"', device="")
    if not number or (choice is not None and (choice.device or not choice.code)):
        return choice
    at = _first_device(script, at)
    if frame is None:
        return replace(choice or Choice("", home, at), device=number)
    frames = frames_to_training(script, roles, home)
    if frame not in frames:  # an object got the options
        frame, number = _as_option(script, frames, number) or (frame, number)
    # Settings of another file are known where the function begins that reads the script's own into them.
    is_imported = isinstance(frame, ast.Module) and bool(imports_of(frame, {root_of_text(number)}))
    frame = home if is_imported else frame
    root = root_of_text(number)
    calls = [(one, call) for one in frames for call in set_by_calls(script, one, root)]
    if isinstance(frame, ast.Module) and len(calls) == 1:  # of a function that sets it, `global args`
        frame = calls[0][0]
    stores: list[Place] = [s for one in {number, root} for s in script.stores(frame, one)]
    if choice is not None:  # `args.gpu = torch.device(f"cuda:{args.gpu}")`, by which it is chosen
        own = [s for s in stores if script.table.is_inside(s, choice.before)]
        stores = [s for s in stores if s not in own or not _binds_device(script, s)]
    stores += [call for one, call in calls if one is frame]
    if any(script.loops_around(s) for s in stores):
        return choice
    known = max(map(place_of, stores), default=(0, 0))
    if choice is not None and choice.frame is not frame:
        number, known = _as_given(script, choice.frame), (0, 0)
    if choice is not None:
        return _below_number(script, choice, number, known) if number else choice
    if frame is home and place_of(at) > known and not is_imported:
        return Choice("", home, at, device=number)
    guards = (g for s in stores[-1:] for g in script.around(s) if isinstance(g, ast.If) and is_main_test(g))
    body = next((guard.body for guard in guards), frame.body)
    behind = [s for s in body if place_of(s) > known and frame in frames]
    needed = next((s for s in behind if needs_accelerator(script, s) or _names_gpu(script, s)), None)
    ways = calls_to(script, home)  # `main()`, which reads the global options
    uses = [
        s
        for s in behind
        if (number if is_imported else root) in ast.unparse(s) or any(n in ways for n in walk(s))
    ]
    first = min(filter(None, (needed, *uses[:1])), key=place_of, default=None)
    return Choice("", frame, first, device=number) if first is not None else None


def _binds_device(script: Script, store: Place) -> bool:
    bound = script.statement(store)
    return isinstance(bound, ast.Assign) and bool(side_of(script, bound.value))


def _says_cpu_or_gpu(script: Script, device: str) -> bool:
    """Whether an option that chooses the device knows no numbers, `choices=["cuda", "cpu"]`, which another one says."""
    option = Options(script).by_name.get(device.rpartition(".")[2])
    choices = option.keyword("choices") if option is not None else None
    return isinstance(choices, ast.List | ast.Tuple) and {*map(ast.unparse, choices.elts)} == {
        "'cpu'",
        "'cuda'",
    }


def _as_given(script: Script, frame: Frame) -> str:
    """The one number of a GPU in the words of a function that is given it, `config["gpu"]` of its parameter `config`."""
    numbers = list(numbers_among(script, script.within(frame)))
    given = {*script.parameters(frame)} - {
        name for name in script.parameters(frame) if script.stores(frame, name)
    }
    texts = {script.source(one) for one in numbers if names_in(one) and names_in(one) <= given}
    return texts.pop() if len(texts) == 1 else ""


def _below_number(script: Script, choice: Choice, number: str, known: tuple[int, int]) -> Choice:
    """A choice with a number that is known behind a place, which is made below it where nothing above needs it."""
    behind, above = _up_to(script, choice, known)
    if len(above) == len(behind) or any(needs_accelerator(script, s) for s in above):
        return choice
    return replace(choice, before=behind[len(above)], device=number)


def below_visible(script: Script, choice: Choice | None) -> Choice | None:
    """The choice below the statement that says which GPUs there are, where nothing above it needs the accelerator or a GPU."""
    suite = script.suite_of(choice.before) if choice is not None else []
    last = max((place_of(s) for s in suite if tells_visible(script, s)), default=(0, 0))
    if choice is None or choice.is_of_option or last < place_of(choice.before):
        return choice
    behind, above = _up_to(script, choice, last)
    nodes = [node for node in walk_all(above[:-1]) if isinstance(node, ast.expr)]
    names_gpu = any(
        side_of(script, node) == "gpu" or is_about_gpu(script, choice.frame, node) for node in nodes
    )
    if len(above) == len(behind) or names_gpu or any(needs_accelerator(script, s) for s in above):
        return choice
    return replace(choice, before=behind[len(above)])


def _up_to(script: Script, choice: Choice, place: tuple[int, int]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The statements from that of a choice on, and those of them above a place."""
    suite = script.suite_of(choice.before)
    behind = suite[suite.index(choice.before) :]
    return behind, [s for s in behind if place_of(s) <= place]


def _first_device(script: Script, at: ast.stmt) -> ast.stmt:
    """The statement, or one above it in its suite that names a GPU: that is the accelerator's from then on."""
    suite = script.suite_of(at)
    return next((s for s in suite if s is at or _names_gpu(script, s)), at)


def _names_gpu(script: Script, statement: ast.stmt) -> bool:
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return False
    nodes = (n for n in walk(statement) if isinstance(n, ast.expr) and script.is_reached(n))
    return any(side_of(script, n) == "gpu" for n in nodes)


def _as_option(script: Script, frames: list[Frame], number: str) -> tuple[Frame, str] | None:
    """An option in the words of the function that has parsed the command line."""
    option = number.rpartition(".")[2]
    for frame in frames if option in Options(script).by_name else ():
        for node in script.within(frame):
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Name) and holds_options(script, frame, target.id):
                return frame, f"{target.id}.{option}"
    return None
