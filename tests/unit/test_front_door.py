"""What a new user meets first: help that is whole, versions, remedies that can be carried out."""

import re
import sys
from pathlib import Path

import pytest
from crosstrain import requirements
from crosstrain.requirements import EXTRAS, install
from typer.testing import CliRunner

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
COMMANDS = ["migrate", "launch", "test", "config", "verify", "merge-weights", "guide", "env"]


def _ended(*arguments: str, **given: str) -> tuple[int, str]:
    from crosstrain.cli import main

    done = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "80", "NO_COLOR": ""}, **given)
    return done.exit_code, done.output


def _ran(*arguments: str) -> str:
    code, output = _ended(*arguments)
    assert code == 0, output
    return output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_a_version(command: str) -> None:
    from crosstrain import __version__

    assert _ran(command, "-h") == _ran(command, "--help")
    shown = _ran(command, "-h").replace("[ARGS]...", "").replace("PATHS...", "")
    assert all(len(line) <= 80 for line in shown.splitlines()), "cut"
    assert not re.search(r"\.\.\.$|<list|<path>|<int|<float|\{", shown, re.M), "a type of Python"
    assert _ran(command, "--version") == _ran("--version") == f"crosstrain {__version__}\n"


def test_the_list_of_commands_is_whole() -> None:
    code, output = _ended()
    assert (code, output) == (2, _ran("-h"))
    listed = output.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in listed] == COMMANDS
    assert all(line.endswith(".") and not line.endswith("..") for line in listed)


NOT_USABLE = {
    "migrate --bogus": "error: there is no option --bogus; see crosstrain migrate -h",
    "migrate --outptu x": "error: there is no option --outptu; did you mean --output?",
    "migrate --runtime foo x.py": "error: --runtime foo: choose crosstrain, accelerate; see ",
    "migrate --verify-steps x x.py": "error: --verify-steps x: must be a valid integer; see ",
    "migrate --verify-steps 0 x.py": "error: --verify-steps 0: must be greater than or equal to 1; ",
    "migrate --config": "error: option '--config' requires an argument; see ",
    "migrate": "error: name a script, a directory, or - for standard input; see migrate -h",
    "migrate --select QQ x.py": "error: no rule has the code 'QQ'; migrate --list-rules shows them all",
    "lanch": "crosstrain: no such command 'lanch'. Did you mean 'launch'?",
    "--bogus": "crosstrain: there is no option --bogus; see crosstrain -h",
    "verify a.py": "crosstrain verify: MIGRATED is missing; see crosstrain verify -h",
    "test --num-proceses 2": "crosstrain test: there is no option --num-proceses; did you mean --num-processes?",
    "env x": "crosstrain env: got unexpected extra argument(s) (x); see crosstrain env -h",
}


@pytest.mark.parametrize("command", NOT_USABLE)
def test_a_wrong_option_is_one_line_with_its_remedy(command: str) -> None:
    code, output = _ended(*command.split())
    (line,) = output.splitlines()
    assert (code, line.startswith(NOT_USABLE[command])) == (2, True), line


def test_crosstrain_migrate_is_migrate(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("x = 1\n")
    assert "0 files would be changed, 1 untouched" in _ran("migrate", str(tmp_path / "x.py"), "--no-cache")


def test_config_asks_again(tmp_path: Path) -> None:
    """And shows what is typed."""
    file = tmp_path / "l.yaml"
    _, asked = _ended("config", "--config-file", str(file), input="n\n1\n0\nbf8\nbf16\nn\n0\n")
    assert "[no]" in asked and "Precision" not in asked
    assert "'bf8' is none of them." in asked
    assert file.read_text().strip() == "mixed_precision: bf16"


def test_the_requirements_are_those_of_the_distribution() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert list(EXTRAS["torch"]) == extras["torch"]
    names = {re.split(r"[=<>]", one)[0] for extra in ("torch", "tpu") for one in extras[extra]}
    assert {re.split(r"[=<>]", one)[0] for one in EXTRAS["tpu"]} == names - {"crosstrain[torch]"}
    assert install("torch").startswith("pip install 'torch>=")


@pytest.mark.parametrize(
    ("name", "command"),
    [*(("torch", one) for one in ("migrate x.py --verify", "launch x.py", "test")), ("numpy", "launch x.py")],
)
def test_what_training_needs_and_is_not_installed_is_one_line(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.py").write_text("import torch\n")
    monkeypatch.setattr(requirements, "find_spec", lambda asked: None if asked == name else asked)
    code, output = _ended(*command.split())
    (line,) = output.splitlines()
    assert (code, f"{name} is not installed: pip install 'torch>=" in line) == (2, True), line


def test_no_remedy_names_an_extra_of_ours() -> None:
    """`crosstrain[torch]` can be installed from a registry alone."""
    for file in (one for root in ("migrate", "runtime", "templates") for one in (ROOT / root).rglob("*.*")):
        if file.suffix in (".py", ".j2"):
            assert not re.search(r"pip install .{0,3}crosstrain\[", file.read_text("utf-8")), file
