"""CT602 by use: what is shown of a training, its losses and what grows with them, is the main process's own unless it was
reduced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import NamedTuple

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.roles import Backward, Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.core.training.backward import loss_of
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .accumulators import CLOCK, METERS, Pass
from .changes import Change
from .returned import without_tail
from .shown import shown_behind
from .training_numbers import LOCAL, REDUCE, RULE

_SHOWS = re.compile(r"(^|\.)(print|pprint|info|debug|warning|write|echo|add_scalars?)$")
_ADDS = (Change.SUM, Change.LIST, Change.METER)


def note_running_numbers(plan: Plan, roles: Roles) -> None:
    """Says, once for a script, that the losses, sums and meters that its training shows are the main process's own."""
    for data in roles.data:
        if isinstance(data.loop, ast.For):
            averages = _moving_averages(plan.script, roles, data.loop)
            returned = _returned(plan.script, roles, data.loop)
            growing = _growing(plan.script, data, data.loop) | averages | returned
            is_shown = any(
                _is_own(plan, data.frame, call, growing) for call in _shows(plan.script, data.loop)
            )
            kept = averages | returned | _computed(data.loop, growing) | _called(plan.script, walk(data.loop))
            is_left = any(_is_read_behind(plan, data.frame, data.loop, text) for text in kept)
            appends = [n for n in walk(data.loop) if is_method(n, "append")]
            appends = [one for one in appends if not any(map(plan.is_replaced, walk(one)))]
            losses = {text for one in _passes(plan.script, roles) for text in _losses(plan.script, one)}
            if is_shown or is_left or _goes_to_others(plan.script, data.frame, appends, growing | losses):
                plan.note(RULE, data.loop, LOCAL, REDUCE)
        elif _comes_from_steps(plan.script, data):
            plan.note(RULE, data.node, LOCAL, REDUCE)
    for around in _loops_of_steps(plan.script, roles):
        frame, calls = plan.script.frame(around), _shows(plan.script, around)
        added = _added(plan.script, roles, frame, around)
        own = _returned(plan.script, roles, around) | added
        is_left = any(_is_read_behind(plan, frame, around, text) for text in added)
        if is_left or any(_is_own(plan, frame, call, own) for call in calls):
            plan.note(RULE, around, LOCAL, REDUCE)
    for one in _passes(plan.script, roles):
        loop = next(iter(plan.script.loops_around(one.call)), None)
        calls = _shows(plan.script, loop or one.frame)
        if isinstance(loop, ast.For):
            calls += shown_behind(plan.script, one.frame, loop, _shows(plan.script, one.frame))
        added = _added(plan.script, roles, one.frame, loop)
        own = _losses(plan.script, one) | _read_out(loop) | added
        is_shown = any(_is_own(plan, one.frame, call, own) for call in calls)
        left = added | _handed_back(plan.script, one)
        is_left = loop is not None and any(_is_read_behind(plan, one.frame, loop, text) for text in left)
        of_others = (ast.Nonlocal, ast.Global)
        outer = {name for n in plan.script.within(one.frame) if isinstance(n, of_others) for name in n.names}
        is_kept = loop is None and (added & outer or _is_kept(plan.script, roles, one))
        if is_shown or is_left or is_kept or _is_kept_by_maker(plan.script, one):
            plan.note(RULE, loop or one.call, LOCAL, REDUCE)


def _handed_back(script: Script, one: _Site) -> set[str]:
    """The last loss that a function which trains returns to a caller that takes it."""
    calls = script.direct_callers(one.frame) if is_function_frame(one.frame) else []
    returns = (n for r in script.within(one.frame) if isinstance(r, ast.Return) for n in walk(r))
    is_taken = not all(is_statement_call(script, call) for call in calls)
    return _losses(script, one) & {*map(written, returns)} if is_taken else set()


def _is_kept(script: Script, roles: Roles, one: _Site) -> bool:
    """Whether a step keeps its loss where others read it: in a list of its object, `self.losses.append(loss.item())`, or of
    what it is given, `stats["loss"].append(loss.item())`, or as an attribute, `self.loss.backward()`."""
    losses, cls = _losses(script, one), script.class_of(one.frame)
    if written(one.loss).startswith("self.") and cls is not None:
        steps, name = {other.frame for other in roles.backwards}, last_name(one.loss)
        return any(_reads_attribute(script, f, name) for f in script.reached_frames if f not in steps)
    return _goes_to_others(script, one.frame, script.within(one.frame), losses)


def _is_kept_by_maker(script: Script, one: _Site) -> bool:
    """Whether the project's object that makes the loss when it is called adds its number up for others:
    `self.log += loss.item()` in its `forward`."""
    made = script.values(one.frame, written(one.loss))
    makers = [f for name in ("forward", "__call__") for f in script.functions(name)]
    makers = [f for f in makers if any(call in made for call in script.callers(f))]
    return any(_goes_to_others(script, f, script.within(f), _read_out(f)) for f in makers)


def _goes_to_others(script: Script, frame: Frame, nodes: Iterable[ast.AST], numbers: set[str]) -> bool:
    """Whether numbers are appended or added to what belongs to the function's object, or is given to it, and others read:
    `net.history["loss"].append(total / n)`, `self.sum += loss.item()`."""
    cls = script.class_of(frame)
    others = [method for method in script.methods(cls) if method is not frame]
    for node in nodes:
        held, told = None, getattr(node, "args", [])
        if is_method(node, "append"):
            held = node.func.value
        elif isinstance(node, ast.AugAssign):
            held, told = node.target, [node.value]
        while isinstance(held, ast.Subscript):
            held = held.value
        root, _, rest = (written(held) if held is not None else "").partition(".")
        if not numbers & {written(n) for n in walk_all(told)}:
            continue
        if root == "self":
            return any(script.reads(method, f"self.{rest}") for method in others)
        given = [(script.frame(at), written(of)) for of, at in script.given_for(frame, root)] if root else []
        if any(len(script.reads(at, f"{of}.{rest}" if rest else of)) > (not rest) for at, of in given):
            return True
    return False


def _reads_attribute(script: Script, frame: Frame, name: str) -> bool:
    """Whether a function reads an attribute of an object, also by a name that it computes with a part of it:
    `getattr(trainer, "loss_" + kind)`."""
    nodes = list(script.within(frame))
    if any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n.attr == name for n in nodes):
        return True
    texts = {
        n.value
        for n in nodes
        if isinstance(n, ast.Constant) and isinstance(n.value, str) and len(n.value) > 2
    }
    computed = (n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) == "getattr")
    return any(len(n.args) == 2 and not isinstance(n.args[1], ast.Constant) for n in computed) and any(
        text in name for text in texts
    )


def _loops_of_steps(script: Script, roles: Roles) -> list[Loop]:
    """The loops that go over no data and call a step: `for step in range(n): loss = train_step(next(batches))`."""
    over_data = {data.loop for data in roles.data}
    steps = [one.frame for one in roles.backwards if not script.loops_around(one.call)]
    calls = [call for step in steps if is_function_frame(step) for call in script.direct_callers(step)]
    loops = [loops[0] for call in calls if (loops := script.loops_around(call))]
    return [loop for loop in dict.fromkeys(loops) if loop not in over_data]


def _added(script: Script, roles: Roles, frame: Frame, loop: Loop | None) -> set[str]:
    """What steps that stand in no loop over data add to, and append to; what belongs to the function around them, too."""
    if any(data.loop is loop for data in roles.data if isinstance(loop, ast.For)):
        return set()
    nodes = list(walk(loop) if loop is not None else script.within(frame))
    sums = (n for n in nodes if isinstance(n, ast.AugAssign) and not isinstance(n.value, ast.Constant))
    return {written(n.target) for n in sums} | _told(script, nodes)


def _told(script: Script, nodes: list[ast.AST]) -> set[str]:
    """The lists and meters that are told numbers of the batch, by a method or by a call; no clocks and bars."""
    calls = [n for n in nodes if is_method(n, "append", *METERS) and is_statement_call(script, n)]
    told = {written(n.func.value) for n in calls if n.args and not _is_constant(n) and not _tells_time(n)}
    return {text for text in told if not re.search(r"bar|tqdm", text)} | _called(script, nodes)


def _called(script: Script, nodes: list[ast.AST]) -> set[str]:
    """The objects of the project that are called with a number read out of a tensor: `average(loss.item())`."""
    calls = [n for n in nodes if isinstance(n, ast.Call) and is_statement_call(script, n)]
    told = [n for n in calls if any(is_method(one, "item") for one in n.args)]
    made = ((n, v) for n in told for v in script.values(script.frame(n), written(n.func)))
    return {written(n.func) for n, value in made if script.class_made(value) is not None}


def _computed(loop: ast.For, growing: set[str]) -> set[str]:
    """What a loop computes of what grows: `accuracy = hits / rows`."""
    made = (n for n in walk(loop) if isinstance(n, ast.Assign) and isinstance(n.value, ast.BinOp))
    read = {
        n.targets[0]: {written(one) for one in walk(n.value) if isinstance(one, ast.Name | ast.Attribute)}
        for n in made
    }
    return {written(t) for t, names in read.items() if isinstance(t, ast.Name) and names & growing} - growing


def _is_read_behind(plan: Plan, frame: Frame, loop: Loop, text: str) -> bool:
    """Whether what a loop has left in a variable is read before it is bound anew, and nothing reduces it."""
    end = loop.end_lineno or 0
    stores = (one for one in plan.script.stores(frame, text) if one.lineno > end)
    later = [one.lineno for one in stores if not isinstance(plan.script.parent(one), ast.AugAssign)]
    behind = [one for one in plan.script.reads(frame, text) if end < one.lineno]
    return any(one.lineno <= min(later, default=one.lineno) and not plan.is_replaced(one) for one in behind)


def _moving_averages(script: Script, roles: Roles, loop: ast.For) -> set[str]:
    """What a loop computes from itself and a trained loss: `average = 0.9 * average + 0.1 * loss.item()`."""
    losses = {text for one in _passes(script, roles) for text in _losses(script, one)}
    found: set[str] = set()
    for node in walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Attribute):
            name = written(node.targets[0])
            read = {written(n) for n in walk(node.value) if isinstance(n, ast.Name | ast.Attribute)}
            if name in read - losses and read & losses:
                found.add(name)
    return found


def _returned(script: Script, roles: Roles, loop: Loop) -> set[str]:
    """What a loop keeps of what its steps, which are functions of their own, return: `loss = step(batch)`."""
    steps: set[Frame] = set()
    for one in roles.backwards:
        steps.update((one.frame, *(frame for level in roles.levels_above(one.frame) for frame in level)))
    return {
        written(name)
        for node in walk(loop)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        if not steps.isdisjoint(script.functions_of(node.value))
        for name in walk_all(node.targets)
    } - {""}


class _Site(NamedTuple):
    """Where a training goes backward: a call that goes backward, itself or in a function that is given the loss."""

    call: ast.Call
    frame: Frame
    loss: ast.expr


def _passes(script: Script, roles: Roles) -> list[_Site]:
    """The backward passes, and the calls that give their loss to a function which goes backward from it."""
    found = [_Site(one.call, one.frame, _loss_of(script, one)) for one in roles.backwards]
    for one in list(found):
        text = written(one.loss)
        given = script.given_for(one.frame, text)
        direct = script.direct_callers(one.frame) if is_function_frame(one.frame) else []
        found += [_Site(call, script.frame(call), loss) for loss, call in given if call in direct]
    return found


def _loss_of(script: Script, one: Backward) -> ast.expr:
    """What a pass starts from, also by a variable, `go = loss.backward`."""
    loss = loss_of(one.call)
    bound = script.values(one.frame, loss.id) if loss is one.call.func and isinstance(loss, ast.Name) else []
    return bound[0].value if bound and isinstance(bound[0], ast.Attribute) else loss


def _losses(script: Script, one: _Site) -> set[str]:
    """The loss that a backward pass starts from, and the variables that hold its number."""
    loss = one.loss
    if not isinstance(loss, ast.Name | ast.Attribute):
        return set()
    stores = (n for n in script.within(one.frame) if isinstance(n, ast.Assign))
    numbers = {
        written(t) for n in stores if written(without_tail(n.value)) == written(loss) for t in n.targets
    }
    return {written(loss)} | numbers


def _read_out(loop: ast.AST | None) -> set[str]:
    """The numbers that a training loop reads out of tensors, `confidence = out.mean().item()`, and these."""
    nodes = list(walk(loop)) if loop is not None else []
    read = {written(n.func.value) for n in nodes if is_method(n, "item")}
    assigns = (n for n in nodes if isinstance(n, ast.Assign) and is_method(n.value, "item"))
    return read | {written(t) for n in assigns for t in n.targets}


def _comes_from_steps(script: Script, data: Data) -> bool:
    """Whether a number is made of what the steps of a training return: `loss = over(loader, step)`."""
    call = script.parent(data.node)
    return (
        isinstance(call, ast.Call)
        and not is_statement_call(script, call)
        and any(isinstance(one, ast.Name) and script.functions(one.id) for one in call.args)
    )


def _growing(script: Script, data: Data, loop: ast.For) -> set[str]:
    """The sums, lists and meters to which a loop adds numbers of its batches; no counters and clocks."""
    changes = Pass(script, data.frame, loop).changes()
    found = {
        text
        for text, made in changes.items()
        if any(kind in _ADDS and not _is_constant(node) and not _tells_time(node) for kind, node in made)
    }
    return found | _told(script, walk(loop))


def _is_constant(node: ast.AST) -> bool:
    value = getattr(node, "value", None) if isinstance(node, ast.AugAssign) else None
    values = [value] if value is not None else getattr(node, "args", [])
    return bool(values) and all(isinstance(one, ast.Constant) for one in values)


def _tells_time(node: ast.AST) -> bool:
    return CLOCK.search(ast.unparse(node)) is not None


def _shows(script: Script, loop: ast.AST) -> list[ast.Call]:
    """The calls of a loop, or of a function, that print, themselves or in a function of the project, and those that make the
    text of an object, `bar.suffix = "{:.3f}".format(loss)`."""
    texts = [
        n.value
        for n in walk(loop)
        if isinstance(n, ast.Assign)
        and isinstance(n.targets[0], ast.Attribute)
        and is_method(n.value, "format")
    ]
    calls = [n for n in walk(loop) if isinstance(n, ast.Call) and is_statement_call(script, n)]
    return texts + [
        call
        for call in calls
        if _SHOWS.search(written(call.func))
        or any(
            isinstance(node, ast.Call) and _SHOWS.search(written(node.func))
            for function in script.functions_of(call)
            for node in script.within(function)
        )
    ]


def _is_own(plan: Plan, frame: Frame, call: ast.Call, growing: set[str]) -> bool:
    """Whether a call shows what grows, itself, in a variable or through the object whose method it is, and nothing reduces
    it."""
    nodes = walk_all((*call.args, *(k.value for k in call.keywords)))
    if isinstance(call.func, ast.Attribute):
        made = plan.script.values(frame, written(call.func.value))
        nodes += [call.func.value, *walk_all(made)]
    around = [n for n in plan.script.loops_around(call) if isinstance(n, ast.For)]
    # `text = "loss {}".format(loss.item())` above `print(text)`, `for name, loss in losses.items():`
    for _ in range(3):
        own = [n for n in nodes if isinstance(n, ast.Name | ast.Attribute)]
        own = [n for n in own if not any(map(plan.is_replaced, (n, *_up_to(plan.script, n, call))))]
        if any(written(n) in growing for n in own):
            return True
        names = {n.id for n in own if isinstance(n, ast.Name)}
        values = [value for name in names for value in plan.script.values(frame, name)]
        values += [loop.iter for loop in around if names_in(loop.target) & names]
        nodes = walk_all(values)
    return False


def _up_to(script: Script, node: ast.AST, end: ast.AST) -> list[ast.AST]:
    """The expressions around a node within a call; not the call's own function, which may be replaced too."""
    found: list[ast.AST] = []
    for one in script.around(node):
        if one is end or isinstance(one, ast.stmt):
            break
        found.append(one)
    return found
