"""CT206: micro-batches are averaged once a step

What:   A backward pass that no step follows does not exchange its gradients; the author's test says which pass that is.
Why:    The last backward pass averages the gradients of all of them: the same sum, with one exchange instead of several.
Leaves: scripts that read or clip gradients anywhere but before that step, and tests whose value changes between the
        backward pass and the step.

Example (loop):
    for i, (x, y) in enumerate(train_loader):
And (zero): nothing
And (backward):
    (loss / 4).backward()
And (step):
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
Becomes (accelerator):
    from contextlib import nullcontext
    from crosstrain import Accelerator
And (backward):
    steps_now = (i + 1) % 4 == 0
    with nullcontext() if steps_now else accelerator.no_sync(model):
        accelerator.backward(loss / 4)
Stays (loop):
    for i, (x, y) in enumerate(train_loader):
And (zero): nothing
And (step):
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
And (after_step):
    norm = model.weight.grad.norm()
"""

from __future__ import annotations

import ast
from itertools import chain, count

from crosstrain_migrate.facts.values import FromBatch
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.distribution.process_dependent import ProcessDependent
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name

RULE = "CT206"
REASON = "the gradients of several batches are averaged once"


def plan(context: Context) -> None:
    if context.runtime != "crosstrain" or context.requested.mapped or len(context.facts.backward_calls) != 1:
        return
    call = context.facts.backward_calls[0][0]
    statement = context.facts.table.statement_of(call)
    loop = context.facts.batch_loop_around(call)
    if loop is None or not isinstance(statement, ast.Expr) or statement.value is not call:
        return
    steps = _steps(context, statement, loop)
    model = _model(context, loop)
    if steps is None or model is None or not context.allows(RULE, statement):
        return
    name = _free_name(context, statement)
    told = e.InsertBefore(statement, RULE, REASON, code=f"{name} = {context.source(steps.test)}")
    within = f"nullcontext() if {name} else {context.accelerator(call)}.no_sync({model})"
    context.edits += [told, e.Within(statement, RULE, context=within)]
    file = context.facts.table.of_node[call].file
    context.edits.append(e.AddImport(file, RULE, code="from contextlib import nullcontext"))


def _free_name(context: Context, node: ast.AST) -> str:
    scope = context.facts.table.of_node[node]
    taken = scope.names | scope.module.names
    return next(n for n in chain(("steps_now",), (f"steps_now_{k}" for k in count(2))) if n not in taken)


def _steps(context: Context, backward: ast.stmt, loop: ast.AST) -> ast.If | None:
    """The `if` after a backward pass, in its suite, that holds every step of the loop and every `zero_grad`."""
    suite = suite_of(context.facts, backward)
    behind = suite[suite.index(backward) + 1 :]
    calls = [n for n in ast.walk(loop) if isinstance(n, ast.Call)]
    stepping = [c for c in calls if _is_of_optimizer(context, c, "step")]
    tests = [s for s in behind if isinstance(s, ast.If) and not s.orelse]
    found = [s for s in tests if any(c in ast.walk(s) for c in stepping)]
    if len(found) != 1 or not _is_known_before(context, found[0].test, behind[: behind.index(found[0])]):
        return None
    inside = set(ast.walk(found[0]))
    forgetting = [c for c in calls if _is_of_optimizer(context, c, "zero_grad")]
    # After the loop, too: what is left of the last window has not been averaged yet.
    everywhere = list(ast.walk(context.facts.tree))
    reading: list[ast.AST] = [n for n in everywhere if isinstance(n, ast.Call) and _clips(n)]
    reading += [n for n in everywhere if isinstance(n, ast.Attribute) and n.attr == "grad"]
    return found[0] if all(n in inside for n in (*stepping, *forgetting, *reading)) else None


def _is_of_optimizer(context: Context, call: ast.Call, method: str) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != method:
        return False
    any_owner = method == "zero_grad"  # a model's, too
    return any_owner or bool(context.facts.of(call.func.value) & set(context.facts.optimizers))


def _clips(call: ast.Call) -> bool:
    return last_name(call.func) in {"clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"}


def _is_known_before(context: Context, test: ast.expr, between: list[ast.stmt]) -> bool:
    """Whether a test of a counter, `(i + 1) % steps == 0`, has the same answer in all processes, and above these
    statements already."""
    nodes = list(ast.walk(test))
    counts = any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in nodes)
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    if not counts or any(context.facts.paths(c.func) != {"builtins.len"} for c in calls):
        return False
    if any(isinstance(v, FromBatch) for n in nodes if isinstance(n, ast.expr) for v in context.facts.of(n)):
        return False
    read = {last_name(n) for n in nodes if isinstance(n, ast.Name | ast.Attribute)}
    bound = (n for s in between for n in ast.walk(s) if isinstance(getattr(n, "ctx", None), ast.Store))
    changed = set(map(last_name, bound))
    return not read & changed and ProcessDependent(context.facts).asks(test) is None


def _model(context: Context, loop: ast.AST) -> str | None:
    """The name by which the loop calls the model, if there is only one model and one name."""
    models = set(context.subject.models)
    called = (n.func for n in ast.walk(loop) if isinstance(n, ast.Call))
    named = (f for f in called if isinstance(f, ast.Name | ast.Attribute))
    names = {context.source(f) for f in named if context.facts.of(f) & models}
    return names.pop() if len(models) == len(names) == 1 else None
