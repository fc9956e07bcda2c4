"""What looks for files, reads them, and makes folders: tables of calls, and questions about a single call."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, words, written
from crosstrain_migrate.syntax.walks import walk

from .writers import CONTAINERS, OPENS, is_of_project, mode_of, opens_to_write

_ASKS = frozenset({"exists", "isfile", "isdir", "is_file", "is_dir", "listdir", "glob", "_check_exists"})
_LISTS = words("os.listdir os.scandir os.walk glob.glob glob.iglob")
_READS = re.compile(r"^(load|from_file$|read_|imread|fromfile|genfromtxt|memmap)")
# `TabularDataset(path, format="csv")`
_OBJECT_OF_FILE = re.compile(r"^[A-Z]\w*(Dataset|Reader|Corpus|Folder)$|^COCO$")


def makes_folder(script: Script, call: ast.Call) -> bool:
    """Whether a call makes a folder: `os.makedirs(path)`, `path.mkdir()`, and not a function of the project of that name."""
    name = script.dotted(call.func)
    if name in ("os.mkdir", "os.makedirs"):
        return True
    return is_method(call, "mkdir") and not name.startswith("os.") and not is_of_project(script, call)


def path_of_folder(call: ast.Call) -> ast.expr | None:
    """The folder that a call makes: `os.makedirs(path)`, `path.mkdir()`."""
    if isinstance(call.func, ast.Attribute) and written(call.func.value) != "os":
        return call.func.value
    return call.args[0] if call.args else None


def decides_by_folder(call: ast.Call) -> ast.expr | None:
    """The option by which a script allows a folder to exist already, unless it is a constant."""
    given = next((k.value for k in call.keywords if k.arg == "exist_ok"), None)
    return None if isinstance(given, ast.Constant) else given


def asks_for_files(test: ast.AST) -> bool:
    """Whether code looks for files."""
    return any(isinstance(n, ast.Call) and last_name(n.func) in _ASKS for n in walk(test))


def lists_folder(script: Script, call: ast.Call) -> bool:
    """Whether a call looks for files of any name."""
    is_found = is_method(call, "glob", "rglob", "iterdir") or script.dotted(call.func) in _LISTS
    return is_found or last_name(call.func) in ("ImageFolder", "DatasetFolder")


def listing_around(script: Script, statement: ast.stmt) -> ast.For | None:
    """The loop of a statement, `for name in os.listdir(folder):`, where nothing reads the name behind it. What the main
    process removes there is gone when another process asks for it."""
    loop = script.parent(statement)
    if not isinstance(loop, ast.For) or loop.orelse or not isinstance(loop.target, ast.Name):
        return None
    reads = script.reads(script.frame(loop), loop.target.id)
    is_listing = asks_for_files(loop.iter) and all(loop in script.around(read) for read in reads)
    return loop if is_listing else None


def reads_file(script: Script, call: ast.Call) -> bool:
    name, last = script.dotted(call.func), last_name(call.func)
    if name in OPENS | CONTAINERS | {"PIL.Image.open"} or (
        is_method(call, "open") and mode_of(script, call, 0)
    ):
        return not opens_to_write(script, call)
    if name in ("os.path.isfile", "os.path.exists"):  # `assert os.path.isfile(path)`
        return isinstance(script.statement(call), ast.Assert)
    if _OBJECT_OF_FILE.search(last):
        return script.class_made(call) is None  # what one of the project reads stands there
    return last != "load_state_dict" and _READS.match(last) is not None
