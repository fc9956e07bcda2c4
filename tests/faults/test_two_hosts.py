"""A training over two machines, one of which fails, or whose link is cut: it ends or goes on, and goes on exactly."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crosstrain.launch.failure import MACHINES_APART

from tests.faults import journal
from tests.faults.hosts import ADDRESSES, Hosts, two_hosts
from tests.faults.journal import Reference
from tests.faults.place import Place, kill, wait_for
from tests.faults.rounds import judge_survivors, make_reference

WITHIN = 300  # seconds; far more than it takes, on a machine that does other things too
PATIENCE = 200  # seconds that ranks and machines wait for each other
SHORT = 30  # the same, where it is to run out
LONGER = 45  # the same, where a machine also has to start again in it
LAUNCHED: list[subprocess.Popen[str]] = []


@pytest.fixture(scope="module")
def reference() -> Reference:
    return make_reference()


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    try:
        with two_hosts() as made:
            yield made
    except PermissionError as error:
        pytest.skip(f"needs network namespaces: {error}")


def launch(
    place: Place, hosts: Hosts, rank: int, *options: str, timeout: int = PATIENCE
) -> subprocess.Popen[str]:
    machines = ["--num-machines", "2", "--machine-rank", str(rank), "--main-process-ip", ADDRESSES[0]]
    agent = place.launch(*machines, "--timeout", str(timeout), *options, on=hosts.on(rank))
    LAUNCHED.append(agent)
    return agent


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Launchers that a failed test leaves, such as one that waited too long, are killed; their ranks end with them."""
    yield
    for agent in LAUNCHED:
        if agent.poll() is None:
            kill(agent.pid)
            agent.wait()
    LAUNCHED.clear()


def start(place: Place, hosts: Hosts, *options: str, timeout: int = PATIENCE) -> list[subprocess.Popen[str]]:
    """Both launchers, when the first batch has been trained."""
    trains = place.trains()
    agents = [launch(place, hosts, rank, *options, timeout=timeout) for rank in (0, 1)]
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
    hosts: Hosts, reference: Reference, tmp_path: Path
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


def test_machine_that_comes_back_is_waited_for(hosts: Hosts, reference: Reference, tmp_path: Path) -> None:
    place = Place(tmp_path)
    agents = start(place, hosts, "--max-restarts", "3")
    assert kill(agents[1].pid)
    agents[1].communicate(timeout=WITHIN)
    agents[1] = launch(place, hosts, 1, "--max-restarts", "3")
    finish(agents)
    judge(place, reference)


@pytest.fixture
def link(hosts: Hosts) -> Iterator[Hosts]:
    """Hosts whose cable is whole afterwards, whatever happened."""
    try:
        yield hosts
    finally:
        hosts.heal()


def cut(place: Place, hosts: Hosts) -> None:
    """Cut the link, and see that the training stands still since, and was not over."""
    hosts.cut()
    time.sleep(1)
    assert journal.digest(place.folder, 0) == ""


def test_a_link_that_stays_cut_ends_the_job_and_the_next_one_goes_on(
    link: Hosts, reference: Reference, tmp_path: Path
) -> None:
    """Both machines end, each with one message that says what it waited for."""
    place = Place(tmp_path)
    agents = start(place, link, timeout=SHORT)
    cut(place, link)
    said = [agent.communicate(timeout=WITHIN)[1] for agent in agents]
    assert [agent.returncode for agent in agents] == [1, 1], said
    for rank, text in enumerate(said):
        assert text.count("crosstrain launch: ") == 1, text
        assert f"rank {rank} of 2 failed with the error above" in text
        assert "Timed out" in text
    link.heal()
    finish(start(place, link))
    judge(place, reference)


def test_a_machine_cut_off_is_started_again_by_its_cluster_and_waited_for(
    link: Hosts, reference: Reference, tmp_path: Path
) -> None:
    """With restarts the machine that cannot reach machine 0 ends, and machine 0 waits for it to come back."""
    place = Place(tmp_path)
    restarts = ("--max-restarts", "3")
    agents = start(place, link, *restarts, timeout=LONGER)
    cut(place, link)
    _, stderr = agents[1].communicate(timeout=WITHIN)
    assert agents[1].returncode == MACHINES_APART
    assert stderr.count("crosstrain launch: ") == 1, stderr
    assert f"machine 0 has not answered for {LONGER} s" in stderr
    link.heal()
    agents[1] = launch(place, link, 1, *restarts, timeout=LONGER)
    finish(agents)
    judge(place, reference)
