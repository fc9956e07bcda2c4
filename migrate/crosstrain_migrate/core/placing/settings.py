"""Statements above which no accelerator has to be: imports, definitions, constants, options, settings, seeds."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import FUNCTIONS, root_of
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, words
from crosstrain_migrate.syntax.walks import walk

# Calls before which nothing has to be: settings, options, seeds, questions.
_SETTINGS = re.compile(
    r"^(sys\.|os\.environ|os\.path|warnings\.|matplotlib\.use|matplotlib\.pyplot\.switch_backend|plt\.switch_backend"
    r"|torch\.(manual_seed|backends|cuda\.manual_seed)"
    r"|(np|numpy)\.random\.seed|random\.seed|logging\.)"
)
_OPTIONS = words(
    "ArgumentParser OptionParser add_argument add_option add_argument_group add_parser add_subparsers"
    " add_mutually_exclusive_group set_defaults parse_args parse_known_args"
)
_QUESTIONS = words(
    "int float str bool len vars dict list tuple set range isinstance getattr hasattr format join"
    " split strip lower get sorted min max"
)
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Pass, ast.Global, *FUNCTIONS)


def only_sets(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement of a file's top level does nothing that matters to the processes."""
    if isinstance(statement, _DEFINITIONS):
        return True
    if isinstance(statement, ast.Try) and all(
        isinstance(s, ast.Import | ast.ImportFrom) for s in statement.body
    ):
        return True
    calls = [n for n in walk(statement) if isinstance(n, ast.Call)]
    if isinstance(statement, ast.If) and not calls:
        return True
    if _sets_an_option(script, statement):  # args.cuda = not args.no_cuda and torch.cuda.is_available()
        calls = [n for n in calls if last_name(n.func) not in ("is_available", "device_count")]
    known = _OPTIONS | _QUESTIONS
    return all(last_name(n.func) in known or _SETTINGS.match(script.dotted(n.func)) for n in calls)


def _sets_an_option(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement sets an attribute of what parsing has given."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Attribute):
        return False
    values = script.values(script.frame(statement), root_of(statement.targets[0]))
    return any(isinstance(v, ast.Call) and last_name(v.func) in _OPTIONS for v in values)
