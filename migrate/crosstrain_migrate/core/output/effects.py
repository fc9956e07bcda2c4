"""What code changes besides files and windows: attributes, globals, and what it was given or has found.

A variable is fresh where all that it is bound to is made on the spot. What happens to a fresh object ends with the code
that made it; any other may be somebody else's under a second name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from crosstrain_migrate.core.reading.forms import pairs
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import COMPREHENSIONS, Function, last_name, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

_VALUES = (ast.Constant, ast.JoinedStr, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Lambda)
_MADE = (*_VALUES, ast.List, ast.Tuple, ast.Dict, ast.Set, *COMPREHENSIONS)
_COPIES = frozenset({"copy", "clone", "deepcopy", "tolist", "astype", "split", "sum", "mean"})
# Calls that give what they were given, or a view of it.
_VIEWS = words(
    "zip enumerate reversed iter next map filter getattr vars globals locals asarray from_numpy"
    " as_tensor squeeze unsqueeze reshape ravel transpose permute swapaxes moveaxis expand_dims"
    " flatten"
)
_SETTERS = frozenset({"setattr", "delattr", "exec"})
_GROWS = words(
    "append appendleft extend insert add update pop popleft popitem remove discard clear setdefault"
    " sort reverse push step __setattr__ __setitem__ load_state_dict register_buffer put"
)
# Functions of modules that change what the whole process goes on with.
_SETTINGS = re.compile(
    r"^(os\.(chdir|putenv|umask|environ\.\w+)|sys\.(path\.\w+|set\w+)|torch\.(\w+\.)*(set_|use_)\w+|numpy\.seterr)$"
)
_LIBRARIES = re.compile(
    r"^(torch\w*|scipy|skimage|sklearn|seaborn|imageio|matplotlib|pylab|cv2|numpy|pandas|PIL|plotly|tqdm|os|sys|json"
    r"|shutil|pprint|datetime|pathlib)\."
)


@dataclass(frozen=True)
class Effects:
    """Answers for a script's code."""

    script: Script

    def fresh(self, nodes: list[ast.AST], given: Iterable[str] = (), made: Iterable[str] = ()) -> set[str]:
        """The variables that these nodes bind to nothing but what they make. given: names that are parameters, or global;
        made: parameters that are given what is made for them."""
        bound = [pair for node in nodes for pair in _bound(node)]
        found = {*(name for name, _ in bound), *made} - set(given)
        while stale := {n for n, value in bound if n in found and not self.is_fresh(value, found)}:
            found -= stale
        return found

    def is_fresh(self, value: ast.expr, own: set[str]) -> bool:
        """Whether an expression makes something new, or names what is in `own`."""
        if isinstance(value, _MADE):
            return True
        if isinstance(value, ast.Name):
            return value.id in own
        if isinstance(value, ast.Attribute | ast.Subscript | ast.Starred):
            return self.is_fresh(value.value, own)
        if isinstance(value, ast.IfExp):
            return self.is_fresh(value.body, own) and self.is_fresh(value.orelse, own)
        if isinstance(value, ast.BoolOp):
            return all(self.is_fresh(one, own) for one in value.values)
        return isinstance(value, ast.Call) and self._is_made(value, own)

    def _is_made(self, call: ast.Call, own: set[str]) -> bool:
        last = last_name(call.func)
        if self.script.class_made(call) is not None:
            return True
        if self.script.functions_of(call):
            return False
        is_plain = isinstance(call.func, ast.Name) or self.is_module(call.func)
        if last in _VIEWS and is_plain:
            return bool(call.args) and all(self.is_fresh(one, own) for one in call.args)
        if is_plain or last in _COPIES:
            return True
        return isinstance(call.func, ast.Attribute) and self.is_fresh(call.func.value, own)

    def is_module(self, func: ast.expr) -> bool:
        """Whether a function is a library's, called by its module: no method of an object that was imported."""
        if not isinstance(func, ast.Attribute) or not self.script.is_imported(func):
            return False
        name = self.script.dotted(func)
        whole = {
            (alias.asname or alias.name).split(".")[0]
            for frame in {self.script.module(func), self.script.frame(func)}
            for node in self.script.within(frame)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        return bool(name) and (_LIBRARIES.match(name) is not None or written(func).split(".")[0] in whole)

    # -- what is changed ---------------------------------------------------------------------------------------

    def changes(self, nodes: Sequence[ast.AST], own: set[str]) -> bool:
        """Whether something is changed that is not in `own`: for sure, as far as these nodes themselves tell."""
        return any(self.is_change(node, own) for node in nodes)

    def is_change(self, node: ast.AST, own: set[str]) -> bool:
        if isinstance(node, ast.Attribute | ast.Subscript):
            return not isinstance(node.ctx, ast.Load) and not self.is_fresh(node.value, own)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            is_value = isinstance(node.value, ast.Constant) or _is_text(node.value)
            return node.target.id not in own and not is_value
        return isinstance(node, ast.Call) and self._is_changing(node, own)

    def _is_changing(self, call: ast.Call, own: set[str]) -> bool:
        last, first = last_name(call.func), call.args[0] if call.args else None
        out = next((keyword.value for keyword in call.keywords if keyword.arg == "out"), None)
        if out is not None and not self.is_fresh(out, own):
            return True
        if isinstance(call.func, ast.Name):
            return last in _SETTERS and not (first is not None and self.is_fresh(first, own))
        if not isinstance(call.func, ast.Attribute):
            return False
        in_place = last.endswith("_") and not last.endswith("__")
        if self.is_module(call.func):
            is_foreign = first is not None and not self.is_fresh(first, own)
            return (in_place and is_foreign) or _SETTINGS.match(self.script.dotted(call.func)) is not None
        return (in_place or last in _GROWS) and not self.is_fresh(call.func.value, own)

    def keeps(self, function: Function, made: Iterable[str] = ()) -> bool:
        """Whether a function, or one that it calls, changes what was there before. made: parameters as in `fresh`."""
        reached = [function]
        for one in reached:  # grows meanwhile
            nodes = walk_all(one.body)
            fresh = made if one is function else ()
            shared = [name for n in nodes if isinstance(n, ast.Global | ast.Nonlocal) for name in n.names]
            given = {*self.script.parameters(one), *shared} - set(fresh)
            if shared or self.changes(nodes, self.fresh(nodes, given, fresh)):
                return True
            called = (f for n in nodes if isinstance(n, ast.Call) for f in self._called(n))
            reached += dict.fromkeys(f for f in called if f not in reached)
        return False

    def _called(self, call: ast.Call) -> list[Function]:
        found = self.script.functions_of(call) if self.script.class_made(call) is None else []
        return found if len(found) == 1 else []

    def is_needed(self, statement: ast.AST) -> bool:
        """Whether something is changed by what stands in a statement's arguments: `note(queue.pop())`."""
        nodes = walk(statement)
        own = self.fresh(nodes)
        inner = [n for n in nodes if isinstance(n, ast.Call) and not is_statement_call(self.script, n)]
        return (
            self.changes(inner, own)
            or any(isinstance(n, ast.NamedExpr) for n in nodes)
            or any(
                self.keeps(f, made=self._made_for(call, f, own)) for call in inner for f in self._called(call)
            )
        )

    def _made_for(self, call: ast.Call, function: Function, own: set[str]) -> list[str]:
        """The parameters for which a call makes something new: `picture(255 * rows[0])`."""
        given = self.script.given_by(call, function).items()
        return [one for one, value in given if self.is_fresh(value, own)]


def _is_text(node: ast.expr) -> bool:
    """Whether an expression is a text for sure: what it is added to is none that anybody else holds."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Call):
        return written(node.func) == "str" or (
            isinstance(node.func, ast.Attribute) and _is_text(node.func.value)
        )
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def _bound(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The variables that a statement binds, each with what it is bound to, or with what that is taken out of."""
    if isinstance(node, ast.Assign):
        bindings = [pair for target in node.targets for pair in pairs(target, node.value)]
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        bindings = [(node.target, node.value)]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        bindings = [(node.optional_vars, node.context_expr)]
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        bindings = list(_items(node.target, node.iter))
    else:
        return
    for target, value in bindings:
        for one in walk(target):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                yield one.id, value


def _items(target: ast.expr, source: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a loop's variables are items of: through `zip` and `enumerate`."""
    if isinstance(source, ast.Call) and isinstance(target, ast.Tuple | ast.List):
        last = last_name(source.func)
        if last == "zip" and len(source.args) == len(target.elts):
            for one, items in zip(target.elts, source.args, strict=True):
                yield from _items(one, items)
            return
        if last == "enumerate" and source.args and len(target.elts) == 2:
            yield target.elts[0], ast.Constant(0)
            yield from _items(target.elts[1], source.args[0])
            return
    yield target, source
