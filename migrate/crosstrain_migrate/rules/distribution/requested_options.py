"""What a script's own precision and distribution require of the Accelerator."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MARK = "__crosstrain_{}__"  # an attribute of the accelerator, in a script that has none yet
MARKED = re.compile(r"^__crosstrain_(\w+)__$")


@dataclass(frozen=True)
class Precision:
    """The value of `Accelerator(mixed_precision=...)`, and what goes with it.

    flag: the script's own switch, as it is written; None when there is none. cuda_only: the precision applies only on
    CUDA. own_regions: the script's autocast regions stay as they are, so prepared models must add none.
    scaling: the arguments of GradScalerKwargs, as written. outside: the switch as the code that makes the trainer spells it.
    """

    dtype: str
    flag: str | None
    cuda_only: bool
    own_regions: bool
    scaling: str = ""
    outside: str | None = None


@dataclass
class Requested:
    precision: Precision | None = None
    split_batches: bool = False
    draws_apart: bool = False  # without a loader, each process draws its own data from its own seed
    keeps_collectives: bool = False  # the loss goes through the author's own collectives
    mapped: bool = False  # the script goes on to distribute itself (rules.mapping)
    in_place: bool = (
        False  # its models are prepared where they were wrapped, because the tool cannot see its training
    )
    settled: set[str] = field(default_factory=set)  # names of torch that may stay in the script
