"""Branches that the conversion leaves empty: they hold nothing but `pass`."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

from crosstrain_migrate.rules.side_effects import effectless
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.program import parts, read_only
from crosstrain_migrate.syntax.walks import walk

from .unused_code import remove_unused

RULE = "CT303"
MAX_ROUNDS = 8


def remove_dead_code(before: str, text: str, mapped: bool = False) -> str:
    """The converted script without empty branches, and without the functions and variables that only `before` used.

    mapped: the script goes on to distribute itself (see `remove_unused`).
    """
    files = frozenset(part.path for part in parts(text)) if mapped else None
    swept, _ = remove_unused(before, _without_empty_branches(text), mapped=files)
    return swept


def comments(text: str) -> Counter[str]:
    """Every comment of a script with how often it occurs."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string.rstrip() for token in tokens if token.type == tokenize.COMMENT)


def _without_empty_branches(text: str) -> str:
    from crosstrain_migrate.syntax.rewrite import rewrite

    for _ in range(MAX_ROUNDS):
        branches = [node for node in walk(read_only(text)) if isinstance(node, ast.If)]
        inner = {following for node in branches if (following := _elif(node)) is not None}
        edits: list[e.Edit] = []
        done: set[ast.AST] = set()  # nodes in a branch that an edit names: the next round looks at them
        for node in branches:
            if node not in inner and node not in done and (edit := _emptied(node)) is not None:
                edits.append(edit)
                done.update(walk(node))
        if not edits:
            break
        text = rewrite(text, edits)
    return text


def _emptied(node: ast.If) -> e.Edit | None:
    """Drops the last branches of an `if` that hold nothing but `pass`, and the whole `if` when none is left."""
    chain = [node]
    while (following := _elif(chain[-1])) is not None:
        chain.append(following)
    last = chain[-1].orelse
    arms = [*(arm.body for arm in chain), *([last] if last else [])]
    kept = len(arms)
    while kept and all(isinstance(s, ast.Pass) for s in arms[kept - 1]):
        if kept <= len(chain) and not effectless(chain[kept - 1].test):
            break
        kept -= 1
    if kept == len(arms):
        return None
    fates = ("keep",) * kept + ("drop",) * (len(arms) - kept)
    return e.Fold(node, RULE, arms=fates) if kept else e.RemoveStatement(node, RULE)


def _elif(node: ast.If) -> ast.If | None:
    """The `elif` of an `if`; an `if` inside its `else` is none."""
    following = node.orelse[0] if len(node.orelse) == 1 else None
    return following if isinstance(following, ast.If) and following.col_offset == node.col_offset else None
