"""A training over two machines, one of which fails: it ends or starts again, and goes on exactly."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import journal
from tests.faults.hosts import ADDRESSES, two_hosts
from tests.faults.journal import Reference
from tests.faults.place import Place, kill, wait_for
from tests.faults.rounds import judge_survivors, make_reference

WITHIN = 300  # seconds; far more than it takes, on a machine that does other things too


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference()


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[list[str]]]:
    try:
        with two_hosts() as commands:
            yield commands
    except PermissionError as error:
        pytest.skip(f"needs network namespaces: {error}")


def launch(place: Place, hosts: list[list[str]], rank: int, *options: str) -> subprocess.Popen[str]:
    machines = ["--num-machines", "2", "--machine-rank", str(rank), "--main-process-ip", ADDRESSES[0]]
    return place.launch(*machines, "--timeout", "200", *options, on=hosts[rank])


def start(place: Place, hosts: list[list[str]], *options: str) -> list[subprocess.Popen[str]]:
    trains = place.trains()
    agents = [launch(place, hosts, rank, *options) for rank in (0, 1)]
    assert wait_for(lambda: trains() or any(agent.poll() is not None for agent in agents))
    return agents


def finish(agents: list[subprocess.Popen[str]]) -> None:
    """Both end well; otherwise what they said is in the failure."""
    said = [agent.communicate(timeout=WITHIN)[1] for agent in agents]
    codes = [agent.returncode for agent in agents]
    assert codes == [0, 0], "\n\n".join(said)


def judge(place: Place, reference: Reference) -> None:
    judge_survivors(place)
    assert journal.differences(place.folder, reference) == (0, 0)
    assert [journal.digest(place.folder, rank) for rank in range(2)] == [reference.digest] * 2


def test_lost_machine_ends_the_job_and_the_next_one_goes_on(
    hosts: list[list[str]], reference: Reference, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    agents = start(place, hosts)
    assert kill(agents[1].pid)
    _, stderr = agents[0].communicate(timeout=WITHIN)
    agents[1].communicate(timeout=WITHIN)
    assert agents[0].returncode == 1
    assert "rank 0 of 2 failed with the error above" in stderr
    finish(start(place, hosts))
    judge(place, reference)


def test_machine_that_comes_back_is_waited_for(
    hosts: list[list[str]], reference: Reference, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    agents = start(place, hosts, "--max-restarts", "3")
    assert kill(agents[1].pid)
    agents[1].communicate(timeout=WITHIN)
    agents[1] = launch(place, hosts, 1, "--max-restarts", "3")
    finish(agents)
    judge(place, reference)
