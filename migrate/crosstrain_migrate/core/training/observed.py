"""What a run of the script has shown of its losses (`migrate --observe`): whether one is a mean over rows, or a sum.

The facts file names places by file, line and column (`crosstrain_verify.observing` writes it); here they become nodes.
"""

from __future__ import annotations

import ast
import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

Place = tuple[int, int, int, int]  # line, column, end line, end column, in the text of a script or program


@dataclass(frozen=True)
class Seen:
    """run: what messages call it, "`train.py --epochs 1`, 60 steps". kinds: "mean" or "sum", by place."""

    run: str
    kinds: Mapping[Place, str]

    def kind(self, node: ast.expr) -> str:
        """ "mean" or "sum" where the run has shown which; else empty."""
        place = (node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0)
        return self.kinds.get(place, "")


def seen_in(document: str, first: Mapping[str, int]) -> Seen:
    """What a facts file tells of a text.

    first: the line of the text that is the first of each file, by the file's path from the script's folder; of a notebook,
    of each cell.
    """
    facts = json.loads(document)
    kinds = {}
    for one in facts["places"]:
        kind = (one.get("tensor") or {}).get("is", "")
        file, line, column, end, end_column = one["at"]
        start = first.get(posixpath.normpath(file))
        if kind in ("mean", "sum") and start is not None:
            kinds[line + start - 1, column, end + start - 1, end_column] = kind
    run = facts["run"]
    spoken = " ".join([facts["script"], *run["arguments"]])
    return Seen(f"`{spoken}`, {run['steps']} steps", kinds)
