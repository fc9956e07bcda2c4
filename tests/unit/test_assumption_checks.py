"""Which check of the converted script tests an assumption about the text before."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.assumption_checks import Program
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.outcome import Migrated, Outcome
from crosstrain_migrate.results import FileResult, Finding, Severity
from crosstrain_migrate.verify import judged

BEFORE = """\
loader = make(args)
model = Net()
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
def evaluate(batches):
    hits, rows = 0, []
    for x, y in batches:
        out = model(x)
        best = out.max(1)[1]
        hits += (best == y).sum().item()
        rows.append(out)
    print(hits, score(torch.cat(rows)))
evaluate(loader)
"""
AFTER = """\
accelerator = Accelerator()
loader = make(args)
model = Net()
loader, model = accelerator.prepare(loader, model)
for x, y in loader:
    loss = criterion(model(x), y)
    accelerator.backward(loss)
def evaluate(batches):
    hits, rows = 0, []
    for x, y in batches:
        out = model(x)
        best = out.max(1)[1]
        y, best = accelerator.gather_for_metrics((y, best))
        hits += (best == y).sum().item()
        rows.append(accelerator.gather_for_metrics(out))
    accelerator.print(hits, score(torch.cat(rows)))
evaluate(loader)
"""
PREPARE, BACKWARD, HITS, ROWS = 4, 7, 13, 15


@pytest.mark.parametrize(
    ("line", "places", "expected"),
    [
        pytest.param(5, {BACKWARD}, {BACKWARD}, id="the-rewritten-line-itself"),
        pytest.param(4, {BACKWARD}, {BACKWARD}, id="what-the-line-makes"),
        pytest.param(1, {PREPARE}, {PREPARE}, id="a-loader-that-is-prepared"),
        pytest.param(10, {HITS, ROWS}, {HITS}, id="one-of-two-gathers"),
        pytest.param(9, {HITS, ROWS}, {HITS, ROWS}, id="both"),
        pytest.param(11, {HITS, ROWS}, {HITS}, id="rows-gathered-above-the-line"),
        pytest.param(12, {HITS, ROWS}, {ROWS}, id="rows-gathered-in-the-line"),
        pytest.param(10, {ROWS}, set(), id="another-value"),
        pytest.param(13, {HITS, ROWS}, set(), id="behind-all-checks"),
        pytest.param(99, {HITS}, set(), id="no-such-line"),
    ],
)
def test_checks_that_a_value_comes_to(line: int, places: set[int], expected: set[int]) -> None:
    program = Program({"train.py": (BEFORE, AFTER)})
    found = program.reached("train.py", line, [("train.py", place) for place in places])
    assert found == {("train.py", place) for place in expected}


def test_values_are_followed_through_functions_and_files() -> None:
    data = "def loaders(n):\n    made = library.load(n)\n    return made.train\n"
    train = """\
from data import loaders
class Trainer:
    def __init__(self, train):
        self.train = train
    def fit(self):
        train = accelerator.prepare(self.train)
Trainer(loaders(3)).fit()
other = accelerator.prepare(other)
"""
    program = Program({"data.py": (data, data), "train.py": (train, train)})
    prepared, other = ("train.py", 6), ("train.py", 8)
    assert program.reached("data.py", 3, [prepared, other]) == {prepared}


def _outcome(*kinds: tuple[str, int]) -> Outcome:
    findings = tuple(
        Finding("CT201", line, 1, "so", "Checked.", Severity.ASSUMED, kind) for kind, line in kinds
    )
    path = Path("train.py")
    file = Migrated(decode(path, BEFORE.encode()), FileResult(path, BEFORE, AFTER, findings=findings))
    return Outcome((file,), (), 0, Mode.PREVIEW, "crosstrain")


def _check(kind: str, line: int, status: str) -> dict[str, object]:
    return {"kind": kind, "file": "train.py", "line": line, "status": status, "message": ""}


def _statuses(outcome: Outcome, *checks: dict[str, object]) -> list[str]:
    done = judged(outcome, Path.cwd(), checks)
    return [one.status for one in done.files[0].result.assumptions]


def test_an_assumption_is_proven_by_its_own_check_alone() -> None:
    outcome = _outcome(("rows", 10), ("rows", 12), ("mean", 5), ("alike", 14))
    held = _check("rows", HITS, "held")
    assert _statuses(outcome) == ["not reached"] * 4
    assert _statuses(outcome, held) == ["proven", "not reached", "not reached", "not reached"]
    assert _statuses(outcome, held, _check("rows", ROWS, "failed"))[:2] == ["proven", "failed"]
    assert (
        _statuses(outcome, _check("mean", BACKWARD, "not reached"), _check("mean", 99, "held"))[2]
        == "not reached"
    )
    assert _statuses(outcome, _check("alike", 5, "held"))[3] == "proven"
    assert _statuses(outcome, _check("alike", 5, "held"), _check("alike", 9, "failed"))[3] == "failed"


def test_a_loader_is_not_proven_while_a_loss_is_made_of_other_batches() -> None:
    outcome, held = _outcome(("loader", 1)), _check("loader", PREPARE, "held")
    assert _statuses(outcome, held) == ["proven"]
    assert _statuses(outcome, held, _check("loader", BACKWARD, "not reached")) == ["not reached"]


def test_the_summary_counts_what_was_proven() -> None:
    outcome = _outcome(("rows", 10), ("rows", 12), ("mean", 5))
    assert outcome.summary() == "1 file would be changed (3 assumptions), 0 untouched"
    done = judged(outcome, Path.cwd(), [_check("rows", HITS, "held"), _check("mean", BACKWARD, "held")])
    assert done.summary() == "1 file would be changed (3 assumptions: 1 not reached, 2 proven), 0 untouched"
