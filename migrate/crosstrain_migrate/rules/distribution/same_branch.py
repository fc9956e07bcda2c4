"""CT310: all processes take the same branch

What:   A test that each process would answer for itself (does a file exist, how much time has passed), around code in
        which all processes take part: the main process answers it for all of them.
Why:    A process with a different answer leaves the others waiting, and machines may have different file systems.
Refuses: a test of the rank around work of all processes.

Example (imports):
    import time
And (setup):
    begun = time.time()
And (after_epoch):
    if time.time() - begun > 60:
        break
Becomes (accelerator):
    from crosstrain import Accelerator
    from crosstrain.utils import broadcast_object_list
And (after_epoch):
    if broadcast_object_list([time.time() - begun > 60])[0]:
        break
Stays (imports):
    import time
And (setup):
    begun = time.time()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of, place_of
from crosstrain_migrate.syntax.scopes import suites

from .process_dependent import EXITS, RANK, ProcessDependent

RULE = "CT310"
Asking = ast.If | ast.While | ast.IfExp
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
# Collectives of the accelerator, in the code of an edit.
_TOGETHER = re.compile(
    r"\.(gather\w*|reduce|broadcast\w*|prepare\w*|backward|wait_for_everyone|save_state|load_state|clip_grad\w*"
    r"|(local_)?main_process_first|pad_across_processes|check_trigger)\("
    r"|\b(broadcast_object_list|gather_object)\("
)


def plan(context: Context) -> None:
    """Runs last, when all collectives are planned."""
    together = _together(context)
    differing = ProcessDependent(context.facts)
    tests = sorted(context.facts.each(ast.If, ast.While, ast.IfExp), key=place_of)
    asking = {node: what for node in tests if (what := differing.asks(node.test)) is not None}
    _no_guard_around(context, together)
    done: set[ast.AST] = set()
    while True:
        met = {
            node: at for node in asking if node not in done and (at := _common_work(context, node, together))
        }
        if not met:
            return
        for node, at in met.items():
            _answer_once(context, node, asking[node], at)
            done.add(node)
            together.add(node.test)


def _together(context: Context) -> set[ast.AST]:
    """The nodes at which all processes communicate, whichever rule planned it."""
    found = set(context.collective)
    for edit in context.edits:
        code = getattr(edit, "code", "") or getattr(edit, "template", "") or getattr(edit, "context", "")
        if _TOGETHER.search(code) and not isinstance(edit, e.AddImport):
            found.add(edit.node)
    return found


def _no_guard_around(context: Context, together: set[ast.AST]) -> None:
    """Refuses a collective in code that another rule has left to the main process."""
    for edit in context.edits:
        if not isinstance(edit, e.Guard) or not isinstance(edit.node, ast.stmt):
            continue
        at = _first_in(context, _from_to(context, edit.node, edit.last or edit.node), together)
        if at is not None and not (isinstance(at, ast.stmt) and at is edit.node):
            raise _refusal(edit.node, "only the main process would run this", at)


def _from_to(context: Context, first: ast.stmt, last: ast.stmt) -> list[ast.AST]:
    parent = context.facts.table.parents[first]
    suite = next((s for s in suites(parent) if first in s), [first])
    return list(suite[suite.index(first) : suite.index(last) + 1])


# -- what a test decides -------------------------------------------------------------------------------------


def _common_work(context: Context, node: Asking, together: set[ast.AST]) -> ast.AST | None:
    """The first collective that a test decides about."""
    if isinstance(node, ast.IfExp):
        return _first_in(context, [node.body, node.orelse], together)
    under: list[ast.AST] = [*node.body, *node.orelse]
    for leaving in _leaving(context, node):
        under += _skipped(context, node, leaving)
    return _first_in(context, under, together)


def _first_in(
    context: Context, nodes: list[ast.AST], together: set[ast.AST], seen: frozenset[ast.AST] = frozenset()
) -> ast.AST | None:
    """The first node in `nodes`, or call that leads to one, at which all processes communicate."""
    for node in nodes:
        for part in _run(node):
            if part in together:
                return part
            for target in context.facts.targets(part) if isinstance(part, ast.Call) else ():
                if target not in seen and _first_in(context, _body(target), together, seen | {target}):
                    return part
    return None


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when `node` does, which excludes the bodies of functions that it defines."""
    yield node
    if not isinstance(node, _FUNCTIONS):
        for child in ast.iter_child_nodes(node):
            yield from _run(child)


def _body(function: ast.AST) -> list[ast.AST]:
    body = getattr(function, "body", [])
    return list(body) if isinstance(body, list) else [body]


def _leaving(context: Context, node: ast.If | ast.While) -> list[ast.stmt]:
    """The statements under a test that end a loop, a function or the script."""
    found: list[ast.stmt] = []
    for part in (p for s in (*node.body, *node.orelse) for p in _run(s)):
        match part:
            case ast.Return() | ast.Break() | ast.Continue():
                found.append(part)
            case ast.Expr(value=ast.Call(func=called)) if context.facts.paths(called) & EXITS:
                found.append(part)
    return found


def _skipped(context: Context, node: ast.If | ast.While, leaving: ast.stmt) -> list[ast.AST]:
    """The code of this function that a process skips when it leaves there."""
    loops = [a for a in _within_function(context, leaving) if isinstance(a, _LOOPS)]
    if isinstance(leaving, ast.Break | ast.Continue):
        loops = loops[:1]
        if loops[0] is node:
            return []
    found: list[ast.AST] = []
    if loops and not isinstance(leaving, ast.Continue):
        found += loops[-1].body  # the loop goes on for those that stay
    child: ast.AST = node
    for around in _within_function(context, node):
        suite = next((s for s in suites(around) if child in s), [])
        found += suite[suite.index(child) + 1 :] if isinstance(child, ast.stmt) and suite else []
        if around in loops[:1] and isinstance(leaving, ast.Break | ast.Continue):
            break
        child = around
    return found


def _within_function(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    for around in context.facts.table.ancestors(node):
        yield around
        if isinstance(around, (*_FUNCTIONS, ast.Module)):
            return


# -- one answer for all --------------------------------------------------------------------------------------


def _answer_once(context: Context, node: Asking, what: str, at: ast.AST) -> None:
    if what == RANK:
        raise _refusal(node, "each process answers this test by its own rank", at)
    if any(edit.node is node.test for edit in context.edits):
        return  # another rule has already made the answer the same for all
    if not _state_is_made(context, node):
        said = f"each process asks {what} here, and all of them have to take part in what follows (line {line_of(at)})"
        context.note(
            RULE,
            node,
            said,
            "make sure that all processes get the same answer, for example by a directory that all machines share",
        )
        return
    answer = "{x}" if _is_answer(context, node.test) else "bool({x})"
    reason = f"the main process decides for all of them; otherwise each would ask {what} for itself"
    context.replace(node.test, RULE, reason, f"broadcast_object_list([{answer}])[0]", x=node.test)
    file = context.facts.table.of_node[node].file
    code = f"from {context.runtime}.utils import broadcast_object_list"
    context.edits.append(e.AddImport(file, RULE, code=code))


def _is_answer(context: Context, test: ast.expr) -> bool:
    """Whether a test is a bool already, and not a number or a list that counts as true or false."""
    if isinstance(test, ast.Call):
        return any(p.startswith("os.path.") for p in context.facts.paths(test.func))
    return isinstance(test, ast.Compare | ast.UnaryOp)


def _state_is_made(context: Context, node: ast.AST) -> bool:
    """Whether the Accelerator exists when the test runs: processes cannot communicate before."""
    function = context.facts.enclosing_function(node)
    if function is None or function is context.home.scope.node:
        return context.after_home(node) and (function is not None or context.sees_global(node))
    return context.reachable(node)


def _refusal(node: ast.AST, why: str, at: ast.AST) -> Exception:
    shown = ast.unparse(at).split("\n", 1)[0]
    reason = (
        f"{why}, but all processes have to take part in line {line_of(at)} (`{shown}`): "
        "those that skip it leave the others waiting"
    )
    remedy = "move it out of the test, so that all processes run it, and leave only printing and writing under the test"
    return refuse(RULE, node, reason, remedy)
