"""`migrate --explain-roles`: every role with file, line and evidence."""

from pathlib import Path

from crosstrain_migrate.cli import app
from typer.testing import CliRunner

from .test_project import HELPER, TRAIN, write


def explain(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["--explain-roles", *arguments])
    return result.exit_code, result.output


def test_every_role_has_its_place_and_evidence(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN, "loop.py": HELPER})
    code, text = explain(str(tmp_path / "train.py"))
    rows = [line.split(None, 3) for line in text.splitlines()]
    found = {(Path(place).name, name, role) for place, name, role, *_ in rows}
    assert code == 0
    assert {("loop.py:5", "loader", "training"), ("loop.py:9", "loss", "loss")} <= found
    assert {("loop.py:10", "optimizer", "optimizer"), ("train.py:9", "model", "module")} <= found
    assert all(len(row) == 4 for row in rows)
    assert explain(str(tmp_path / "train.py"), "--output", str(tmp_path / "roles.txt")) == (0, "")
    assert (tmp_path / "roles.txt").read_text() == text


def test_what_has_no_roles_says_so(tmp_path: Path) -> None:
    write(tmp_path, {"empty.py": "print('nothing')", "broken.py": "def f(:"})
    for name, code, says in (
        ("empty.py", 0, "nothing here trains"),
        ("broken.py", 2, "broken.py"),
        ("absent.py", 2, "absent.py"),
    ):
        ended, text = explain(str(tmp_path / name))
        assert (ended, says in text) == (code, True)
