"""What needs an accelerator made before: random draws that all share, splits, downloads, folders, moves to a GPU.

The accelerator's start makes the draws of all processes the same (contract, decision 9), and knows which process goes first.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.draws import RANDOM
from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.walks import walk

_SHARED = re.compile(
    r"(^|\.)(random_split|train_test_split|KFold|StratifiedKFold|urlretrieve|makedirs|mkdir|load_dataset|load_state_dict_from_url|cuda)$"
    r"|download",
    re.I,
)
_DEPTH = 3


def needs_accelerator(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement draws, splits, downloads, makes folders or moves to a GPU, itself or in the functions that it calls."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
        return False
    return any(_shares(script, node, set(), 0) for node in walk(statement) if isinstance(node, ast.Call))


def _shares(script: Script, call: ast.Call, asked: set[Frame], depth: int) -> bool:
    name = script.dotted(call.func)
    if RANDOM.match(name) or _SHARED.search(name) or any(_asks_download(one) for one in call.keywords):
        return True
    functions = [*script.functions_of(call)]
    made = script.class_made(call)
    functions += script.methods(made, "__init__") if made is not None else []
    for function in functions:
        if function not in asked and depth < _DEPTH:
            asked.add(function)
            if any(_shares(script, inner, asked, depth + 1) for inner in script.calls_in(function)):
                return True
    return False


def _asks_download(keyword: ast.keyword) -> bool:
    is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
    return keyword.arg == "download" and not is_off
