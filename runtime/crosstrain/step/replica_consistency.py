"""The check that learning rates and weights are the same on all ranks.

The learning rates, and the weights of replicated models, are compared when the ranks take the last batch of a pass in
which gradients were averaged, and when a state is saved. They are not compared after the last batch, because a rank
that breaks off there would leave the others waiting; the changes of that batch are compared in the next pass, or when a
state is saved. Passes without averaging before their last batch (an evaluation, a pass of one step) are not compared, nor are
ranks that train apart (LocalSGD).
"""

from __future__ import annotations

import hashlib
import math
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import Tensor, nn

from crosstrain.comm.protocol import Comm
from crosstrain.step.gradients import GradientSync
from crosstrain.utils import checks

if TYPE_CHECKING:
    from crosstrain.data.loader import Pass
    from crosstrain.step.model_sync import ModelSync
    from crosstrain.step.optimizer import Gate
    from crosstrain.step.prepared import PreparedObjects

# Largest relative difference that counts as rounding, as between processors of two kinds.
ROUNDING = 1e-5
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Rates = list[list[float]]


class ReplicaConsistency:
    """Compares the learning rates and weights of one Accelerator's ranks. ``has_compared``: it has done so before."""

    def __init__(self, comm: Comm, prepared: PreparedObjects) -> None:
        self._comm = comm
        self._prepared = prepared
        self._begun: weakref.WeakKeyDictionary[Pass, int] = weakref.WeakKeyDictionary()
        self._thread = threading.get_ident()
        self._rounding_told = False
        self.has_compared = False

    def begins(self, run: Pass) -> None:
        """A pass over a prepared loader begins."""
        self._begun[run] = self._averagings()

    def takes_last(self, run: Pass) -> None:
        """Compare the ranks before they get the last batch of a pass (collective)."""
        if self._averagings() == self._begun.get(run) or threading.get_ident() != self._thread:
            return  # a thread that reads ahead is not in step with the other ranks
        self.compare(f"the last batch of epoch {run.loader.epoch} over {type(run.loader.dataset).__name__}")

    def ends(self, run: Pass) -> None:
        """Nothing is compared where a pass ends: not all ranks end theirs at once."""

    def compare(self, occasion: str) -> None:
        """Raise RuntimeError on all ranks if learning rates or weights differ (one collective if they are equal)."""
        syncs = self._prepared.syncs
        if not syncs or any(sync.may_differ for sync in syncs):
            return
        self.has_compared = True
        trained = dict(_trained(syncs))
        sums = dict(zip(trained, checksums(trained.values()), strict=True))
        rates = [list(_rates(gate)) for gate in self._prepared.gates]
        said = self._comm.all_gather_object((rates, _digest(sums)))
        place = checks.here()
        if not all(_alike(theirs, said[0][0]) for theirs, _ in said):
            self._fail(_of_rates([theirs for theirs, _ in said], occasion), place)
        if any(theirs != said[0][1] for _, theirs in said):
            self._look_closer(trained, sums, occasion, place)
        checks.held("alike", place)

    def _averagings(self) -> int:
        return sum(sync.averagings for sync in self._prepared.syncs)

    def _look_closer(
        self, trained: Mapping[str, Tensor], sums: Mapping[str, int], occasion: str, place: checks.Place
    ) -> None:
        """Find the first weights that differ by more than rounding, where checksums differ (collective)."""
        tables: list[Mapping[str, int]] = self._comm.all_gather_object(dict(sums))
        names = dict.fromkeys(name for table in tables for name in table)
        odd = [name for name in names if len({table.get(name) for table in tables}) > 1]
        for name in odd:
            spread = self._spread(trained[name]) if all(name in table for table in tables) else math.inf
            if not spread <= _tolerance(trained.get(name)):
                ranks = [rank for rank, table in enumerate(tables) if table.get(name) != tables[0].get(name)]
                self._fail(_of_weights(name, odd, ranks, spread, occasion), place)
        if not self._rounding_told and self._comm.rank == 0:
            warnings.warn(
                f"{place}: the ranks' weights differ by rounding ({', '.join(odd[:3])}), as they do on "
                f"processors of different kinds or where an operation is not deterministic.",
                stacklevel=2,
            )
        self._rounding_told = True

    def _spread(self, own: Tensor) -> float:
        """The largest difference of a rank's weights to rank 0's, relative to rank 0's largest element (collective)."""
        first = self._comm.broadcast(own.detach().clone())
        scale = float(first.abs().max())
        mine = float((own.detach() - first).abs().max()) / (scale or 1.0)
        spreads: list[float] = self._comm.all_gather_object(mine)
        return math.nan if any(map(math.isnan, spreads)) else max(spreads)

    def _fail(self, message: str, place: checks.Place) -> NoReturn:
        message = f"{place}: {message}"
        checks.failed("alike", message, place)
        raise RuntimeError(message)


def agreed_metric(metric: Any, comm: Comm) -> Any:
    """Rank 0's value of the metric that a scheduler observes (collective).

    Raises RuntimeError on all ranks where their values differ by more than rounding.
    """
    if comm.world == 1:
        return metric
    said = comm.all_gather_object(_number(metric))
    numbers = [value for value, _ in said if isinstance(value, float)]
    if not numbers:
        return metric  # no rank has a number: the scheduler itself raises
    tolerance = max(rounding for _, rounding in said)
    if len(numbers) == len(said) and all(_close(value, numbers[0], tolerance) for value in numbers):
        checks.held("alike")
        return numbers[0]
    values = ", ".join(f"{value!r} on rank {rank}" for rank, (value, _) in enumerate(said))
    message = (
        f"{checks.here()}: the scheduler gets a metric that differs from rank to rank ({values}), so their "
        f"learning rates would part. Give it the metric of all ranks: accelerator.reduce(metric, 'mean') for a mean, "
        f"or compute it from what accelerator.gather_for_metrics returns."
    )
    checks.failed("alike", message)
    raise RuntimeError(message)


def checksums(tensors: Iterable[Tensor]) -> list[int]:
    """One number for each tensor: the sum of its bits read as integers, which is exact in any order of addition."""
    sums: dict[torch.device, list[Tensor]] = {}
    places = []
    for tensor in tensors:
        same = sums.setdefault(tensor.device, [])
        places.append((tensor.device, len(same)))
        same.append(_sum_of_bits(tensor.detach()))
    # This waits for each device only once.
    values: dict[torch.device, list[int]] = {
        device: torch.stack(many).tolist() for device, many in sums.items()
    }
    return [values[device][index] for device, index in places]


def _sum_of_bits(tensor: Tensor) -> Tensor:
    """The sum of the tensor's bits, eight bytes at a time, which is ten times as fast as element by element."""
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)
    integer, several = _INTEGERS[flat.element_size()], 8 // flat.element_size()
    if flat.storage_offset() % several or flat.stride(0) != 1:  # as one value expanded to many
        flat = flat.clone(memory_format=torch.contiguous_format)
    whole = flat.numel() - flat.numel() % several
    total = flat[:whole].view(torch.int64).sum()
    return total if whole == flat.numel() else total + flat[whole:].view(integer).sum(dtype=torch.int64)


def _trained(syncs: Iterable[ModelSync]) -> Iterator[tuple[str, Tensor]]:
    """The trainable weights of replicated models by name, and loose parameters.

    Subclasses of Parameter are left out, since their elements may not be all.
    """
    for number, sync in enumerate(sync for sync in syncs if sync.replica is not None):
        model = sync.replica
        prefix = f"{type(model).__name__} ({number + 1})." if number else f"{type(model).__name__}."
        for name, param in model.named_parameters() if model is not None else ():
            if _is_compared(param):
                yield prefix + name, param
    for sync in syncs:
        if isinstance(sync, GradientSync):
            yield from ((name, param) for name, param in sync.watched.loose.items() if _is_compared(param))


def _is_compared(param: nn.Parameter) -> bool:
    return param.requires_grad and type(param) is nn.Parameter


def _rates(gate: Gate) -> Iterator[float]:
    for group in gate.optimizer.param_groups:
        if isinstance(rate := group.get("lr"), (int, float, Tensor)):
            yield float(rate)


def _digest(sums: Mapping[str, int]) -> bytes:
    return hashlib.blake2b(repr(sorted(sums.items())).encode(), digest_size=16).digest()


def _alike(some: Rates, others: Rates) -> bool:
    return list(map(len, some)) == list(map(len, others)) and all(
        _close(one, other, 1e-6)
        for mine, theirs in zip(some, others, strict=True)
        for one, other in zip(mine, theirs, strict=True)
    )


def _close(one: float, other: float, tolerance: float) -> bool:
    both_nan = math.isnan(one) and math.isnan(other)
    return both_nan or math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def _number(metric: Any) -> tuple[float | str, float]:
    """The metric's value, or its type if it is no number, and the difference that counts as rounding for its dtype."""
    rounding = _tolerance(metric if isinstance(metric, Tensor) else None)
    try:
        return float(metric), rounding
    except (TypeError, ValueError, RuntimeError):
        return f"a {type(metric).__name__}", rounding


def _tolerance(tensor: Tensor | None) -> float:
    if tensor is None or not tensor.is_floating_point():
        return ROUNDING
    return max(ROUNDING, 4 * torch.finfo(tensor.dtype).eps)


def _of_rates(said: Sequence[Rates], occasion: str) -> str:
    listing = "; ".join(
        f"rank {rank} has {', '.join(map(_listed, rates))}" for rank, rates in enumerate(said)
    )
    return (
        f"the learning rates differ from rank to rank before {occasion}: {listing}. Every rank must step its "
        f"schedulers, at the same batches: look for one that is stepped under `if accelerator.is_main_process`, a "
        f"ReduceLROnPlateau that was not given to `prepare` and gets each rank's own metric, or a rate that is "
        f"computed from something of one rank (its loss, its clock)."
    )


def _listed(rates: Sequence[float]) -> str:
    shown = [f"{rate:.6g}" for rate in rates[:4]] + ["..."] * (len(rates) > 4)
    return f"[{', '.join(shown)}]"


def _of_weights(name: str, odd: Sequence[str], ranks: Sequence[int], spread: float, occasion: str) -> str:
    more = f" and of {len(odd) - 1} more" if len(odd) > 1 else ""
    on = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
    by = f", by up to {spread:.2g} of the largest" if math.isfinite(spread) else ""
    return (
        f"the weights have drifted apart before {occasion}: those of {name}{more} are not the same on {on} as on rank "
        f"0{by}. Each rank must change them in the same way: look for a step, a change of weights or "
        f"gradients or a load_state_dict that depends on the rank (under `if accelerator.is_main_process`, on the "
        f"rank's own loss, with random numbers), and for an optimizer that was not given to `prepare`."
    )
