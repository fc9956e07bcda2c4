"""How the machines of a launch find each other, as torch's agent is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crosstrain.launch import agent, rendezvous
from crosstrain.launch.options import Devices, LaunchOptions, resolve
from crosstrain.launch.rendezvous import BoundedRendezvous
from torch.distributed.elastic.rendezvous import (
    RendezvousParameters,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)

from tests.support.proxy import Proxy
from tests.support.ranks import free_port

LONG, SHORT = 120.0, 4.0  # seconds that a machine waits for an answer


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 600), (45, 45)])
def test_machine_0_may_come_up_last(timeout: float | None, seconds: int, tmp_path: Path) -> None:
    """Left to itself torch waits for 60 seconds, which an image that is still being pulled takes longer than."""
    options = LaunchOptions(
        num_machines=2, machine_rank=1, main_process_ip="127.0.0.1", rdzv_backend="c10d", timeout=timeout
    )
    config = agent.launch_config(resolve(options, Devices(), {}), tmp_path)
    assert config.rdzv_configs["read_timeout"] == seconds
    assert config.rdzv_configs.get("join_timeout", rendezvous.JOIN_SECONDS) == seconds
    assert config.rdzv_configs["is_host"] is False


def handler(port: int, *, machines: int = 1, is_host: bool = True, patience: float) -> BoundedRendezvous:
    rendezvous.register()
    config = {"is_host": is_host, "read_timeout": 20, rendezvous.PATIENCE: patience}
    endpoint = f"127.0.0.1:{port}"
    parameters = RendezvousParameters(
        rendezvous.BOUNDED_BACKEND, endpoint, "run", machines, machines, **config
    )
    made = rendezvous_handler_registry.create_handler(parameters)
    assert isinstance(made, BoundedRendezvous)
    return made


@pytest.fixture
def linked() -> Iterator[tuple[Proxy, BoundedRendezvous]]:
    """A machine that has met machine 0, and the link between them."""
    port = free_port()
    first = handler(port, machines=2, patience=LONG)
    link = Proxy(port)
    second = handler(link.port, machines=2, is_host=False, patience=LONG)
    meeting = threading.Thread(target=first.next_rendezvous)
    meeting.start()
    second.next_rendezvous()
    meeting.join()
    try:
        yield link, second
    finally:
        link.heal()
        second.shutdown()
        first.shutdown()
        link.close()


def ask_for(machine: BoundedRendezvous, seconds: float) -> None:
    """As the agent does; for a second after an answer torch gives it again without asking."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert machine.num_nodes_waiting() == 0
        time.sleep(0.1)


def test_an_answer_over_a_link_that_is_soon_back_is_waited_for(
    linked: tuple[Proxy, BoundedRendezvous],
) -> None:
    link, machine = linked
    link.cut()
    healing = threading.Timer(1, link.heal)
    healing.start()
    ask_for(machine, 4)
    healing.join()


def test_a_machine_0_behind_a_link_that_stays_cut_is_given_up(
    linked: tuple[Proxy, BoundedRendezvous],
) -> None:
    link, machine = linked
    link.cut()
    machine._patience = SHORT
    with pytest.raises(RendezvousTimeoutError, match="machine 0 has not answered for 4 s"):
        ask_for(machine, LONG)
    assert not machine.shutdown()
