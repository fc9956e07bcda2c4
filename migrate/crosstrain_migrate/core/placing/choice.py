"""The script's own choice of its device: flags keep their meaning.

`Accelerator(cpu=...)` is true where the author's own expression gives the CPU although an accelerator is there. What only
asks whether there is one (`torch.cuda.is_available()`) is the accelerator's own question and needs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

from crosstrain_migrate.core.reading.forms import (
    FUNCTIONS,
    Frame,
    is_method,
    names_in,
)
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .asked import asked_device, device_among_settings
from .elsewhere import chosen_elsewhere, is_given_cpu
from .known import (
    Choice,
    frames_to_training,
)
from .of_object import choice_of_object
from .sides import (
    asks_availability,
    chosen_as_device,
    default_of,
    flag_of,
    has_condition,
    is_about_gpu,
    is_gpu,
    keeps_data,
    negated,
    side_of,
)
from .where_chosen import placed

_ONLY_CPU = re.compile(r'str\((?P<device>.+)\) == "cpu"')


def device_choice(
    script: Script, roles: Roles, home: Frame, first: ast.stmt, *, mapped: bool
) -> Choice | None:
    """How the script's own file chooses between the CPU and a GPU in the function that begins its training, where a flag
    has a say in it.

    first: the statement above which the accelerator is made in `home` where nothing is asked.
    """
    frames = frames_to_training(script, roles, home)
    finders = (_by_expression, _by_branches, _by_overwriting, _by_default, _by_argument, _by_moves)
    for finder in finders:
        for frame in frames:
            for node in script.within(frame):
                if script.is_entry(node) and (found := finder(script, frame, node)):
                    code, at = found
                    # A device's definition is where a reader looks for the accelerator; a move may come late.
                    choice = placed(script, frame, code, at, at_head=finder is _by_moves)
                    given = _ONLY_CPU.fullmatch(choice.code) if finder is _by_argument else None
                    return choice if given is None else replace(choice, device=given["device"])
    other = (
        asked_device(script, frames, options_only=mapped)
        or _by_executed(script)
        or chosen_elsewhere(script, frames, finders)
    )
    if other is not None or mapped:
        return other
    if is_given_cpu(script, frames, finders):
        return Choice("True", home, first)
    return device_among_settings(script, frames) or choice_of_object(script, roles, frames)


def _by_expression(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`"cuda" if use_cuda else "cpu"`, `"cuda" if use_cuda else "mps" if use_mps else "cpu"`"""
    if not isinstance(node, ast.IfExp) or isinstance(script.parent(node), ast.IfExp):
        return None
    gpu, cpu = side_of(script, node.body), side_of(script, node.orelse)
    if {gpu, cpu} != {"gpu", "cpu"} or _is_decided_elsewhere(script, frame, node):
        return None
    if (gpu, cpu) == ("gpu", "cpu"):
        tests, arm = [node.test], node.orelse
        while (inner := chosen_as_device(script, arm)) is not None:
            if side_of(script, inner.body) != "gpu":
                return None
            tests.append(inner.test)
            arm = inner.orelse
        flags = [flag_of(script, frame, test) for test in tests]
        return (_none_of(script, tests, flags), node) if any(flags) else None
    if (gpu, cpu) == ("cpu", "gpu") and not keeps_data(script, node):
        flag = _when_cpu(script, frame, node.test)
        return (flag, node) if flag else None
    return None


def _none_of(script: Script, tests: list[ast.expr], flags: list[str]) -> str:
    """True where none of the tests that choose a GPU holds."""
    if len(tests) == 1:
        return negated(flags[0])
    sources = [(script.source(test), isinstance(test, ast.IfExp)) for test in tests]
    return f"not ({' or '.join(f'({text})' if is_choice else text for text, is_choice in sources)})"


def _is_decided_elsewhere(script: Script, frame: Frame, node: ast.AST) -> bool:
    """Whether the CPU that a choice names is not the training's: the same frame takes a GPU whatever the flag says.

    An arm of an `if` whose other arms take a GPU, a second variable (`cache = "cuda" if keep else "cpu"`), one more thing
    that is moved.
    """
    own = script.statement(node)
    names = {written(target) for target in own.targets} if isinstance(own, ast.Assign) else set()
    arms = [one for one in script.around(node) if isinstance(one, ast.If)]
    if any(_assigns(script, frame, arm.body, "gpu") for arm in arms):
        return True
    others = [n for n in script.within(frame) if not script.table.is_inside(n, own)]
    return any(_takes_gpu(script, frame, n, names) and not has_condition(script, n) for n in others)


def _takes_gpu(script: Script, frame: Frame, node: ast.AST, but: set[str]) -> bool:
    """Whether a node takes a GPU without a flag: `device = "cuda"`, for a name not in `but`, or `model.cuda()`."""
    if not isinstance(node, ast.Assign):
        return _is_move_to_gpu(script, frame, node)
    names = set(map(written, node.targets))
    return "device" in " ".join(names).lower() and not but & names and is_gpu(script, frame, node.value)


def _when_cpu(script: Script, frame: Frame, test: ast.expr) -> str:
    """What a test for the CPU asks beside whether there is a GPU: `args.cpu or not torch.cuda.is_available()`."""
    if not asks_availability(test):
        return flag_of(script, frame, test)
    if not isinstance(test, ast.BoolOp) or not isinstance(test.op, ast.Or):
        return ""
    return " or ".join(script.source(value) for value in test.values if not asks_availability(value))


def _by_overwriting(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`if args.cpu: device = "cpu"` below a definition that takes a GPU."""
    if not isinstance(node, ast.If) or node.orelse or script.table.is_whole_else(node):
        return None
    for statement in node.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name | ast.Attribute):
            continue
        value = statement.value
        is_cpu = side_of(script, value) == "cpu" and not is_gpu(script, frame, value)
        before = [v for v in script.values(frame, written(target)) if place_of(v) < place_of(node)]
        if is_cpu and any(is_gpu(script, frame, one) for one in before):
            flag = _when_cpu(script, frame, node.test)
            return (flag, before[0]) if flag else None
    return None


def _by_branches(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`if use_cuda: device = torch.device("cuda") elif use_mps: ... else: device = torch.device("cpu")`"""
    if not isinstance(node, ast.If) or script.table.is_whole_else(node):
        return None
    if _assigns(script, frame, node.body, "cpu") and _assigns(script, frame, node.orelse, "gpu"):
        flag = _when_cpu(script, frame, node.test)
        return (flag, node) if flag else None
    tests: list[ast.expr] = []
    arm: ast.If | None = node
    last: list[ast.stmt] = []
    while arm is not None:
        if not _assigns(script, frame, arm.body, "gpu"):
            return None
        tests.append(arm.test)
        last = arm.orelse
        inner = last[0] if len(last) == 1 and not _is_left_to_cpu(script, last) else None
        arm = inner if isinstance(inner, ast.If) else None
    if not _assigns(script, frame, last, "cpu") and not _is_left_to_cpu(script, last):
        return None
    flags = [flag_of(script, frame, test) for test in tests]
    if not any(flags):
        return None
    return _none_of(script, tests, flags), node


def _is_left_to_cpu(script: Script, body: list[ast.stmt]) -> bool:
    """Whether a suite that asks for no CUDA chooses the CPU, unless a test of the machine alone finds something else there."""
    inner = next((one for one in body if isinstance(one, ast.If)), None)
    if inner is None or not isinstance(inner.test, ast.Call) or not asks_availability(inner.test):
        return False
    values = [one.value for s in (inner.body, inner.orelse) for one in s if isinstance(one, ast.Assign)]
    sides = [
        one.orelse if isinstance(one, ast.IfExp) and asks_availability(one.test) else one for one in values
    ]
    return bool(inner.orelse) and [side_of(script, one) for one in sides] == ["cpu", "cpu"]


def _by_default(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`device = torch.device("cpu")`, and below it `if use_cuda: device = torch.device("cuda")`"""
    default = default_of(script, node) if isinstance(node, ast.If) else None
    flag = flag_of(script, frame, node.test) if default is not None and isinstance(node, ast.If) else ""
    return (negated(flag), default) if flag and default is not None else None


def _by_argument(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`torch.device(args.device)`"""
    if not isinstance(node, ast.Call) or script.dotted(node.func) != "torch.device" or len(node.args) != 1:
        return None
    given = node.args[0]
    if (
        isinstance(given, ast.IfExp)
        and asks_availability(given.test)
        and side_of(script, given.orelse) == "cpu"
    ):
        given = given.body
    if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name):
        return f'str({written(given)}) == "cpu"', node
    return None


def _by_moves(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`if args.cuda: model.cuda()`, `if args.cpu: ... else: model.cuda()`, `x.cuda() if cuda else x`"""
    if not isinstance(node, ast.If | ast.IfExp) or not is_about_gpu(script, frame, node.test):
        return None
    frames = script.reached_frames if isinstance(node, ast.IfExp) else ()
    if any(
        _takes_gpu(script, one, n, set()) and not has_condition(script, n)
        for one in frames
        for n in script.within(one)
    ):
        return None  # it is the model's place that counts, not that of one batch
    body, orelse = ([*one] if isinstance(one, list) else [one] for one in (node.body, node.orelse))
    # `if args.gpus > 1: net = DataParallel(net) else: net.cuda()` chooses no CPU.
    is_else = "cpu" in ast.unparse(node.test).lower() and not any(isinstance(s, ast.If) for s in orelse[:1])
    is_below = is_else and _moves_to_gpu(script, frame, orelse)
    moved, other = (orelse, body) if is_below else (body, orelse)
    if not _moves_to_gpu(script, frame, moved) or any(is_method(n, "cuda", "to") for n in walk_all(other)):
        return None
    same = (one for one in script.table.each(ast.IfExp) if written(one.test) == written(node.test))
    if _is_decided_elsewhere(script, frame, node) or any(keeps_data(script, one) for one in same):
        return None
    flag = "" if _moves_anyway(script, node.test) else flag_of(script, frame, node.test)
    return (flag if is_below else negated(flag), node) if flag else None


def _moves_anyway(script: Script, test: ast.expr) -> bool:
    """`if args.gpu is not None: x = x.cuda(args.gpu)` beside `model.cuda(args.gpu)`, where None is the first GPU."""
    number = written(test.left) if isinstance(test, ast.Compare) else ""
    to_it = script.calls_that(lambda c: is_method(c, "cuda") and c.args and written(c.args[0]) == number)
    return bool(number) and any(
        not any(
            isinstance(one, ast.If) and number in map(written, walk(one.test)) for one in script.around(call)
        )
        for call in to_it
    )


def _moves_to_gpu(script: Script, frame: Frame, body: Sequence[ast.stmt | ast.expr]) -> bool:
    """Whether a suite calls `.cuda()` of something, or `.to("cuda")`, that is used again."""
    kept = [statement for statement in body if not _is_thrown_away(script, statement)]
    named = [s for s in body if isinstance(s, ast.Assign) and is_gpu(script, frame, s.value)]
    gpus = {written(one.targets[0]) for one in named}  # `device = torch.device("cuda"); model.to(device)`
    return any(
        _is_move_to_gpu(script, frame, n) or (is_method(n, "to") and any(written(x) in gpus for x in n.args))
        for n in walk_all(kept)
    )


def _is_thrown_away(script: Script, statement: ast.stmt | ast.expr) -> bool:
    """`buffer = torch.empty(n).cuda()`, which nothing reads: it holds memory until it is deleted."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    of: ast.AST | None = statement.value if isinstance(statement, ast.Assign) else None
    while of is not None and is_method(of, "cuda", "to"):
        of = of.func.value
    if not isinstance(of, ast.Call) or not script.dotted(of.func).startswith("torch."):
        return False  # `net_on_gpu = net.cuda()` moves the module itself
    names = {one.id for one in targets if isinstance(one, ast.Name)}
    if not names or len(names) < len(targets):
        return False
    return not any(isinstance(n.ctx, ast.Load) and n.id in names for n in script.table.each(ast.Name))


def _is_move_to_gpu(script: Script, frame: Frame, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or script.dotted(node.func).startswith("torch."):
        return False
    return is_method(node, "cuda") or (
        is_method(node, "to") and any(is_gpu(script, frame, given) for given in node.args)
    )


def _by_executed(script: Script) -> Choice | None:
    """`device = "cuda"`, which a configuration that is executed may set: known behind the `exec`."""
    body = script.entry.body
    defined = (*FUNCTIONS, ast.ClassDef)
    runs = [n for n, s in enumerate(body[:-1]) if not isinstance(s, defined) and _executes(s)]
    for node in body[: runs[0]] if runs else ():
        if isinstance(node, ast.Assign) and is_gpu(script, script.entry, node.value):
            target = node.targets[0]
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant | ast.IfExp):
                used = [n for n, s in enumerate(body) if n > runs[0] and target.id in names_in(s)]
                last = max(n for n in runs if n == runs[0] or not used or n < used[0])
                name, before = target.id, body[last + 1]
                return Choice(f'{name} == "cpu"', script.entry, before, device=name, option=name)
    return None


def _executes(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Call) and written(n.func) == "exec" for n in walk(statement))


def _assigns(script: Script, frame: Frame, body: list[ast.stmt], kind: str) -> bool:
    """Whether a suite binds a device of a kind; `"cuda" if torch.cuda.is_available() else "cpu"` is a GPU, and
    `"cuda" if args.cuda else "cpu"` neither: its own flag decides."""
    asked = [s.body for s in body if isinstance(s, ast.If) and asks_availability(s.test)]
    if kind == "gpu" and any(_assigns(script, frame, inner, kind) for inner in asked):
        return True
    devices = [s.value for s in body if isinstance(s, ast.Assign) and side_of(script, s.value)]
    if kind == "gpu":
        return any(is_gpu(script, frame, one) for one in devices)
    choices = [one for one in devices if chosen_as_device(script, one) and "cuda" in ast.unparse(one)]
    return any(side_of(script, one) == "cpu" for one in devices if one not in choices)
