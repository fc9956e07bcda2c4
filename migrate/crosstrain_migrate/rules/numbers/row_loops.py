"""For CT602: loops over the rows of a batch that print, draw or keep something of each.

What:   The rows that such a loop goes over, and those it reads beside them, are gathered in one statement before it.
Why:    Otherwise a process would print and keep only the rows of its own share.
Before: `for j in range(images.size(0)): show(images[j], guesses[j])`
After:  `images, guesses = accelerator.gather_for_metrics((images, guesses))` before it
Refuses: a loop that trains, or runs a model, and one that reads something of the share that has no rows.
Leaves: a loop of a loss that decides row by row (`if mask[b].any(): loss = loss + ...`) and tells nobody; one that only
        fills tensors that were made for the batch; a method that keeps rows for training alone.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.containers import Comprehension
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.lifetimes import within_batch
from crosstrain_migrate.facts.values import Instance, Value
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values, local_batch_values
from .bindings import receiver
from .module_state import COLLECTS
from .opaque_calls import inside_opaque, runs_model
from .sinks import Sink, looped_over

RowLoop = ast.For | ast.AsyncFor | Comprehension
FRESH = ("clone", "copy", "new_zeros", "new_ones", "new_full", "new_empty")
CONVERTS = ("long", "int", "float", "double", "half", "bool", "to", "cuda", "astype", "type")
TOLD = frozenset({"builtins.print", "builtins.float", "builtins.int", "builtins.bool"})
FILLS = frozenset({"append", "appendleft", "extend", "insert", "pop"})


def in_row_loops(facts: Facts, sinks: list[Sink], loaders: set[Value]) -> list[Sink]:
    """`sinks`, where a loop over rows takes the place of the sinks in it.

    A gather inside such a loop would meet positions that are counted in this process's share.
    """
    loops = {sink: _row_loop_around(facts, sink, loaders) for sink in sinks if sink.how != "rows"}
    found: list[Sink] = []
    for sink in sinks:
        loop = loops.get(sink)
        if loop is None:
            found.append(sink)
            continue
        inner = [s for s, around in loops.items() if around is loop]
        if inner[0] is sink and not _decides_for_itself(facts, loop, inner, loaders):
            found.append(Sink(_over(facts, loop, loaders)[0], "rows", loop))
    return found


def _row_loop_around(facts: Facts, sink: Sink, loaders: set[Value]) -> RowLoop | None:
    """The outermost loop over rows in which `sink` stands: beneath what it goes over."""
    if inside_opaque(facts, sink.node, loaders):
        return None
    found: RowLoop | None = None
    batches = facts.batch_loop_around(sink.node)
    for around in facts.table.ancestors(sink.node):
        if around is batches or isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
        if not isinstance(around, RowLoop) or facts.table.is_inside(sink.node, _iterated(around)[0]):
            continue
        if _over(facts, around, loaders):
            found = around
    return found


def _iterated(loop: RowLoop) -> list[ast.expr]:
    return [loop.iter] if isinstance(loop, ast.For | ast.AsyncFor) else [g.iter for g in loop.generators]


def _over(facts: Facts, loop: RowLoop, loaders: set[Value]) -> list[ast.expr]:
    """The parts of a batch that a loop goes over; none where these are layers, or the batch itself."""
    over = [part for i in _iterated(loop) for part in looped_over(facts, i, loaders)]
    kinds = {s.kind for part in over for s in local_batch_values(facts, part, loaders)}
    return over if kinds & {"rows", "mixed", "order", "other", "count"} else []


def _decides_for_itself(facts: Facts, loop: RowLoop, sinks: list[Sink], loaders: set[Value]) -> bool:
    """Whether a loop computes a loss, and all that its tests decide about a row goes into that loss."""
    inside = walk(loop)
    if any(sink.how != "test" for sink in sinks) or not any(n in facts.loss_slice for n in inside):
        return False
    backward = {call for call, _ in facts.backward_calls}
    if any(n in backward or isinstance(n, ast.Break | ast.Return | ast.Yield) for n in inside):
        return False
    return all(
        facts.table.is_inside(use, loop) or use in facts.loss_slice or local_batch_values(facts, use, loaders)
        for definition in _changed(facts, loop)
        for use in facts.interp.uses[definition]
    )


def _changed(facts: Facts, loop: RowLoop) -> set[ast.AST]:
    """The definitions that a loop makes, and those of the containers that it fills."""
    found: set[ast.AST] = set()
    for node in walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= facts.bindings(node.value)
        else:
            found |= facts.bindings(receiver(node, *COLLECTS))
    return found


# -- loops before which rows are gathered --------------------------------------------------------------------------


def rows_read(facts: Facts, sink: Sink, loaders: set[Value]) -> list[ast.expr] | None:
    """The variables with rows that a loop over rows reads from before it; None where they cannot all be gathered."""
    loop = sink.at
    if not isinstance(loop, ast.For | Comprehension) or _trains(facts, loop):
        return None
    if _reads_elsewhere(facts, loop, loaders):
        return None
    found: list[ast.expr] = []
    for name in walk(loop):
        if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load):
            continue
        kinds = {s.kind for s in local_batch_values(facts, name, loaders)}
        if not kinds or _is_made_inside(facts, name, loop):
            continue
        if kinds != {"rows"}:
            return None
        found.append(name)
    return found or None


def _is_made_inside(facts: Facts, name: ast.AST, loop: ast.AST) -> bool:
    bound = facts.bindings(name)
    return bool(bound) and all(facts.table.is_inside(d, loop) for d in bound)


def _trains(facts: Facts, loop: ast.For | Comprehension) -> bool:
    """Whether the rows are trained on, or given to a model, which works on a process's own share."""
    if any(
        node in facts.loss_slice
        or node in facts.loss_origins
        or receiver(node, "backward", "step") is not None
        or (isinstance(node, ast.Call) and runs_model(facts, node))
        for node in walk(loop)
    ):
        return True
    statements = loop.body if isinstance(loop, ast.For) else []
    return any(facts.batch_loop_around(n) is not facts.batch_loop_around(loop) for n in statements)


def _reads_elsewhere(facts: Facts, loop: ast.For | Comprehension, loaders: set[Value]) -> bool:
    """Whether a share is read through an attribute, an item or a function: only variables are gathered."""
    return any(
        isinstance(node, ast.Attribute | ast.Subscript)
        and isinstance(node.ctx, ast.Load)
        and not batch_values(facts, node.value)
        and local_batch_values(facts, node, loaders)
        and not _names_rows(facts, node, loaders)
        for node in walk(loop)
    )


def _names_rows(facts: Facts, node: ast.Attribute | ast.Subscript, loaders: set[Value]) -> bool:
    """Whether the share comes from a variable inside the expression, as in `names[labels[j]]`."""
    return any(isinstance(n, ast.Name) and local_batch_values(facts, n, loaders) for n in walk(node))


# -- loops that fill tensors made for the batch --------------------------------------------------------------------


def fills_only_the_batch(facts: Facts, loop: ast.AST) -> bool:
    """Whether all that a loop over rows changes are items of tensors that were made for this batch, such as sequences
    that are padded in the loop: what training computes from them is of this process's share, like the batch itself."""
    filled = False
    for node in walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if not _is_made_for_the_batch(facts, node):
                return False
            filled = True
        elif (
            (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
            or (isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name))
            or (isinstance(node, ast.Call) and _leaves_loop(facts, node, loop))
        ):
            return False
    return filled


def _leaves_loop(facts: Facts, call: ast.Call, loop: ast.AST) -> bool:
    """Whether a call prints, or puts something into what is older than this turn of the loop."""
    if "builtins.print" in facts.paths(call.func):
        return True
    held = receiver(call, *COLLECTS)
    return held is not None and not _is_made_inside(facts, held, loop)


def _is_made_for_the_batch(facts: Facts, target: ast.Subscript) -> bool:
    held: ast.expr = target
    while isinstance(held, ast.Subscript):
        held = held.value
    bound = facts.bindings(held)
    return bool(bound) and all(_is_made_anew(facts, d, target) for d in bound)


def _is_made_anew(facts: Facts, definition: ast.AST, at: ast.AST) -> bool:
    if isinstance(definition, ast.arg):
        return False
    statement = facts.table.statement_of(definition)
    made = statement.value if isinstance(statement, ast.Assign) else None
    return made is not None and _is_new(facts, made) and within_batch(facts.interp, made, at)


def _is_new(facts: Facts, made: ast.expr) -> bool:
    """Whether an expression makes a tensor that nothing else holds."""
    if not isinstance(made, ast.Call):
        return False
    if any(api.makes_array(p) or api.last(p) in api.FACTORIES for p in facts.paths(made.func)):
        return True
    converted = receiver(made, *CONVERTS)
    return receiver(made, *FRESH) is not None or (converted is not None and _is_new(facts, converted))


# -- rows that are kept for training alone -------------------------------------------------------------------------


def pool_around(facts: Facts, loop: ast.AST) -> FunctionNode | None:
    """The method around a loop over rows that keeps them for training alone, as the image buffers of CycleGAN do.

    A process's pool holds rows of its own shares. What is drawn from it is trained on and nothing else, so the loss
    stays a mean over rows.
    """
    method = facts.enclosing_function(loop)
    owner = facts.table.parents.get(method) if method is not None else None
    if method is None or not isinstance(owner, ast.ClassDef) or facts.in_module(method):
        return None
    sites = facts.callers.get(method, ())
    trained = bool(sites) and all(site in facts.loss_slice for site in sites)
    if not trained or method in facts.interp.escaped or any(_tells(facts, n) for n in walk(method)):
        return None
    return method if _keeps_to_itself(facts, owner, method) else None


def _tells(facts: Facts, node: ast.AST) -> bool:
    """Whether a number leaves the tensors here: it is read, printed or decided by."""
    if isinstance(node, ast.Call):
        return receiver(node, *api.HOST_METHODS) is not None or bool(facts.paths(node.func) & TOLD)
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return bool(batch_values(facts, node.test))
    return isinstance(node, ast.Global | ast.Nonlocal | ast.Yield)


def _keeps_to_itself(facts: Facts, owner: ast.ClassDef, method: FunctionNode) -> bool:
    """Whether nothing but the method, and `__init__`, touches the attributes in which it keeps something."""
    kept = {n.attr for n in walk(method) if isinstance(n, ast.Attribute) and _is_changed(facts, n)}
    init = facts.interp.method(owner, "__init__")
    for node in facts.each(ast.Attribute):
        if node.attr not in kept:
            continue
        if not any(isinstance(v, Instance) and v.cls is owner for v in facts.of(node.value)):
            continue
        function = facts.enclosing_function(node)
        if function is not method and (function is not init or not isinstance(node.ctx, ast.Store)):
            return False
    return True


def _is_changed(facts: Facts, node: ast.Attribute) -> bool:
    parent = facts.table.parents.get(node)
    filled = isinstance(parent, ast.Attribute) and parent.attr in FILLS
    item = isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)
    return isinstance(node.ctx, ast.Store) or filled or item
