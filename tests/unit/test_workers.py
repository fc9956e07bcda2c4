"""However a run with several processes ends, none of them stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import remaining

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes the Linux way")
_RUN = """
import os, sys, time, types
from tests.unit import conftest
from crosstrain_migrate import cli
from crosstrain_migrate.cli import run
from crosstrain_migrate.files import workers
def slow(path, text, options):
    os.write(1, b"started\\n")
    time.sleep(600)
engine = types.ModuleType("engine")
engine.__dict__.update(vars(conftest), migrate_text=slow)
sys.modules["crosstrain_migrate.engine"] = engine
run.may_train = lambda data: True
workers._CHARACTERS_PER_PROCESS, workers._processors = 1, lambda: 2
sys.argv = ["migrate", *sys.argv[1:], "--check"]
cli.main()
"""


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_workers_end_with_the_run(tmp_path: Path, end: signal.Signals) -> None:
    run, children = _at_work(tmp_path)
    if end is signal.SIGINT:
        os.killpg(run.pid, end)  # as a terminal does
        assert run.wait(300) == 130
        assert run.stderr is not None and b"Traceback" not in run.stderr.read()
    else:
        run.send_signal(end)
        assert run.wait(300) == -end
    assert remaining(children, seconds=300) == []


def test_ctrl_c_may_come_to_a_worker_first(tmp_path: Path) -> None:
    run, children = _at_work(tmp_path)
    os.kill(children[0], signal.SIGINT)  # the pool ends the other one
    assert run.wait(300) == 130
    assert run.stderr is not None and b"was killed" not in run.stderr.read()


def _at_work(folder: Path) -> tuple[subprocess.Popen[bytes], list[int]]:
    """A run whose two workers have begun, and their process ids."""
    for name in "ab":
        (folder / f"{name}.py").write_text("torch_old\n")
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(folder)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert run.stdout is not None
    assert run.stdout.readline() + run.stdout.readline() == b"started\nstarted\n"
    found = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True).stdout.split()
    assert len(found) == 2
    return run, [int(child) for child in found]
