"""Where a variable or an option comes from: through parameters, attributes and other names."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import written

_ROOT = re.compile(r"(self\.)?\w*")


def origin(script: Script, frame: Frame, text: str, *, through_names: bool = False) -> tuple[Frame, str]:
    """Where a variable or an option is bound: its own function, that of the only call, a class, or the top level.

    through_names: what another name is given is asked for that (`args = self.args`).
    """
    seen = set[tuple[Frame, str]]()
    while is_function_frame(frame) and (frame, text) not in seen:
        seen.add((frame, text))
        root = root_of_text(text)
        own = script.values(frame, root)
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
