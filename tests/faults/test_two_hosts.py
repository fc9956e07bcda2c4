"""A training over two machines, one of which fails, or whose link is cut: it ends or goes on, and goes on exactly."""

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
RESTARTS = ("--max-restarts", "3")
LAUNCHED: list[subprocess.Popen[str]] = []

pytestmark = pytest.mark.slow


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


@pytest.fixture
def link(hosts: Hosts) -> Iterator[Hosts]:
    """Hosts whose cable is whole afterwards, whatever happened."""
    try:
        yield hosts
    finally:
        hosts.heal()


def cut(place: Place, hosts: Hosts) -> None:
    """Cut the link, wait, and see that the training stands still since, and was not over."""
    hosts.cut()
    time.sleep(1)
    before = journal.steps_written(place.folder)
    time.sleep(1)
    assert journal.steps_written(place.folder) == before
    assert journal.digest(place.folder, 0) == ""


@pytest.mark.parametrize("restarts", [(), RESTARTS])
def test_a_machine_that_is_lost_ends_the_job_and_one_that_comes_back_is_waited_for(
    hosts: Hosts, reference: Reference, tmp_path: Path, restarts: tuple[str, ...]
) -> None:
    place = Place(tmp_path)
    agents = start(place, hosts, *restarts)
    assert kill(agents[1].pid)
    agents[1].communicate(timeout=WITHIN)
    if restarts:
        agents[1] = launch(place, hosts, 1, *restarts)
    else:
        _, stderr = agents[0].communicate(timeout=WITHIN)
        assert agents[0].returncode == 1
        assert "rank 0 of 2 failed with the error above" in stderr
        agents = start(place, hosts)
    finish(agents)
    judge(place, reference)


def test_a_link_that_is_soon_back_is_waited_for(link: Hosts, reference: Reference, tmp_path: Path) -> None:
    place = Place(tmp_path)
    agents = start(place, link)
    cut(place, link)
    link.heal()
    finish(agents)
    judge(place, reference)


@pytest.mark.parametrize(("timeout", "restarts"), [(SHORT, ()), (LONGER, RESTARTS)])
def test_a_link_that_stays_cut_ends_the_job_and_a_machine_started_again_is_waited_for(
    link: Hosts, reference: Reference, tmp_path: Path, timeout: int, restarts: tuple[str, ...]
) -> None:
    """Without restarts both machines end, each with one message that says what it waited for. With them the one that
    cannot reach machine 0 ends, and machine 0 waits for it to come back."""
    place = Place(tmp_path)
    agents = start(place, link, *restarts, timeout=timeout)
    cut(place, link)
    ended = agents[1:] if restarts else agents
    said = [agent.communicate(timeout=WITHIN)[1] for agent in ended]
    assert all(text.count("crosstrain launch: ") == 1 for text in said), said
    link.heal()
    if restarts:
        assert agents[1].returncode == MACHINES_APART
        assert f"machine 0 has not answered for {timeout} s" in said[0]
        agents[1] = launch(place, link, 1, *restarts, timeout=timeout)
    else:
        assert [agent.returncode for agent in agents] == [1, 1], said
        for rank, text in enumerate(said):
            assert f"rank {rank} of 2 failed with the error above" in text and "Timed out" in text
        agents = start(place, link)
    finish(agents)
    judge(place, reference)
