"""Every golden project of several files: migrated as its after/ says, once and for all, and it trains the same."""

from pathlib import Path

import pytest
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options
from crosstrain_verify import verify

from .trees import Tree, trees


def texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.ipynb")])
    }


@pytest.mark.parametrize("tree", trees(), ids=lambda tree: tree.name)
def test_migrates_as_reviewed(tree: Tree, tmp_path: Path) -> None:
    outcome = tree.migrate(tmp_path / "project")
    assert not outcome.errors and not outcome.refused
    assert texts(tmp_path / "project") == texts(tree.after), "run `make golden` and review the diff"
    report = (tree.case.folder / "report.json").read_text(encoding="utf-8")
    assert tree.report(outcome, tmp_path / "project") == report
    again = run(Request((tree.after,), Options(), Mode.CHECK, cache=False), migrate_text)
    assert not again.changed, "a second migration plans nothing"
    assert not [finding for file in again.files for finding in file.result.findings]


@pytest.mark.parametrize("tree", trees(), ids=lambda tree: tree.name)
def test_trains_the_same(tree: Tree) -> None:
    script = tree.before / tree.entry
    report = verify(script, script, args=tree.case.args, folder=tree.before, overlay=tree.after, timeout=300)
    assert [run.verdict.value for run in report.runs] == ["identical", tree.case.two_processes], report
