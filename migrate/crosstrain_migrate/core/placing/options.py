"""What the command line can say, the options that a script defines and the expressions that read them; and where a variable or an
option comes from, through parameters, attributes and other names.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, names_in
from crosstrain_migrate.core.reading.keys import option_of, texts_given
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, last_name, written

_DEFINES_FLAG = "DEFINE_"
_LOCAL_RANK = re.compile(r"(local|proc)_?rank$")
_ROOT = re.compile(r"(self\.)?\w*")


@dataclass(frozen=True)
class Option:
    """One option: the call that defines it (argparse, click or absl), its attribute's name, and its default."""

    call: ast.Call
    name: str
    default: ast.expr | None

    def keyword(self, name: str) -> ast.expr | None:
        return next((k.value for k in self.call.keywords if k.arg == name), None)

    @property
    def is_switch(self) -> bool:
        """`--flag` without a value, off unless it is given."""
        action = self.keyword("action")
        is_flag = self.keyword("is_flag")
        given = action if action is not None else is_flag
        return isinstance(given, ast.Constant) and given.value in ("store_true", True)

    @property
    def is_local_rank(self) -> bool:
        """Whether the launcher gives the value, by one of its names: the process's number on its machine."""
        names = [self.name, *(text.replace("-", "_") for text in texts_given(self.call))]
        return any(map(_LOCAL_RANK.search, names))

    @property
    def is_number(self) -> bool:
        """Whether the value is a number, or some: `--gpu 1`, `--gpu_ids 0,1`."""
        given, default = self.keyword("type"), getattr(self.default, "value", None)
        is_text = isinstance(default, str) and default.replace(",", "").isdigit()
        return (
            last_name(given) == "int"
            if given is not None and not is_text
            else is_text or type(default) is int
        )


class Options:
    """The options of a script, by the name of the attribute or parameter that holds them."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.by_name = {one.name: one for call in script.calls if (one := _option(script, call)) is not None}

    def are_parsed_late(self, name: str) -> bool:
        """Whether an option is absl's, which no file's top level knows: `app.run(main)` parses the command line."""
        option = self.by_name.get(name)
        is_flag = option is not None and last_name(option.call.func).startswith(_DEFINES_FLAG)
        return is_flag and any(self.script.dotted(one.func).endswith("app.run") for one in self.script.calls)

    def read_by(self, node: ast.expr | None, depth: int = 0) -> Option | None:
        """The option that an expression is the value of: `args.rank`, or a variable or parameter that is given it."""
        if isinstance(node, ast.Attribute):
            return self.by_name.get(node.attr)
        if not isinstance(node, ast.Name | ast.Subscript) or depth > 3:
            return None
        if isinstance(node, ast.Subscript):
            return self._agreed(self.entries(node.slice), depth)
        frame = self.script.frame(node)
        values = self.given(frame, node.id)
        if not values and is_function_frame(frame) and frame.decorator_list:  # click gives it by its name
            return self.by_name.get(node.id)
        if not values and not self.script.binds(frame, node.id):
            values = self.script.values(self.script.module(node), node.id)
        return self._agreed(values, depth)

    def _agreed(self, values: list[ast.expr], depth: int) -> Option | None:
        """The one option that all of these are the value of."""
        first = self.read_by(values[0], depth + 1) if values else None
        is_one = first is not None and all(self.read_by(one, depth + 1) is first for one in values[1:])
        return first if is_one else None

    def entries(self, key: ast.expr) -> list[ast.expr]:
        """What the dictionaries that the script writes out hold under a key."""
        return self._entries.get(key.value, []) if isinstance(key, ast.Constant) else []

    @cached_property
    def _entries(self) -> dict[object, list[ast.expr]]:
        found: dict[object, list[ast.expr]] = defaultdict(list)
        for one in self.script.table.each(ast.Dict):
            for key, value in zip(one.keys, one.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found[key.value].append(value)
        return found

    def given(self, frame: Frame, name: str) -> list[ast.expr]:
        """What a variable is bound to, or what the calls of its function give for a parameter."""
        if not is_function_frame(frame) or name not in self.script.parameters(frame):
            return self.script.values(frame, name)
        found: list[ast.expr] = list(self.script.values(frame, name))
        started = [one for one in self.script.spawns if frame in self.script.run_as_process(one)]
        for call in (*self.script.callers(frame), *started):
            if self.script.last(call.func) == frame.name:
                value = self.script.argument_for(call, frame, name)
            else:
                value = self._spawned_with(call, frame, name)
            if value is not None:
                found.append(value)
        return found

    def _spawned_with(self, call: ast.Call, frame: Function, name: str) -> ast.expr | None:
        """What `mp.spawn(worker, args=(...))` gives for a parameter behind the process's number, and `Process` for any."""
        given = next((k.value for k in call.keywords if k.arg == "args"), None)
        if call not in self.script.spawns or not isinstance(given, ast.Tuple):
            return None
        number = [] if self.script.run_as_process(call) else [call]
        value = self.script.argument_for(ast.Call(call.func, [*number, *given.elts], []), frame, name)
        return value if value is not call else None


def _option(script: Script, call: ast.Call) -> Option | None:
    called = last_name(call.func)
    texts = texts_given(call)
    default = next((k.value for k in call.keywords if k.arg == "default"), None)
    if called.startswith(_DEFINES_FLAG) and texts:
        given = call.args[1] if len(call.args) > 1 else default
        return Option(call, texts[0], given)
    name = option_of(call)
    return Option(call, name, default) if name else None


def origin(script: Script, frame: Frame, text: str, *, through_names: bool = False) -> tuple[Frame, str]:
    """Where a variable or an option is bound: its own function, that of the only call, a class, or the top level.

    through_names: what another name is given is asked for that (`args = self.args`).
    """
    seen = set[tuple[Frame, str]]()
    # Asked by its root: a variable that is bound to a part of its own, `x = x.data`, has a longer text each time.
    while is_function_frame(frame) and (frame, root := root_of_text(text)) not in seen:
        seen.add((frame, root))
        own = [one for one in script.values(frame, root) if root not in names_in(one)]  # `gpu = int(gpu)`
        calls = script.callers(frame) if root in script.parameters(frame) and not own else []
        found: tuple[Frame, ast.expr | None] = frame, None
        if root.startswith("self."):
            found = next(iter(of_class(script, frame, root)), found)
        elif len(calls) == 1:
            found = script.frame(calls[0]), script.argument_for(calls[0], frame, root)
        elif through_names and len(own) == 1:
            found = frame, own[0]
        elif not script.binds(frame, root) and script.binds(script.entry, root):
            return script.entry, text
        if not isinstance(found[1], ast.Name | ast.Attribute | ast.Subscript):
            break
        frame, text = found[0], written(found[1]) + text.removeprefix(root)
    return frame, text


def root_of_text(text: str) -> str:
    """The variable that an expression begins with, `args` of `args.gpu`, or the attribute of an object's own."""
    found = _ROOT.match(text)
    return found.group() if found is not None else ""


def of_class(script: Script, frame: Frame, text: str) -> list[tuple[Frame, ast.expr]]:
    """What the methods of a frame's class bind to an attribute of its own."""
    cls = script.class_of(frame)
    methods = script.methods(cls)
    return [(method, value) for method in methods for value in script.values(method, text)]


def is_read_into(script: Script, cls: ast.ClassDef, text: str) -> bool:
    """Whether a class of settings has its device from a file: `self.device = torch.device(cfg["device"])`."""
    methods = script.all_methods(cls)
    values = [value for one in methods for value in script.values(one, text)]
    if len(values) != 1 or any(script.class_of(one) is cls for one in script.functions("forward")):
        return False
    (value,) = values
    if isinstance(value, ast.Call) and script.dotted(value.func) == "torch.device" and len(value.args) == 1:
        value = value.args[0]
    return isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant)
