"""Files that a function of a module that was not read writes, as its name and what it is given say."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import is_function_frame
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

# Libraries whose functions save together, or have been seen to by other rules.
_COMMUNICATES = re.compile(r"^(torch|torch_xla|deepspeed|accelerate|fairscale|megatron|apex)\.")
_WRITES = re.compile(r"^(save|write|plot|draw|export|dump)")
_FILE = re.compile(r"\.[a-z]\w{1,4}$")
_DEPTH = 3


def written_elsewhere(script: Script, call: ast.Call) -> ast.expr | None:
    """The file that such a function writes: `save_checkpoint({"model": model.state_dict()}, path)`, `save_wav(wave, path)`."""
    name, last = script.dotted(call.func), script.last(call.func)
    is_imported = script.is_imported(call.func) or _by_star(script, call.func)
    is_unread = is_imported and not script.functions(last) and not script.classes(last)
    if not is_unread or _COMMUNICATES.match(name) or not is_statement_call(script, call):
        return None
    if last.startswith("save") and any(map(_has_weights, call.args)):
        return next((one for one in call.args if not _has_weights(one)), None)
    paths = call.args if _WRITES.match(last) else []
    return next((one for one in paths if _names_file(script, one, _DEPTH)), None)


def _names_file(script: Script, node: ast.expr, depth: int) -> bool:
    """Whether an expression is the path of a file, in its own function or as a caller gives it: `join(folder, "a.png")`."""
    texts = [n.value for n in walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if any(map(_FILE.search, texts)):
        return True
    if not isinstance(node, ast.Name) or not depth:
        return False
    frame = script.frame(node)
    found = list(script.values(frame, node.id))
    if not found and is_function_frame(frame) and node.id in script.parameters(frame):
        found += [script.argument_for(c, frame, node.id) or c for c in script.callers(frame)]
    return any(one is not node and _names_file(script, one, depth - 1) for one in found)


def _by_star(script: Script, node: ast.expr) -> bool:
    """Whether a name that nothing binds may come from a `from utils import *`."""
    module = script.module(node)
    stars = (one for one in script.table.each(ast.ImportFrom) if one.names[0].name == "*")
    is_free = isinstance(node, ast.Name) and script.table.scopes[script.frame(node)].resolve(node.id) is None
    return is_free and any(script.module(one) is module for one in stars)


def _has_weights(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and last_name(n.func) == "state_dict" for n in walk(node))
