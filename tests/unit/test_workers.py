"""However a run with several processes ends, none of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import remaining

_RUN = """
import os, sys, time, types
from tests.unit import conftest
from crosstrain_migrate import cli, command, workers

def slow(path, text, options):
    os.write(1, b"started\\n")
    time.sleep(60)

engine = types.ModuleType("engine")
engine.__dict__.update(vars(conftest), migrate_text=slow)
sys.modules["crosstrain_migrate.engine"] = engine
command.may_train = lambda data: True
workers._BYTES_PER_PROCESS, workers._processors = 1, lambda: 2
sys.argv = ["migrate", *sys.argv[1:], "--check"]
cli.main()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes the Linux way")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda end: end.name)
def test_workers_end_with_the_run(tmp_path: Path, end: signal.Signals) -> None:
    for name in "ab":
        (tmp_path / f"{name}.py").write_text("torch_old\n")
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert run.stdout is not None and run.stderr is not None
    assert run.stdout.readline() + run.stdout.readline() == b"started\nstarted\n"
    children = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True).stdout.split()
    assert len(children) == 2
    if end is signal.SIGINT:
        os.killpg(run.pid, end)  # as a terminal does
        assert run.wait(30) == 130
        assert b"Traceback" not in run.stderr.read()
    else:
        run.send_signal(end)
        assert run.wait(30) == -end
    assert remaining([int(child) for child in children], seconds=30) == []
