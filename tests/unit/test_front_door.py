"""What a new user meets first: help that is whole, versions, remedies that can be carried out."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from crosstrain.requirements import EXTRAS, install
from typer.testing import CliRunner

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
COMMANDS = ["migrate", "launch", "test", "config", "verify", "merge-weights", "env"]


def _ran(*arguments: str, columns: str = "80") -> str:
    from crosstrain.cli import main

    done = CliRunner().invoke(main, list(arguments), env={"COLUMNS": columns, "NO_COLOR": ""})
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_knows_h_and_help(command: str) -> None:
    assert _ran(command, "-h") == _ran(command, "--help")


def test_the_list_of_commands_is_whole() -> None:
    listed = _ran("-h").partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == COMMANDS
    assert all(line.endswith(".") and not line.endswith("..") for line in listed)


def test_both_names_have_a_version() -> None:
    from crosstrain import __version__

    assert _ran("--version") == f"crosstrain {__version__}\n"
    assert _ran("migrate", "--version") == f"migrate (crosstrain) {__version__}\n"


def test_crosstrain_migrate_is_migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("x = 1\n")
    assert "0 files would be changed, 1 untouched" in _ran("migrate", "x.py", "--no-cache")


def test_config_shows_what_is_typed(tmp_path: Path) -> None:
    from crosstrain.cli import main

    asked = CliRunner().invoke(main, ["config", "--config-file", str(tmp_path / "l.yaml")], input="\n" * 9)
    assert "[no]" in asked.output
    assert "Precision" not in asked.output


def test_the_requirements_are_those_of_the_distribution() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert list(EXTRAS["torch"]) == extras["torch"]
    names = {re.split(r"[=<>]", one)[0] for extra in ("torch", "tpu") for one in extras[extra]}
    assert {re.split(r"[=<>]", one)[0] for one in EXTRAS["tpu"]} == names - {"crosstrain[torch]"}
    assert install("torch").startswith("pip install 'torch>=")


def test_no_remedy_names_an_extra_of_ours() -> None:
    """`crosstrain[torch]` can be installed from a registry alone."""
    for root in ("migrate", "runtime", "templates"):
        for file in (ROOT / root).rglob("*.*"):
            if file.suffix in (".py", ".j2"):
                assert not re.search(r"pip install .{0,3}crosstrain\[", file.read_text("utf-8")), file
