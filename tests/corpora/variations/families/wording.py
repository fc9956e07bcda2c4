"""Output and comprehensions."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Edits, Script, called, with_import, with_top

LOGGING = """
logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
{name} = logging.getLogger("training")

"""


def _prints(script: Script) -> list[cst.Call]:
    """Plain statements `print(...)` of positional arguments."""
    return [
        one
        for one in script.calls("print")
        if isinstance(one.func, cst.Name)
        and isinstance(script.parents[one], cst.Expr)
        and one.args
        and not any(arg.keyword or arg.star for arg in one.args)
        and "print" not in script.globals()
    ]


@variation
def prints_in_logger(script: Script, rng: Random) -> cst.Module | None:
    """a logger writes what was printed"""
    name = script.fresh("log")
    edits: Edits = {}
    for call in _prints(script):
        if len(call.args) == 1:
            text = call.args[0].value
            exact = (
                isinstance(text, cst.FormattedString | cst.SimpleString | cst.BinaryOperation)
                or called(text) == "format"
            )
            given = [call.args[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)] if exact else []
        else:
            given = []
        if not given:
            pattern = cst.SimpleString('"' + " ".join(["%s"] * len(call.args)) + '"')
            given = [cst.Arg(pattern), *(a.with_changes(comma=cst.MaybeSentinel.DEFAULT) for a in call.args)]
        function = cst.parse_expression(f"{name}.info")
        edits[call] = lambda updated, given=given, function=function: cst.Call(function, given)
    if not edits:
        return None
    made = with_top(script.edited(edits), *script.parsed(LOGGING.format(name=name)))
    return with_import(with_import(made, "import logging"), "import sys")


@variation
def prints_in_function(script: Script, rng: Random) -> cst.Module | None:
    """a function of the script prints"""
    name = script.fresh("say")
    edits: Edits = {call.func: lambda updated: cst.Name(name) for call in _prints(script)}
    code = f"\n\ndef {name}(*words):\n    print(*words, flush=True)\n\n"
    return with_top(script.edited(edits), *script.parsed(code)) if edits else None


@variation
def prints_written(script: Script, rng: Random) -> cst.Module | None:
    """`sys.stdout.write` instead of `print`"""
    edits: Edits = {}
    for call in _prints(script):
        if len(call.args) == 1:
            value = script.code(call.args[0].value)
            code = cst.parse_expression(f"sys.stdout.write(str({value}) + '\\n')")
            edits[call] = lambda updated, code=code: code
    return with_import(script.edited(edits), "import sys") if edits else None


def _pieces(script: Script, text: cst.FormattedString) -> list[tuple[str, str, str]] | None:
    """(literal, expression, format) of an f-string; None if it does more than that."""
    if text.prefix.lower() != "f" or len(text.quote) != 1:
        return None
    found = []
    literal = ""
    for part in text.parts:
        if isinstance(part, cst.FormattedStringText):
            literal += part.value
            continue
        if not isinstance(part, cst.FormattedStringExpression) or part.equal or part.conversion:
            return None
        spec = "".join(
            p.value if isinstance(p, cst.FormattedStringText) else "{" for p in part.format_spec or ()
        )
        expression = script.code(part.expression)
        if "{" in spec or text.quote in expression:
            return None
        found.append((literal, expression, spec))
        literal = ""
    return [*found, (literal, "", "")]


def _fstrings(script: Script, rewritten: Any) -> cst.Module | None:
    edits: Edits = {}
    for one in script.nodes:
        if not isinstance(one, cst.FormattedString) or isinstance(
            script.parents[one], cst.ConcatenatedString
        ):
            continue
        pieces = _pieces(script, one)
        if pieces is None or len(pieces) < 2 or script.in_fstring(one):
            continue
        code = rewritten(one.quote, pieces)
        if code is not None:
            made = cst.parse_expression(f"({code})")
            edits[one] = lambda updated, made=made: made
    return script.edited(edits) if edits else None


@variation
def fstrings_as_format(script: Script, rng: Random) -> cst.Module | None:
    """`"...".format(...)` instead of an f-string"""

    def rewritten(quote: str, pieces: list[tuple[str, str, str]]) -> str:
        text = "".join(
            lit + ("{" + (f":{spec}" if spec else "") + "}" if e else "") for lit, e, spec in pieces
        )
        return f"{quote}{text}{quote}.format({', '.join(e for _, e, _ in pieces if e)})"

    return _fstrings(script, rewritten)


@variation
def fstrings_as_percent(script: Script, rng: Random) -> cst.Module | None:
    """`"..." % (...)` instead of an f-string"""

    def rewritten(quote: str, pieces: list[tuple[str, str, str]]) -> str | None:
        if any(spec and not re.fullmatch(r"\d*\.\d+[fe]", spec) for _, _, spec in pieces):
            return None
        plain = [(lit.replace("{{", "{").replace("}}", "}").replace("%", "%%"), e, s) for lit, e, s in pieces]
        text = "".join(lit + (f"%{s or 's'}" if e else "") for lit, e, s in plain)
        return f"{quote}{text}{quote} % ({', '.join(e for _, e, _ in pieces if e)},)"

    return _fstrings(script, rewritten)


@variation
def format_as_fstring(script: Script, rng: Random) -> cst.Module | None:
    """an f-string instead of `"...".format(...)` or `"..." % (...)`"""
    edits: Edits = {}
    for one in script.nodes:
        code = _from_format(script, one) or _from_percent(script, one)
        if code:
            made = cst.parse_expression(code)
            edits[one] = lambda updated, made=made: made
    return script.edited(edits) if edits else None


def _from_format(script: Script, node: cst.CSTNode) -> str:
    if not isinstance(node, cst.Call) or called(node) != "format" or not isinstance(node.func, cst.Attribute):
        return ""
    text = node.func.value
    if any(a.keyword or a.star for a in node.args) or not _is_plain(text):
        return ""
    literal = script.code(text)
    fields = re.findall(r"\{(?:[^{}]*)\}", literal.replace("{{", "").replace("}}", ""))
    values = [script.code(a.value) for a in node.args]
    if (
        "{{" in literal
        or len(fields) != len(values)
        or not all(re.fullmatch(r"\{(:[^{}]*)?\}", f) for f in fields)
    ):
        return ""
    if any(literal[0] in v or "\\" in v or "\n" in v or '"' in v or "{" in v or ":" in v for v in values):
        return ""
    given = iter(values)
    return "f" + re.sub(r"\{(:[^{}]*)?\}", lambda m: "{" + next(given) + (m[1] or "") + "}", literal)


def _from_percent(script: Script, node: cst.CSTNode) -> str:
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Modulo):
        return ""
    if not _is_plain(node.left) or not isinstance(node.right, cst.Tuple):
        return ""
    literal = script.code(node.left)
    marks = re.findall(r"%(\d*\.\d+f|d)", literal)
    values = [script.code(e.value) for e in node.right.elements]
    if len(marks) != literal.count("%") or len(marks) != len(values) or "{" in literal or "d" in marks:
        return ""
    if any(literal[0] in v or "\\" in v or "\n" in v or '"' in v or "{" in v or ":" in v for v in values):
        return ""
    given = iter(values)
    return "f" + re.sub(r"%(\d*\.\d+f)", lambda m: "{" + next(given) + ":" + m[1] + "}", literal)


def _is_plain(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleString) and node.prefix == "" and len(node.quote) == 1


@variation
def comprehensions_as_loops(script: Script, rng: Random) -> cst.Module | None:
    """a loop with `append` instead of a list comprehension"""
    edits: Edits = {}
    for line in script.nodes:
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1 or script.dynamic:
            continue
        assign = line.body[0]
        if (
            not isinstance(assign, cst.Assign)
            or not isinstance(assign.value, cst.ListComp)
            or len(assign.targets) > 1
        ):
            continue
        target, made = assign.targets[0].target, assign.value
        inner = made.for_in
        if inner.inner_for_in or inner.asynchronous or not isinstance(target, cst.Name):
            continue
        if (
            isinstance(script.parents.get(script.parents[line]), cst.ClassDef)
            or target.value in script.code(made).replace(".", " ").split()
        ):
            continue
        names = [n.value for n in _names(inner.target)]
        others = script.code(script.function_of(line)).replace(script.code(made), "")
        if any(re.search(rf"\b{name}\b", others) for name in names):
            continue  # the loop's name would live on
        tests = " and ".join(f"({script.code(one.test)})" for one in inner.ifs)
        body = f"{target.value}.append({script.code(made.elt)})"
        body = f"if {tests}:\n        {body}" if tests else body
        lines: Any = script.parsed(
            f"{target.value} = []\nfor {script.code(inner.target)} in {script.code(inner.iter)}:\n    {body}"
        )
        edits[line] = lambda updated, lines=lines: cst.FlattenSentinel(
            [lines[0].with_changes(leading_lines=updated.leading_lines), *lines[1:]]
        )
    return script.edited(edits) if edits else None


def _names(node: cst.CSTNode) -> list[cst.Name]:
    return [one for one in [node, *node.children] if isinstance(one, cst.Name)]


@variation
def sums_written_out(script: Script, rng: Random) -> cst.Module | None:
    """`total = total + x` instead of `total += x` for numbers"""
    edits: Edits = {}
    for line in script.nodes:
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            continue
        one = line.body[0]
        numeric = isinstance(one, cst.AugAssign) and isinstance(one.operator, cst.AddAssign)
        if (
            numeric
            and isinstance(one.target, cst.Name)
            and re.search(r"\.item\(\)|len\(|\.size\(|^1$", script.code(one.value))
        ):  # type: ignore[union-attr]
            name, value = script.code(one.target), script.code(one.value)  # type: ignore[union-attr]
            new: Any = script.one(f"{name} = {name} + ({value})")
            edits[one] = lambda updated, new=new: new.body[0]
    return script.edited(edits) if edits else None
