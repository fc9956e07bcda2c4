"""Which check of the converted script tests an assumption about the text before."""

from pathlib import Path

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.outcome import Migrated, Outcome
from crosstrain_migrate.results import FileResult, Finding, Severity
from crosstrain_migrate.verify import judged

BEFORE = """\
model = Net()
for x, y in loader:
    first = criterion(model(x), y)
    first.backward()
    second = other(model(x), y)
    second.backward()
"""
AFTER = "accelerator = Accelerator()\n" + BEFORE.replace("for x", "prepared()\nfor x").replace(
    "first.backward()", "accelerator.backward(first)"
).replace("second.backward()", "accelerator.backward(second)")


def _outcome(*lines: int) -> Outcome:
    findings = tuple(Finding("CT202", line, 1, "so", "Checked.", Severity.ASSUMED, "mean") for line in lines)
    path = Path("train.py")
    file = Migrated(decode(path, BEFORE.encode()), FileResult(path, BEFORE, AFTER, findings=findings))
    return Outcome((file,), (), 0, Mode.PREVIEW, "crosstrain")


def _check(line: int, status: str, kind: str = "mean") -> dict[str, object]:
    return {"kind": kind, "file": "train.py", "line": line, "status": status, "message": ""}


def _statuses(outcome: Outcome, *checks: dict[str, object]) -> list[str]:
    return [one.status for one in judged(outcome, Path.cwd(), checks).files[0].result.assumptions]


def test_an_assumption_is_proven_by_its_own_check_alone() -> None:
    outcome = _outcome(4, 6)
    assert _statuses(outcome) == ["not reached"] * 2
    assert _statuses(outcome, _check(6, "held")) == ["proven", "not reached"]
    assert _statuses(outcome, _check(6, "held"), _check(8, "failed")) == ["proven", "failed"]
    assert _statuses(outcome, _check(6, "not reached"), _check(5, "held")) == ["not reached"] * 2
    assert _statuses(outcome, _check(6, "held", "loader")) == ["not reached"] * 2


def test_the_summary_counts_what_was_proven() -> None:
    outcome = _outcome(4, 6)
    assert outcome.summary() == "1 file would be changed (2 assumptions), 0 untouched"
    done = judged(outcome, Path.cwd(), [_check(6, "held")])
    assert done.summary() == "1 file would be changed (2 assumptions: 1 not reached, 1 proven), 0 untouched"
