"""Output and comprehensions."""

from __future__ import annotations

from random import Random

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
