"""The short set, and shared fixtures: every test starts without a run, whatever the test before it left behind.

`make test` leaves out tests that are marked `slow` or listed in `tests/slow.txt`. `make test-all`, `pytest -m slow`, or
CROSSTRAIN_TEST_ALL=1 run them.
"""

import os
import sys
from collections.abc import Iterator

import pytest

from tests import slow

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CROSSTRAIN_QUIET", "1")


@pytest.hookimpl(tryfirst=True)  # before pytest's own selection by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    listed = slow.listed(slow.TABLE.read_text().splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.slow)
    if all_are_asked_for(config):
        return
    left_out = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if not item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=left_out)


def all_are_asked_for(config: pytest.Config) -> bool:
    return bool(config.option.markexpr or os.environ.get("CROSSTRAIN_TEST_ALL"))


def pytest_report_header(config: pytest.Config) -> str:
    return "" if all_are_asked_for(config) else "slow tests are left out; CROSSTRAIN_TEST_ALL=1 runs them"


@pytest.fixture(autouse=True, scope="session")
def _nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no command that a test starts, reads the user's launch.yaml and variables or keeps undo data there.

    XDG_CACHE_HOME stays: pip, pre-commit and the browsers have their downloads below it.
    """
    with pytest.MonkeyPatch.context() as environment:
        for name in os.environ:
            if name.startswith(("ACCELERATE_", "FSDP_")):
                environment.delenv(name)
        environment.setenv("CROSSTRAIN_HOME", str(tmp_path_factory.mktemp("crosstrain_home")))
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _fresh_run() -> Iterator[None]:
    """The runtime keeps one run per process; a test must not inherit another test's."""
    yield
    run = sys.modules.get("crosstrain.run")
    if run is not None:
        run.RUN.close()
