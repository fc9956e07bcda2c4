"""What the script's own choice of a device is, and where what it asks is known: bound in its function, or set on the options by a
function that is given them, in what runs once on the way from the script's own file to its training.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, names_in
from crosstrain_migrate.core.reading.modes import opposed
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk

from .sides import flag_of, negated

Place = ast.Name | ast.Attribute | ast.Call


@dataclass(frozen=True)
class Choice:
    """The script's own choice of the CPU: `code` is true where it takes the CPU; it is known above `before`.

    An empty `code`: the accelerator is made there all the same. `device`: the author's device, or its number. `option`: what
    holds the device, from then on that of the accelerator; `as_text`: what holds its name.
    """

    code: str
    frame: Frame
    before: ast.stmt
    device: str = ""
    option: str = ""
    as_text: bool = True

    @property
    def is_of_option(self) -> bool:
        """Whether what the author chose is asked for where the accelerator puts its own."""
        return self.option != "" and self.option == self.device


def own_statement(script: Script, frame: Frame, node: ast.AST, stores: Sequence[ast.AST]) -> ast.stmt:
    """The statement of a frame's own block that a node stands in, or one of a block there that runs as a whole: of
    `if __name__ == "__main__":`, or of a `try` or `with` in which alone what is stored is known."""
    own = [s for s in (script.statement(node), *script.around(node)) if isinstance(s, ast.stmt)]
    own = own[: own.index(frame)] if frame in own else own
    found = own.pop()
    while own and own[-1] in getattr(found, "body", ()) and _holds(script, frame, found, stores):
        found = own.pop()
    return found


def _holds(script: Script, frame: Frame, block: ast.stmt, stores: Sequence[ast.AST]) -> bool:
    own = [s for s in stores if script.table.is_inside(s, block)]
    reads = [r for name in {n for s in own for n in names_in(s)} for r in script.reads(frame, name)]
    end = (block.end_lineno or 0, block.end_col_offset or 0)
    is_alone = bool(own) and all(place_of(read) <= end for read in reads)
    return is_main_test(block) or (isinstance(block, ast.Try | ast.With) and is_alone)


def set_by_calls(script: Script, frame: Frame, text: str) -> list[ast.Call]:
    """The calls of functions of the project that set a global, or an attribute of what they are given: `setup(args)`, for
    `args.cuda`."""
    holder, _, attribute = text.rpartition(".")
    calls = script.calls_in(frame)
    if text.isidentifier():
        shared = {f for f in script.frames if script.stores(f, text) and not script.binds(f, text)}
        return [call for call in calls if shared and not shared.isdisjoint(script.functions_of(call))]
    return [
        call
        for call in (calls if holder.isidentifier() else ())
        if _sets_any(call, holder)
        or any(script.stores(f, f"{name}.{attribute}") for f, name in _given(script, call, holder))
    ]


def _sets_any(call: ast.Call, holder: str) -> bool:
    """`setattr(args, key, value)`, `args.__dict__.update(found)`: whatever the object has may be another from there on."""
    if written(call.func) == "setattr":
        return (
            len(call.args) == 3
            and written(call.args[0]) == holder
            and not isinstance(call.args[1], ast.Constant)
        )
    return ast.unparse(call.func) in (f"{holder}.__dict__.update", f"vars({holder}).update")


def _given(script: Script, call: ast.Call, holder: str) -> list[tuple[Function, str]]:
    """The functions that a call is of, each with the parameter that gets the variable."""
    if not any(
        isinstance(n, ast.Name) and n.id == holder for n in (*call.args, *(k.value for k in call.keywords))
    ):
        return []
    functions = script.functions_of(call)
    return [
        (f, name)
        for f in functions
        for name, one in script.given_by(call, f).items()
        if written(one) == holder
    ]


def _set_in(script: Script, call: ast.Call, flag: ast.expr) -> list[tuple[Frame, ast.expr]]:
    """What a function that is called sets an attribute to, of its options alone, which it names as its caller does."""
    holder, _, attribute = written(flag).rpartition(".")
    functions = [f for f, name in _given(script, call, holder) if name == holder]
    made = [(f, value) for f in functions for value in script.values(f, f"{holder}.{attribute}")]
    return [(f, value) for f, value in made if names_in(value) <= {holder, "torch"}]


def is_known_above(
    script: Script, statement: ast.stmt, stores: Sequence[Place], later: Sequence[Place]
) -> bool:
    """Whether what a choice asks is bound above its statement, which runs once, and again only by it, or when it is over."""
    end = (statement.end_lineno or 0, statement.end_col_offset or 0)
    own = statement.targets if isinstance(statement, ast.Assign) else []
    is_over = all(s in own or place_of(s) > end for s in later)
    return is_over and bool(stores) and not any(script.loops_around(s) for s in (statement, *later))


def is_given_back(script: Script, store: Place) -> bool:
    """`loader, args = load(args)`: whether a variable is bound to what it holds already."""
    statement = script.statement(store)
    call = statement.value if isinstance(statement, ast.Assign) else None
    if not isinstance(store, ast.Name) or not isinstance(call, ast.Call):
        return False
    for function in script.functions_of(call):
        names = {name for name, one in script.given_by(call, function).items() if written(one) == store.id}
        returned = script.returned(function)
        parts = [one.elts if isinstance(one, ast.Tuple) else [one] for one in returned]
        if names and parts and all(names & set(map(written, one)) for one in parts):
            return True
    return False


def known_at(script: Script, frame: Frame, asked: ast.expr, place: ast.stmt) -> str:
    """A choice in the words of what its flag is made of, `args.no_cuda` for `not args.cuda`, where that is known at a place
    further up; empty where it is not."""
    flag = asked.operand if isinstance(asked, ast.UnaryOp) else asked
    values = [(frame, value) for value in script.values(frame, written(flag))]
    values = values or [
        one for call in set_by_calls(script, frame, written(flag)) for one in _set_in(script, call, flag)
    ]
    code = flag_of(script, *values[0]) if len(values) == 1 else ""
    parts = list(walk(ast.parse(code)))
    if not code or any(isinstance(n, ast.Call) for n in parts):
        return ""
    made = [n for n in parts if isinstance(n, ast.Name | ast.Attribute)]
    stores = [store for one in made for store in script.stores(frame, written(one))]
    if any((place_of(store) < place_of(place)) is isinstance(store.ctx, ast.Del) for store in stores):
        return ""  # bound below the place, or deleted above it
    return negated(code) if isinstance(asked, ast.UnaryOp) else code


def asks_alike(script: Script, frame: Frame, other: Frame, code: str) -> bool:
    """Whether one caller runs a function or the other, `train(args)` or `evaluate(args)`, or the other is one of several that
    run it, and it asks the same of what it is given."""
    if not code or not is_function_frame(frame) or not is_function_frame(other):
        return False
    asked = [n for n in walk(ast.parse(code)) if isinstance(n, ast.Attribute | ast.Subscript | ast.Name)]
    texts = {ast.unparse(n) for n in script.within(frame) if isinstance(n, ast.expr)}
    callers = [{script.frame(call) for call in script.callers(one)} for one in (frame, other)]
    is_given = names_in(ast.parse(code)) <= {*script.parameters(frame)} & {*script.parameters(other)}
    beside = not callers[0].isdisjoint(callers[1]) or callers[0] > {other}
    return is_given and texts.issuperset(map(ast.unparse, asked)) and beside


def done_instead(script: Script, function: Frame) -> list[ast.stmt]:
    """What callers do in the other arm of an `if` in which they call a function."""
    calls = script.direct_callers(function) if is_function_frame(function) else []
    ifs = [one for call in calls for one in script.around(call) if isinstance(one, ast.If)]
    arms = [arm for one in ifs for arm in (one.body, one.orelse)]
    is_inside = script.table.is_inside
    return [s for arm in arms if not any(is_inside(c, s) for c in calls for s in arm) for s in arm]


def calls_to(script: Script, frame: Frame) -> list[ast.Call]:
    """The calls by which a function is reached, those of its callers with them."""
    found: list[ast.Call] = []
    work, seen = [frame], {frame}
    while work:
        one = work.pop()
        of_object = is_function_frame(one) and script.class_of(one) is not None
        asked = script.callers if of_object else script.direct_callers
        for call in asked(one) if is_function_frame(one) else ():
            found.append(call)
            caller = script.frame(call)
            if caller not in seen:
                seen.add(caller)
                work.append(caller)
    return found


def frames_to_training(script: Script, roles: Roles, home: Frame) -> list[Frame]:
    """The function that begins the training, and what runs once on the way from the script's own file to it."""
    return [home, *(f for f in _way_from_entry(script, roles) if f is not home)]


def _way_from_entry(script: Script, roles: Roles) -> list[Frame]:
    """The script's own file and those of its functions that are called once, on the way to the training."""
    found: list[Frame] = [script.entry]
    work: list[Frame] = list(roles.frames)
    seen = set(work)
    while work:
        frame = work.pop()
        calls = (
            [*script.callers(frame), *_choosing_callers(script, frame)] if is_function_frame(frame) else []
        )
        once = (
            are_alike(script, calls) and script.class_of(frame) is None and not script.loops_around(calls[0])
        )
        if once and script.is_entry(frame):
            found.append(frame)
        for call in calls:
            caller = script.frame(call)
            if caller not in seen:
                seen.add(caller)
                work.append(caller)
    return found


def are_alike(script: Script, calls: list[ast.Call]) -> bool:
    """Whether there is one call, or one for each branch that gives the same: `with checks(): train(args)`, else `train(args)`."""
    if len({(script.frame(one), ast.unparse(one)) for one in calls}) != 1:
        return False
    return all(opposed(script, one, other) for one, other in itertools.combinations(calls, 2))


def _choosing_callers(script: Script, function: Function) -> list[ast.Call]:
    """The calls of a variable that is the function by a condition: `fit = fit_pairs if args.pairs else fit_rows`."""
    chosen = [
        n for n in script.table.each(ast.IfExp) if function.name in (written(n.body), written(n.orelse))
    ]
    bound = {
        (script.frame(one), written(target))
        for one in chosen
        if isinstance(assign := script.parent(one), ast.Assign)
        for target in assign.targets
    }
    return [call for call in script.calls if (script.frame(call), written(call.func)) in bound]


def imports_of(frame: Frame, names: set[str]) -> list[tuple[int, int]]:
    """Where a frame first imports each of these names: in a notebook, in one of its cells."""
    found: dict[str, tuple[int, int]] = {}
    for one in (s for s in frame.body if isinstance(s, ast.Import | ast.ImportFrom)):
        for alias in one.names:
            name = (alias.asname or alias.name).split(".")[0]
            if name in names:
                found.setdefault(name, place_of(one))
    return list(found.values())
