"""`crosstrain launch --emit slurm`: a file that bash, shellcheck and a reader accept, and that does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from crosstrain.cli import main
from typer.testing import CliRunner

from tests.runtime import emitted
from tests.runtime.emitted import shell_accepts, stand_in

OPTIONS = ["--num-machines", "4", "--num-processes", "32", "--mixed-precision", "bf16", "--max-restarts", "2"]
JOB = ["--job-option", "time=04:00:00", "--job-option", "exclusive"]


def emit(*arguments: str) -> str:
    return emitted.emit("slurm", *arguments)


def test_says_what_was_asked_for(script: str) -> None:
    text = emit(*OPTIONS, *JOB, script, "--name", "a b; rm -rf $HOME")
    directives = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert directives == [
        "#SBATCH --job-name=train-it",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --gpus-per-node=8",
        "#SBATCH --output=%x-%j.log",
        "#SBATCH --open-mode=append",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:USR1@120",
        "#SBATCH --time=04:00:00",
        "#SBATCH --exclusive",
    ]
    assert "--mixed-precision bf16 --max-restarts 2" in text
    assert "'train it.py' --name 'a b; rm -rf $HOME' &\n" in text
    assert "--gpus-per-node" not in emit("--cpu", "--num-processes", "2", script)


@pytest.mark.parametrize("arguments", [OPTIONS, ["--cpu", "--num-processes", "2"]], ids=["four", "one"])
def test_shell_accepts_it(script: str, arguments: list[str], tmp_path: Path) -> None:
    job = tmp_path / "job.sbatch"
    emit(*arguments, "--output", str(job), script, "it's")
    shell_accepts(job)


@pytest.mark.parametrize("ending", ["fails", "is told to stop"])
def test_job_starts_one_launcher_for_each_machine(script: str, ending: str, tmp_path: Path) -> None:
    """With stand-ins for scontrol, srun and the launcher: their arguments, the exit code, the requeueing."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stand_in(
        programs, "scontrol", 'echo "$@" >> scontrol.txt; [ "$1" = show ] && printf "gpu01\\ngpu02\\n"; true'
    )
    stand_in(programs, "srun", 'shift; for node in 0 1; do SLURM_NODEID=$node "$@" || exit; done')
    wait = "kill -USR1 $(cat job.pid); sleep 1; " if ending != "fails" else ""
    stand_in(
        programs,
        "crosstrain",
        f'printf "%s|" "$SLURM_NODEID" "$@" >> calls.txt; {wait}exit $((SLURM_NODEID * 7))',
    )
    job = tmp_path / "job.sbatch"
    emit("--num-machines", "2", "--num-processes", "4", "--output", str(job), script, "a b")
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "20007",
        "SLURM_JOB_NODELIST": "gpu[01-02]",
    }
    code = "import os, sys; open('job.pid', 'w').write(str(os.getpid())); os.execvp('bash', ['bash', sys.argv[1]])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(job)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = (tmp_path / "scontrol.txt").read_text().splitlines()
    assert said[0] == "show hostnames gpu[01-02]"
    if ending == "fails":
        assert (done.returncode, said[1:]) == (7, [])
        start = "launch|--num-processes|4|--num-machines|2|--main-process-ip|gpu01|--main-process-port|20007|"
        assert (tmp_path / "calls.txt").read_text() == f"0|{start}train it.py|a b|1|{start}train it.py|a b|"
    else:
        assert (done.returncode, said[1:]) == (7, ["requeue 20007"])  # it waits until SLURM ends it
        assert "job 20007 is queued again" in done.stderr


REFUSED = {
    "no number of processes": (["train it.py"], "needs --num-processes"),
    "uneven": (
        ["--num-machines", "2", "--num-processes", "3", "train it.py"],
        "a multiple of the 2 machines",
    ),
    "devices": (["--num-processes", "2", "--gpu-ids", "0,1", "train it.py"], "exclude each other"),
    "job option": (
        ["--num-processes", "2", "--job-option", "time=1\n#SBATCH -x", "train it.py"],
        "name=value",
    ),
    "no folder": (
        ["--num-processes", "2", "--output", "no/job.sh", "train it.py"],
        "--output no/job.sh: No such file",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, script: str) -> None:
    arguments, message = REFUSED[name]
    result = CliRunner().invoke(main, ["launch", "--emit", "slurm", *arguments])
    assert result.exit_code == 2
    assert message in result.output
