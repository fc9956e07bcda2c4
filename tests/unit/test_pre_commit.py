"""The hooks as a user's repository runs them: pre-commit, from a clone of this one, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pre_commit")

ROOT = Path(__file__).parents[2]
_PACKAGED = (
    "migrate",
    "runtime",
    "templates",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".pre-commit-hooks.yaml",
)


def _git(place: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=place, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files of the distribution as they are now, as a repository."""
    place = tmp_path / "crosstrain"
    place.mkdir()
    for name in _PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, place / name)
    _git(place, "init", "-q")
    _git(place, "add", "-A")
    _git(place, "commit", "-q", "-m", "everything")
    return place


def test_pre_commit_checks_and_converts(clone: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    _git(user, "init", "-q")
    shutil.copy2(ROOT / "golden" / "mnist_functions" / "before.py", user / "train.py")
    (user / "other.py").write_text("x = 1\n")
    _git(user, "add", "-A")

    def run(hook: str) -> subprocess.CompletedProcess[str]:
        (user / ".pre-commit-config.yaml").write_text(
            f"repos:\n- repo: {clone}\n  rev: {_git(clone, 'rev-parse', 'HEAD')}\n  hooks:\n  - id: {hook}\n"
        )
        _git(user, "add", "-A")
        environment = os.environ | {"PRE_COMMIT_HOME": str(tmp_path / "cache"), "PRE_COMMIT_COLOR": "never"}
        command = [sys.executable, "-m", "pre_commit", "run", "--all-files"]
        return subprocess.run(command, cwd=user, env=environment, capture_output=True, text=True, check=False)

    before = (user / "train.py").read_text()
    checked = run("migrate")
    assert checked.returncode == 1, checked.stdout + checked.stderr
    assert "would change train.py (CT101," in checked.stdout
    assert (user / "train.py").read_text() == before
    written = run("migrate-write")
    assert written.returncode == 1
    assert "changed train.py (CT101," in written.stdout
    assert "accelerator.backward(loss)" in (user / "train.py").read_text()
    assert (user / "other.py").read_text() == "x = 1\n"
    assert run("migrate").returncode == 0
