"""From the wheel to a verified run of two processes, and what the command says on the way."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import CONSTRAINTS, ROOT, Installed

SCRIPT = ROOT / "tests/docs/projects/mended.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(SCRIPT, tmp_path / "train.py")
    return tmp_path


@pytest.mark.timeout(3600)
def test_migrate_verify_and_launch_from_the_wheel(installed: Installed, project: Path) -> None:
    before = installed.run("crosstrain", "migrate", "train.py", cwd=project)
    assert before.returncode == 0, before.stderr
    assert "+accelerator = Accelerator()" in before.stdout

    for command in (
        ["migrate", "train.py", "--verify"],
        ["crosstrain", "launch", "--cpu", "--num-processes", "2", "train.py"],
    ):
        missing = installed.run(*command, cwd=project)
        assert missing.returncode == 2
        assert missing.stdout == ""
        (line,) = missing.stderr.splitlines()
        assert "torch is not installed" in line
    # What it tells to install can be installed.
    remedy = re.search(r"pip install (.*)", line)
    assert remedy is not None
    installed.pip_install(*shlex.split(remedy[1]), cwd=project)

    proof = installed.run("migrate", "train.py", "--verify", "--write", cwd=project)
    assert proof.returncode == 0, proof.stdout + proof.stderr
    assert re.search(r"2 processes +equal", proof.stdout)
    assert "accelerator.backward(loss)" in (project / "train.py").read_text()
    launched = installed.run(
        *("crosstrain", "launch", "--cpu", "--num-processes", "2", "--split-batches", "train.py"), cwd=project
    )
    assert launched.returncode == 0, launched.stderr
    assert launched.stdout.count("epoch 1 loss") == 1
    assert "2 processes, 24 steps" in launched.stderr


@pytest.mark.timeout(3600)
def test_the_emitted_pre_commit_hook_runs(installed: Installed, project: Path) -> None:
    pytest.importorskip("pre_commit")
    emitted = installed.run("migrate", "--emit", "pre-commit", cwd=project)
    assert installed.wheel.name in emitted.stdout
    workflow = installed.run("migrate", "--emit", "github-actions", cwd=project)
    assert f"pip install wheels/{installed.wheel.name}" in workflow.stdout
    (project / ".pre-commit-config.yaml").write_text(emitted.stdout)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    environment = os.environ | {"PRE_COMMIT_HOME": str(project / ".cache"), "PRE_COMMIT_COLOR": "never"}
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files"]
    ran = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "would change train.py" in ran.stdout, ran.stdout + ran.stderr


@pytest.mark.timeout(3600)
def test_the_readme_installs_it_from_a_clone(installed: Installed, tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text("utf-8").partition("## Install")[2].partition("\n## ")[0]
    commands = re.findall(r"^\$ (.*)$", section, re.M)
    assert [command.split()[0] for command in commands] == ["git", "pip"]
    fresh = Installed(tmp_path / "venv" / "bin", installed.wheel)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    lines = "\n".join(commands).replace("REPOSITORY", shlex.quote(str(ROOT)))
    environment = os.environ | {
        "PATH": f"{fresh.binaries}{os.pathsep}{os.environ['PATH']}",
        "PIP_CONSTRAINT": str(CONSTRAINTS),
        "PIP_REQUIRE_VIRTUALENV": "1",
    }
    subprocess.run(["bash", "-ec", lines], cwd=tmp_path, env=environment, check=True, capture_output=True)
    for command in ("migrate", "crosstrain"):
        done = fresh.run(command, "--version", cwd=tmp_path)
        assert (done.returncode, done.stdout.startswith("crosstrain ")) == (0, True), done.stderr
