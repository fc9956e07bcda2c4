"""Trackers, loggers, triggers, profiles, uneven inputs and local steps, on two processes."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.local_sgd import LocalSGD
from crosstrain.logging import get_logger
from crosstrain.tracking import GeneralTracker
from crosstrain.utils import find_executable_batch_size, pad_across_processes
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import on_ranks, run_ranks


class Memory(GeneralTracker):
    """A tracker of the user's own."""

    name = "memory"

    def __init__(self, main_process_only: bool) -> None:
        super().__init__()
        self.main_process_only = main_process_only
        self.said: list[Any] = []

    @property
    def tracker(self) -> list[Any]:
        return self.said

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.said.append(values)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.said.append((step, values, kwargs))

    def finish(self) -> None:
        self.said.append("end")


def _track(folder: str) -> list[list[Any]]:
    main, every = Memory(True), Memory(False)
    accelerator = Accelerator(cpu=True, log_with=["jsonl", main, every], project_dir=folder)
    accelerator.init_trackers("run", {"lr": 0.1})
    accelerator.log({"loss": torch.tensor(0.5)}, step=3, log_kwargs={"memory": {"commit": True}})
    unwrapped = accelerator.get_tracker("memory", unwrap=True) if accelerator.is_main_process else main.said
    accelerator.get_tracker("jsonl").log({"more": 1})  # does nothing on the other process
    assert unwrapped is main.said
    accelerator.end_training()
    return [main.said, every.said]


def test_trackers(tmp_path: Path) -> None:
    zero, one = run_ranks(_track, 2, str(tmp_path))
    assert [type(entry) for entry in zero[0]] == [dict, tuple, str]
    assert zero[0][1][2] == {"commit": True}
    assert one[0] == []
    assert len(one[1]) == 3
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [{**line, "time": 0} for line in lines] == [
        {"time": 0, "config": {"lr": 0.1}},
        {"time": 0, "step": 3, "loss": 0.5},
        {"time": 0, "step": None, "more": 1},
    ]


def test_an_unknown_tracker_is_named() -> None:
    with pytest.raises(ValueError, match=r"log_with='wanbd' is unknown; choose one of aim, .*, wandb, pass"):
        Accelerator(cpu=True, log_with="wanbd")
    with pytest.raises(ValueError, match="was not started"):
        Accelerator(cpu=True).get_tracker("jsonl")
    with pytest.warns(UserWarning, match="Call init_trackers"):
        Accelerator(cpu=True, log_with="jsonl").log({"loss": 1.0})


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.getMessage()} {Path(record.pathname).name}")


def _log() -> list[str]:
    accelerator = Accelerator(cpu=True)
    logger = get_logger(__name__, log_level="INFO")
    lines = _Lines()
    logger.logger.addHandler(lines)
    me = accelerator.process_index
    logger.info("main %d", me)
    logger.info("all %d", me, main_process_only=False)
    logger.warning("turn %d", me, main_process_only=False, in_order=True)
    logger.debug("nothing")
    for _ in range(3):
        logger.warning_once("once")
    return lines.lines


def test_loggers_speak_once_or_in_turn_from_the_callers_line() -> None:
    zero, one = run_ranks(_log, 2)
    here = Path(__file__).name
    assert zero == [f"main 0 {here}", f"all 0 {here}", f"turn 0 {here}", zero[3]]
    assert zero[3].startswith("once ")
    assert one == [f"all 1 {here}", f"turn 1 {here}"]


@on_ranks(2)
def test_triggers_profiles_and_padding() -> None:
    accelerator = Accelerator(cpu=True)
    me = accelerator.process_index
    assert not accelerator.check_trigger()
    if me == 1:
        accelerator.set_trigger()
    assert (accelerator.check_trigger(), accelerator.check_trigger()) == (True, False)
    model = accelerator.prepare(nn.Linear(2, 1))
    if accelerator.is_main_process:
        with accelerator.profile():  # without a folder nobody is waited for
            pass
    with accelerator.profile() as profiler:
        model(torch.ones(3, 2))
    assert "aten::linear" in {event.key for event in profiler.key_averages()}
    with pytest.raises(RuntimeError, match=r"rank 0: \(2, 3\)\n  rank 1: \(2, 4\)"):
        pad_across_processes(torch.ones(2, 3 + me), dim=0)
    with model.no_sync():
        model(torch.full((1, 2), float(me))).sum().backward()
    assert model.weight.grad.tolist() == [[float(me)] * 2]
    accelerator.end_training()
    accelerator.end_training()
    with pytest.raises(RuntimeError, match=r"call end_training\(\) after the last gather"):
        accelerator.gather(torch.ones(1))


def _local(enabled: bool) -> list[list[Any]]:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model, loose = nn.Linear(1, 1, bias=False), nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.SGD([*model.parameters(), loose], lr=1.0)
    model, optimizer = accelerator.prepare(model, optimizer)
    seen = []
    with LocalSGD(accelerator, model, local_sgd_steps=2, enabled=enabled) as local:
        for _ in range(3):
            mine = float(accelerator.process_index + 1)
            accelerator.backward(model(torch.full((1, 1), mine)).sum() + mine * loose)
            optimizer.step()
            optimizer.zero_grad()
            local.step()
            seen.append(model.weight.item())
    seen.append(model.weight.item())
    assert loose.item() == -4.5
    return [round(seen[0] - value, 4) for value in seen]  # type: ignore[return-value]


def test_local_steps_are_averaged_now_and_then() -> None:
    zero, one = run_ranks(_local, 2, True)
    # Local gradients are 1 and 2; the weights are averaged after the second step and at the end.
    assert zero == [0.0, 2.0, 3.0, 3.5]
    assert one == [0.0, 1.0, 3.0, 2.5]
    assert run_ranks(_local, 2, False) == [[0.0, 1.5, 3.0, 3.0]] * 2


def test_a_batch_size_that_fits_is_found() -> None:
    tried = []

    @find_executable_batch_size(starting_batch_size=64)
    def train(batch_size: int, name: str) -> tuple[int, str]:
        tried.append(batch_size)
        if batch_size > 50:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return batch_size, name

    assert train("x") == (45, "x")
    assert tried == [64, 57, 51, 45]
    with pytest.raises(TypeError, match="call it as train\\(name\\)"):
        train(8, "x")

    @find_executable_batch_size(starting_batch_size=2)
    def never(batch_size: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(RuntimeError, match="it went down to 0"):
        never()


@on_ranks(2)
def test_a_model_that_was_not_prepared_is_named() -> None:
    """Every process would train a model of its own."""
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(1, 1)
    (x,) = next(iter(accelerator.prepare(DataLoader(TensorDataset(torch.zeros(4, 1)), batch_size=2))))
    with pytest.raises(RuntimeError, match="no model or optimizer was prepared"):
        accelerator.backward(model(x).mean())
