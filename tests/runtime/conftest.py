"""Fixtures of the runtime's tests."""

from pathlib import Path

import pytest


@pytest.fixture
def empty_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without files, where launch.yaml is looked for if no variable names another place."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script with a space in its name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train it.py").write_text("")
    return "train it.py"
