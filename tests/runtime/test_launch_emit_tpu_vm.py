"""`crosstrain launch --emit tpu-vm`: a script that reaches every host of a TPU and starts one launcher on each."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.runtime.emitted import emit, refused, shell_accepts, stand_in

TPU = ["--job-option", "tpu=slice", "--job-option", "zone=us-central2-b"]
TWO = ["--num-machines", "2", *TPU]

GCLOUD = """
printf "%s|" "$@" >> gcloud.txt; echo >> gcloud.txt
[ "$4" = ssh ] || exit 0
for host in 0 1; do
  for word; do
    case "$word" in --command=*) WORKER=$host bash -c "${word#--command=}" || exit ;; esac
  done
done
"""
CURL = """
case "${!#}" in
  */attributes/agent-worker-number) echo "$WORKER" ;;
  */attributes/worker-network-endpoints) echo "unknown:8470:10.0.0.5,unknown:8470:10.0.0.6" ;;
  *) exit 22 ;;
esac
"""
CROSSTRAIN = 'printf "%s|" "$PJRT_DEVICE" "$@" >> calls.txt; echo >> calls.txt; exit "${EXIT:-0}"'


def run(job: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The job file on a machine with stand-ins for gcloud, the metadata server and the launcher."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in {"gcloud": GCLOUD, "curl": CURL, "crosstrain": CROSSTRAIN, "sleep": ""}.items():
        stand_in(programs, name, text)
    return subprocess.run(
        ["bash", str(job)],
        env={"PATH": f"{programs}:{os.environ['PATH']}", "HOSTNAME": "host", "TMPDIR": str(folder)}
        | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def job_file(folder: Path, *arguments: str) -> Path:
    """In the place where scp would put it."""
    job = folder / "crosstrain-train-it.sh"
    emit("tpu-vm", "--output", str(job), *arguments)
    return job


@pytest.mark.parametrize(
    "arguments",
    [TWO, TPU, [*TWO, "--job-option", "project=example.com:team", "--job-option", "folder=/mnt/data/my-run"]],
    ids=["two", "one", "all"],
)
def test_shell_accepts_it(script: str, arguments: list[str], tmp_path: Path) -> None:
    shell_accepts(job_file(tmp_path, *arguments, script, "it's"))


def test_starts_one_launcher_on_each_host(script: str, tmp_path: Path) -> None:
    job = job_file(tmp_path, *TWO, "--mixed-precision", "bf16", script, "a b", "$HOME")
    done = run(job, tmp_path)
    assert done.returncode == 0, done.stderr
    common = (
        "--main-process-ip|10.0.0.5|--main-process-port|29500|--mixed-precision|bf16|train it.py|a b|$HOME|"
    )
    assert (tmp_path / "calls.txt").read_text().splitlines() == [
        f"TPU|launch|--tpu|--num-machines|2|--machine-rank|{rank}|{common}" for rank in (0, 1)
    ]
    copied, started = (tmp_path / "gcloud.txt").read_text().splitlines()
    assert copied.startswith(
        f"compute|tpus|tpu-vm|scp|{job}|slice:{job.name}|--zone=us-central2-b|--worker=all|"
    )
    assert "|ssh|slice|--zone=us-central2-b|--worker=all|" in started


@pytest.mark.parametrize(("code", "tries"), [("1", 3), ("2", 1)])
def test_a_failure_starts_all_hosts_again_unless_the_options_are_wrong(
    script: str, tmp_path: Path, code: str, tries: int
) -> None:
    job = job_file(tmp_path, *TWO, "--job-option", "retries=2", script)
    done = run(job, tmp_path, EXIT=code)
    assert done.returncode == int(code)
    assert (tmp_path / "gcloud.txt").read_text().count("|ssh|") == tries
    assert done.stderr.count("of 2 in a minute") == tries - 1


REFUSED = {
    "no tpu": (["--job-option", "zone=a"], "needs --job-option tpu=NAME"),
    "no zone": (["--job-option", "tpu=a"], "needs --job-option zone=ZONE"),
    "cpu": ([*TWO, "--cpu"], "--emit tpu-vm and --cpu exclude each other"),
    "processes": ([*TWO, "--num-processes", "8"], "one process of each host drives all its chips"),
    "not a name": (["--job-option", "tpu=a/b", "--job-option", "zone=a"], "'a/b' cannot be its value"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, script: str) -> None:
    arguments, message = REFUSED[name]
    assert message in refused("tpu-vm", *arguments, script)
