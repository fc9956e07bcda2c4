"""CT307: NVIDIA apex

What:   `amp.initialize` is removed, and `mixed_precision=` follows the switch around it. `amp.scale_loss` and
        `amp.master_params` are removed, and the branches with and without apex are merged.
Why:    apex is no longer developed; torch and the accelerator do the same.
Refuses: apex's state in checkpoints, delayed unscaling, several losses, weights kept in half precision (O3).

Example (imports):
    from apex import amp
And (setup):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
And (backward):
    with amp.scale_loss(loss, optimizer) as scaled_loss:
        scaled_loss.backward()
Becomes (imports): nothing
And (device):
    accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")  # the fastest there is
And (setup): nothing
And (backward):
    accelerator.backward(loss)
Refused (imports):
    from apex import amp
And (setup):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O3")
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .plain import Stage
from .requested_options import Precision
from .switches import resolve

RULE = "CT307"
INITIALIZE, SCALE, MASTER = "apex.amp.initialize", "apex.amp.scale_loss", "apex.amp.master_params"
LEVELS = {"O0": None, "O1": "fp16", "O2": "fp16"}
OPTIONS = frozenset({"opt_level", "verbosity", "models", "optimizers", "enabled", "num_losses"})
REPLACED = frozenset({INITIALIZE, SCALE, MASTER})


def plan(stage: Stage) -> None:
    calls = [
        c for c in stage.facts.calls if any(p.startswith("apex.amp.") for p in stage.facts.paths(c.func))
    ]
    if not calls:
        return
    for call in calls:
        if not stage.facts.paths(call.func) & REPLACED:
            reason = (
                f"`{ast.unparse(call.func)}` works on apex's own state, which is gone once apex is removed"
            )
            raise refuse(RULE, call, reason, "take it out and run migrate again")
    started = stage.facts.calls_to(INITIALIZE)
    if len(started) != 1:
        raise refuse(RULE, calls[0], "apex is not initialised in one place", "call amp.initialize once")
    _initialize(stage, started[0])
    for call in stage.facts.calls_to(SCALE):
        _scale(stage, call)
    for call in stage.facts.calls_to(MASTER):
        _parameters(stage, call, started[0])


def _initialize(stage: Stage, call: ast.Call) -> None:
    statement, given = stage.statement(call), {k.arg: k.value for k in call.keywords}
    whole = isinstance(statement, ast.Assign) and statement.value is call
    if not isinstance(statement, ast.Assign) or not whole or not call.args or given.keys() - OPTIONS:
        raise refuse(RULE, call, "amp.initialize is called with options of its own", "leave them out")
    targets = statement.targets[0]
    names = [ast.unparse(t) for t in (targets.elts if isinstance(targets, ast.Tuple) else [targets])]
    if names != [ast.unparse(a) for a in call.args[:2]] or "num_losses" in given:
        reason = "amp.initialize gives its results other names"
        raise refuse(RULE, call, reason, "use the same names on both sides")
    condition = _condition(stage, call, given.get("opt_level"))
    stage.requested.precision = Precision("fp16", condition, True, False)
    stage.remove(statement, RULE, "prepare sets mixed precision up")
    reason = (
        "apex chose the operations that run in half precision by its own lists, and O2 kept the weights in it; "
        "torch's autocast has lists of its own and keeps weights in full precision"
    )
    stage.note(RULE, call, reason, "compare the first epochs on a GPU")


def _condition(stage: Stage, call: ast.Call, level: ast.expr | None) -> str | None:
    """When apex is on: the test around its initialisation, and a level that computes in half precision."""
    terms: list[str] = []
    for child, around in stage.outward(call):
        if isinstance(around, ast.If) and child in around.body:
            terms.append(stage.source(resolve(stage, around.test)))
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.For | ast.While):
            break
    if isinstance(level, ast.Constant):
        if level.value not in LEVELS:
            reason = f"opt_level {level.value!r} keeps the weights in half precision"
            raise refuse(RULE, call, reason, "use O1")
        if LEVELS[str(level.value)] is None:
            terms.append("False")
    elif level is not None:
        terms.append(f'{stage.source(resolve(stage, level))} != "O0"')
    return " and ".join(terms) or None


def _scale(stage: Stage, call: ast.Call) -> None:
    """`with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()`"""
    item, statement = stage.parent(call), stage.statement(call)
    match item, statement, call.args:
        case ast.withitem(optional_vars=ast.Name(id=name)), ast.With(items=[_]), [loss, _] if (
            not call.keywords
        ):
            pass
        case _:
            reason = "the scaled loss is used for more than backward(): without apex it would be the loss itself, on another scale"
            raise refuse(RULE, call, reason, "use it as apex's manual shows")
    for node in walk(statement):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            parent = stage.parent(node)
            if not isinstance(parent, ast.Attribute) or parent.attr != "backward":
                reason = "a scaled loss is used for something other than backward()"
                raise refuse(RULE, node, reason, "use the loss itself")
            simple = isinstance(loss, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
            text = stage.source(loss)
            stage.replace(node, RULE, "the accelerator scales the loss", text if simple else f"({text})")
    stage.edits.append(e.Unwrap(statement, RULE))


def _parameters(stage: Stage, call: ast.Call, started: ast.Call) -> None:
    model, of_node = started.args[0], stage.facts.table.of_node
    if not isinstance(model, ast.Name) or of_node[call].resolve(model.id) is not of_node[model].resolve(
        model.id
    ):
        reason = "this asks apex for the parameters of a model that no variable holds here"
        raise refuse(RULE, call, reason, "use model.parameters()")
    reason = "there are no other parameters than the model's"
    stage.replace(call, RULE, reason, f"{model.id}.parameters()")
