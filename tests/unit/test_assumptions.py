"""What becomes of a conversion that takes something for granted."""

from pathlib import Path

import pytest
from crosstrain_migrate import engine
from crosstrain_migrate.assumptions import CHECKS, UNCHECKED, how_checked
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileOutcome, FileResult, Finding, Options, Severity

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
