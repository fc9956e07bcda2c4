"""Golden scripts with a few lines changed, and what must hold of any script whatever."""

import ast
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.files.sources import Unusable
from hypothesis import strategies as st

from tests.corpora.everything import judge, parses

GOLDEN = Path(__file__).parents[2] / "golden"
FUZZED = Path("fuzzed.py")


def examine(text: str) -> dict[str, str]:
    """The oracles that `text` violates, with the evidence; also for texts that do not parse."""
    try:
        source = decode(FUZZED, text.encode())
        state, wrong = judge(FUZZED, source.text)
    except (Unusable, RecursionError, MemoryError):
        return {}
    if state == "unusable" and parses(source.text):
        wrong["called unusable although Python parses it"] = text
    return wrong


@cache
def originals() -> tuple[str, ...]:
    return tuple(file.read_text("utf-8") for file in sorted(GOLDEN.glob("*/before.py")))


@st.composite
def mutated_script(draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """A golden script after one to four mutations; each that breaks the syntax is taken back."""
    text = draw(st.sampled_from(originals()))
    for _ in range(draw(st.integers(1, 4))):
        mutation = draw(st.sampled_from(MUTATIONS))
        changed = mutation(text, draw(st.integers(0, 10_000)), draw(st.integers(0, 10_000)))
        if parses(changed):
            text = changed
    return str(text)


def _statements(text: str) -> list[tuple[int, int, str]]:
    """(first, behind the last, indentation) of every statement that begins its line, 0-based."""
    lines = text.split("\n")
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            line = lines[node.lineno - 1]
            if not line[: node.col_offset].strip():
                found.append((node.lineno - 1, node.end_lineno, line[: len(line) - len(line.lstrip())]))
    return sorted(found) or [(0, 1, "")]


def _at_statement(change: Callable[[list[str], str, int], list[str]]) -> Callable[[str, int, int], str]:
    """The mutation that changes the lines of one statement, given with their indentation."""

    def mutation(text: str, place: int, other: int) -> str:
        found = _statements(text)
        first, end, indent = found[place % len(found)]
        lines = text.split("\n")
        return "\n".join([*lines[:first], *change(lines[first:end], indent, other), *lines[end:]])

    return mutation


WRAPPINGS: list[tuple[str, list[str]]] = [
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
REMARKS = ("# a remark", "#tight", "# migrate: skip", "# é 漢字", "# migrate: skip CT4", "# fmt: off")
NAMES = ("größe", "accelerator", "device", "loss", "Accelerator", "x", "model", "_", "os")


def _wrap(lines: list[str], indent: str, other: int) -> list[str]:
    head, tail = WRAPPINGS[other % len(WRAPPINGS)]
    inside = [("    " + line if line.strip() else line) for line in lines]
    return [indent + head, *inside, *(indent + line for line in tail)]


def _remark(lines: list[str], indent: str, other: int) -> list[str]:
    word = REMARKS[other % len(REMARKS)]
    return [indent + word, *lines] if other % 2 else [*lines[:-1], f"{lines[-1]}  {word}"]


def _swap(text: str, place: int, other: int) -> str:
    """A statement and the next one of its suite."""
    found = _statements(text)
    first, end, indent = found[place % len(found)]
    after = next((one for one in found if one[0] >= end and one[2] == indent), None)
    if after is None:
        return text
    lines = text.split("\n")
    swapped = [*lines[after[0] : after[1]], *lines[end : after[0]], *lines[first:end]]
    return "\n".join([*lines[:first], *swapped, *lines[after[1] :]])


def _rename(text: str, place: int, other: int) -> str:
    names = sorted({node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)})
    return re.sub(rf"\b{names[place % len(names)]}\b", NAMES[other % len(NAMES)], text) if names else text


def _join_lines(text: str, place: int, other: int) -> str:
    """With a semicolon; a suite with its head."""
    lines = text.split("\n")
    place %= max(len(lines) - 1, 1)
    first = lines[place].rstrip()
    joint = " " if first.endswith(":") else "; "
    rest = lines[place + 1 :] or [""]
    return "\n".join([*lines[:place], f"{first}{joint}{rest[0].strip()}", *rest[1:]])


def _indent(text: str, place: int, other: int) -> str:
    unit = ("\t", "  ")[other % 2]
    return re.sub(r"^( {4})+", lambda found: unit * (len(found[0]) // 4), text, flags=re.MULTILINE)


def _end(text: str, place: int, other: int) -> str:
    return text.rstrip("\n") + ("", "\n\n\n", "\n# end", "\n    # deep end\n", "\\\n\n")[other % 5]


def _quotes(text: str, place: int, other: int) -> str:
    return text.replace('"', "'") if other % 2 else text.replace("'", '"')


def _break_line(text: str, place: int, other: int) -> str:
    """Within brackets that are put around a value, or behind a backslash."""
    found = list(re.finditer(r"= ([^=\n]+)$" if other % 2 else r" [=+*] ()", text, re.MULTILINE))
    if not found:
        return text
    one = found[place % len(found)]
    between = f"(  # opened\n    {one[1]}\n)" if other % 2 else "\\\n        "
    return text[: one.start(1)] + between + text[one.end(1) :]


MUTATIONS: list[Callable[[str, int, int], str]] = [
    _at_statement(lambda lines, indent, other: []),
    _at_statement(lambda lines, indent, other: lines * 2),
    _at_statement(lambda lines, indent, other: ["\f", *lines]),
    *[_at_statement(_wrap), _at_statement(_remark), _rename, _join_lines, _break_line] * 2,
    *(_swap, _indent, _end, _quotes),
]
