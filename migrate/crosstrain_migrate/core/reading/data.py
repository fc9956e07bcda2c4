"""A training loop's batches: where they are read from, and the words for it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from crosstrain_migrate.syntax.nodes import words

from .forms import Frame, Loop

BARS = re.compile(r"tqdm|trange|progress|track\b|ProgBar|pbar$", re.I)
PIECES = words("split chunk unbind")  # of a tensor
SEEN_THROUGH = {"enumerate", "islice", "iter", "cycle", "reversed", "list", "tuple"}
# Methods whose result is not data: parts of containers, of modules, of text.
NO_DATA = PIECES | words(
    "count items keys values parameters named_parameters modules children sorted listdir glob named_modules state_dict"
)


@dataclass(frozen=True)
class Data:
    """What a training loop reads its batches from, as the code names it there.

    loop: the loop that iterates it; None where `next` takes its batches. held: it stands inside a class that wraps it.
    beside: the loop over other data in which `next` takes its batches.
    """

    node: ast.expr
    frame: Frame
    loop: Loop | None = None
    held: bool = False
    beside: Loop | None = None
