"""CT404: downloads are there before they are read

What:   A data set that downloads itself, and an `if` that fetches what is not there yet, go under
        `with accelerator.main_process_first():`; a fetch that asks for nothing is the main process's, and is waited for.
Why:    Processes that fetch into one file at the same time ruin it for each other, and for the one that reads already.
Leaves: (finding) a download before the Accelerator exists, or where it cannot be brought.

Example (imports):
    from torchvision import datasets, transforms
And (data):
    train_set = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
    train_loader = DataLoader(train_set, batch_size=8)
Becomes (data):
    with accelerator.main_process_first():
        train_set = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
    train_loader = DataLoader(train_set, batch_size=8)
Stays (imports):
    from torchvision import datasets, transforms
And (data):
    train_set = datasets.MNIST("data", transform=transforms.ToTensor())
    train_loader = DataLoader(train_set, batch_size=8)
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.distribution.requested_options import MARKED
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .fetches import asked_for, asks_files, fetches
from .files import cannot_be_guarded, takes_all_processes

RULE = "CT404"


def plan(context: Context) -> None:
    first = {s for c in context.facts.calls if (s := asked_for(context.facts, c)) is not None}
    fetched = {c: _around(context, c) for c in context.facts.calls if fetches(context.facts, c)}
    first |= {s for s in fetched.values() if isinstance(s, ast.If)}
    unasked = {s for s in fetched.values() if not isinstance(s, ast.If)}
    for inner in [s for s in first | unasked if s in unasked or not context.at_hand(s)]:
        if calls := _calls_that_ask(context, inner):
            first, unasked = (first | calls) - {inner}, unasked - {inner}
    first = {s for s in first if not any(s is not other and _comes_to(context, s, other) for other in first)}
    done: set[ast.stmt] = set()
    for statement in sorted(first | unasked, key=lambda s: s.lineno):
        around = context.facts.table.ancestors(statement)
        if _is_left_to_one(context, statement, frozenset()) or not done.isdisjoint(around):
            continue
        plan_one = _left_to_one if statement in unasked else _one_first
        if planned := plan_one(context, statement):
            context.edits += planned
            context.collective.add(statement)
            done.add(statement)
        else:
            context.note(
                RULE,
                statement,
                "every process downloads this, all at the same time, and one may read what another still writes",
                "download it before training, or do it under `with accelerator.main_process_first():`",
            )


def _one_first(context: Context, statement: ast.stmt) -> list[e.Edit]:
    """The main process finds nothing and downloads; the others come later and find the files."""
    if not _may_wait(context, statement):
        return []
    code = f"{context.process(statement, RULE)}.main_process_first()"
    return [e.Within(statement, RULE, "the others look for it when it is there", context=code)]


def _left_to_one(context: Context, statement: ast.stmt) -> list[e.Edit]:
    """Without a test for the files: the main process downloads, and the others wait for it."""
    suite = suite_of(context.facts, statement)
    behind = suite[suite.index(statement) + 1 :]
    if not behind or not _may_wait(context, statement) or cannot_be_guarded(context, statement) is not None:
        return []
    accelerator = context.process(statement, RULE)
    return [
        e.Guard(statement, RULE, "downloaded once", last=statement, test=f"{accelerator}.is_main_process"),
        e.InsertBefore(behind[0], RULE, code=f"{accelerator}.wait_for_everyone()"),
    ]


# -- what downloads ------------------------------------------------------------------------------------------


def _calls_that_ask(context: Context, statement: ast.stmt) -> set[ast.stmt]:
    """The statements that call the function around `statement`, which looks for the files before it downloads, where the
    accelerator is at hand: of its callers, and theirs. Empty where one of them cannot have it."""
    found: set[ast.stmt] = set()
    work: list[ast.AST] = [statement]
    seen: set[ast.AST] = set()
    while work:
        function = context.facts.enclosing_function(work.pop())
        if function is None or not context.facts.callers.get(function):
            return set()
        if function in seen:
            continue
        seen.add(function)
        for call in context.facts.callers[function]:
            around = context.facts.table.statement_of(call)
            if context.at_hand(call):
                found.add(around)
            else:
                work.append(around)
    asked = any(isinstance(n, ast.Call) and asks_files(n) for f in seen for n in walk(f))
    if not asked or not all(_may_wait(context, s) for s in found):
        return set()
    context.main_process_first |= seen
    return found


def _around(context: Context, call: ast.Call) -> ast.stmt:
    """The outermost `if` around a fetch that asks for files; else the outermost `with` or loop, or the statement."""
    table = context.facts.table
    statement = table.statement_of(call)
    asks: ast.If | None = None
    for around in table.ancestors(call):
        if around in table.scopes:
            break
        if isinstance(around, ast.If) and asks_files(around.test):
            asks = around
        elif isinstance(around, ast.With | ast.For) and asks is None:
            statement = around
    return asks or statement


# -- where processes may wait for each other -----------------------------------------------------------------


def _may_wait(context: Context, statement: ast.stmt) -> bool:
    """Whether the accelerator is at hand, and what stands here neither communicates nor is needed on all processes."""
    if not context.reachable(statement) or not context.allows(RULE, statement):
        return False
    trains = {call for call, _ in context.facts.backward_calls} & set(walk(statement))
    fits = isinstance(statement, ast.If) or not hasattr(statement, "body") or _is_fetch(context, statement)
    return fits and not trains and takes_all_processes(context, statement) is None


def _is_fetch(context: Context, statement: ast.stmt) -> bool:
    """A block, such as `with tarfile.open(...)`, that unpacks; not one that goes over a data set it downloads."""
    calls = [n for n in walk(statement) if isinstance(n, ast.Call)]
    return any(fetches(context.facts, call) for call in calls) and not any(
        k.arg == "download" for c in calls for k in c.keywords
    )


def _is_left_to_one(context: Context, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether only some processes come here: in a branch for the main one, in this function or around its calls."""
    facts = context.facts
    tests = (around.test for around in facts.table.ancestors(node) if isinstance(around, ast.If))
    if any(isinstance(n, ast.Name) and MARKED.match(n.id) for test in tests for n in walk(test)):
        return True
    function = facts.enclosing_function(node)
    if function is None or function in seen:
        return False
    return any(_is_left_to_one(context, s, seen | {function}) for s in facts.callers.get(function, ()))


def _comes_to(context: Context, statement: ast.AST, other: ast.stmt, depth: int = 4) -> bool:
    """Whether running `statement` comes to `other`, which then waits by itself."""
    calls = (n for n in walk(statement) if isinstance(n, ast.Call))
    return any(
        other in walk(function) or (depth and _comes_to(context, function, other, depth - 1))
        for call in calls
        for function in context.facts.targets(call)
    )
