"""A device whose choice only the author's own code can tell: it runs, and the accelerator is made below it.

`device = get_device(args)` stays; `accelerator = Accelerator(cpu=str(device) == "cpu")` stands below it, and from then on
`device` is the accelerator's.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.script import Frame, Script, is_function_frame, is_method, root_of
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Choice
from .elsewhere import behind
from .options import Options
from .sides import chosen_as_device, flag_of, is_read_as_text, side_of

_OF_MODULES = ("to", "cuda", "cpu", "train", "eval", "parameters", "size", "backward", "detach")


def asked_device(script: Script, frames: list[Frame], *, options_only: bool) -> Choice | None:
    """The choice of what something is moved to in the frames that run once, where more than the machine has a say in it.

    options_only: only an option that names the device, `args.device`, is asked.
    """
    options = Options(script)
    for frame in frames:
        for node in script.within(frame):
            given = _moved_to(node)
            if given is None or not script.is_entry(node):
                continue
            home, text = _origin(script, frame, given)
            is_option = "." in text and _names_device(script, options, home, text)
            is_variable = "." not in text and not options_only and _is_chosen(script, home, text)
            if (is_option or is_variable) and home in frames and (below := _below(script, home, text)):
                as_text = is_option or is_read_as_text(script, text)
                code = f'{text} == "cpu"' if is_option else f'str({text}) == "cpu"'
                return Choice(code, home, below, option=text, as_text=as_text)
    return None


def is_the_machines(script: Script, frame: Frame, value: ast.expr, depth: int = 0) -> bool:
    """Whether a device is chosen by nothing but what the machine has."""
    if isinstance(value, ast.Call) and script.dotted(value.func) == "torch.device" and len(value.args) == 1:
        value = value.args[0]
    choice = chosen_as_device(script, value)
    if choice is not None:
        arms = (choice.body, choice.orelse)
        return not flag_of(script, frame, choice.test) and all(
            is_the_machines(script, frame, one, depth) for one in arms
        )
    if side_of(script, value):
        return True
    if depth > 3:
        return False
    if isinstance(value, ast.Name):
        return _is_bound_by_machine(script, frame, value.id, depth + 1)
    functions = script.functions(script.last(value.func)) if isinstance(value, ast.Call) else []
    return bool(functions) and all(_returns_the_machines(script, one, depth + 1) for one in functions)


def _is_bound_by_machine(script: Script, frame: Frame, name: str, depth: int = 0) -> bool:
    """Whether every value of a variable is, and every condition around one asks, what the machine has."""
    values = script.values(frame, name)
    return len(values) == len(script.stores(frame, name)) > 0 and all(
        is_the_machines(script, frame, value, depth) and not _has_condition(script, frame, value)
        for value in values
    )


def _has_condition(script: Script, frame: Frame, node: ast.AST) -> bool:
    tests = [one.test for one in script.around(node) if isinstance(one, ast.If) and not is_main_test(one)]
    return any(flag_of(script, frame, test) for test in tests)


def _returns_the_machines(script: Script, function: Frame, depth: int) -> bool:
    returned = [n for n in script.within(function) if isinstance(n, ast.Return)]
    tests = [n.test for n in script.within(function) if isinstance(n, ast.If)]
    return (
        bool(returned)
        and all(n.value is not None and is_the_machines(script, function, n.value, depth) for n in returned)
        and not any(flag_of(script, function, test) for test in tests)
    )


def _moved_to(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """`device` of `x.to(device)`, `args.device` of `x.to(device=args.device)`"""
    if not isinstance(node, ast.Call) or not is_method(node, "to"):
        return None
    for given in (*node.args[:1], *(k.value for k in node.keywords if k.arg == "device")):
        if isinstance(given, ast.Name) or (
            isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name)
        ):
            return given
    return None


def _origin(script: Script, frame: Frame, given: ast.Name | ast.Attribute) -> tuple[Frame, str]:
    """Where a variable or an option is bound: its own function, the only call's, or the script's top level."""
    text = written(given)
    while is_function_frame(frame):
        name = text.partition(".")[0]
        calls = script.direct_callers(frame)
        if name in script.parameters(frame) and not script.stores(frame, name) and len(calls) == 1:
            value = script.argument_for(calls[0], frame, name)
            if not isinstance(value, ast.Name | ast.Attribute):
                break
            frame, text = script.frame(calls[0]), written(value) + text.removeprefix(name)
        elif not script.binds(frame, name) and script.binds(script.entry, name):
            frame = script.entry
        else:
            break
    return frame, text


def _is_chosen(script: Script, home: Frame, name: str) -> bool:
    """Whether a variable is a device, and more than what the machine has says which one."""
    values = script.values(home, name)
    parts = [part for value in values for part in walk(value) if isinstance(part, ast.expr)]
    sides = {side_of(script, part) for part in parts}
    if "device" not in name.lower() and not sides - {""}:
        return False
    return sides == {"cpu"} or not _is_bound_by_machine(script, home, name)


def _names_device(script: Script, options: Options, home: Frame, text: str) -> bool:
    """Whether `args.device` is an option, and its values are names of devices."""
    root, _, name = text.rpartition(".")
    option = options.by_name.get(name)
    if option is None or any(
        is_method(n, *_OF_MODULES) and root_of(n.func) == root for n in script.calls_in(home)
    ):
        return False
    choices = option.keyword("choices")
    named = list(choices.elts) if isinstance(choices, ast.List | ast.Tuple) else []
    default = [option.default] if option.default is not None else []
    sides = [side_of(script, one.body if isinstance(one, ast.IfExp) else one) for one in (*default, *named)]
    return "device" in name.lower() or (bool(sides) and all(sides))


def _below(script: Script, home: Frame, text: str) -> ast.stmt | None:
    """The statement below the last one that binds a variable or an option; the first one for a parameter.

    `if args.device is None: args.device = "cuda" if torch.cuda.is_available() else "cpu"` comes later: by then the option
    has its value.
    """
    root = text.partition(".")[0]
    defaults = [
        value for value in script.values(home, text) if root != text and is_the_machines(script, home, value)
    ]
    later = {script.statement(value) for value in defaults}
    stores = [s for one in {text, root} for s in script.stores(home, one) if script.statement(s) not in later]
    if not stores:
        return script.first_statement(home) if root in script.parameters(home) else None
    last = max(stores, key=place_of)
    return behind(script, home, last) if not script.loops_around(last) else None
