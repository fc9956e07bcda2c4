"""CT902 by use: an author's option, off by default, makes the group; without it the launched processes share nothing."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.placing.options import Options
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.groups import makes_group
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

RULE = "CT902"
REMEDY = "launch it with that option"
_OF_LAUNCHER = re.compile(r"rank|world|gpu|environ", re.I)  # what says how many processes there are


def note_option_of_group(plan: Plan) -> None:
    """Says which option the processes need: `if args.distributed: dist.init_process_group(...)`."""
    script, options = plan.script, Options(plan.script)
    for call in (one for one in script.calls if makes_group(script, one)):
        for one in script.around(call):
            if isinstance(one, ast.If) and call not in walk(one.test) and _is_off(script, options, one.test):
                said = f"every process trains on the same data unless `{written(one.test)}`, which makes the group"
                plan.note(RULE, one.test, said, REMEDY)
                return


def _is_off(script: Script, options: Options, test: ast.expr) -> bool:
    """Whether a test asks for one option alone, which nothing but the command line or a file sets."""
    asked = [n for n in walk(test) if isinstance(n, ast.Attribute)]
    if len(asked) != 1 or any(isinstance(n, ast.Call | ast.Not) for n in walk(test)):
        return False
    text, option = written(asked[0]), options.by_name.get(asked[0].attr)
    is_set = script.is_imported(asked[0]) or any(script.stores(one, text) for one in script.frames)
    is_more = isinstance(test, ast.Compare) and len(test.ops) > 1
    if is_set or is_more or _OF_LAUNCHER.search(text):
        return False
    if option is None or option.is_switch:
        return True
    return isinstance(option.default, ast.Constant) and not _holds(test, option.default.value)


def _holds(test: ast.expr, value: object) -> bool:
    """Whether a test of an option holds for its default."""
    if not isinstance(test, ast.Compare):
        return bool(value)
    against = getattr(test.comparators[0], "value", None)
    match test.ops[0]:
        case ast.NotEq() | ast.IsNot():
            return value != against
        case ast.Gt() if isinstance(value, int) and isinstance(against, int):
            return value > against
        case ast.Eq() | ast.Is():
            return value == against
    return True
