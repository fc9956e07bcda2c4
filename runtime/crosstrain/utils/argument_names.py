"""The source text of the arguments of a call that is running, for messages."""

from __future__ import annotations

import ast
import linecache
import sys
from functools import lru_cache

from crosstrain.utils.script_frames import users_frame

LONGEST = 40  # characters of an argument in a message


def names_of_arguments(number: int) -> list[str] | None:
    """The source of the call's positional arguments that the innermost user's line makes.

    Returns None where the source is not at hand, or where the line makes no such call or several.
    """
    frame = users_frame(sys._getframe(1))
    if frame is None:
        return None
    lines = tuple(linecache.getlines(frame.f_code.co_filename, frame.f_globals))
    found = [names for first, last, names in _calls(lines) if first <= frame.f_lineno <= last]
    fitting = [names for names in found if len(names) == number]
    return list(fitting[0]) if len(fitting) == 1 else None


@lru_cache(maxsize=16)
def _calls(lines: tuple[str, ...]) -> list[tuple[int, int, tuple[str, ...]]]:
    """First and last line of each call of a method named `prepare...`, and the source of its arguments."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return []
    return [
        (node.lineno, node.end_lineno or node.lineno, tuple(map(_shown, node.args)))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith("prepare")
        and not any(isinstance(argument, ast.Starred) for argument in node.args)
    ]


def _shown(argument: ast.expr) -> str:
    text = ast.unparse(argument)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
