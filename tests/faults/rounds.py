"""The faults, one function each, and the judgement of what is left after one.

A fault runs the training in a place, strikes, and returns whether it struck before the training was over
(rounds that were missed do not count). Then the training is started again and has to end with the weights,
bit for bit, of the one that nothing happened to.
"""

import contextlib
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from crosstrain.checkpoint.manifests import CorruptCheckpointError, verify

from tests.faults import journal
from tests.faults.journal import Reference
from tests.faults.place import Place, Strike, kill, wait_for
from tests.support.processes import is_running

Fault = Callable[[Place, random.Random, float], bool]


class FaultError(AssertionError):
    """Something that must not happen after a fault did."""


def killed(ranks: Callable[[random.Random], Sequence[int]]) -> Fault:
    """Ranks die at a random moment of the training."""

    def fault(place: Place, chance: random.Random, seconds: float) -> bool:
        chosen = ranks(chance)
        strike = Strike(place.trains(), chance.uniform(0, seconds), lambda: place.kill(*chosen))
        place.train()
        return strike.result()

    return fault


def killed_while_saving(rank: int) -> Fault:
    """A process dies in the middle of a checkpoint; process 0 is the one that writes it."""

    def fault(place: Place, chance: random.Random, seconds: float) -> bool:
        number = chance.randrange(1, 8)
        begun = lambda: journal.last_saved(place.folder) >= number - 1 and place.saving()  # noqa: E731
        strike = Strike(begun, chance.uniform(0, 0.02), lambda: place.kill(rank))
        place.train()
        return strike.result()

    return fault


def disk_fails(fail: Callable[[Place], bool], mend: Callable[[Place], None], words: str) -> Fault:
    """No checkpoint can be written, which the error says in these words; afterwards the disk is mended."""

    def fault(place: Place, chance: random.Random, seconds: float) -> bool:
        place.mount_disk()
        strike = Strike(place.trains(), chance.uniform(0, seconds / 2), lambda: fail(place))
        error = place.train()
        struck = strike.result() and error is not None
        if struck and words not in str(error):
            raise FaultError(f"{words!r} is not what the error says: {error}")
        judge_survivors(place)
        mend(place)
        return struck

    return fault


def fill(place: Place) -> bool:
    with (place.project / "filler").open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return True


def lock(place: Place) -> bool:
    def locked() -> bool:
        try:
            place.mount("-o", "remount,ro")
        except PermissionError:  # busy: a file is open for writing at this moment
            return False
        return True

    return wait_for(locked)


def restarted_after_kills(place: Place, chance: random.Random, seconds: float) -> bool:
    """`crosstrain launch --max-restarts`: ranks are killed, twice, and the launcher starts them again."""
    agent = place.launch("--max-restarts", "4")
    struck = []
    for _ in range(2):
        trains, rank = place.trains(), chance.randrange(journal.WORLD)
        over = lambda trains=trains: trains() or agent.poll() is not None  # noqa: E731
        strike = Strike(over, chance.uniform(0, seconds / 3), lambda rank=rank: place.kill(rank))
        strike.join()
        struck.append(strike.struck)
    _, stderr = agent.communicate(timeout=300)
    if agent.returncode:
        raise FaultError(f"the launcher gave up: {stderr}")
    return any(struck)


def agent_killed(place: Place, chance: random.Random, seconds: float) -> bool:
    """The launcher itself is killed: its ranks end, and a new one goes on."""
    agent = place.launch()
    strike = Strike(place.trains(), chance.uniform(0, seconds), lambda: kill(agent.pid))
    agent.communicate(timeout=300)
    struck = strike.result()
    pids = [journal.last_pid(place.folder, rank) for rank in range(journal.WORLD)]
    if not wait_for(lambda: not any(map(is_running, pids))):
        raise FaultError(f"ranks {pids} live on without their launcher")
    judge_survivors(place)
    _, stderr = (again := place.launch()).communicate(timeout=300)
    if again.returncode:
        raise FaultError(f"the second launch failed: {stderr}")
    return struck


def in_background(fault: Fault) -> Fault:
    """The same in a training that saves with `blocking=False`."""
    return lambda place, chance, seconds: fault(replace(place, background=True), chance, seconds)


BESIDE: dict[str, Fault] = {
    "rank_killed": killed(lambda chance: [chance.randrange(journal.WORLD)]),
    "main_killed_while_saving": killed_while_saving(0),
    "all_killed": killed(lambda _: range(journal.WORLD)),
    "disk_full": disk_fails(
        fill, lambda place: (place.project / "filler").unlink(missing_ok=True), "No space left on device"
    ),
    "agent_killed": agent_killed,
}
FAULTS: dict[str, Fault] = {
    **BESIDE,
    "disk_read_only": disk_fails(lock, lambda at: at.mount("-o", "remount,rw"), "Read-only file system"),
    "restarted_after_kills": restarted_after_kills,
    **{f"{name}_in_background": in_background(fault) for name, fault in BESIDE.items()},
    "other_killed_while_saving_in_background": in_background(killed_while_saving(1)),
}


def run(fault: Fault, reference: Reference, seed: int) -> tuple[bool, str]:
    """One round: whether it was struck, and what is wrong. Its folder is left behind, and named, if something is."""
    place = Place(Path(tempfile.mkdtemp(prefix="crosstrain-fault-")))
    try:
        struck = fault(place, random.Random(seed), reference.seconds)
        judge_survivors(place)
        if not all(journal.digest(place.folder, rank) for rank in range(journal.WORLD)):
            going_on_from = _newest_step(place)
            if error := place.train():
                raise FaultError(f"it does not go on: {error}")
            if journal.loaded(place.folder) != going_on_from:
                raise FaultError(f"went on from {journal.loaded(place.folder)}, not from {going_on_from}")
        if any(counts := journal.differences(place.folder, reference)):
            raise FaultError(f"batches repeated and dropped: {counts}")
        if {journal.digest(place.folder, rank) for rank in range(journal.WORLD)} != {reference.digest}:
            raise FaultError("the weights are others")
    except FaultError as error:
        return True, f"{error} (seed {seed}, {place.folder})"
    place.remove()
    return struck, ""


def judge_survivors(place: Place) -> None:
    """Every complete checkpoint is whole, and none that was saved before is missing. Raises FaultError."""
    for path in place.complete():
        try:
            verify(path)
        except CorruptCheckpointError as error:
            raise FaultError(f"a partial checkpoint is taken for a complete one: {error}") from None
    numbers = [int(path.name.removeprefix("checkpoint_")) for path in place.complete()]
    saved = journal.last_saved(place.folder)
    if saved > max(numbers, default=-1):
        raise FaultError(f"checkpoint {saved} was saved and is gone; there are {numbers}")


def make_reference() -> Reference:
    """Train once without a fault."""
    place = Place(Path(tempfile.mkdtemp(prefix="crosstrain-fault-")))
    if error := place.train():
        raise RuntimeError(error)
    batches = [journal.trained(place.folder, rank) for rank in range(journal.WORLD)]
    lines = [entry["time"] for entry in journal.entries(place.folder, 0) if "step" in entry]
    reference = Reference(batches, journal.digest(place.folder, 0), lines[-1] - lines[0])
    place.remove()
    return reference


def _newest_step(place: Place) -> int | None:
    """The step of the newest complete checkpoint, None where there is none."""
    whole = place.complete()
    return torch.load(whole[-1] / "custom_checkpoint_0.pkl", weights_only=True)["step"] if whole else None
