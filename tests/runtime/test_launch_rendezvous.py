"""How the machines of a launch find each other, as torch's agent is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from crosstrain.launch import agent, rendezvous
from crosstrain.launch.options import Devices, LaunchOptions, resolve
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousParameters,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)

from tests.support.ranks import free_port


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 600), (45, 45)])
def test_machine_0_may_come_up_last(timeout: float | None, seconds: int, tmp_path: Path) -> None:
    """Left to itself torch waits for 60 seconds, which an image that is still being pulled takes longer than."""
    options = LaunchOptions(
        num_machines=2,
        machine_rank=1,
        main_process_ip="127.0.0.1",
        rdzv_backend="c10d",
        timeout=timeout,
    )
    config = agent.launch_config(resolve(options, Devices(), {}), tmp_path)
    assert config.rdzv_configs["read_timeout"] == seconds
    assert config.rdzv_configs.get("join_timeout", rendezvous.JOIN_SECONDS) == seconds
    assert config.rdzv_configs["is_host"] is False


@pytest.fixture
def handler() -> RendezvousHandler:
    """Of a machine that is alone."""
    rendezvous.register()
    endpoint = f"127.0.0.1:{free_port()}"
    config = {"is_host": True, "read_timeout": 20, rendezvous.PATIENCE: 0.5}
    parameters = RendezvousParameters(rendezvous.BOUNDED_BACKEND, endpoint, "run", 1, 1, **config)
    return rendezvous_handler_registry.create_handler(parameters)


def test_answers_and_errors_come_through(handler: RendezvousHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    met = handler.next_rendezvous()
    assert (met.rank, met.world_size) == (0, 1)
    assert (handler.get_run_id(), handler.num_nodes_waiting(), handler.is_closed()) == ("run", 0, False)

    def refuse() -> int:
        raise ValueError("no")

    monkeypatch.setattr(handler._inner, "num_nodes_waiting", refuse)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no"):
        handler.num_nodes_waiting()
    assert handler.shutdown()


def test_a_machine_0_that_does_not_answer_is_given_up(
    handler: RendezvousHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over a link that is cut: the question is under way and nothing comes back."""
    forever = threading.Event()
    monkeypatch.setattr(handler._inner, "num_nodes_waiting", forever.wait)  # type: ignore[attr-defined]
    monkeypatch.setattr(handler._inner, "shutdown", forever.wait)  # type: ignore[attr-defined]
    began = time.monotonic()
    with pytest.raises(RendezvousTimeoutError, match="machine 0 has not answered"):
        handler.num_nodes_waiting()
    assert not handler.shutdown()
    assert time.monotonic() - began < 10
    forever.set()
