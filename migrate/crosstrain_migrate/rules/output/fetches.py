"""What downloads: a data set that fetches its files itself, and calls that fetch a file."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.rules.arguments import default_of
from crosstrain_migrate.syntax.nodes import all_arguments, last_name
from crosstrain_migrate.syntax.walks import walk

from .opened_files import opens_for_writing

FETCHES = (
    *("urllib.request.urlretrieve", "torch.hub.download_url_to_file", "wget.download", "gdown.download"),
    *("torchvision.datasets.utils.download_url", "torchvision.datasets.utils.download_and_extract_archive"),
    "shutil.unpack_archive",
)
# Their answers are fetched files where the function writes a file.
RESPONSES = frozenset({"requests.get", "urllib.request.urlopen", "httpx.get", "httpx.stream"})
ASKS_FILES = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "listdir", "glob"})


def may_download(facts: Facts, statement: ast.stmt) -> bool:
    """Whether a statement that runs at once downloads, itself or in functions of the script."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    places: list[ast.AST] = [statement]
    for place in places:  # which grows meanwhile
        calls = [n for n in walk(place) if isinstance(n, ast.Call)]
        if any(asked_for(facts, c) is not None or fetches(facts, c) for c in calls):
            return True
        places += {f for c in calls for f in facts.targets(c)} - set(places)
    return False


def asked_for(facts: Facts, call: ast.Call) -> ast.stmt | None:
    """The statement of `datasets.MNIST(root, download=True)`, which looks itself whether the files are there."""
    value = keyword_of(call, "download")
    if value is None or _is_decided_by_callers(facts, value) or _is_off(value):
        return None
    return facts.table.statement_of(call)


def _is_decided_by_callers(facts: Facts, value: ast.expr) -> bool:
    """Whether it is a parameter that downloads nothing by default."""
    function = facts.enclosing_function(value)
    if not isinstance(value, ast.Name) or not isinstance(function, ast.FunctionDef):
        return False
    argument = next((a for a in all_arguments(function) if a.arg == value.id), None)
    if argument is None:
        return False
    default = default_of(function, argument)
    return not isinstance(default, ast.Constant) or _is_off(default)


def _is_off(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and not value.value


def fetches(facts: Facts, call: ast.Call) -> bool:
    """Whether a call brings a file, or unpacks one."""
    if any(path.endswith(FETCHES) for path in facts.paths(call.func)):
        return True
    if any(path in RESPONSES for path in facts.paths(call.func)):
        function = facts.enclosing_function(call)
        return function is not None and any(opens_for_writing(facts, n) for n in walk(function))
    if not isinstance(call.func, ast.Attribute):
        return False
    archive = any(
        isinstance(v, External) and v.path.startswith(("tarfile.", "zipfile."))
        for v in facts.of(call.func.value)
    )
    return call.func.attr == "extractall" or (archive and call.func.attr == "extract")


def asks_files(test: ast.expr) -> bool:
    """Whether a test looks for files."""
    return any(isinstance(n, ast.Call) and last_name(n.func) in ASKS_FILES for n in walk(test))
