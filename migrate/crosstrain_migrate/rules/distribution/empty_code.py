"""What the conversion leaves with nothing to do: branches and functions that hold nothing but `pass`."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

from crosstrain_migrate.rules.side_effects import effectless
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.program import parts, read_only
from crosstrain_migrate.syntax.walks import walk

from .unused_code import sweep

RULE = "CT303"
MAX_ROUNDS = 8


def tidy(before: str, text: str, mapped: bool = False) -> str:
    """The converted script without branches, functions and variables that have nothing to do any more,
    but had `before`. mapped: it goes on to distribute itself (`sweep`)."""
    files = frozenset(part.path for part in parts(text)) if mapped else None
    swept, _ = sweep(before, _emptied_out(before, text), mapped=files)
    return swept


def comments(text: str) -> Counter[str]:
    """Every comment of a script with how often it occurs."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string.rstrip() for token in tokens if token.type == tokenize.COMMENT)


def _emptied_out(before: str, text: str) -> str:
    from crosstrain_migrate.syntax.rewrite import rewrite

    for _ in range(MAX_ROUNDS):
        tree = read_only(text)
        branches = [node for node in walk(tree) if isinstance(node, ast.If)]
        inner = {following for node in branches if (following := _elif(node)) is not None}
        edits: list[e.Edit] = []
        done: set[ast.AST] = set()  # what stands in a branch that an edit names: that is looked at again
        for node in branches:
            if node not in inner and node not in done and (found := _emptied(node)):
                edits += found
                done.update(walk(node))
        if not edits:
            return text
        text = rewrite(text, edits)
    return text


def _emptied(node: ast.If) -> list[e.Edit]:
    """Trailing branches of an `if` that are nothing but `pass`; the whole of it when none is left."""
    arms: list[list[ast.stmt]] = []
    tests: list[ast.expr] = []
    current: ast.If | None = node
    while current is not None:
        arms.append(current.body)
        tests.append(current.test)
        following, current = current.orelse, _elif(current)
        if current is None and following:
            arms.append(following)
    kept = len(arms)
    while kept and all(isinstance(s, ast.Pass) for s in arms[kept - 1]):
        if kept <= len(tests) and not effectless(tests[kept - 1]):
            break
        kept -= 1
    if kept == len(arms):
        return []
    if not kept:
        return [e.RemoveStatement(node, RULE)]
    return [e.Fold(node, RULE, arms=("keep",) * kept + ("drop",) * (len(arms) - kept))]


def _elif(node: ast.If) -> ast.If | None:
    """The `elif` of an `if`, which an `if` inside its `else` is not."""
    following = node.orelse[0] if len(node.orelse) == 1 else None
    return following if isinstance(following, ast.If) and following.col_offset == node.col_offset else None
