"""Scripts that people might have written instead: golden scripts with a few lines changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

GOLDEN = Path(__file__).parents[2] / "golden"
Draw = Callable[[st.SearchStrategy[Any]], Any]


@cache
def originals() -> tuple[str, ...]:
    return tuple(file.read_text("utf-8") for file in sorted(GOLDEN.glob("*/before.py")))


@st.composite
def mutated_script(draw: Draw) -> str:
    """A golden script after one to four mutations; each that breaks the syntax is taken back."""
    text = draw(st.sampled_from(originals()))
    for _ in range(draw(st.integers(1, 4))):
        mutation = draw(st.sampled_from(_MUTATIONS))
        changed = mutation(text, draw(st.integers(0, 10_000)), draw(st.integers(0, 10_000)))
        if _parses(changed):
            text = changed
    return str(text)


def _parses(text: str) -> bool:
    try:
        compile(text, "<mutated>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _statements(text: str) -> list[tuple[int, int, str]]:
    """(first, last, indentation) of every statement that begins its line, 0-based."""
    lines = text.split("\n")
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            line = lines[node.lineno - 1]
            if not line[: node.col_offset].strip():
                found.append((node.lineno - 1, node.end_lineno - 1, line[: len(line) - len(line.lstrip())]))
    return sorted(found)


def _at(text: str, place: int) -> tuple[list[str], int, int, str]:
    found = _statements(text)
    first, last, indent = found[place % len(found)] if found else (0, 0, "")
    return text.split("\n"), first, last, indent


def _delete(text: str, place: int, other: int) -> str:
    lines, first, last, _ = _at(text, place)
    return "\n".join(lines[:first] + lines[last + 1 :])


def _duplicate(text: str, place: int, other: int) -> str:
    lines, first, last, _ = _at(text, place)
    return "\n".join(lines[: last + 1] + lines[first : last + 1] + lines[last + 1 :])


def _swap(text: str, place: int, other: int) -> str:
    found = _statements(text)
    first, last, indent = found[place % len(found)]
    after = next((one for one in found if one[0] > last and one[2] == indent), None)
    if after is None:
        return text
    lines = text.split("\n")
    between = lines[last + 1 : after[0]]
    return "\n".join(
        lines[:first]
        + lines[after[0] : after[1] + 1]
        + between
        + lines[first : last + 1]
        + lines[after[1] + 1 :]
    )


def _wrap(text: str, place: int, other: int) -> str:
    lines, first, last, indent = _at(text, place)
    head, tail = _WRAPPINGS[other % len(_WRAPPINGS)]
    inside = [("    " + line if line.strip() else line) for line in lines[first : last + 1]]
    return "\n".join(
        [*lines[:first], indent + head, *inside, *(indent + line for line in tail), *lines[last + 1 :]]
    )


_WRAPPINGS: list[tuple[str, list[str]]] = [
    ("if True:  # always", []),
    ("if not False:", ["else:", "    pass"]),
    ("for _ in range(1):", []),
    ("while True:", ["    break"]),
    ("try:", ["except Exception:", "    raise", "finally:", "    pass  # done"]),
    ("with open('x') as handle:", []),
    ("def inner():", ["inner()"]),
    ("async def waits():", []),
    ("class Holder:", []),
]


def _comment(text: str, place: int, other: int) -> str:
    lines, first, last, indent = _at(text, place)
    words = (
        "# a remark",
        "#tight",
        "# migrate: skip",
        "# é 漢字",
        "# migrate: skip CT4",
        "#: sphinx",
        "# fmt: off",
    )
    word = words[other % len(words)]
    if other % 2:
        return "\n".join([*lines[:first], indent + word, *lines[first:]])
    return "\n".join([*lines[:last], f"{lines[last]}  {word}", *lines[last + 1 :]])


def _rename(text: str, place: int, other: int) -> str:
    names = sorted({node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)})
    if not names:
        return text
    targets = (
        "größe",
        "accelerator",
        "device",
        "loss",
        "Accelerator",
        "x",
        "model",
        "_",
        "os",
        names[place % len(names)],
    )
    return re.sub(rf"\b{names[place % len(names)]}\b", targets[other % len(targets)], text)


def _join_lines(text: str, place: int, other: int) -> str:
    lines = text.split("\n")
    place %= max(len(lines) - 1, 1)
    if place + 1 >= len(lines):
        return text
    first, second = lines[place], lines[place + 1]
    return "\n".join([*lines[:place], f"{first.rstrip()}; {second.strip()}", *lines[place + 2 :]])


def _one_line_suite(text: str, place: int, other: int) -> str:
    heads = [number for number, line in enumerate(text.split("\n")) if line.rstrip().endswith(":")]
    lines = text.split("\n")
    if not heads or heads[place % len(heads)] + 1 >= len(lines):
        return text
    at = heads[place % len(heads)]
    return "\n".join([*lines[:at], f"{lines[at]} {lines[at + 1].strip()}", *lines[at + 2 :]])


def _tabs(text: str, place: int, other: int) -> str:
    return re.sub(r"^( {4})+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.MULTILINE)


def _two_spaces(text: str, place: int, other: int) -> str:
    return re.sub(r"^( {4})+", lambda found: "  " * (len(found[0]) // 4), text, flags=re.MULTILINE)


def _form_feed(text: str, place: int, other: int) -> str:
    lines, first, _, _ = _at(text, place)
    return "\n".join([*lines[:first], "\f", *lines[first:]])


def _end(text: str, place: int, other: int) -> str:
    return text.rstrip("\n") + ("", "\n\n\n", "\n# end", "\n    # deep end\n", "\\\n\n")[other % 5]


def _quotes(text: str, place: int, other: int) -> str:
    return text.replace('"', "'") if other % 2 else text.replace("'", '"')


def _parenthesise(text: str, place: int, other: int) -> str:
    found = list(re.finditer(r"= ([^=\n]+)$", text, re.MULTILINE))
    if not found:
        return text
    one = found[place % len(found)]
    return f"{text[: one.start(1)]}(  # opened\n    {one[1]}\n){text[one.end(1) :]}"


def _continuation(text: str, place: int, other: int) -> str:
    found = [m.start() for m in re.finditer(r" [=+*] ", text)]
    at = found[place % len(found)] if found else 0
    return text[: at + 2] + " \\\n        " + text[at + 3 :] if found else text


_MUTATIONS = (
    _delete,
    _duplicate,
    _swap,
    _wrap,
    _wrap,
    _comment,
    _comment,
    _rename,
    _rename,
    _join_lines,
    _one_line_suite,
    _tabs,
    _two_spaces,
    _form_feed,
    _end,
    _quotes,
    _parenthesise,
    _continuation,
)
