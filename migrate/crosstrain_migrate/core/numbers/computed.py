"""What an evaluation's body computes of what it adds up, `accuracy = hits / rows`, and its script reads behind the loop.

On each process it is the value of its own share, so it is computed again of what was merged, where the body computes it
last, in each batch, and of nothing else that the body changes but the loop's index.
"""

from __future__ import annotations

import ast
from itertools import takewhile

from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import texts_in, walk

from .accumulators import Left, Pass, Unsure
from .changes import Change

_Changes = dict[str, list[tuple[Change, ast.AST]]]


def computed_again(found: Pass, left: Left) -> list[ast.Assign]:
    """The assignments that are made again behind the merge, in order; takes their variables out of `left.lasts`.

    Raises Unsure for what is computed in another way.
    """
    changes = found.changes()
    grows = {*left.sums, *left.joins}
    while more := {t for t, made in changes.items() if t not in grows and _reads(made) & grows}:
        grows |= more
    wanted = [text for text in left.lasts if text in grows]
    again: dict[str, ast.Assign] = {}
    for text in wanted:
        _compute(found, changes, left, grows, text, again)
    left.lasts = [text for text in left.lasts if text not in wanted]
    return sorted(again.values(), key=place_of)


def _compute(
    found: Pass, changes: _Changes, left: Left, grows: set[str], text: str, again: dict[str, ast.Assign]
) -> None:
    (_, made), *others = changes[text]
    if (
        others
        or not isinstance(made, ast.Assign)
        or not _is_in_each_batch(found, made)
        or list(map(written, made.targets)) != [text]
    ):
        raise Unsure(f"`{text}` is computed of what it adds up")
    again[text] = made
    for name in sorted(_reads([(Change.SET, made)])):
        below = any(place_of(node) > place_of(made) for _, node in changes.get(name, ()))
        if name in (*left.sums, *left.joins):
            is_known = not below
        elif name == _index(found.loop):
            is_known = True
            left.lasts += [name] if name not in left.lasts else []
        elif is_known := name in grows and not below:
            if name not in again:
                _compute(found, changes, left, grows, name, again)
        else:
            is_known = name not in changes and name not in texts_in(found.loop.target)
        if not is_known:
            raise Unsure(f"`{text}` is computed of what it adds up, and of a batch")


def _is_in_each_batch(found: Pass, made: ast.AST) -> bool:
    around = takewhile(lambda one: one is not found.loop, found.script.around(made))
    return all(isinstance(one, ast.With) for one in around)


def _index(loop: ast.For) -> str:
    is_counted = isinstance(loop.target, ast.Tuple) and any(
        isinstance(n, ast.Call) and last_name(n.func) == "enumerate" for n in walk(loop.iter)
    )
    return written(loop.target.elts[0]) if is_counted and isinstance(loop.target, ast.Tuple) else ""


def _reads(made: list[tuple[Change, ast.AST]]) -> set[str]:
    """What the plain assignments among some changes read."""
    values = [node.value for kind, node in made if kind is Change.SET and isinstance(node, ast.Assign)]
    return {name for value in values for name in texts_in(value)}
