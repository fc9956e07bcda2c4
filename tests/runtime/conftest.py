"""Fixtures of the runtime's tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def empty_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory without files, where launch.yaml is looked for if no variable names another place."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    return home
