"""What becomes of a conversion that takes something for granted, and which check of the converted script tests that."""

from pathlib import Path

import pytest
from crosstrain_migrate import engine
from crosstrain_migrate.assumptions import CHECKS, UNCHECKED, how_checked
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.outcome import Migrated, Outcome
from crosstrain_migrate.results import FileOutcome, FileResult, Finding, Options, Severity
from crosstrain_migrate.verify import judged

TEXT = "import torch\nloss.backward()\n"
MEAN = Finding("CT202", 2, 1, "the loss is a mean over rows", CHECKS["mean"], Severity.ASSUMED, "mean")
WRONG = Finding("CT605", 2, 1, "a queue of keys", "Take it out.", Severity.REFUSED)


def _migrated(
    monkeypatch: pytest.MonkeyPatch, after: str, findings: tuple[Finding, ...], *, strict: bool = False
) -> FileResult:
    """The result for a script whose rules have come to `after` and `findings`."""
    found = FileResult(Path("train.py"), TEXT, after, findings=findings, extras={"batch size": "8"})
    monkeypatch.setattr(engine, "_migrate_text", lambda *arguments: found)
    return migrate_text(Path("train.py"), TEXT, Options(strict=strict))


def test_an_assumption_is_no_refusal_but_for_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    result = _migrated(monkeypatch, "x = 1\n", (MEAN,))
    assert (result.outcome, result.assumptions) == (FileOutcome.ASSUMED, (MEAN,))
    result = _migrated(monkeypatch, "x = 1\n", (MEAN,), strict=True)
    assert (result.outcome, result.after, result.extras) == (FileOutcome.REFUSED, TEXT, {})
    (finding,) = result.findings
    assert finding.severity is Severity.REFUSED
    assert MEAN.reason in finding.reason and "--strict" in finding.reason
    assert CHECKS["mean"] in finding.remedy
    assert _migrated(monkeypatch, "x = 1\n", (), strict=True).outcome is FileOutcome.CONVERTED


@pytest.mark.parametrize("strict", [False, True])
def test_nothing_is_assumed_where_nothing_is_converted(monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    assert _migrated(monkeypatch, TEXT, (MEAN, WRONG), strict=strict).findings == (WRONG,)
    assert _migrated(monkeypatch, TEXT, (MEAN,), strict=strict).outcome is FileOutcome.UNCHANGED


def test_accelerate_checks_nothing_at_run_time() -> None:
    for kind, check in CHECKS.items():
        assert (how_checked(kind, "crosstrain"), how_checked(kind, "accelerate")) == (check, UNCHECKED)


BEFORE = """\
model = Net()
for x, y in loader:
    first = criterion(model(x), y)
    first.backward()
    second = other(model(x), y)
    second.backward()
"""
AFTER = """\
accelerator = Accelerator()
model = Net()
prepared()
for x, y in loader:
    first = criterion(model(x), y)
    accelerator.backward(first)
    second = other(model(x), y)
    accelerator.backward(second)
"""


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
