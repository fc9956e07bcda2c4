"""What needs an accelerator made before, random draws that all share, splits, downloads, folders, moves to a GPU, and above what
none has to be: imports, definitions, constants, options, settings, seeds.

The accelerator's start makes the draws of all processes the same (contract, decision 9), and knows which process goes first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from crosstrain_migrate.core.reading.draws import RANDOM
from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, root_of
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, words
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk

_SHARED = re.compile(
    r"(^|\.)(random_split|train_test_split|KFold|StratifiedKFold|urlretrieve|makedirs|mkdir|load_dataset|load_state_dict_from_url|cuda)$"
    r"|download",
    re.I,
)
_DEPTH = 3
VISIBLE = "CUDA_VISIBLE_DEVICES"
# Calls before which nothing has to be: settings, options, seeds, questions.
_SETTINGS = re.compile(
    r"^(sys\.|os\.environ|os\.path|warnings\.|matplotlib\.use|matplotlib\.pyplot\.switch_backend|plt\.switch_backend"
    r"|torch\.(manual_seed|backends|cuda\.manual_seed|set_\w+|use_deterministic_algorithms|autograd\.set_detect_anomaly)"
    r"|cv2\.(setNumThreads|ocl\.setUseOpenCL)|(multiprocessing|torch\.multiprocessing)\.set_\w+"
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
    functions += script.methods(made, "__init__")
    for function in functions:
        if function not in asked and depth < _DEPTH:
            asked.add(function)
            if any(_shares(script, inner, asked, depth + 1) for inner in script.calls_in(function)):
                return True
    return False


def _asks_download(keyword: ast.keyword) -> bool:
    is_off = isinstance(keyword.value, ast.Constant) and not keyword.value.value
    return keyword.arg == "download" and not is_off


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


def choose_visible(script: Script, statements: Iterable[ast.AST]) -> list[ast.stmt]:
    """Those that say which GPUs there are."""
    if VISIBLE not in script.text:
        return []
    return [s for s in statements if isinstance(s, ast.stmt) and chooses_visible(s)]


def tells_visible(script: Script, statement: ast.stmt) -> bool:
    """Whether a statement says which GPUs there are, or calls a function that does: `choose_gpus(args)`, `config = read(args)`."""
    call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    called = script.functions(last_name(call.func)) if isinstance(call, ast.Call) else []
    return bool(choose_visible(script, [statement, *(n for one in called for n in script.within(one))]))


def chooses_visible(statement: ast.stmt) -> bool:
    """Whether a statement says which GPUs there are, and does nothing else that matters; a function says so where it runs."""
    if isinstance(statement, (*FUNCTIONS, ast.ClassDef)) or is_main_test(statement):
        return False
    if not any(map(_names_visible, walk(statement))):
        return False
    inside = [n for n in walk(statement) if isinstance(n, ast.stmt) and n is not statement]
    return not any(isinstance(n, ast.For | ast.While | ast.With | ast.Return) for n in inside) and not any(
        isinstance(n, ast.Call) and last_name(n.func) in ("cuda", "to", "DataParallel", "load")
        for n in walk(statement)
    )


def _names_visible(node: ast.AST) -> bool:
    match node:
        case (
            ast.Constant(value=str(text))
            | ast.keyword(arg=str(text))
            | ast.Name(id=text)
            | ast.Attribute(attr=text)
        ):
            return VISIBLE in text
    return False
