"""Whether training steps draw their batch at random, so that each process draws its own (contract, decision 34).

A coin, noise in the shape of a batch and what is drawn for a picture are no batch. Nor is what is drawn beside a place in the
data that moves on from batch to batch, `self.data[self.at : self.at + n]`: all processes are at the same place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.syntax.nodes import Function, written
from crosstrain_migrate.syntax.walks import stores_in, texts_in, walk_all

from .forms import Frame, is_function_frame, is_method, names_in
from .roles import Roles
from .script import Script, is_statement_call

RANDOM = re.compile(
    r"^(torch|numpy|np|random|numpy\.random)\.(.*\.)?"
    r"(rand\w*|multinomial|choice\w*|sample|shuffle|permutation|normal|integers|uniform|bernoulli)$"
)
_SHAPED = re.compile(r"_like$")
_CHOOSES = re.compile(r"(randint|integers|choices?|randrange|randperm|permutation)$")
_SHUFFLES = re.compile(r"(^|\.)(shuffle|permutation|randperm|sample)$")
_MAKES = re.compile(r"sklearn\.datasets\.make_\w+$")
_DEPTH = 3  # how many calls are followed, upwards and downwards


def draws_batches(script: Script, roles: Roles) -> bool:
    """Whether a training step, or a function that it asks for something, draws at random what it trains on."""
    calls: dict[ast.Call, None] = {}
    for backward in roles.backwards:
        for one in _calls_of_step(script, backward.call, backward.frame, 0):
            calls.setdefault(one)
    asked = set[Frame]()
    drawn = [one for call in calls for one in _draws(script, call, asked, 0)]
    moving = [function for function in asked if moved_on(script, function)]
    return bool(drawn) and all(_draws_order(script, function) for function in moving)


def _calls_of_step(script: Script, node: ast.AST, frame: Frame, depth: int) -> list[ast.Call]:
    """The calls that are made for every step: those in the loop around the backward, or around its function's calls, and
    those in a loop further out whose result it reads."""
    loops = script.loops_around(node)
    if loops:
        read = names_in(loops[0])
        calls = [c for c in script.calls_in(frame) if script.table.is_inside(c, loops[-1])]
        return [c for c in calls if script.table.is_inside(c, loops[0]) or _bound_by(script, c) & read]
    if not is_function_frame(frame) or depth == _DEPTH:
        return []
    found = [*script.calls_in(frame)]
    for call in script.callers(frame):
        found += _calls_of_step(script, call, script.frame(call), depth + 1)
    return found


def _bound_by(script: Script, call: ast.Call) -> set[str]:
    """The variables and attributes that the statement of a call binds."""
    return set(map(written, stores_in(script.statement(call))))


def _draws(script: Script, call: ast.Call, asked: set[Frame], depth: int) -> Iterator[ast.Call]:
    """The draws that a call is or makes; adds to `asked` the functions that it calls."""
    if is_statement_call(script, call):
        return
    if _is_draw(script, call):
        yield call
    for function in script.functions_of(call):
        if function not in asked and depth < _DEPTH and not _is_networks_sample(script, function):
            asked.add(function)
            for inner in script.calls_in(function):
                yield from _draws(script, inner, asked, depth + 1)


def moved_on(script: Script, function: Frame) -> dict[ast.Subscript, set[str]]:
    """What a function returns its object's data from, with the places there that it moves on itself: `self.rows[at]`,
    `self.at = at + 1`, also where a function that it calls is given the place."""
    stored = [n for n in script.within(function) if isinstance(n, ast.Attribute)]
    stored = [n for n in stored if isinstance(n.ctx, ast.Store) and not _is_reset(script, n)]
    moved = set(map(written, stored))
    if not any(isinstance(n, ast.Return) and n.value for n in script.within(function)):
        return {}
    found = {item: read & moved for item, read in _items(script, function)}
    for call in script.calls_in(function) if moved else ():
        for called in script.functions_of(call):
            given = {name: texts_in(one) & moved for name, one in script.given_by(call, called).items()}
            for item, read in _items(script, called) if any(given.values()) else ():
                found[item] = {text for name in read & given.keys() for text in given[name]}
    return {item: places for item, places in found.items() if places}


def _is_reset(script: Script, store: ast.Attribute) -> bool:
    statement = script.statement(store)
    return isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)


def _items(script: Script, function: Frame) -> list[tuple[ast.Subscript, set[str]]]:
    """The items that a function reads, each with what their places are made of."""
    nodes, found = script.within(function), list[tuple[ast.Subscript, set[str]]]()
    bound = [pair for one in nodes for pair in _bound(one)]
    for item in (n for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load)):
        read = texts_in(item.slice)
        for target, value in bound:
            is_drawn = isinstance(value, ast.Call) and RANDOM.match(script.dotted(value.func))
            if read & texts_in(target) and not is_drawn:
                read = read | texts_in(value)
        found.append((item, read))
    return found


def _bound(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """`start, rows = self.at, self.rows`, `for i in range(self.at, end)`: the targets, each with what gives its value."""
    if isinstance(node, ast.For | ast.comprehension):
        return [(node.target, node.iter)]
    return [(target, node.value) for target in node.targets] if isinstance(node, ast.Assign) else []


def _draws_order(script: Script, function: Frame) -> bool:
    """Whether a function draws the order in which it goes through its data, or the place at which it goes on."""
    names = [(call, script.dotted(call.func)) for call in script.calls_in(function)]
    return any(
        _SHUFFLES.search(name) or (RANDOM.match(name) and any("." in one for one in _bound_by(script, call)))
        for call, name in names
    )


def _is_draw(script: Script, call: ast.Call) -> bool:
    """Whether a call draws more than a coin, and not in the shape of something that is there already."""
    name = script.dotted(call.func)
    if _MAKES.match(name):
        return not any(keyword.arg == "random_state" for keyword in call.keywords)
    if not RANDOM.match(name) and not _samples_data(script, call):
        return False
    is_coin = any(isinstance(one, ast.Compare) for one in script.around(call)) or name == "random.random"
    is_other = is_coin or _is_shaped(name, call) or _is_alike(script, call)
    return not is_other and not _is_only_filled(script, call)


def _is_only_filled(script: Script, call: ast.Call) -> bool:
    """Whether a draw says where rows are put, and not which: `batch[at : at + n] = rows`."""
    reads = [one for text in _bound_by(script, call) for one in script.reads(script.frame(call), text)]
    filled = (
        any(isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Store) for one in script.around(read))
        for read in reads
    )
    return bool(reads) and all(filled)


def _is_alike(script: Script, call: ast.Call) -> bool:
    """Whether a draw takes its numbers from a generator that the script seeds, as each process does."""
    for given in (keyword.value for keyword in call.keywords if keyword.arg == "generator"):
        made = [given, *script.values(script.frame(call), written(given))]
        seeded = (n for n in script.calls_in(script.frame(call)) if is_method(n, "manual_seed"))
        if any(one in made or written(one.func.value) == written(given) for one in seeded):
            return True
    return False


def _samples_data(script: Script, call: ast.Call) -> bool:
    """`buffer.sample(size)`, and not a network of the project's that samples what it has learned."""
    own = script.functions("sample")
    networks = bool(own) and all(_is_networks_sample(script, one) for one in own)
    return is_method(call, "sample") and bool(call.args or call.keywords) and not networks


def _is_networks_sample(script: Script, function: Function) -> bool:
    cls = script.class_of(function) if function.name == "sample" else None
    return cls is not None and any(script.dotted(base) == "torch.nn.Module" for base in cls.bases)


def _is_shaped(name: str, call: ast.Call) -> bool:
    """Whether a draw has the shape of something that is there already: noise, not a place in the data."""
    if _SHAPED.search(name):
        return True
    sizes: list[ast.expr] = [keyword.value for keyword in call.keywords if keyword.arg == "size"]
    sizes += [one for one in call.args if not _CHOOSES.search(name) or isinstance(one, ast.Tuple)]
    return any(isinstance(n, ast.Attribute) and n.attr in ("shape", "size") for n in walk_all(sizes))
