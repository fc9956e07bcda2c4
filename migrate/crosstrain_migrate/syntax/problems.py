"""Explains to an author why a text does not parse: where, what, and which remedy fits."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from crosstrain_migrate.results import InputError

# What `ast.parse` raises for text that is not Python: ValueError for null bytes, the last two for deep nesting.
UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)

PYTHON_2 = "is Python 2"
ASYNC = "names an argument `async`, which is a keyword since Python 3.7"
NEWER = "uses syntax of Python"
OTHER = (PYTHON_2, ASYNC, NEWER)  # how the reasons begin for what is written for another Python than this one

_NEWER: tuple[tuple[tuple[int, int], re.Pattern[str]], ...] = (
    ((3, 11), re.compile(r"\s*except\s*\*")),
    ((3, 12), re.compile(r"\s*type\s+\w+\s*(\[.*\])?\s*=")),
    ((3, 12), re.compile(r"\s*(async\s+)?(def|class)\s+\w+\s*\[")),
    ((3, 14), re.compile(r".*(?<![\w\\])(t|rt|tr)(\"|')", re.IGNORECASE)),
)
_PYTHON2_MESSAGE = re.compile(
    r"Missing parentheses in call to|multiple exception types must be parenthesized|"
    r"leading zeros in decimal integer|inconsistent use of tabs"
)
_PYTHON2_CODE = re.compile(
    r"\s*(print\s+[^(=\s]|exec\s+[^(=\s]|raise\s+\w+\s*,|except\s+[\w.]+\s*,)|.*(<>|\bur[\"']|`|\d[lL]\b)"
)


def syntax_problem(
    path: Path, text: str, error: SyntaxError | ValueError | RecursionError | MemoryError
) -> InputError:
    """The message for a text that `ast.parse` has rejected with `error`."""
    if not isinstance(error, SyntaxError):
        reason = f"cannot be parsed: {error or 'it is nested too deeply'}"
        return InputError(path, reason, "Simplify it, or leave it out.")
    line, column = error.lineno, error.offset or None
    lines = text.split("\n")
    code = lines[line - 1] if line is not None and 0 < line <= len(lines) else ""
    message = error.msg or "invalid syntax"
    if (newer := _newer_python(code, message)) is not None:
        here, there = ("{}.{}".format(*version) for version in (sys.version_info, newer))
        reason = f"{NEWER} {there}, and this is Python {here}"
        remedy = f"Run migrate with Python {there} or newer."
    elif _PYTHON2_MESSAGE.match(message) or (message == "invalid syntax" and _PYTHON2_CODE.match(code)):
        reason, remedy = f"{PYTHON_2} ({message})", "Convert it to Python 3 first."
    elif re.search(r"\basync\s*=", code):
        reason, remedy = ASYNC, "Write `non_blocking=` instead, then run again."
    elif re.match(r"\s*[%!]", code):
        reason, remedy = "holds notebook commands (% or !)", "Remove them, or turn them into Python."
    else:
        reason, remedy = f"does not parse: {message}", "Correct the syntax, then run again."
    return InputError(path, reason, remedy, line, column)


def _newer_python(code: str, message: str) -> tuple[int, int] | None:
    """The Python version whose grammar the offending line needs, when this interpreter is older."""
    for version, pattern in _NEWER:
        if sys.version_info < version and pattern.match(code):
            return version
    empty = message.endswith("empty expression not allowed")
    return (3, 12) if "f-string" in message and sys.version_info < (3, 12) and not empty else None
