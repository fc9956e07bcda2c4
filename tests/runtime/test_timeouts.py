"""A rank that waits for one that does not come says who is missing, and where everybody is."""

import io
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, InitProcessGroupKwargs, PartialState
from crosstrain.comm import hang_report
from crosstrain.comm.frames import DistributedOperationException
from crosstrain.run import RUN
from crosstrain.utils.operations import broadcast
from crosstrain.utils.script_frames import users_frame
from torch import nn
from torch.utils.data import DataLoader

from tests.runtime.loaders import Stream
from tests.runtime.test_process_group import by_hand
from tests.support.ranks import errors_of, on_ranks, run_ranks


def _alone(kind: str) -> None:
    patience = InitProcessGroupKwargs(timeout=timedelta(seconds=2))
    if kind == "gather":
        PartialState(cpu=True)  # which starts the group, and knows of no time-out
    accelerator = Accelerator(cpu=True, kwargs_handlers=[patience])
    model = accelerator.prepare(nn.Linear(2, 1))
    if accelerator.process_index == 1:
        time.sleep(8)  # busy
        return
    if kind == "gather":
        accelerator.gather(torch.ones(3))
    else:
        accelerator.backward(model(torch.ones(1, 2)).mean())


@pytest.mark.parametrize(
    ("kind", "operation"),
    [("gather", "all_gather of (3,) float32"), ("backward", "the averaging of gradients")],
)
def test_the_missing_rank_and_its_line_are_named(kind: str, operation: str) -> None:
    """torch says only that a time-out passed; accelerate hangs for thirty minutes first."""
    text = errors_of(_alone, 2, kind)[0]
    assert f"rank 0 waited in vain in {operation} (missing: rank 1)" in text
    assert f"rank 0: waits in {operation} at {__file__}:" in text
    lines = Path(__file__).read_text().splitlines()
    busy = next(number for number, line in enumerate(lines, 1) if line.endswith("  # busy"))
    assert f"rank 1: in no collective, at {__file__}:{busy}" in text
    assert "Timed out" in text


def _behind(slow: int) -> None:
    patience = InitProcessGroupKwargs(timeout=timedelta(seconds=2))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[patience])
    for _ in accelerator.prepare(DataLoader(Stream(8), batch_size=1)):
        if accelerator.process_index == slow:
            time.sleep(9)
            return


@pytest.mark.parametrize("slow", [0, 1])
def test_a_dispatched_batch_that_nobody_sends_or_takes_is_explained(slow: int) -> None:
    text = errors_of(_behind, 2, slow)[1 - slow]
    assert f"waited in vain in scatter from rank 0 (missing: rank {slow})" in text


def _gone() -> None:
    patience = InitProcessGroupKwargs(timeout=timedelta(seconds=30))
    accelerator = Accelerator(cpu=True, kwargs_handlers=[patience])
    if accelerator.process_index == 1:
        return
    accelerator.wait_for_everyone()


def test_a_rank_that_has_ended_is_named_at_once() -> None:
    assert "rank 0 waited in vain in wait_for_everyone (missing: rank 1)" in errors_of(_gone, 2)[0]


def _late(kind: str) -> str:
    hang_report.REPORT_SECONDS = 1.5
    sys.stderr = said = io.StringIO()
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(2, 1))
    if kind != "many" and accelerator.process_index == 1:
        time.sleep(6)  # late
    if kind == "many":
        for _ in range(200):  # each of them short, all together long
            accelerator.gather(torch.ones(3))
            time.sleep(0.02)
    elif kind == "backward":
        accelerator.backward(model(torch.ones(1, 2)).mean())
    elif kind == "gather":
        assert accelerator.gather(torch.ones(3)).shape == (6,)
    elif kind == "large":
        assert accelerator.gather(torch.ones(5000)).shape == (10000,)
    accelerator.wait_for_everyone()
    return said.getvalue()


WAITS = [("gather", "all_gather of (3,) float32"), ("large", "all_gather of (5000,) float32")]
WAITS += [("backward", "the averaging of gradients")]


@pytest.mark.parametrize(("kind", "operation"), WAITS)
def test_a_long_wait_is_reported_long_before_the_time_out_and_goes_on(kind: str, operation: str) -> None:
    """With torch's default of half an hour nobody learned before where the missing rank was."""
    text, other = run_ranks(_late, 2, kind)
    assert text.startswith("crosstrain: rank 0 has waited ")
    assert f" s in {operation} (missing: rank 1):\n" in text
    assert f"rank 0: waits in {operation} at {__file__}:" in text
    lines = Path(__file__).read_text().splitlines()
    late = next(number for number, line in enumerate(lines, 1) if line.endswith("  # late"))
    assert f"rank 1: in no collective, at {__file__}:{late}\n" in text
    assert text.count("has waited") == 1
    assert other == ""


SCRIPT = """
import time
from crosstrain import Accelerator
accelerator = Accelerator(cpu=True)
time.sleep(2.5 * accelerator.process_index)  # the first process, which keeps the store, ends first
"""


def test_processes_may_end_one_after_the_other_without_end_training() -> None:
    """A thread that sleeps inside the store aborts its process here."""
    assert [code for code, *_ in by_hand(2, SCRIPT)] == [0, 0]


# -- What `--debug` compares over the ranks, and what is compared without it -------------------------------

DEBUG = {"CROSSTRAIN_DEBUG": "1"}


def _averages(other_shape: bool) -> str:
    """A gradient buffer of another size on rank 1: gloo adds up what does not belong together, or aborts."""
    comm = RUN.start(cpu=True)
    assert comm.debug
    size = 5 if other_shape and comm.rank == 1 else 4
    try:
        work = comm.start_average(torch.full((size,), float(comm.rank)))
    except DistributedOperationException as error:
        return str(error)
    work.wait()
    return "averaged"


def test_debug_compares_the_averaging_of_gradients() -> None:
    for text in run_ranks(_averages, 2, True, env=DEBUG):
        assert "rank 0: the averaging of gradients of (4,) float32 at" in text
        assert "rank 1: the averaging of gradients of (5,) float32 at" in text
        assert __file__ in text
    assert run_ranks(_averages, 2, False, env=DEBUG) == ["averaged"] * 2


@pytest.mark.parametrize("kind", ["gather", "reduce", "broadcast"])
@on_ranks(2)
def test_large_tensors_on_the_cpu_are_always_compared(kind: str) -> None:
    accelerator = Accelerator(cpu=True)
    calls = {"gather": accelerator.gather, "reduce": accelerator.reduce, "broadcast": broadcast}
    with pytest.raises(RuntimeError, match=r"\(3000,\) float32 at(.|\n)*\(3001,\) float32 at"):
        calls[kind](torch.ones(3000 + accelerator.process_index))


def _common_draws_on_rank_0_alone() -> None:
    accelerator = Accelerator(cpu=True)
    assert accelerator._comm.debug == (os.environ.get("CROSSTRAIN_DEBUG") == "1")
    for _ in accelerator.prepare(DataLoader(torch.arange(8.0), batch_size=2)):
        if accelerator.is_main_process:
            with accelerator.common_draws():
                torch.rand(1)
        accelerator.gather(torch.ones(1))


def test_common_draws_on_some_ranks_only_are_said_in_debug() -> None:
    """What one rank draws there alone is not alike on all of them."""
    for text in errors_of(_common_draws_on_rank_0_alone, 2, env=DEBUG):
        assert f"rank 0: common_draws() at {__file__}:" in text
        assert "rank 1: all_gather of (1,) float32 at" in text
    assert errors_of(_common_draws_on_rank_0_alone, 2) == ["no error"] * 2


# -- Which line of a script a message names ----------------------------------------------------------------

LIBRARY = "import sys\ndef around(call):\n    return call()\n"


def _around(folder: Path) -> Any:
    """A function of a library in this folder, which calls back."""
    names: dict[str, Any] = {}
    exec(compile(LIBRARY, str(folder / "bar.py"), "exec"), names)
    return names["around"]


def _innermost(around: Any) -> str:
    """What is found from a frame of the library, as a loader finds it that a progress bar iterates."""
    frames: list[Any] = []
    around(lambda: frames.append(sys._getframe(1)))
    return str(users_frame(frames[0]).f_code.co_filename)


@pytest.mark.parametrize("place", ["venv/lib/python3.11/site-packages", "usr/lib/python3/dist-packages"])
def test_an_installed_library_around_a_call_is_not_the_script(place: str, tmp_path: Path) -> None:
    assert _innermost(_around(tmp_path / place)) == __file__


def test_a_module_of_the_project_is_the_script(tmp_path: Path) -> None:
    assert _innermost(_around(tmp_path)) == str(tmp_path / "bar.py")
