"""`crosstrain launch` with real processes: what a person at a terminal sees, and what is left behind."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from crosstrain.utils import run_summary, tqdm

from tests.support.processes import is_running, remaining
from tests.support.ranks import free_port, run_ranks

COMMAND = [sys.executable, "-c", "from crosstrain.cli import main; main()", "launch"]


def launch(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    agent = begin(folder, *arguments, **environ)
    out, err = agent.communicate(timeout=300)
    return subprocess.CompletedProcess(arguments, agent.returncode, out, err)


def begin(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "RANK")}
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*COMMAND, *arguments], cwd=folder, env=kept | environ, **how)


# Ranks without torch start at once; what the launcher does for them is the same.
REPORT = """
import json, os, sys
names = ["RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS"]
seen = {name: os.environ.get(name) for name in names} | {
    "config": json.loads(os.environ["CROSSTRAIN_CONFIG"]), "argv": sys.argv, "name": __name__,
    "path": sys.path[0], "hash": hash("text"),
    "main": sys.modules["__main__"].__dict__ is globals()}
open(f"rank{seen['RANK']}.json", "w").write(json.dumps(seen))
"""


def reports(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


def test_ranks_get_their_variables_and_the_script_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text(REPORT)
    options = ["--cpu", "--num-processes", "2", "--split-batches", "--mixed-precision", "bf16"]
    options += ["--gradient-accumulation-steps=4", "sub/train.py", "--cpu", "-m", "--", "-x"]
    done = launch(tmp_path, *options, CROSSTRAIN_CONFIG='{"timeout": 60, "mixed_precision": "no"}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    zero, one = reports(tmp_path)
    assert (zero["RANK"], one["RANK"], zero["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"]) == ("0", "1", "2", "2")
    assert zero["MASTER_ADDR"] == "127.0.0.1"
    assert zero["argv"] == ["sub/train.py", "--cpu", "-m", "--", "-x"]
    assert (zero["name"], zero["main"], zero["path"]) == ("__main__", True, str(tmp_path / "sub"))
    assert zero["hash"] == one["hash"]
    assert int(str(zero["OMP_NUM_THREADS"])) >= 1
    plan = {"split_batches": True, "even_batches": "weighted", "gradient_accumulation_steps": 4}
    assert zero["config"] == plan | {"cpu": True, "mixed_precision": "bf16", "timeout": 60}


def test_one_process_keeps_torchs_own_threads_and_a_module_runs_from_the_folder(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("from . import helper\n" + REPORT)
    (package / "helper.py").write_text("")
    done = launch(tmp_path, "--cpu", "-m", "pack", "--lr", "1")
    assert done.returncode == 0, done.stderr
    (zero,) = reports(tmp_path)
    assert zero["OMP_NUM_THREADS"] is None
    assert zero["argv"] == [str(package / "__main__.py"), "--lr", "1"]
    assert (zero["name"], zero["path"]) == ("__main__", str(tmp_path))


FAILING = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
def step():
    if dist.get_rank() == 1:
        raise ValueError("boom")
open(f"rank{dist.get_rank()}.pid", "w").write(str(os.getpid()))
step()
dist.barrier()
"""


def test_failing_rank_is_shown_once_and_the_others_are_ended(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FAILING)
    done = launch(tmp_path, "--cpu", "--num-processes", "2", "train.py")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("Traceback (most recent call last):") == 1
    first, second = done.stderr.splitlines()[:2]
    assert (first, second) == ("Traceback (most recent call last):", '  File "train.py", line 9, in <module>')
    assert "ValueError: boom\ncrosstrain launch: rank 1 of 2 failed with the error above.\n" in done.stderr
    assert "torch.distributed.elastic" not in done.stderr
    ranks = [int(path.read_text()) for path in tmp_path.glob("rank*.pid")]
    assert ranks and remaining(ranks) == []


ENDINGS = {
    "exit_code": ("if rank == 1: sys.exit(7)", 7, "rank 1 of 2 exited with code 7."),
    "message": ("sys.exit('no data')", 1, "exited with code 1."),
    "signal": ("if rank == 1: os.kill(os.getpid(), 9)", 137, "rank 1 of 2 was killed by SIGKILL (often:"),
    "same_error": ("raise KeyError('x')", 1, "ranks 0, 1 of 2 failed with the error above."),
    "syntax": ("if if", 1, "SyntaxError: invalid syntax"),
}
MEETING = """import os, sys, time
rank = int(os.environ['RANK'])
open(f'here{rank}', 'w').close()
while not os.path.exists(f'here{1 - rank}'):  # on a busy machine one may be ended before it begins
    time.sleep(0.01)
"""


@pytest.mark.parametrize("name", ENDINGS)
def test_exit_code_is_the_ranks_own(tmp_path: Path, name: str) -> None:
    statement, code, message = ENDINGS[name]
    wait = "time.sleep(600)" if "rank == 1" in statement else "time.sleep(1)"
    (tmp_path / "train.py").write_text(f"{MEETING}def main():\n    {statement}\n    {wait}\nmain()\n")
    done = launch(tmp_path, "--cpu", "--num-processes", "2", "train.py")
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert "worker.py" not in done.stderr and "target.py" not in done.stderr


WAITING = """
import os, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
open(f"rank{os.environ['RANK']}.part", "w").write(f"{os.getpid()} {child.pid}")
os.rename(f"rank{os.environ['RANK']}.part", f"rank{os.environ['RANK']}.pid")
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_all_ranks_and_their_children(tmp_path: Path, number: signal.Signals, code: int) -> None:
    agent, pids = start_waiting(tmp_path)
    agent.send_signal(number)
    assert agent.wait(timeout=300) == code
    _, stderr = agent.communicate()
    assert stderr == "crosstrain launch: stopped; every rank was ended.\n"
    assert remaining(pids) == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel to end orphans: Linux only")
def test_killing_the_launcher_ends_the_ranks(tmp_path: Path) -> None:
    agent, pids = start_waiting(tmp_path)
    agent.kill()
    agent.wait(timeout=300)
    try:
        assert remaining(pids[::2]) == []
    finally:
        for pid in filter(is_running, pids):  # what a rank has started itself is not the launcher's to end
            os.kill(pid, signal.SIGKILL)
        agent.communicate()


def start_waiting(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    (folder / "train.py").write_text(WAITING)
    agent = begin(folder, "--cpu", "--num-processes", "2", "train.py")
    deadline = time.monotonic() + 300
    while len(list(folder.glob("*.pid"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    return agent, [int(pid) for path in sorted(folder.glob("*.pid")) for pid in path.read_text().split()]


def test_two_machines_of_one_rank_each_on_this_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch, os, torch.distributed as dist\ndist.init_process_group('gloo')\n"
        "t = torch.tensor([dist.get_rank() + 1]); dist.all_reduce(t)\n"
        "print('rank', dist.get_rank(), 'local', os.environ['LOCAL_RANK'], 'sum', t.item())\n"
        "dist.destroy_process_group()\n"
    )
    common = ["--cpu", "--num-processes", "2", "--num-machines", "2", "--main-process-ip", "127.0.0.1"]
    common += ["--main-process-port", str(free_port())]
    agents = [begin(tmp_path, *common, "--machine-rank", rank, "train.py") for rank in ("0", "1")]
    outputs = [agent.communicate(timeout=300) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], outputs
    assert [out for out, _ in outputs] == ["rank 0 local 0 sum 3\n", "rank 1 local 0 sum 3\n"]


THREADS = """
import atexit
from pathlib import Path
@atexit.register
def last():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    print("threads left:", sorted(name for name in names if "gloo" in name))
import torch
from crosstrain import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(2, 2)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
accelerator.backward(model(torch.ones(1, 2)).sum())
optimizer.step()
accelerator.wait_for_everyone()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_script_that_just_ends_leaves_no_thread_behind_in_the_interpreter(tmp_path: Path) -> None:
    """A gloo thread that is late, on a busy machine, to put a finished collective away takes a process that is
    already over with it: exit code 134 (SIGABRT) after a training that was complete."""
    (tmp_path / "train.py").write_text(THREADS)
    done = launch(tmp_path, "--cpu", "--num-processes", "2", "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["threads left: []"] * 2


def test_tee_keeps_each_ranks_output_and_shows_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os, sys\nprint('hello'); print('oh', file=sys.stderr)\n")
    done = launch(tmp_path, "--cpu", "--num-processes", "2", "--log-dir", "logs", "--tee", "3", "train.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] hello", "[rank 1] hello"]
    assert sorted(done.stderr.splitlines()) == ["[rank 0] oh", "[rank 1] oh"]
    kept = sorted((tmp_path / "logs").rglob("std*.log"))
    assert [path.read_text() for path in kept if path.name == "stdout.log"] == ["hello\n"] * 2


def test_rendezvous_listens_on_loopback_only(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nport = int(os.environ['MASTER_PORT'])\n"
        "lines = [*open('/proc/net/tcp'), *open('/proc/net/tcp6')]\n"
        "listening = [line.split()[1].split(':') for line in lines if ' 0A ' in line]\n"
        "print([address for address, number in listening if int(number, 16) == port])\n"
    )
    done = launch(tmp_path, "--cpu", "train.py")
    assert done.stdout == "['0100007F']\n", done.stderr


TRAINING = """
import torch
from crosstrain import Accelerator, ProjectConfiguration
accelerator = Accelerator(project_config=ProjectConfiguration("out", automatic_checkpoint_naming=True))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.ones(24, 1), batch_size=3)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x in loader:
    accelerator.backward(model(x).mean())
    optimizer.step()
accelerator.save_state(); next(unread := iter(loader))
"""


def test_ends_with_a_line_of_what_it_came_to(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = launch(tmp_path, "--cpu", "--num-processes", "2", "train.py", CROSSTRAIN_QUIET="0")
    assert done.returncode == 0 and "ignored" not in done.stderr, done.stderr
    numbers, saved = "2 processes, 4 steps, [\\d,]+ samples/s, no restarts", "out/checkpoints/checkpoint_0"
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(f"crosstrain: {numbers}, last checkpoint {saved}", last), done.stderr


# -- Watching a training: one process shows progress, and a launch ends with a line of what it came to -----


def _progress(main_process_only: bool) -> str:
    shown = io.StringIO()
    assert list(tqdm(range(3), file=shown, main_process_only=main_process_only)) == [0, 1, 2]
    return shown.getvalue()


def test_progress_is_shown_by_the_main_process() -> None:
    zero, one = run_ranks(_progress, 2, True)
    assert "3/3" in zero
    assert one == ""
    assert all("3/3" in text for text in run_ranks(_progress, 2, False))


def test_attempts_add_up_and_the_last_save_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lines"
    first = {"attempt": 0, "steps": 1000, "seconds": 9.0, "samples": 64, "checkpoint": f"{tmp_path}/out/c0"}
    last = {"attempt": 2, "steps": 500, "seconds": 8.0, "samples": 64}
    path.write_text("".join(json.dumps(line) + "\n" for line in ({**first, "steps": 3}, first, last)))
    expected = "4 processes, 1,500 steps, 4,000 samples/s, 2 restarts, last checkpoint out/c0"
    assert run_summary.describe(path, 4) == expected
    assert run_summary.describe(tmp_path / "none", 4) == ""
