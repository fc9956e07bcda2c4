"""The command: what goes where, and with which exit code."""

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.unit.conftest import Ran

Migrate = Callable[..., Ran]


@pytest.fixture(autouse=True)
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    monkeypatch.chdir(repo)
    return repo


def _write(repo: Path, **files: str) -> None:
    for name, text in files.items():
        (repo / f"{name}.py").write_text(text)


def kill_me(path: Path, text: str, options: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_without_write_the_diff_is_on_stdout_and_nothing_changes(migrate: Migrate, repo: Path) -> None:
    _write(repo, train="import torch_old\n", other="x = 1\n")
    ran = migrate("train.py", "other.py")
    diff = b"--- a/train.py\n+++ b/train.py\n@@ -1,1 +1,1 @@ CT101\n-import torch_old\n+import torch_new\n"
    assert (ran.code, diff in ran.out) == (0, True)
    assert ran.err == (
        "other.py: does not train: nothing that it runs calls backward(); nothing to do\n"
        "1 file would be changed, 1 untouched\n"
        "next: --verify trains it before and after and compares; --write changes the files\n"
    )
    assert (repo / "train.py").read_text() == "import torch_old\n"


def test_check_names_each_file_and_exits_with_1(migrate: Migrate, repo: Path) -> None:
    _write(repo, a="torch_old\n", b="torch_old\n", c="torch_new\n")
    ran = migrate("--check", "a.py", "b.py", "c.py")
    assert (ran.code, ran.out) == (1, b"")
    would = "would change a.py (CT101)\nwould change b.py (CT101)\n"
    assert ran.err == f"{would}2 files would be changed, 1 untouched\n"
    assert migrate("--check", "c.py").code == 0


def test_write_changes_the_files_and_undo_takes_it_back(migrate: Migrate, repo: Path) -> None:
    _write(repo, a="torch_old\n", b="x = 1\n")
    ran = migrate("--write", ".")
    assert (ran.code, ran.out) == (0, b"")
    assert ran.err == (
        "changed a.py (CT101)\n1 file changed, 1 untouched\nnext: crosstrain launch a.py\n"
        "Each process takes batches of the script's size: N processes, N times the rows a step. --split-batches shares "
        "each batch instead, which is the same training; add --common-draws where steps draw random numbers.\n"
    )
    assert (repo / "a.py").read_text() == "torch_new\n"
    assert migrate("--write", ".").err == "0 files changed, 2 untouched\n"
    ran = migrate("--undo")
    assert (ran.code, ran.err) == (0, "put back a.py\n")
    assert (repo / "a.py").read_text() == "torch_old\n"
    ran = migrate("--undo")
    assert ran.code == 2
    assert "holds no file that migrate wrote" in ran.err
    (repo / "pkg").mkdir()
    _write(repo, **{"pkg/a": "from .b import c\ntorch_old\n"})
    assert "next: crosstrain launch -m pkg.a\n" in migrate("--write", "pkg/a.py").err


def test_bad_files_get_one_message_each_and_the_good_ones_are_done(migrate: Migrate, repo: Path) -> None:
    _write(repo, good="torch_old\n", broken="torch = (\n", crash="crash_me\n")
    (repo / "latin.py").write_bytes(b"s = 'torch \xe9'\n")
    ran = migrate("--write", "missing.py", "broken.py", "latin.py", "crash.py", "good.py")
    assert ran.code == 2
    assert (repo / "good.py").read_text() == "torch_new\n"
    assert [line for line in ran.err.splitlines() if line.startswith("error: ")] == [
        "error: missing.py: does not exist. Check the name and the directory you are in.",
        "error: broken.py:1:9: does not parse: '(' was never closed. Correct the syntax, then run again.",
        "error: latin.py:1:12: is not utf-8 text (byte 0xe9). "
        "Save it as UTF-8, or name its encoding in the first line: # -*- coding: latin-1 -*-",
        "error: crash.py: migrate failed on this file (KeyError: 'crash_me'); it was not changed. "
        "Please report it with the traceback above.",
    ]
    assert "1 file changed, 0 untouched, 4 not usable\n" in ran.err
    assert "Traceback" in ran.err


def test_findings_stand_below_their_file_and_what_needs_a_person_first(migrate: Migrate, repo: Path) -> None:
    _write(repo, a="torch_old\nx = note_me\ny = assume_me\nz = assume_me\n", b="x = note_me\ny = refuse_me\n")
    ran = migrate("a.py", "b.py", "--no-diff")
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "b.py",
        "  2:5  refused  CT901  refuse_me is here",
        "      -> Look at it.",
        "  1:5  note  CT901  note_me is here",
        "      -> Look at it.",
        "a.py",
        "  3:5  assumed  CT901  assume_me is here",
        "      -> Look at it.",
        "  4:5  assumed  CT901  assume_me is here",
        "      -> Look at it.",
        "  2:5  note  CT901  note_me is here",
        "      -> Look at it.",
        "1 file would be changed (2 assumptions), 1 refused, 0 untouched",
        "next: --verify trains it before and after and compares; --write changes the files",
    ]


def test_concise_is_one_line_for_each_finding(migrate: Migrate, repo: Path) -> None:
    _write(repo, a="torch_old\nx = refuse_me\n", b="x = note_me\n", broken="torch = (\n")
    ran = migrate("a.py", "b.py", "broken.py", "--output-format", "concise")
    assert ran.code == 2
    assert ran.out.decode().splitlines() == [
        "broken.py:1:9: error: does not parse: '(' was never closed  -> Correct the syntax, then run again.",
        "a.py:2:5: CT901 refused: refuse_me is here  -> Look at it.",
        "a.py:1: would be changed (CT101)",
        "b.py:1:5: CT901 note: note_me is here  -> Look at it.",
    ]


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({}, "  1:5  refused  CT901  refuse_me is here\n"),
        ({"FORCE_COLOR": "1"}, "\x1b[31m\x1b[1mrefused\x1b[0m"),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, "  1:5  refused  CT901  refuse_me is here\n"),
        ({"COLUMNS": "32"}, "  1:5  refused  CT901  refuse_me\n      is here\n"),  # as the terminal is wide
    ],
)
def test_colours_are_for_who_wants_them(
    migrate: Migrate, repo: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], shown: str
) -> None:
    _write(repo, a="x = refuse_me\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert shown in migrate("a.py").err


def test_a_report_in_a_file_leaves_the_summary_on_the_terminal(migrate: Migrate, repo: Path) -> None:
    _write(repo, a="torch_old\nx = assume_me\n", broken="torch = (\n")
    ran = migrate("a.py", "broken.py", "--output-format", "html", "--output", "report.html")
    assert ran.out == b""
    problem, summary = ran.err.splitlines()
    assert problem.startswith("error: broken.py:1:9: does not parse")
    assert summary == "1 file would be changed (1 assumption), 0 untouched, 1 not usable"


def test_the_next_command_is_the_chosen_runtimes(migrate: Migrate, repo: Path) -> None:
    _write(repo, a="torch_old\n")
    ran = migrate("a.py", "--write", "--runtime", "accelerate")
    assert "\nnext: accelerate launch a.py\n" in ran.err
    assert "DataLoaderConfiguration(split_batches=True)" in ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n", "does not train"),
        ("from crosstrain import Accelerator\n", "uses an Accelerator already"),
        ("# migrate: skip-file\nx = 1\n", "left alone"),
    ],
)
def test_a_file_without_anything_to_do_says_why(migrate: Migrate, repo: Path, text: str, says: str) -> None:
    _write(repo, a=text)
    assert says in migrate("a.py").err
    assert says not in migrate(".").err  # nobody asked about it


ENDS = [("refuse_me", "", 1), ("refuse_me", "--fail-on edits", 0), ("torch_old; assume_me", "--write", 0)]
ENDS += [("torch_old; assume_me", "--write --fail-on assumptions", 1)]
ENDS += [("torch_old; assume_me", "--strict", 1), ("torch_old; note_me", "--fail-on assumptions", 0)]
ENDS += [("refuse_me", "--write", 1), ("refuse_me", "--check --fail-on edits", 0)]
ENDS += [("torch_old", "--write --fail-on edits", 1), ("torch_old", "--check --fail-on refused", 0)]
ENDS += [("torch_old", "--fail-on edits", 1), ("note_me", "--fail-on findings", 1)]
ENDS += [("torch_old", "--fail-on findings", 0), ("refuse_me", "--fail-on findings", 1)]
ENDS += [("refuse_me", "--check --fail-on edits --fail-on refused", 1)]


@pytest.mark.parametrize(("text", "arguments", "code"), ENDS)
def test_exit_codes(migrate: Migrate, repo: Path, text: str, arguments: str, code: int) -> None:
    _write(repo, a=f"x = {text}\n")
    assert migrate("a.py", *arguments.split()).code == code


def test_a_file_of_a_directory_that_does_not_parse_is_a_warning(
    migrate: Migrate, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain_migrate.cli.run.may_train", lambda data: b"torch_old" in data)
    _write(repo, good="torch_old\n", model="from torch import nn\ndef f(:\n", other="print 'not ours'\n")
    ran = migrate(".", "--no-diff")
    assert ran.code == 0
    assert ran.err.startswith("warning: model.py:2:7: does not parse")
    assert "1 file would be changed, 2 untouched" in ran.err
    assert "other.py" not in ran.err


WRONG = [("--write --check a.py", "--check changes nothing"), ("- a.py", "stands alone")]
WRONG += [("a.py --config none.toml", "none.toml")]
WRONG += [("a.py --verify --verify-processes two", "two: write numbers"), ("--explain CT999", "--list-rules")]
WRONG += [("--select CT1,CT77 a.py", "--list-rules")]
WRONG += [("--list-rules --output-format sarif", "text, markdown, html")]
WRONG += [("--emit pre-commit --emit-from git+https://example.org/x/crosstrain", "git+URL@REVISION")]


@pytest.mark.parametrize(("arguments", "says"), WRONG)
def test_usage_errors_exit_with_2(migrate: Migrate, repo: Path, arguments: str, says: str) -> None:
    _write(repo, a="torch_old\n")
    ran = migrate(*arguments.split())
    assert ran.code == 2
    assert says in ran.err


def test_options_reach_the_core_and_override_the_configuration(migrate: Migrate, repo: Path) -> None:
    _write(repo, a="torch_old; assume_me\n")
    (repo / "pyproject.toml").write_text('[tool.crosstrain.migrate]\nruntime = "accelerate"\nstrict = true\n')
    ran = migrate("a.py", "--output-format", "json")
    assert b"torch_new for accelerate" in ran.out
    assert ran.code == 1
    ran = migrate("a.py", "--output-format", "json", "--runtime", "crosstrain", "--no-strict")
    assert b"torch_new for crosstrain" in ran.out
    assert ran.code == 0


# --- many files ---


def test_many_files_in_several_processes_come_in_order(
    migrate: Migrate, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain_migrate.files.workers._CHARACTERS_PER_PROCESS", 100)
    monkeypatch.setattr("crosstrain_migrate.files.workers._processors", lambda: 2)
    _write(repo, **{f"f{number:02}": f"torch_old  # {os.getpid()}\n" * 20 for number in range(30)})
    _write(repo, f07="torch = (\n", f08="x = refuse_me  # torch\n", f09="crash_me  # torch\n")
    ran = migrate(".", "--check")
    named = [line.split()[2] for line in ran.err.splitlines() if line.startswith("would change")]
    assert named == [f"f{number:02}.py" for number in range(30) if number not in (7, 8, 9)]
    assert "error: f07.py:1:9" in ran.err
    assert "error: f09.py: migrate failed on this file (KeyError: 'crash_me')" in ran.err
    assert ran.err.endswith("27 files would be changed, 1 refused, 0 untouched, 2 not usable\n")


def test_a_killed_worker_is_reported_for_its_files(
    migrate: Migrate, repo: Path, engine: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosstrain_migrate.files.workers._CHARACTERS_PER_PROCESS", 10)
    monkeypatch.setattr("crosstrain_migrate.files.workers._processors", lambda: 2)
    engine.__dict__["migrate_text"] = kill_me
    _write(repo, a="torch_old\n" * 5, b="torch_old\n" * 5)
    ran = migrate(".")
    assert ran.code == 2
    assert "error: a.py: the process that migrated it, or one beside it, was killed" in ran.err


# --- standard input ---


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        # In its own bytes, given back where there is nothing to do.
        (b"\xef\xbb\xbfx = torch_old\r\n", "", (0, b"\xef\xbb\xbfx = torch_new\r\n", "")),
        (b"x = refuse_me\n", "--write", (1, b"x = refuse_me\n", "<stdin>\n  1:5  refused  CT901")),
        (b"x = (\n", "", (2, b"", "does not parse")),
        (b"x = torch_old\n", "--check", (1, b"", "")),
        (b"x = torch_old\n", "--diff", (0, b"@@ -1,1 +1,1 @@ CT101\n-x = torch_old\n+x = torch_new\n", "")),
    ],
)
def test_standard_input(
    migrate: Migrate, monkeypatch: pytest.MonkeyPatch, data: bytes, options: str, expected: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    ran, (code, out, err) = migrate("-", *options.split()), expected
    assert (ran.code, ran.out.endswith(out), bool(ran.out)) == (code, True, bool(out))
    assert err in ran.err


# --- pages ---


@pytest.mark.parametrize(
    ("origin", "named"),
    [
        ("git+https://user:secret@example.org/x/crosstrain@v9", "example.org/x/crosstrain"),
        ("dist/crosstrain-9-py3-none-any.whl", "crosstrain-9-py3-none-any.whl"),
        ("crosstrain==9", "crosstrain==9"),
    ],
)
@pytest.mark.parametrize("name", ["github-actions", "pre-commit"])
def test_ci_snippets_install_what_they_are_told(migrate: Migrate, name: str, origin: str, named: str) -> None:
    text = migrate("--emit", name, "--emit-from", origin).out.decode()
    yaml.safe_load(text)
    assert named in text and "secret" not in text and "REPOSITORY" not in text


def test_the_workflow_calls_what_exists(migrate: Migrate) -> None:
    steps = yaml.safe_load(migrate("--emit", "github-actions").out)["jobs"]["migrate"]["steps"]
    (command,) = (step["run"] for step in steps if "migrate" in step.get("run", ""))
    # The directory is empty; the options are known.
    assert migrate(*command.split()[1:-1], "text").code == 2


def test_pre_commit_hooks_do_what_they_say(migrate: Migrate, repo: Path) -> None:
    hooks = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())
    (emitted,) = yaml.safe_load(migrate("--emit", "pre-commit").out)["repos"]
    assert {hook["id"] for hook in emitted["hooks"]} <= {hook["id"] for hook in hooks}
    assert "rev" in emitted  # this checkout's commit
    _write(repo, a="torch_old\n", b="x = 1\n")
    for hook, after in zip(hooks, ("torch_old\n", "torch_new\n"), strict=True):
        assert (hook["language"], hook["types_or"]) == ("python", ["python", "jupyter"])
        assert migrate(*hook["entry"].split()[1:], "a.py", "b.py").code == 1
        assert (repo / "a.py").read_text() == after
        assert migrate(*hook["entry"].split()[1:], "b.py").code == 0


# --- processes of their own


def _started(code: str, *given: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *given], text=True, stderr=subprocess.PIPE, **options)


def test_a_plain_call_loads_nothing_that_it_does_not_use(repo: Path) -> None:
    """pydantic is how typer reads options: 0.1 s, where nothing but PATHS and switches is given."""
    _write(repo, train="import torch\n\nprint(torch.ones(2).sum())\n")
    code = "import atexit, sys\natexit.register(lambda: print(*sys.modules))\n"
    code += "from crosstrain_migrate.cli import main\nmain()"
    ran = _started(code, "--no-cache", "--check", "train.py", stdout=subprocess.PIPE)
    assert "0 files would be changed, 1 untouched" in ran.stderr
    heavy = {"torch", "rich", "jinja2", "numpy", "pydantic", "multiprocessing"}
    assert not heavy & {*ran.stdout.split()}
    ran = _started("import sys, crosstrain_migrate.cli; print(*sys.modules)", stdout=subprocess.PIPE)
    assert not {*heavy, "libcst", "pathspec", "tomllib", "crosstrain_migrate.outcome"} & {*ran.stdout.split()}


@pytest.mark.parametrize("way", ["typer.echo(text)", "sys.stdout.buffer.write(text.encode())"])
def test_a_reader_that_goes_away_is_no_error(way: str) -> None:
    code = (
        "import sys, typer; from crosstrain_migrate import cli; from crosstrain_migrate.report import rule_pages\n"
        "def page(code):\n"
        f"    for text in ['x' * 1000] * 1000: {way}\n"
        "rule_pages.rule_page = page; sys.argv = ['migrate', '--explain', 'CT1']; cli.main()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == -signal.SIGPIPE


@pytest.mark.parametrize("options", [[], ["--output-format", "json"], ["--explain", "CT201"]], ids=" ".join)
def test_a_full_disk_behind_standard_output_is_one_message(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n\nx = torch.ones(1).cuda()\n")
    code = "from crosstrain_migrate.cli.commands import main; main()"
    with Path("/dev/full").open("w") as full:
        ran = _started(code, "train.py", *options, cwd=tmp_path, stdout=full)
    assert ran.returncode == 2
    assert ran.stderr == "error: standard output: cannot be written: No space left on device\n"
