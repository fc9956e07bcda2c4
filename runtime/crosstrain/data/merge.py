"""Adding up over the processes what each has accumulated in its part of a loop, with one collective."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple, NoReturn

from torch import Tensor

from crosstrain.comm import double_reduction
from crosstrain.comm.protocol import Comm
from crosstrain.data.accumulators import Merge
from crosstrain.data.evaluation_loader import EvaluationLoader, inside_of
from crosstrain.data.loader import PreparedLoader
from crosstrain.data.packing import Unmergeable, packed, packed_as_it_is, unpacked
from crosstrain.utils import checks
from crosstrain.utils.nested import leaves


class _Message(NamedTuple):
    """What one process sends in `merge`.

    number: that of the loader. place: of the call. asked: the number of values, and the options. taken: the batches that
    the loop has taken and how many the loader has. problem: about a value that cannot be sent. values: pickled.
    """

    number: int
    place: str
    asked: tuple[int, bool, bool]
    taken: tuple[int, int]
    problem: str | None
    values: bytes


def merge(loader: Any, values: tuple[Any, ...], comm: Comm, *, last: bool, join: bool) -> tuple[Any, ...]:
    """See `Accelerator.merge`."""
    inside = _prepared_in(inside_of(loader))
    if comm.world == 1 or not comm.averages or not isinstance(inside, PreparedLoader):
        return values
    everybody = _exchanged(inside, values, comm, last, join)
    if last:
        sender = max((rank for rank, theirs in enumerate(everybody) if any(theirs.taken)), default=comm.rank)
        return values if comm.rank == sender else _unpickled(everybody[sender], comm)
    ran = [rank for rank, theirs in enumerate(everybody) if theirs.taken[1]] or range(comm.world)
    rule = Merge(frozenset(ran), comm.rank, comm.landing, join)
    sent = [pickle.loads(theirs.values) for theirs in everybody]
    merged = []
    for at, own in enumerate(values):
        try:
            merged.append(rule.of(own, [theirs[at] for theirs in sent]))
        except Unmergeable as error:
            raise Unmergeable(_about(at, values, str(error))) from None
    double_reduction.remember((leaf for leaf in leaves(merged) if isinstance(leaf, Tensor)), "merge")
    return tuple(merged)


def _prepared_in(loader: Any) -> Any:
    """The one loader that `prepare` has put into an object that iterates it; anything else as it is."""
    held = [one for one in getattr(loader, "__dict__", {}).values() if isinstance(one, PreparedLoader)]
    return held[0] if len(held) == 1 and not isinstance(loader, PreparedLoader) else loader


def _exchanged(
    loader: PreparedLoader, values: tuple[Any, ...], comm: Comm, last: bool, join: bool
) -> list[_Message]:
    """The messages of all ranks (collective). Raises on all ranks where values cannot be merged."""
    number, taken = 0, (1, 1)
    if isinstance(loader, EvaluationLoader):
        number, taken = loader._crosstrain_number, loader.taken()
    problem, sent = None, b""
    if not last or _may_be_last(loader, comm):
        problem, sent = _pickled(values, last)
    mine = _Message(number, str(checks.here()), (len(values), last, join), taken, problem, sent)
    everybody = [_Message(*theirs) for theirs in comm.all_gather_object(tuple(mine))]
    _check(everybody, type(loader.dataset).__name__)
    return everybody


def _may_be_last(loader: PreparedLoader, comm: Comm) -> bool:
    """Whether the original's last batch is this process's, or one before it has it."""
    is_behind = isinstance(loader, EvaluationLoader) and loader.start + loader.own_length >= len(loader)
    return is_behind or comm.rank == comm.world - 1


def _check(everybody: list[_Message], data: str) -> None:
    """Raise on all ranks where they merge different things, a loop was left early, or a value cannot be sent."""
    first = everybody[0]
    for rank, theirs in enumerate(everybody):
        if (theirs.number, theirs.asked) != (first.number, first.asked):
            what = "values of another loader" if theirs.number != first.number else "other values or options"
            _fail(f"process {rank} merges {what} (at {theirs.place}) than process 0 (at {first.place})")
    if any(theirs.taken[0] >= 0 for theirs in everybody):
        for rank, theirs in enumerate(everybody):
            done, length = theirs.taken
            if done < 0:
                _fail(
                    f"process {rank} has made no loop over the loader of {data}: every process evaluates its part"
                )
            if done < length:
                _fail(
                    f"process {rank} has taken {done} of its {length} batches of {data}: a loop that is left early "
                    f"cannot be divided. Merge behind a whole loop, or do not prepare its loader"
                )
    for rank, theirs in enumerate(everybody):
        if theirs.problem is not None:
            raise Unmergeable(f"{checks.here()}: merge: {theirs.problem} (process {rank}).")


def _fail(problem: str) -> NoReturn:
    message = f"{checks.here()}: merge: {problem}."
    checks.failed("evaluation", message)
    raise RuntimeError(message)


def _pickled(values: tuple[Any, ...], last: bool) -> tuple[str | None, bytes]:
    """A message about what cannot be sent, and the values as they are sent."""
    sent = []
    for at, value in enumerate(values):
        try:
            sent.append(packed_as_it_is(value) if last else packed(value))
            if at == len(values) - 1:
                return None, pickle.dumps(sent)
        except Unmergeable as error:
            return f"value {at + 1} of {len(values)}: {error}", b""
        except Exception as error:
            return f"value {at + 1} of {len(values)}, a {type(value).__name__}, cannot be sent: {error}", b""
    return None, pickle.dumps(sent)


def _unpickled(message: _Message, comm: Comm) -> tuple[Any, ...]:
    return tuple(unpacked(value, comm.landing) for value in pickle.loads(message.values))


def _about(at: int, values: tuple[Any, ...], problem: str) -> str:
    return f"{checks.here()}: merge, value {at + 1} of {len(values)}: {problem}."
