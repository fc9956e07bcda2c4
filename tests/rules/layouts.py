"""The same program laid out in other ways. Each function takes a script's text and returns it in another dress."""

from __future__ import annotations

import ast
import io
import itertools
import tokenize
from collections.abc import Callable, Iterator

Layout = Callable[[str], str]
SIMPLE = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.Return,
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.Import,
    ast.ImportFrom,
)


def _frozen(tree: ast.Module) -> set[int]:
    """Lines that begin inside a string."""
    strings = [n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr | ast.Constant)]
    return {line for n in strings for line in range(n.lineno + 1, (n.end_lineno or n.lineno) + 1)}


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _in_brackets(text: str) -> Iterator[tuple[int, tokenize.TokenInfo, tokenize.TokenInfo | None]]:
    """Every token outside f-strings, with the number of brackets around it and the token after it."""
    depth = inside = 0
    tokens = _tokens(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        inside += token.type == getattr(tokenize, "FSTRING_START", -1)
        inside -= token.type == getattr(tokenize, "FSTRING_END", -1)
        if token.type == tokenize.OP and not inside:
            depth -= token.string in ")]}"
        if not inside:
            yield depth, token, following
        if token.type == tokenize.OP and not inside:
            depth += token.string in "([{"


def _splice(text: str, pieces: dict[tuple[int, int], str]) -> str:
    """`pieces` put in at (line, column); a piece replaces what whitespace follows."""
    lines = text.split("\n")
    for (line, column), piece in sorted(pieces.items(), reverse=True):
        before, after = lines[line - 1][:column], lines[line - 1][column:].lstrip(" ")
        lines[line - 1] = before + piece + after
    return "\n".join(lines)


def _indented(text: str, unit: str) -> str:
    frozen = _frozen(ast.parse(text))
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if number not in frozen and line.strip():
            spaces = len(line) - len(line.lstrip(" "))
            lines[number - 1] = unit * (spaces // 4) + " " * (spaces % 4) + line.lstrip(" ")
    return "\n".join(lines)


def tabs(text: str) -> str:
    return _indented(text, "\t")


def two_spaces(text: str) -> str:
    return _indented(text, "  ")


def eight_spaces(text: str) -> str:
    return _indented(text, " " * 8)


def semicolons(text: str) -> str:
    """Every two simple statements below each other share a line."""
    lines = text.split("\n")
    gone: set[int] = set()
    for suite in _suites(ast.parse(text)):
        for first, second in itertools.pairwise(suite):
            alone = (
                isinstance(first, SIMPLE)
                and isinstance(second, SIMPLE)
                and "#" not in lines[first.lineno - 1]
            )
            flat = first.lineno == first.end_lineno and second.lineno == second.end_lineno == first.lineno + 1
            if alone and flat and first.lineno - 1 not in gone:
                lines[first.lineno - 1] += "; " + lines[second.lineno - 1].strip()
                gone.add(second.lineno - 1)
    return "\n".join(line for number, line in enumerate(lines) if number not in gone)


def _suites(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(node, name, None)
            if isinstance(suite, list):
                yield suite


def one_line_suites(text: str) -> str:
    """`if x:` and its only statement share a line."""
    lines = text.split("\n")
    gone: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.FunctionDef):
            continue
        only = node.body[0]
        bare = len(node.body) == 1 and isinstance(only, SIMPLE) and not getattr(node, "orelse", None)
        header = only.lineno - 2
        if (
            bare
            and only.lineno == only.end_lineno
            and lines[header].rstrip().endswith(":")
            and "#" not in lines[header]
        ):
            lines[header] += " " + lines[only.lineno - 1].strip()
            gone.add(only.lineno - 1)
    return "\n".join(line for number, line in enumerate(lines) if number not in gone)


def long_lines(text: str) -> str:
    """What stands in brackets stands on one line, unless a comment is among it."""
    lines = text.split("\n")
    joined: list[int] = []
    for depth, token, _ in _in_brackets(text):
        if depth and token.type == tokenize.NL and "#" not in lines[token.start[0] - 1]:
            joined.append(token.start[0])
    for number in sorted(joined, reverse=True):
        follower = lines.pop(number).lstrip()
        space = "" if lines[number - 1].rstrip().endswith(("(", "[", "{")) or follower[:1] in ")]}" else " "
        lines[number - 1] = lines[number - 1].rstrip() + space + follower
    return "\n".join(lines)


def comments_everywhere(text: str) -> str:
    """A comment above every statement, one at the end of its line, and one after every comma in brackets."""
    text = _commas(text)
    ends = {
        token.start[0]
        for _, token, _ in _in_brackets(text)
        if token.type == tokenize.NEWLINE
        and "#" not in token.line.split("\n")[-2 if token.line.endswith("\n") else -1]
    }
    starts = {n.lineno: n.col_offset for n in ast.walk(ast.parse(text)) if isinstance(n, ast.stmt)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.decorator_list:
            starts.pop(node.lineno)
    lines = text.split("\n")
    result: list[str] = []
    for number, line in enumerate(lines, 1):
        before = line[: starts.get(number, 0)]
        if number in starts and not before.strip() and not line.strip().startswith("elif"):
            result.append(f"{before}# above {number}")
        result.append(f"{line}  # beside {number}" if number in ends and "#" not in line else line)
    return "\n".join(result)


def _commas(text: str) -> str:
    pieces = {
        token.end: f"  # after {token.end[0]}:{token.end[1]}\n        "
        for depth, token, following in _in_brackets(text)
        if depth
        and token.string == ","
        and following is not None
        and following.type != tokenize.NL
        and following.type != tokenize.COMMENT
    }
    return _splice(text, pieces)


def backslashes(text: str) -> str:
    """What is assigned stands on the next line."""
    pieces = {
        token.end: " \\\n        "
        for depth, token, _ in _in_brackets(text)
        if not depth and token.type == tokenize.OP and token.string == "="
    }
    return _splice(text, pieces)


def loose_ends(text: str) -> str:
    """Blanks at the ends of lines, form feeds between definitions, and no line end at the end."""
    frozen = _frozen(ast.parse(text))
    tops = {n.lineno for n in ast.parse(text).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    lines = []
    for number, line in enumerate(text.rstrip("\n").split("\n"), 1):
        lines += ["\f"] if number in tops else []
        tidy = number + 1 in frozen or number in frozen or line.endswith("\\")
        lines.append(line if tidy else line + "  ")
    return "\n".join(lines).rstrip()


def not_ascii(text: str) -> str:
    """Columns count bytes in one tree and characters in the other: every first statement of a line moves to the right."""
    lines = text.split("\n")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign) and node.lineno == node.end_lineno:
            line = lines[node.lineno - 1]
            if not line[: node.col_offset].strip() and not isinstance(
                getattr(node, "value", None), ast.Constant
            ):
                lines[node.lineno - 1] = (
                    line[: node.col_offset] + '"größer als π"; ' + line[node.col_offset :]
                )
    return "\n".join(lines)


LAYOUTS: list[Layout] = [
    tabs,
    two_spaces,
    eight_spaces,
    semicolons,
    one_line_suites,
    long_lines,
    comments_everywhere,
    backslashes,
    loose_ends,
]
