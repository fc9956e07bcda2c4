"""A choice of the CPU that is made in a class or a helper, by an option that the function which begins the training knows.

`if self.args.cuda: model.cuda()` in a class that trains: `cpu=not args.cuda`, below the parsing of the options.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from crosstrain_migrate.core.reading.forms import Frame, Replaced, is_function_frame, names_in, root_of
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .first import choose_visible
from .known import Choice, calls_to, own_statement
from .options import Options, of_class, origin
from .sides import asks_availability

_HELD = re.compile(r"str\((?P<device>[\w.]+)\) == ['\"]cpu['\"]")
Finder = Callable[[Script, Frame, ast.AST], tuple[str, ast.AST] | None]


def chosen_elsewhere(script: Script, frames: list[Frame], finders: Sequence[Finder]) -> Choice | None:
    """The choice, made where the options are known; one without code where that is not clear.

    frames: the function that begins the training, and what runs once on the way to it.
    """
    first: ast.AST | None = None
    others = [frame for frame in script.reached_frames if frame not in frames]
    for finder in finders:
        for frame in others:
            for node in script.within(frame):
                if (found := finder(script, frame, node)) is None:
                    continue
                owner, code = _as_given(script, frame, _as_overwritten(script, *found))
                asked = _options_asked(script, owner, code)
                for home in _by_last_change(script, frames, asked) if asked else ():
                    if (choice := _known_in(script, home, code, asked, frame)) is not None:
                        choice = _with_own_number(script, choice, found[1])
                        choice = _with_early_device(script, choice, frame, found[1])
                        return _behind_visible(script, choice, frame)
                is_said = isinstance(found[1], ast.Call)  # where the call is replaced
                first = first or (found[1] if asked and not is_said else None)
    return Choice("", frames[0], script.statement(first)) if first is not None else None


def _as_overwritten(script: Script, code: str, node: ast.AST) -> str:
    """The test below its own statement, which may put the device into the option that it asks:
    `opt.device = torch.device("cuda" if opt.device >= 0 else "cpu")`."""
    asked = {written(one) for one in walk(ast.parse(code)) if isinstance(one, ast.Attribute)}
    statement = script.statement(node)
    targets = map(written, statement.targets) if isinstance(statement, ast.Assign) else ()
    return next((f'str({target}) == "cpu"' for target in targets if target in asked), code)


def _with_own_number(script: Script, choice: Choice, chosen: ast.AST) -> Choice:
    """The choice where the options hold the device: the accelerator is given it; and that of the first GPU for all: each
    process puts its own there."""
    held = _HELD.fullmatch(choice.code)
    if held is not None and isinstance(chosen, ast.Call):  # `torch.device(config.device)`
        return replace(choice, code=f'str({held["device"]}) == "cpu"', device=held["device"])
    if held is None or "cuda:" not in ast.unparse(chosen):
        return choice
    made = script.parent(chosen)
    is_made = isinstance(made, ast.Call) and script.dotted(made.func) == "torch.device"
    own = held["device"]
    code = f'str({own}) == "cpu"'
    return replace(choice, code=code, device=own, option=own, as_text=not is_made)


def _with_early_device(script: Script, choice: Choice, frame: Frame, chosen: ast.AST) -> Choice:
    """The choice, behind which the options have the accelerator's device: a function that runs above it has put another one
    there, `opt.device = torch.device("cuda:0" if opt.gpu else "cpu")`."""
    bound = next((n for n in walk(script.statement(chosen)) if isinstance(n, ast.Assign)), None)
    target = bound.targets[0] if bound is not None else None
    calls = script.callers(frame) if is_function_frame(frame) else []
    above = [c for c in calls if script.frame(c) is choice.frame and place_of(c) < place_of(choice.before)]
    if bound is None or not isinstance(target, ast.Attribute) or choice.option or not above:
        return choice
    own = _name_given(script, frame, target.value)
    is_made = isinstance(bound.value, ast.Call) and script.dotted(bound.value.func) == "torch.device"
    is_known = own in names_in(ast.parse(choice.code))
    return replace(choice, option=f"{own}.{target.attr}", as_text=not is_made) if is_known else choice


def _behind_visible(script: Script, choice: Choice, frame: Frame) -> Choice:
    """The choice, behind `device = select(args.device)` where that also says which GPUs there are: CUDA must not have looked
    before. The function stays, and the variable is the accelerator's from then on."""
    if not is_function_frame(frame) or not choose_visible(script, script.within(frame)):
        return choice
    call = next((c for c in script.direct_callers(frame) if script.frame(c) is choice.frame), None)
    bound = script.statement(call) if call is not None else None
    made = [script.dotted(one.func) if isinstance(one, ast.Call) else "" for one in script.returned(frame)]
    if not isinstance(bound, ast.Assign) or bound.value is not call or {*made} != {"torch.device"}:
        return choice
    below = behind(script, choice.frame, bound)
    if below is None or script.loops_around(bound):
        return choice
    return replace(choice, before=below, option=written(bound.targets[0]), as_text=False)


def _as_given(script: Script, frame: Frame, code: str, depth: int = 3) -> tuple[Frame, str]:
    """A test of a function's parameter in the words of its calls, all of which give the same, and of those around them:
    `use_cuda`, which is given `args.use_cuda`."""
    frame, code = _as_bound(script, frame, _as_made(script, frame, code))
    asked = ast.parse(code, mode="eval").body
    calls = script.callers(frame) if is_function_frame(frame) else []
    # But for `move(noise, x.is_cuda)`, which follows another tensor.
    calls = [c for c in calls if script.is_reached(c) and "is_cuda" not in map(last_name, c.args)]
    if not calls or not is_function_frame(frame):
        return frame, code
    passed_on = False
    for name in names_in(asked) & set(script.parameters(frame)):
        told = [script.argument_for(call, frame, name) for call in calls]
        given, is_one = told[0], len({one and ast.unparse(one) for one in told}) == 1
        is_attribute = isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name)
        is_name = isinstance(given, ast.Name) and depth > 0 and len({*map(script.frame, calls)}) == 1
        if given is None or not is_one or not (is_attribute or is_name) or script.stores(frame, name):
            return frame, code
        passed_on = passed_on or is_name or written(given).startswith("self.")
        asked = Replaced({name: given}).visit(asked)
    caller, code = script.frame(calls[0]), ast.unparse(asked)
    return _as_given(script, caller, code, depth - 1) if passed_on else (caller, code)


def _as_made(script: Script, frame: Frame, code: str) -> str:
    """A test of a function's own variable in the words of what it is made of: `wants_cpu`, which is `device == "cpu"`."""
    asked = ast.parse(code, mode="eval").body
    for name in names_in(asked) if is_function_frame(frame) else ():
        values = script.values(frame, name)
        if len(values) == len(script.stores(frame, name)) == 1 and isinstance(values[0], ast.Compare):
            asked = Replaced({name: values[0]}).visit(asked)
            code = ast.unparse(asked)
    return code


def _as_bound(script: Script, frame: Frame, code: str) -> tuple[Frame, str]:
    """A test of an object's own flag in the words of what it is bound to: `self.use_cuda`, which is `args.use_cuda`."""
    asked = ast.parse(code, mode="eval").body
    owners, values = set[Frame](), dict[str, ast.expr]()
    for node in walk(asked):
        if isinstance(node, ast.Attribute) and written(node.value) == "self":
            bound = [_in_dictionary(script, *one) for one in of_class(script, frame, written(node))]
            bound = [(owner, _asked_beside_gpu(value)) for owner, value in bound]
            if len(bound) != 1 or not isinstance(bound[0][1], ast.Attribute):
                return frame, code
            owners.add(bound[0][0])
            values[written(node)] = bound[0][1]
    if len(owners) != 1:
        return frame, code
    return owners.pop(), ast.unparse(Replaced(values).visit(asked))


def _asked_beside_gpu(value: ast.expr) -> ast.expr:
    """`args.cuda` of `args.cuda and torch.cuda.is_available()`"""
    parts = value.values if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) else [value]
    asked = [one for one in parts if not asks_availability(one)]
    return asked[0] if len(asked) == 1 else value


def _in_dictionary(script: Script, frame: Frame, value: ast.expr) -> tuple[Frame, ast.expr]:
    """What an entry of a parameter is in the dictionary that the only call gives: `args.cuda` for `params["use_cuda"]`."""
    calls = script.callers(frame) if is_function_frame(frame) else []
    if len(calls) != 1 or not is_function_frame(frame) or not isinstance(value, ast.Subscript):
        return frame, value
    given = script.argument_for(calls[0], frame, written(value.value))
    caller = script.frame(calls[0])
    made = script.values(caller, written(given)) if given is not None else []
    if len(made) != 1 or not isinstance(made[0], ast.Dict):
        return frame, value
    entries = zip(made[0].keys, made[0].values, strict=True)
    named = [
        entry for key, entry in entries if key is not None and ast.unparse(key) == ast.unparse(value.slice)
    ]
    return (caller, named[0]) if len(named) == 1 else (frame, value)


def is_given_cpu(script: Script, frames: list[Frame], finders: Sequence[Finder]) -> bool:
    """Whether a function or class that chooses takes the CPU by a constant of all its calls: `Net(use_cuda=False)`."""
    return any(
        is_function_frame(frame) and found is not None and _all_give(script, frame, found[0])
        for frame in script.reached_frames
        if frame not in frames
        for finder in finders
        for node in script.within(frame)
        for found in (finder(script, frame, node),)
    )


def _all_give(script: Script, function: Function, code: str) -> bool:
    name = code.removeprefix("not ")
    calls = script.callers(function) if name in script.parameters(function) else []
    if not calls or script.stores(function, name):
        return False
    given = [script.argument_for(call, function, name) for call in calls]
    asks = name == code
    return all(isinstance(one, ast.Constant) and bool(one.value) is asks for one in given)


def _by_last_change(script: Script, frames: list[Frame], asked: dict[str, str]) -> list[Frame]:
    """The frames, those first which change the options behind what made them: `opt.parse(kwargs)`."""
    return sorted(frames, key=lambda one: not any(_changes(script, one, *pair) for pair in asked.items()))


def _changes(script: Script, frame: Frame, text: str, name: str) -> bool:
    own = f"{name}.{text.rpartition('.')[2]}"
    return bool(script.stores(frame, own) or _calls_on(script, frame, name))


def _options_asked(script: Script, frame: Frame, code: str) -> dict[str, str]:
    """What a test asks of an object of options, as it stands there: `self.args.cuda`, with the name of that object."""
    found: dict[str, str] = {}
    nodes = list(walk(ast.parse(code, mode="eval").body))
    called = {node.func for node in nodes if isinstance(node, ast.Call)}  # `args.device.lower()`
    for node in nodes:
        if isinstance(node, ast.Attribute) and node not in called and not isinstance(node.value, ast.Call):
            found[written(node)] = _name_given(script, frame, node.value)
    inner = {text for text in found for other in found if other.startswith(f"{text}.")}
    return {text: name for text, name in found.items() if text not in inner and name}


def _name_given(script: Script, frame: Frame, of: ast.expr) -> str:
    """The name of an object where it comes from: `args`, for a parameter `opt` that is given `args`."""
    if isinstance(of, ast.Name) and is_function_frame(frame) and of.id in script.parameters(frame):
        names = {one.id for one, _ in script.given_for(frame, of.id) if isinstance(one, ast.Name)}
        return names.pop() if len(names) == 1 else of.id
    owner, name = origin(script, frame, written(of))  # `self.p`, which is `params`, which is given `args`
    is_own = script.class_of(owner) is not None or owner is frame  # a parameter that several calls give
    is_known = name.isidentifier() and not (is_own and name in script.parameters(owner))
    return name if is_known else "" if last_name(of) == "self" else last_name(of)


def _known_in(script: Script, home: Frame, code: str, asked: dict[str, str], chooser: Frame) -> Choice | None:
    """The choice in a function that knows the options, above the first call there that leads to what chooses: behind it they may
    be others."""
    options = Options(script)
    ends = sorted(place_of(call) for call in calls_to(script, chooser) if script.frame(call) is home)[:1]
    places: list[ast.AST] = []
    for text, name in asked.items():
        attribute = text.rpartition(".")[2]
        own = f"{name}.{attribute}"
        stores = [*script.stores(home, own), *_set_by_name(script, home, name, attribute)]
        if not stores and attribute not in options.by_name and not _is_of_class(script, attribute):
            return None
        imports = [one for one in home.body if isinstance(one, ast.Import | ast.ImportFrom)]
        is_imported = any(name == (a.asname or a.name) for one in imports for a in one.names)
        made = [*script.stores(home, name), *_calls_on(script, home, name), *(imports if is_imported else ())]
        is_late = options.are_parsed_late(attribute)
        if (is_late and home is script.entry) or not (is_late or made or name in script.parameters(home)):
            return None
        found = [*stores, *made]
        places += [one for one in found if not ends or place_of(one) < ends[0]] or found
        code = code.replace(text, own)
    known = {written(n) for n in walk(ast.parse(code, mode="eval").body) if isinstance(n, ast.Name)}
    if not known <= {*asked.values(), "str"}:
        return None
    # Of a function that is given the options.
    before = behind(script, home, max(places, key=place_of)) if places else script.first_statement(home)
    return Choice(code, home, before) if before is not None else None


def _set_by_name(script: Script, home: Frame, name: str, attribute: str) -> list[ast.Call]:
    """`setattr(args, "gpu", not args.cpu)`"""
    calls = [c for c in script.calls_in(home) if written(c.func) == "setattr" and len(c.args) == 3]
    return [c for c in calls if [written(one).strip("'") for one in c.args[:2]] == [name, attribute]]


def _is_of_class(script: Script, attribute: str) -> bool:
    """Whether a class of the project has an attribute of this name: one of options."""
    return any(
        (isinstance(one, ast.Assign) and attribute in map(written, one.targets))
        or (isinstance(one, ast.AnnAssign) and written(one.target) == attribute)
        for cls in script.table.each(ast.ClassDef)
        for one in cls.body
    )


def _calls_on(script: Script, home: Frame, name: str) -> list[ast.AST]:
    """The calls that change an object: `opt.parse(kwargs)`."""
    calls = [c for c in script.calls_in(home) if is_statement_call(script, c)]
    return [c for c in calls if isinstance(c.func, ast.Attribute) and root_of(c.func) == name]


def behind(script: Script, home: Frame, node: ast.AST) -> ast.stmt | None:
    """The next statement of a frame's own block, or of its `if __name__ == "__main__":`."""
    statement = own_statement(script, home, node, [node])
    suite = script.suite_of(statement)
    behind = suite[suite.index(statement) + 1 :]
    return behind[0] if behind else None
