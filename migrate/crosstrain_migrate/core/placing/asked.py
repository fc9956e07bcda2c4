"""A device whose choice only the author's own code can tell: it runs, and the accelerator is made below it.

`device = get_device(args)` stays; `accelerator = Accelerator(device=device)` stands below it, and from then on
`device` is the accelerator's. So is a device that stands among settings, `model.to(config["train"]["device"])`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk_all

from .by_machine import is_bound_by_machine, is_the_machines
from .elsewhere import behind
from .first import choose_visible
from .known import Choice
from .options import Option, Options, is_read_into, origin
from .sides import flag_of, is_read_as_text, side_of

# What reads settings from a file.
_OF_SETTINGS = re.compile(r"(yaml|ruamel|json|toml|tomllib|omegaconf)\b")
_NAMES_DEVICE = re.compile(r"device|gpu|cuda", re.I)  # an entry of settings that something is moved to
_READS = frozenset({"load", "safe_load", "full_load", "loads"})


def asked_device(script: Script, frames: list[Frame], *, options_only: bool) -> Choice | None:
    """The choice of what something is moved to, where more than the machine has a say in it, in the frames that run once.

    options_only: only an option that names the device, `args.device`, is asked.
    """
    for frame, given in () if options_only else moves(script, frames):
        home, name = origin(script, frame, written(given))
        below = _below(script, home, name) if home in frames and _is_chosen(script, home, name) else None
        if below is not None:
            is_made = _is_device(script, home, ast.Name(name))
            as_text = is_read_as_text(script, name) and not is_made  # which is equal to no text
            code = f'str({name}) == "cpu"'
            return Choice(code, home, below, device=name, option=name, as_text=as_text)
    return _device_option(script, frames)


def _is_device(script: Script, frame: Frame, value: ast.expr, depth: int = 4) -> bool:
    """Whether a value is a torch.device: made here, or bound to a variable or returned by a function as nothing else."""
    if isinstance(value, ast.Call) and script.dotted(value.func) == "torch.device":
        return True
    if isinstance(value, ast.IfExp):
        return all(_is_device(script, frame, one, depth) for one in (value.body, value.orelse))
    sources: list[tuple[Frame, ast.expr | None]] = []
    if isinstance(value, ast.Call):
        functions = script.functions_of(value)
        sources = [(f, n.value) for f in functions for n in script.within(f) if isinstance(n, ast.Return)]
    elif isinstance(value, ast.Name) and (parts := _parts_of(script, frame, value.id)):
        sources = parts
    elif isinstance(value, ast.Name) and len(script.values(frame, value.id)) == len(
        script.stores(frame, value.id)
    ):
        bound = script.values(frame, value.id)
        sources = [(frame, one) for one in bound if not (isinstance(one, ast.Constant) and one.value is None)]
    return (
        depth > 0
        and bool(sources)
        and all(one is not None and _is_device(script, home, one, depth - 1) for home, one in sources)
    )


def _parts_of(script: Script, frame: Frame, name: str) -> list[tuple[Frame, ast.expr | None]]:
    """What a variable is of the tuples that functions of the project return: `device, numbers = prepare(args.gpus)`."""
    found = script.unpacked(frame, name) if name.isidentifier() else []
    if len(found) != len(script.stores(frame, name)):
        return []
    returned: list[tuple[Frame, ast.expr, int]] = [
        (f, v, n) for call, n in found for f in script.functions_of(call) for v in script.returned(f)
    ]
    tuples: list[tuple[Frame, ast.expr | None]] = [
        (f, v.elts[n]) for f, v, n in returned if isinstance(v, ast.Tuple) and n < len(v.elts)
    ]
    return tuples if len(tuples) == len(returned) else []


def moves(script: Script, frames: list[Frame]) -> Iterator[tuple[Frame, ast.Name | ast.Attribute]]:
    """What something is moved to, first in the frames that run once."""
    for frame in (*frames, *(one for one in script.reached_frames if one not in frames)):
        for node in script.within(frame):
            given = _moved_to(node)
            if given is not None:
                yield frame, given


def _device_option(script: Script, frames: list[Frame]) -> Choice | None:
    """`--device`, known below the parsing of the options."""
    options = Options(script)
    visible = choose_visible(script, script.table.each(ast.Assign))
    shown = [
        one for s in visible if isinstance(s, ast.Assign) for one in _options_in(script, options, s.value)
    ]
    named = {n: one for n, one in options.by_name.items() if _names_device(script, one) and one not in shown}
    for command in (one for one in frames if is_function_frame(one) and one.decorator_list):
        for name in sorted(named.keys() & script.parameters(command)):  # click gives it by its name
            if (below := _below(script, command, name)) is not None:
                return Choice(f'{name} == "cpu"', command, below, device=name, option=name)
    for frame in (*frames, *(one for one in script.reached_frames if one not in frames)) if named else ():
        for node in script.within(frame):
            is_read = isinstance(node, ast.Attribute | ast.Subscript)
            if not is_read or {getattr(node, "attr", ""), _entry(node)}.isdisjoint(named):
                continue
            home, text = origin(script, frame, ast.unparse(node), through_names=True)
            whole = ast.parse(text, mode="eval").body
            root, name = (
                written(getattr(whole, "value", whole)),
                str(getattr(whole, "attr", "") or _entry(whole)),
            )
            by_entry = isinstance(whole, ast.Subscript)
            if home not in frames or name not in named or not holds_options(script, home, root, by_entry):
                continue
            text = text.replace("'", '"')
            if (below := _below(script, home, text)) is not None:
                kind = named[name].keyword("type")
                as_text = kind is None or script.dotted(kind) != "torch.device"
                code = f'{text} == "cpu"' if as_text else f'str({text}) == "cpu"'
                return Choice(code, home, below, device=text, option=text, as_text=as_text)
    return None


def _options_in(script: Script, options: Options, value: ast.expr, depth: int = 3) -> list[Option | None]:
    """The options that a text is made of, also by a variable, or a parameter that calls give: `device = str(device)`."""
    found = [options.read_by(value)]
    frame = script.frame(value)
    for name in names_in(value) if depth else ():
        sources = [*script.values(frame, name), *(given for given, _ in script.given_for(frame, name))]
        for one in (one for one in sources if one is not value):
            found += _options_in(script, options, one, depth - 1)
    return found


def holds_options(script: Script, home: Frame, name: str, by_entry: bool = False, depth: int = 3) -> bool:
    """Whether a variable is what parsing the command line has given, by another name too; by_entry: as a dictionary."""
    values = [*script.values(home, name), *(one for one, _ in script.given_for(home, name))]
    for one in values:
        is_entry = by_entry
        if by_entry and isinstance(one, ast.Call) and written(one.func) == "vars" and one.args:
            one, is_entry = one.args[0], False
        if isinstance(one, ast.Call) and not is_entry and _parses(script, one):
            return True
        if isinstance(one, ast.Name) and depth > 0:
            return holds_options(script, script.frame(one), one.id, is_entry, depth - 1)
    return False


def _parses(script: Script, call: ast.Call) -> bool:
    inner = [one for function in script.functions_of(call) for one in script.calls_in(function)]
    return any(last_name(one.func) in ("parse_args", "parse_known_args") for one in (call, *inner))


def _moved_to(node: ast.AST) -> ast.Name | ast.Attribute | None:
    """`device` of `x.to(device)`, `args.device` of `x.to(device=args.device)`"""
    if not is_method(node, "to"):
        return None
    for given in (*node.args[:1], *(k.value for k in node.keywords if k.arg == "device")):
        if isinstance(given, ast.Name) or (
            isinstance(given, ast.Attribute) and isinstance(given.value, ast.Name)
        ):
            return given
    return None


def _is_chosen(script: Script, home: Frame, name: str) -> bool:
    """Whether a variable is a device, and more than what the machine has says which one."""
    if "." in name and not name.startswith("self."):
        return _is_setting(script, home, name)
    if parts := _parts_of(script, home, name):
        return _is_device(script, home, ast.Name(name)) and not all(
            v is not None and is_the_machines(script, f, v) for f, v in parts
        )
    values = script.values(home, name) if "." not in name else []
    is_cpu = _sides_in(script, values) == {"cpu"} and not _is_for_results(script, name)
    return may_be_device(script, name, values) and (is_cpu or not is_bound_by_machine(script, home, name))


def _is_setting(script: Script, home: Frame, name: str) -> bool:
    """Whether it is one of an object that a function of the project gives, which takes the CPU or a GPU by a flag:
    `settings.device` of `settings = read()`."""
    root, _, part = name.partition(".")
    made = script.values(home, root)
    call = made[0] if len(made) == len(script.stores(home, root)) == 1 else None
    if call is not None and (cls := script.class_made(call)) is not None:
        return is_read_into(script, cls, f"self.{part}")
    makers = script.functions_of(call)
    for maker in makers if len(makers) == 1 else ():
        given = {written(n.value) for n in script.within(maker) if isinstance(n, ast.Return) and n.value}
        values = [value for text in given for value in script.values(maker, f"{text}.{part}")]
        tests = [one.test for value in values for one in script.around(value) if isinstance(one, ast.If)]
        bare = [test.operand if isinstance(test, ast.UnaryOp) else test for test in tests]
        asks = any(flag_of(script, maker, test) for test in bare)
        return asks and {side_of(script, value) for value in values} == {"cpu", "gpu"}
    return False


def _is_for_results(script: Script, name: str) -> bool:
    """Whether something else is moved to another device than to this one, which is always the CPU: `HOST = torch.device("cpu")`
    takes back what is computed elsewhere."""
    others = [
        given
        for call in script.calls
        if is_method(call, "to") and script.is_reached(call)
        for given in call.args[:1]
    ]
    return any(
        isinstance(one, ast.Name | ast.Attribute | ast.Subscript)
        and "device" in ast.unparse(one).lower()
        and written(one) != name
        for one in others
    )


def may_be_device(script: Script, name: str, values: list[ast.expr]) -> bool:
    return bool(values) and ("device" in name.lower() or bool(_sides_in(script, values)))


def _sides_in(script: Script, values: list[ast.expr]) -> set[str]:
    parts = (part for part in walk_all(values) if isinstance(part, ast.expr))
    return {side_of(script, part) for part in parts} - {""}


def _names_device(script: Script, option: Option) -> bool:
    """Whether the values of an option are names of devices."""
    choices = option.keyword("choices")
    named = list(choices.elts) if isinstance(choices, ast.List | ast.Tuple) else []
    default = [option.default] if option.default is not None else []
    sides = [side_of(script, one.body if isinstance(one, ast.IfExp) else one) for one in (*default, *named)]
    return not option.is_number and (option.name == "device" or (bool(sides) and all(sides)))


def _below(script: Script, home: Frame, text: str) -> ast.stmt | None:
    """The statement below the last one that binds a variable or an option; the first one for a parameter.

    `if args.device is None: args.device = "cuda" if torch.cuda.is_available() else "cpu"` comes later: by then the option
    has its value.
    """
    root = re.split(r"[.\[]", text)[0]
    defaults = [
        value for value in script.values(home, text) if root != text and is_the_machines(script, home, value)
    ]
    later = {script.statement(value) for value in defaults}
    stores = [s for one in {text, root} for s in script.stores(home, one) if script.statement(s) not in later]
    if not stores:
        return script.first_statement(home) if root in script.parameters(home) else None
    last = max(stores, key=place_of)
    is_given = not isinstance(home, ast.Module) and root in script.parameters(home)
    if len(stores) == 1 and root == text and not is_given and _may_be_unbound(script, last):
        return None
    return behind(script, home, last) if not script.loops_around(last) else None


def _may_be_unbound(script: Script, store: ast.AST) -> bool:
    """`if args.cuda: device = torch.device("cuda")`, which nothing binds otherwise."""
    return any(isinstance(one, ast.If) and not is_main_test(one) for one in script.around(store))


def device_among_settings(script: Script, frames: list[Frame]) -> Choice | None:
    """The choice of an entry or attribute that something is moved to, where a dictionary says that it is the CPU, or a file says
    what it is; the script sets it nowhere else. In a notebook each process would have to set it again: it stays."""
    if is_linked(script.text):
        return None
    for frame in (*frames, *(one for one in script.reached_frames if one not in frames)):
        for node in script.within(frame):
            given = node.args[0] if is_method(node, "to") and node.args else None
            if not isinstance(given, ast.Name | ast.Attribute | ast.Subscript):
                continue
            by_name = not isinstance(given, ast.Subscript)
            home, text = origin(script, frame, ast.unparse(given), through_names=by_name)
            root, keys = _keys(ast.parse(text, mode="eval").body)
            if not keys or not _NAMES_DEVICE.search(keys[-1]) or _is_set(script, keys[-1]):
                continue
            stores, values = script.stores(home, root), script.values(home, root)
            if home not in frames or len(stores) != 1 or len(values) != 1:
                continue
            if not _reads_file(script, home, values[0], by_name) and (
                by_name or not _says_cpu(values[0], keys)
            ):
                continue
            below = behind(script, home, stores[0])
            if below is not None:
                text = text.replace("'", '"')
                return Choice(f'str({text}) == "cpu"', home, below, device=text, option=text)
    return None


def _keys(node: ast.expr) -> tuple[str, list[str]]:
    """`config` and `["train", "device"]` of `config["train"]["device"]` or `config.train.device`; no keys for another expression."""
    keys: list[str] = []
    while isinstance(node, ast.Subscript | ast.Attribute):
        key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        if not isinstance(key, str):
            return "", []
        keys.insert(0, key)
        node = node.value
    return (node.id, keys) if isinstance(node, ast.Name) else ("", [])


def _is_set(script: Script, key: str) -> bool:
    """Whether the script assigns an entry or attribute of that name."""
    return any(
        isinstance(one.ctx, ast.Store) and key in (getattr(one, "attr", ""), _entry(one))
        for one in script.table.each(ast.Subscript, ast.Attribute)
    )


def _entry(node: ast.AST) -> object:
    return getattr(getattr(node, "slice", None), "value", None)


def _reads_file(script: Script, frame: Frame, value: ast.expr, by_name: bool, depth: int = 5) -> bool:
    """Whether a value is a file's settings: `yaml.safe_load(file)`, `EasyDict(yaml.load(file))`, or what a function returns.
    by_name: an attribute is asked for, which a tensor or a network of a file has too, `torch.load(path).device`."""
    if isinstance(value, ast.Name):
        values = script.values(frame, value.id) if depth else []
        return len(values) == 1 and _reads_file(script, frame, values[0], by_name, depth - 1)
    if not isinstance(value, ast.Call) or not depth:
        return False
    if last_name(value.func) in _READS:
        return not by_name or _OF_SETTINGS.match(script.dotted(value.func)) is not None
    if functions := script.functions_of(value):
        returned = [(one, given) for one in functions for given in script.returned(one)]
        return bool(returned) and all(_reads_file(script, *one, by_name, depth - 1) for one in returned)
    given = (*value.args, *(k.value for k in value.keywords))
    return any(_reads_file(script, frame, one, by_name, depth - 1) for one in given)


def _says_cpu(value: ast.expr, keys: list[str]) -> bool:
    """Whether a dictionary says "cpu" under these keys."""
    inner: ast.expr | None = value
    for key in keys:
        if not isinstance(inner, ast.Dict):
            return False
        pairs = zip(inner.keys, inner.values, strict=True)
        inner = next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == key), None)
    return isinstance(inner, ast.Constant) and inner.value == "cpu"
