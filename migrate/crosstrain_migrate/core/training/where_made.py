"""What is prepared where it is made: attributes that `__init__` binds, a loader by whose length a method keeps a number, and what a
script makes under a condition, `if args.poses: second = SGD(...)`, and so may not have where it trains."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from itertools import takewhile

from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, is_method
from crosstrain_migrate.core.reading.modes import facts
from crosstrain_migrate.core.reading.roles import Stepped
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, exits, last_name, place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk, walk_all

from .holders import Held
from .lengths import counted_lengths, is_plain_for_schedules
from .schedules import OwnSchedule, given_to


def places_in_init(
    script: Script, frame: Frame, those: Iterable[Held]
) -> tuple[Function | None, dict[Held, ast.stmt]]:
    """`__init__` of the class of a method, and where it binds the attributes of `those` that it alone binds."""
    cls = script.class_of(frame)
    methods = script.methods(cls)
    init = next((m for m in methods if m.name == "__init__"), None)
    if init is None or frame is init or _takes_device(script, init):
        return None, {}
    places: dict[Held, ast.stmt] = {}
    for one in those:
        stores = [(m, store) for m in methods for store in script.stores(m, one.text)]
        statements = [script.statement(store) for _, store in stores]
        is_bound = stores and not _binds_none(statements[-1])  # else another file binds it later
        if is_bound and all(m is init for m, _ in stores) and all(s in init.body for s in statements):
            places[one] = statements[-1]
    texts = {one.text for one in places}
    reads = [n for n in script.within(init) if isinstance(n, ast.Attribute) and written(n) in texts]
    return init, {} if any(_is_iterated(script, read) for read in reads) else places


def made_with_its_length(script: Script, one: Held) -> list[tuple[Frame, ast.stmt]]:
    """The statement of a method that alone binds a loader, `self.loader = self.make()`, where this method keeps a number by its
    length, `self.most = epochs * len(self.loader)`, for the method that trains."""
    if one.kind != "loader" or not one.text.startswith("self."):
        return []
    methods = [*script.all_methods(script.class_of(one.frame))]
    bound = [(home, script.statement(store)) for home in methods for store in script.stores(home, one.text)]
    if len({home for home, _ in bound} - {one.frame}) != 1:
        return []
    home, statement = bound[-1]
    if home is one.frame or home.name == "__init__" or _binds_none(statement):
        return []
    if any(made not in home.body for _, made in bound):
        return []
    lengths = (n for n in script.calls_in(home) if ast.unparse(n) == f"len({one.text})")
    kept = [n for n in lengths if _is_kept(script.statement(n)) and place_of(n) > place_of(statement)]
    is_sure = all(is_plain_for_schedules(script, one) for one in kept)
    return [(home, statement)] if kept and is_sure else []


def _is_kept(statement: ast.stmt) -> bool:
    """`self.most = config.most = epochs * len(self.loader)`"""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(one, ast.Attribute) for one in targets)


def knows_own_length(script: Script, scheduler: Stepped, held: Iterable[Held]) -> bool:
    """Whether another method than `__init__`, where the loader is prepared, makes a schedule of the loader's length, or it does
    so below, where another method than that of the steps goes over the loader: one step a batch of one process fits it."""
    frames = (scheduler.frame, *script.methods(script.class_of(scheduler.frame), "__init__"))
    values = (v for frame in dict.fromkeys(frames) for v in script.values(frame, scheduler.text))
    made = [v for v in values if isinstance(v, ast.Call)]
    given = [n for n in given_to(script, OwnSchedule(scheduler, tuple(made))) if isinstance(n, ast.Call)]
    asked = {written(one) for n in given if last_name(n.func) == "len" for one in n.args}
    for one in (one for one in held if one.text in asked):
        init, places = places_in_init(script, one.frame, [one])
        is_apart = one.frame is not scheduler.frame
        if places and all(
            script.frame(v) is not init or (is_apart and place_of(places[one]) < place_of(v)) for v in made
        ):
            return True
    return False


def _asked_by(script: Script, methods: list[Function], made: list[ast.Call], depth: int = 4) -> set[str]:
    """The attributes that a schedule is made of: by itself, by the method that computes its rates, and by what these are made of."""
    found, work = set[str](), list[ast.AST](made)
    for _ in range(depth):
        new = {written(n) for n in walk_all(work) if isinstance(n, ast.Attribute)} - found
        found |= new
        named = (m for m in methods if f"self.{m.name}" in new)
        work = [
            *named,
            *(value for text in new for method in methods for value in script.values(method, text)),
        ]
    return found


def is_given_kept_length(script: Script, scheduler: Stepped, held: Iterable[Held]) -> bool:
    """Whether a schedule is made of a number that a method keeps by the length of a loader, behind where it is prepared."""
    methods = [*script.all_methods(script.class_of(scheduler.frame))]
    made = [v for frame in methods for v in script.values(frame, scheduler.text) if isinstance(v, ast.Call)]
    texts = _asked_by(script, methods, made)
    kept = {
        (script.frame(n), n)
        for text in texts
        for frame in methods
        for value in script.values(frame, text)
        for n in walk(value)
        if isinstance(n, ast.Call) and last_name(n.func) == "len"
    }
    loaders = [one for one in held if one.kind == "loader"]
    places = [(one.text, *place) for one in loaders for place in made_with_its_length(script, one)]
    for one in loaders:
        init, found = places_in_init(script, one.frame, [other for other in held if other.frame is one.frame])
        if init is not None and one in found:
            last = max(found.values(), key=place_of)
            counted = counted_lengths(script, init, one.text, ())
            is_alone = any(place_of(read) < place_of(last) for read in counted)
            places.append((one.text, init, found[one] if is_alone else last))
            direct = (n for call in made for n in walk(call) if is_alone and isinstance(n, ast.Call))
            kept |= {(script.frame(n), n) for n in direct if last_name(n.func) == "len"}
    return any(
        home is frame and [text] == list(map(written, n.args)) and place_of(place) < place_of(n)
        for text, home, place in places
        for frame, n in kept
    )


def _is_iterated(script: Script, node: ast.AST) -> bool:
    parent = script.parent(node)
    return isinstance(parent, ast.Call) and last_name(parent.func) in ("iter", "cycle")


def _takes_device(script: Script, init: Function) -> bool:
    """Whether another script that shares a class tells `__init__` on which device the network computes, `.to(device)`: it may
    be another one than the accelerator's."""
    given = set(script.parameters(init)) if script.is_shared(init) else set()
    moves = [call for call in script.calls_in(init) if last_name(call.func) == "to"]
    places = [one for call in moves for one in (*call.args, *(k.value for k in call.keywords))]
    return any(isinstance(one, ast.Name) and one.id in given for one in places)


def _binds_none(statement: ast.stmt) -> bool:
    """`self.optimizer = None`"""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and value.value is None


def made_under_condition(script: Script, one: Held) -> list[tuple[Frame, ast.stmt]]:
    """The last statement that binds an object, and its frame, where one suite of an `if` that does not hold the use binds it
    for sure, all that binds it is in there, and the script goes on without that suite; several of them where all that binds
    and reads it stands under the same test."""
    cls = script.class_of(one.frame) if one.text.startswith("self.") else None
    frames: list[Frame] = [one.frame] if cls is None else [*script.all_methods(cls)]
    if cls is None and "." in one.text and not script.stores(one.frame, one.text):
        frames = [*script.reached_frames]  # `options.schedule`, which another function has set
    if any(one.text in script.parameters(frame) for frame in frames if not isinstance(frame, ast.Module)):
        return []
    bound = [(script.statement(store), frame) for frame in frames for store in script.stores(frame, one.text)]
    last = _in_one_suite(script, [statement for statement, _ in bound])
    if last is None:
        return _made_by_test(script, one, bound) or _made_in_suites(script, one, bound)
    condition, home = script.parent(last), bound[0][1]
    if not isinstance(condition, ast.If) or is_main_test(condition):
        return []
    other = condition.orelse if last in condition.body else condition.body
    if script.table.is_inside(one.use, condition) or _ends(other):
        return []
    return [(home, last)]


def _made_by_test(
    script: Script, one: Held, bound: list[tuple[ast.stmt, Frame]]
) -> list[tuple[Frame, ast.stmt]]:
    """The last statement of each suite that binds a variable, where one test, not around the training as a whole, guards
    all of them and all that reads it."""
    reads = [read for frame in script.frames for read in script.reads(frame, one.text)]
    tests = [_tests_around(script, statement, without=one.use) for statement, _ in bound]
    tests += [_tests_around(script, read) for read in reads]
    if not bound or not set.intersection(*tests):
        return []
    ordered = sorted(bound, key=lambda pair: place_of(pair[0]))
    return list({id(script.suite_of(made)): (home, made) for made, home in ordered}.values())


def _made_in_suites(
    script: Script, one: Held, bound: list[tuple[ast.stmt, Frame]]
) -> list[tuple[Frame, ast.stmt]]:
    """The last statement of each suite in which `__init__` binds an attribute that nothing else binds, where none is sure."""
    homes = {home for _, home in bound}
    init = homes.pop() if len(homes) == 1 else None
    if not isinstance(init, FUNCTIONS) or init.name != "__init__" or init is one.frame:
        return []
    if any(statement in init.body or _binds_none(statement) for statement, _ in bound):
        return []
    ordered = sorted((statement for statement, _ in bound), key=place_of)
    return [(init, last) for last in {id(script.suite_of(made)): made for made in ordered}.values()]


def _tests_around(script: Script, node: ast.AST, without: ast.AST | None = None) -> set[str]:
    """The tests that hold where a node stands; without: those that hold there too."""
    found = facts(script, node) - (set() if without is None else facts(script, without))
    return {text for text, holds in found if holds and "__name__" not in text}


def _in_one_suite(script: Script, bound: list[ast.stmt]) -> ast.stmt | None:
    """The last of the statements of the smallest suite that has all that binds an object, where one of them does so for sure:
    the `if` in `if args.poses:` that makes one model or the other."""
    paths = [[one, *takewhile(lambda n: not isinstance(n, FUNCTIONS), script.around(one))] for one in bound]
    for step in paths[0] if paths else ():
        suite = script.suite_of(step) if isinstance(step, ast.stmt) else []
        held = [next((n for n in path if n in suite), None) for path in paths]
        found = [one for one in held if isinstance(one, ast.stmt)]
        if suite and len(found) == len(paths):
            is_sure = any(_binds_it(one, bound) for one in found)
            return max(found, key=place_of) if is_sure else None
    return None


def _binds_it(statement: ast.stmt, bound: list[ast.stmt]) -> bool:
    """Whether a statement is one of those that bind, or a choice both sides of which have such a one."""
    if not isinstance(statement, ast.If):
        return statement in bound
    return all(any(_binds_it(one, bound) for one in suite) for suite in (statement.body, statement.orelse))


def _ends(suite: list[ast.stmt]) -> bool:
    """Whether nothing runs behind a suite."""
    last = suite[-1] if suite else None
    is_error = isinstance(last, ast.Expr) and is_method(last.value, "error")  # a parser's
    return is_error or exits(last) or isinstance(last, ast.Raise | ast.Return | ast.Continue | ast.Break)
