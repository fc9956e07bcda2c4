"""`crosstrain launch --emit kubernetes`: a manifest that Kubernetes' schemas and the launcher accept."""

from __future__ import annotations

import re
from typing import Any

import kubernetes_validate
import pytest
import yaml
from crosstrain.cli import main
from typer.testing import CliRunner

from tests.runtime.emitted import emit, refused

IMAGE = ["--job-option", "image=registry.example.org:5000/team/train@sha256:0a1b"]
FOUR = ["--num-machines", "4", "--num-processes", "32", *IMAGE]
OPTIONS = [
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
    [FOUR, [*FOUR, *OPTIONS], ["--num-processes", "1", "--cpu", *IMAGE]],
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
    words = as_the_pod_sees(job, 2)
    assert words[:8] == [
        "crosstrain",
        "launch",
        "--num-processes=32",
        "--num-machines=4",
        "--machine-rank=2",
        "--main-process-ip=train-it-0.train-it",
        "--main-process-port=29500",
        "--rdzv-backend=c10d",
    ]
    assert container(job)["resources"] == {"limits": {"nvidia.com/gpu": 8}}


WORDS = [
    "a b",
    "$(HOME)",
    "$$x",
    "it's",
    'say "hi"',
    "no",
    "1e3",
    "- x: y # z",
    "two\nlines",
    "é",
    "-1",
    "--x=[1]",
]


def test_the_script_gets_its_arguments(script: str) -> None:
    (job,) = manifest("--num-processes", "1", *IMAGE, "--log-dir", "my logs: new", script, *WORDS)
    assert as_the_pod_sees(job, 0) == [
        *("crosstrain", "launch", "--num-processes=1", "--log-dir=my logs: new", script),
        *WORDS,
    ]


def test_the_launcher_understands_what_the_pods_start(script: str) -> None:
    job = manifest(*FOUR, "--mixed-precision", "bf16", "--max-restarts", "7", script, "--epochs", "3")[1]
    words = as_the_pod_sees(job, 3)[2:]
    result = CliRunner().invoke(main, ["launch", "--print-config", *words])
    assert result.exit_code == 0, result.output
    for name, value in {"machine_rank": "3", "num_processes": "32", "max_restarts": "7"}.items():
        assert re.search(rf"^{name} = {value} +\(command line\)$", result.output, re.M), result.output


REFUSED = {
    "no image": (["--num-processes", "2"], "needs --job-option image=REGISTRY/NAME:TAG"),
    "no number of processes": (IMAGE, "--emit kubernetes needs --num-processes"),
    "unknown": (["--num-processes", "2", *IMAGE, "--job-option", "time=1"], "knows image, name, namespace"),
    "not a name": (["--num-processes", "2", *IMAGE, "--job-option", "name=A_b"], "'A_b' cannot be its value"),
    "tpu": (["--num-processes", "2", "--num-machines", "2", "--tpu", *IMAGE], "--emit tpu-vm"),
    "static": ([*FOUR, "--rdzv-backend", "static"], "needs --rdzv-backend c10d"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, script: str) -> None:
    arguments, message = REFUSED[name]
    assert message in refused("kubernetes", *arguments, script)
