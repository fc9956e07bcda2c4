"""How much the original's own runs differ if only their random numbers differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosstrain_verify.judging.compare import compare_trained_parameters, global_events, out_of_order
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Difference

# Two or three runs underestimate a spread. A normally distributed value lies beyond three times the range of three others
# once in two hundred cases, and both losses and weights would have to.
FACTOR = 3.0


def beyond_noise(members: Sequence[RankTrace], ranks: Sequence[RankTrace]) -> Difference | None:
    """The first difference that is larger than the spread of the original's own runs explains, else None.

    Every loss, and the final weights, may differ from the mean of the original's runs by FACTOR times their spread; for a
    loss that is the largest spread so far. Runs that do not make the same steps are different, whatever the noise.

    Args:
        members: the original's runs.
        ranks: the run that is judged.
    """
    disorder = out_of_order(ranks) or compare_trained_parameters(members[0], ranks[0], step_by_step=False)
    if disorder:
        return disorder
    losses = [[event.values[0] for event in member.events_of("loss")] for member in members]
    got = [event.values[0] for event in global_events(ranks) if event.kind == "loss"]
    if any(len(member) != len(got) for member in losses):
        return Difference("order", None, f"{len(losses[0])} backward passes", f"{len(got)}")
    spread = 0.0
    for number, (values, value) in enumerate(zip(zip(*losses, strict=True), got, strict=True), start=1):
        spread = max(spread, max(values) - min(values))
        middle = sum(values) / len(values)
        if not abs(value - middle) <= FACTOR * spread:
            detail = f"the original's own runs are {spread:.3g} apart"
            return Difference("loss", number, f"{middle:.6g}", f"{value:.6g}", detail)
    return _weights(members, ranks[0])


def _weights(members: Sequence[RankTrace], run: RankTrace) -> Difference | None:
    middle = np.mean([member.weights for member in members], axis=0)
    if middle.shape != run.weights.shape:
        return Difference("weights", None, f"{middle.size} weights", f"{run.weights.size} weights")
    spread = max(float(np.linalg.norm(member.weights - middle)) for member in members)
    error = float(np.linalg.norm(run.weights - middle))
    if not error <= FACTOR * spread:
        return Difference("weights", None, f"own runs {spread:.3g} from their middle", f"{error:.3g} from it")
    return None
