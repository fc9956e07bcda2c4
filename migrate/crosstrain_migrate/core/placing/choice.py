"""The script's own choice of its device: flags keep their meaning.

`Accelerator(cpu=...)` is true where the author's own expression gives the CPU although an accelerator is there. What only
asks whether there is one (`torch.cuda.is_available()`) is the accelerator's own question and needs nothing.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Frame, Script, is_function_frame, is_method, names_in
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Choice
from .elsewhere import chosen_elsewhere
from .first import needs_accelerator
from .options import Option, Options

_GPU = re.compile(r"(cuda|mps|xpu)(:\d+)?")
_ABOUT_GPU = re.compile(r"cuda|gpu|mps|accel", re.I)


def device_choice(script: Script, roles: Roles, home: Frame) -> Choice | None:
    """How the script's own file chooses between the CPU and a GPU in the function that begins its training, where a flag
    has a say in it."""
    frames = frames_to_training(script, roles, home)
    for finder in (_by_expression, _by_branches, _by_default, _by_argument, _by_moves):
        for frame in frames:
            for node in script.within(frame):
                if script.is_entry(node) and (found := finder(script, frame, node)):
                    code, at = found
                    # A device's definition is where a reader looks for the accelerator; a move may come late.
                    return _placed(script, frame, code, at, at_head=finder is _by_moves)
    finders = (_by_expression, _by_branches, _by_default, _by_moves)
    return _by_option(script, frames) or _by_executed(script) or chosen_elsewhere(script, frames, finders)


def lifted(script: Script, choice: Choice) -> Choice | None:
    """The same choice in the function that calls that of the choice, in the words of its call; None where it has none."""
    function = choice.frame
    calls = script.direct_callers(function) if is_function_frame(function) else []
    if len(calls) != 1 or not is_function_frame(function) or not script.is_entry(calls[0]) or choice.option:
        return None
    call, caller = calls[0], script.frame(calls[0])
    asked = ast.parse(choice.code, mode="eval").body
    for name in names_in(asked):
        if name in script.parameters(function):
            given = script.argument_for(call, function, name)
            if not isinstance(given, ast.Name | ast.Attribute):
                return None
            asked = _Renamed(name, given).visit(asked)
        elif script.binds(function, name):
            return None
    choice = _placed(script, caller, ast.unparse(asked), call, at_head=False)
    return _earliest(script, choice) if choice.code else None


class _Renamed(ast.NodeTransformer):
    """An expression with one variable written otherwise."""

    def __init__(self, name: str, by: ast.expr) -> None:
        self.name, self.by = name, by

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.by if node.id == self.name else node


def _earliest(script: Script, choice: Choice) -> Choice:
    """A choice above the first statement of its suite at which what it asks is known."""
    asked = ast.parse(choice.code, mode="eval").body
    texts = names_in(asked) | {written(n) for n in walk(asked) if isinstance(n, ast.Attribute)}
    known = max((place_of(s) for text in texts for s in script.stores(choice.frame, text)), default=(0, 0))
    behind = [s for s in script.suite_of(choice.before) if place_of(s) > known]
    return replace(choice, before=behind[0]) if behind else choice


def frames_to_training(script: Script, roles: Roles, home: Frame) -> list[Frame]:
    """The function that begins the training, and what runs once on the way from the script's own file to it."""
    return [home, *(f for f in _on_the_way(script, roles) if f is not home)]


def _on_the_way(script: Script, roles: Roles) -> list[Frame]:
    """The script's own file and those of its functions that are called once, on the way to the training."""
    found: list[Frame] = [script.entry]
    work: list[Frame] = list(roles.frames)
    seen = set(work)
    while work:
        frame = work.pop()
        calls = script.callers(frame) if is_function_frame(frame) else []
        once = len(calls) == 1 and script.class_of(frame) is None and not script.loops_around(calls[0])
        if once and script.is_entry(frame):
            found.append(frame)
        for call in calls:
            caller = script.frame(call)
            if caller not in seen:
                seen.add(caller)
                work.append(caller)
    return found


def _by_expression(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`"cuda" if use_cuda else "cpu"`"""
    if not isinstance(node, ast.IfExp):
        return None
    gpu, cpu = side_of(script, node.body), side_of(script, node.orelse)
    if (gpu, cpu) == ("gpu", "cpu"):
        flag = flag_of(script, frame, node.test)
        return (_negated(flag), node) if flag else None
    if (gpu, cpu) == ("cpu", "gpu"):
        flag = flag_of(script, frame, node.test)
        return (flag, node) if flag and not _asks_availability(node.test) else _or_none_there(script, node)
    return None


def _or_none_there(script: Script, node: ast.IfExp) -> tuple[str, ast.AST] | None:
    """`"cpu" if args.cpu or not torch.cuda.is_available() else "cuda"`"""
    if not isinstance(node.test, ast.BoolOp) or not isinstance(node.test.op, ast.Or):
        return None
    flags = [script.source(value) for value in node.test.values if not _asks_availability(value)]
    return (" or ".join(flags), node) if flags else None


def _by_branches(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`if use_cuda: device = torch.device("cuda") elif use_mps: ... else: device = torch.device("cpu")`"""
    if not isinstance(node, ast.If) or script.table.is_whole_else(node):
        return None
    tests: list[ast.expr] = []
    arm: ast.If | None = node
    last: list[ast.stmt] = []
    while arm is not None:
        if not _assigns(script, arm.body, "gpu"):
            return None
        tests.append(arm.test)
        last = arm.orelse
        arm = last[0] if len(last) == 1 and isinstance(last[0], ast.If) else None
    if not _assigns(script, last, "cpu"):
        return None
    flags = [flag_of(script, frame, test) for test in tests]
    if not any(flags):
        return None
    if len(tests) == 1:
        return _negated(flags[0]), node
    return f"not ({' or '.join(script.source(test) for test in tests)})", node


def _by_default(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`device = torch.device("cpu")`, and below it `if use_cuda: device = torch.device("cuda")`"""
    default = _default_of(script, node) if isinstance(node, ast.If) else None
    flag = flag_of(script, frame, node.test) if default is not None and isinstance(node, ast.If) else ""
    return (_negated(flag), default) if flag and default is not None else None


def _default_of(script: Script, node: ast.If) -> ast.expr | None:
    """The CPU that a variable holds above an `if` without an `else` that binds a GPU to it; None where it is none such."""
    bound = {
        written(s.targets[0])
        for s in node.body
        if isinstance(s, ast.Assign) and side_of(script, s.value) == "gpu"
    }
    if node.orelse or len(bound) != 1 or script.table.is_whole_else(node):
        return None
    suite = script.suite_of(node)
    above = [
        s for s in suite[: suite.index(node)] if isinstance(s, ast.Assign) and written(s.targets[0]) in bound
    ]
    return above[-1].value if above and side_of(script, above[-1].value) == "cpu" else None


def _by_argument(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`torch.device(args.device)`"""
    if not isinstance(node, ast.Call) or script.dotted(node.func) != "torch.device" or len(node.args) != 1:
        return None
    given = node.args[0]
    if (
        isinstance(given, ast.IfExp)
        and _asks_availability(given.test)
        and side_of(script, given.orelse) == "cpu"
    ):
        given = given.body
    if isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name):
        return f'str({written(given)}) == "cpu"', node
    return None


def _by_moves(script: Script, frame: Frame, node: ast.AST) -> tuple[str, ast.AST] | None:
    """`if args.cuda: model.cuda()`"""
    if not isinstance(node, ast.If) or not _is_about_gpu(script, frame, node.test):
        return None
    if not _moves_to_gpu(script, node.body) or _moves_to_gpu(script, node.orelse):
        return None
    flag = flag_of(script, frame, node.test)
    return (_negated(flag), node) if flag else None


def _is_about_gpu(script: Script, frame: Frame, test: ast.expr) -> bool:
    """Whether a test names a GPU, or reads a variable that holds whether there is one."""
    values = [value for name in names_in(test) for value in script.values(frame, name)]
    return _ABOUT_GPU.search(ast.unparse(test)) is not None or any(map(_asks_availability, values))


def _moves_to_gpu(script: Script, body: list[ast.stmt]) -> bool:
    """Whether a suite calls `.cuda()` of something, or `.to("cuda")`."""
    calls = [n for statement in body for n in walk(statement) if isinstance(n, ast.Call)]
    return any(
        (is_method(call, "cuda") and not script.dotted(call.func).startswith("torch."))
        or (is_method(call, "to") and any(side_of(script, one) == "gpu" for one in call.args))
        for call in calls
    )


def _by_option(script: Script, frames: list[Frame]) -> Choice | None:
    """`model.to(args.device)`, where `--device` is the name of one: known where the options are."""
    options = Options(script)
    for frame in frames:
        for node in script.within(frame):
            if not is_method(node, "to") or not node.args or not script.is_entry(node):
                continue
            given = node.args[0]
            if not isinstance(given, ast.Attribute) or not isinstance(given.value, ast.Name):
                continue
            option = options.read_by(given)
            if option is None or not _is_device(script, option):
                continue
            if (statement := _behind(script, frame, given.value.id)) is not None:
                return Choice(f'{written(given)} == "cpu"', frame, statement, option=written(given))
    return None


def _is_device(script: Script, option: Option) -> bool:
    """Whether the values of an option are names of devices."""
    choices = option.keyword("choices")
    named = list(choices.elts) if isinstance(choices, ast.List | ast.Tuple) else []
    default = [option.default] if option.default is not None else []
    sides = [side_of(script, one.body if isinstance(one, ast.IfExp) else one) for one in (*default, *named)]
    return bool(sides) and all(sides)


def _behind(script: Script, frame: Frame, name: str) -> ast.stmt | None:
    """The statement behind the last one that binds a variable of a frame; its first one for a parameter."""
    stores = script.stores(frame, name)
    if not stores:
        return script.first_statement(frame) if name in script.parameters(frame) else None
    last = script.statement(max(stores, key=place_of))
    suite = script.suite_of(last)
    behind = suite[suite.index(last) + 1 :]
    return behind[0] if behind and not script.loops_around(last) else None


def _by_executed(script: Script) -> Choice | None:
    """`device = "cuda"`, which a configuration that is executed may set: known behind the `exec`."""
    body = script.entry.body
    runs = [n for n, s in enumerate(body[:-1]) if isinstance(s, ast.Expr) and _executes(s.value)]
    for node in body[: runs[0]] if runs else ():
        if isinstance(node, ast.Assign) and side_of(script, node.value) == "gpu":
            target = node.targets[0]
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
                return Choice(f'{target.id} == "cpu"', script.entry, body[runs[0] + 1])
    return None


def _executes(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "exec"


def arms_of(script: Script, node: ast.If) -> list[ast.expr]:
    """The devices that the arms of an `if` bind, where all but the last are GPUs and the last is the CPU, which may also be
    bound above it."""
    if (default := _default_of(script, node)) is not None:
        return [default, *_device_in(script, node.body, "gpu")]
    found: list[ast.expr] = []
    arm: ast.If | None = node
    while arm is not None:
        found += _device_in(script, arm.body, "gpu")
        more = arm.orelse[0] if len(arm.orelse) == 1 else None
        if not isinstance(more, ast.If):
            last = _device_in(script, arm.orelse, "cpu")
            return [*found, *last] if last else []
        arm = more
    return []


def _device_in(script: Script, body: list[ast.stmt], kind: str) -> list[ast.expr]:
    return [s.value for s in body if isinstance(s, ast.Assign) and side_of(script, s.value) == kind]


def flag_of(script: Script, frame: Frame, test: ast.expr, depth: int = 0) -> str:
    """What a test asks beside whether an accelerator is there; empty where it asks nothing else."""
    if _asks_availability(test) and isinstance(test, ast.Call):
        return ""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        found = [flag for value in test.values if (flag := flag_of(script, frame, value, depth))]
        return " and ".join(found)
    if isinstance(test, ast.BoolOp) and all(
        not flag_of(script, frame, value, depth) for value in test.values
    ):
        return ""
    if isinstance(test, ast.Compare) and "device_count" in ast.unparse(test):
        return ""
    if asks_place(test) or any(_is_decided_before(script, frame, name) for name in names_in(test)):
        return ""
    if isinstance(test, ast.Constant):
        return "" if test.value else "False"
    if isinstance(test, ast.IfExp) and _is_truth(test.body, True) and _is_truth(test.orelse, False):
        return flag_of(script, frame, test.test, depth)
    if isinstance(test, ast.Name | ast.Attribute) and depth < 4:
        values = script.values(frame, written(test)) or script.values(script.module(test), written(test))
        if len(values) == 1 and not _is_deleted(script, frame, values[0]):
            inner = flag_of(script, frame, values[0], depth + 1)
            if not inner or _asks_availability(values[0]):
                return inner
    return script.source(test)


def _is_decided_before(script: Script, frame: Frame, name: str) -> bool:
    """Whether a variable is a device's name that the script has chosen itself: the choice is made there."""
    values = script.values(frame, name)
    sides = {side_of(script, value) for value in values}
    return {"gpu", "cpu"} <= sides or any(
        side_of(script, value) == "gpu" for value in values if not isinstance(value, ast.Constant | ast.IfExp)
    )


def _is_deleted(script: Script, frame: Frame, value: ast.expr) -> bool:
    """Whether what a flag was made of is deleted later: `del args.no_cuda`."""
    parts = {written(n) for n in walk(value) if isinstance(n, ast.Attribute)}
    return any(
        isinstance(node, ast.Delete) and any(written(target) in parts for target in node.targets)
        for node in script.within(frame)
    )


def _asks_availability(test: ast.expr) -> bool:
    return any(is_method(n, "is_available", "device_count", "is_built") for n in walk(test))


def asks_place(test: ast.expr) -> bool:
    """Whether a test asks where something is already: `images.is_cuda`, `images.device.type == "cuda"`."""
    return any(
        is_method(n, "get_device")
        or (isinstance(n, ast.Attribute) and (n.attr == "is_cuda" or written(n).endswith(".device.type")))
        for n in walk(test)
    )


def _is_truth(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _negated(flag: str) -> str:
    if flag.startswith("not ") and " and " not in flag and " or " not in flag:
        return flag.removeprefix("not ")
    return f"not {flag}" if re.fullmatch(r"[\w.]+", flag) else f"not ({flag})"


def side_of(script: Script, node: ast.expr) -> str:
    """ "gpu" or "cpu", where an expression is a device of that kind."""
    if isinstance(node, ast.Call) and script.dotted(node.func) == "torch.device" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call) and script.dotted(node.func) == "torch.accelerator.current_accelerator":
        return "gpu"
    if isinstance(node, ast.JoinedStr):
        return "gpu" if ast.unparse(node).startswith(("f'cuda", 'f"cuda')) else ""
    if isinstance(node, ast.BinOp):
        node = node.left  # "cuda:%d" % gpu, "cuda:" + gpu
    if is_method(node, "format"):
        node = node.func.value  # "cuda:{}".format(gpu)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return "cpu" if node.value == "cpu" else "gpu" if _GPU.match(node.value) else ""
    if isinstance(node, ast.IfExp):
        return side_of(script, node.orelse)
    return ""


def _assigns(script: Script, body: list[ast.stmt], kind: str) -> bool:
    """Whether a suite binds a device of a kind."""
    return bool(_device_in(script, body, kind))


def _placed(script: Script, frame: Frame, code: str, at: ast.AST, *, at_head: bool) -> Choice:
    """Above the statement of the frame's own block in which the choice is made, or above an earlier one that draws what
    all processes share, downloads or makes folders, where what the choice asks is known there.

    at_head: at the head of the function, where what the choice asks is known there.
    """
    statement: ast.stmt = script.statement(at)
    top: list[ast.stmt] = frame.body
    while statement not in top:
        above = script.parent(statement)
        if (
            above is None
            or isinstance(above, ast.Module)
            or (isinstance(above, ast.If) and is_main_test(above))
        ):
            break
        statement = above if isinstance(above, ast.stmt) else script.statement(above)
    asked = ast.parse(code, mode="eval").body
    texts = names_in(asked) | {written(n) for n in walk(asked) if isinstance(n, ast.Attribute)}
    stores = [s for text in texts for s in script.stores(frame, text)]
    later = [s for s in stores if place_of(s) >= place_of(statement)]
    if later:
        code = ""
    elif at_head and not stores and is_function_frame(frame):
        statement = script.first_statement(frame)
    else:
        suite = script.suite_of(statement)
        needing = next((s for s in suite[: suite.index(statement)] if needs_accelerator(script, s)), None)
        if needing is not None and max(map(place_of, stores), default=(0, 0)) < place_of(needing):
            statement = needing
        elif needing is not None and (sooner := _known_at(script, frame, asked, needing)):
            return Choice(sooner, frame, needing)
        else:
            known = max(map(place_of, stores), default=(0, 0))
            earlier = [s for s in suite[: suite.index(statement)] if place_of(s) > known]
            statement = next((s for s in earlier if needs_accelerator(script, s)), statement)
    return Choice(code, frame, statement)


def _known_at(script: Script, frame: Frame, asked: ast.expr, place: ast.stmt) -> str:
    """A choice in the words of what its flag is made of, `args.no_cuda` for `not args.cuda`, where that is known at a place
    further up; empty where it is not."""
    flag = asked.operand if isinstance(asked, ast.UnaryOp) else asked
    values = script.values(frame, written(flag))
    code = flag_of(script, frame, values[0]) if len(values) == 1 else ""
    parts = list(walk(ast.parse(code)))
    if not code or any(isinstance(n, ast.Call) for n in parts):
        return ""
    made = [n for n in parts if isinstance(n, ast.Name | ast.Attribute)]
    binding = [s for n in made for s in script.stores(frame, written(n)) if not isinstance(s.ctx, ast.Del)]  # type: ignore[attr-defined]
    gone = [s for n in made for s in script.stores(frame, written(n)) if isinstance(s.ctx, ast.Del)]  # type: ignore[attr-defined]
    is_known = all(place_of(s) < place_of(place) for s in binding)
    if not is_known or any(place_of(s) < place_of(place) for s in gone):
        return ""
    return _negated(code) if isinstance(asked, ast.UnaryOp) else code
