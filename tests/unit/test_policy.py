"""Selections and comments on real scripts: singly where nothing relies on an edit, otherwise a refusal."""

import ast
from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileResult, Options, Severity
from crosstrain_migrate.rules.policy import Policy
from crosstrain_migrate.syntax.suppress import suppressions

from tests.rules.support import script

SCRIPT = script(
    imports="import os",
    device="",
    model="model = nn.Linear(8, 3)",
    setup='os.makedirs("out")',
    batch="",
    step="nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()",
    after_epoch="print(epoch)",
    end='torch.save(model.state_dict(), "net.pt")',
)


def _migrated(text: str = SCRIPT, **options: str) -> FileResult:
    chosen = {name: tuple(codes.split()) for name, codes in options.items()}
    return migrate_text(Path("train.py"), text, Options(**chosen))  # type: ignore[arg-type]


def test_a_line_is_kept_away_alone() -> None:
    """Every single statement skipped. A plain backward averages as well, and processes clip the same gradients."""
    lines = SCRIPT.split("\n")
    for number, line in enumerate(lines):
        if line.strip():
            kept = f"{line}  # migrate: skip"
            after = _migrated("\n".join([*lines[:number], kept, *lines[number + 1 :]])).after
            ast.parse(after)
            assert kept in after.split("\n")
            assert "Accelerator(" in after and "accelerator.prepare(" in after


def test_a_part_of_the_conversion_kept_away_refuses_the_whole() -> None:
    batches = "def batches():\n    yield torch.ones(8, 8), torch.zeros(8, dtype=torch.long)\n"
    text = script(definitions=batches, loop="for x, y in batches():  # migrate: skip")
    result = _migrated(text)
    (finding,) = result.findings
    assert not result.changed and not result.changes
    assert (finding.rule, finding.severity) == ("CT003", Severity.REFUSED)
    assert "# migrate: skip" in text.split("\n")[finding.line - 1]
    assert "`# migrate: skip`" in finding.reason


def test_skip_file_leaves_the_file_alone() -> None:
    """Also one that does not parse."""
    result = _migrated(f"# migrate: skip-file -- a baseline\n{SCRIPT}")
    assert not result.changed and not result.findings and not result.trains
    text = "# migrate: skip-file\nimport torch\nprint 'backward'\n"
    assert _migrated(text).error is None
    assert _migrated(text.replace("skip-file", "skip")).error is not None


CHOSEN = [({"ignore": "CT401"}, False), ({"ignore": "CT4"}, False), ({"select": "CT1 CT2 CT5"}, False)]
CHOSEN += [({"select": "CT", "ignore": "CT401"}, False), ({"ignore": "CT201"}, True)]
CHOSEN += [({"ignore": "CT2", "select": "CT202 CT203"}, True), ({"select": "CT1"}, True)]


@pytest.mark.parametrize(("options", "refused"), CHOSEN)
def test_what_nothing_relies_on_may_be_left_out(options: dict[str, str], refused: bool) -> None:
    result = _migrated(**options)
    assert result.changed is ("accelerator.backward(loss)" in result.after) is not refused
    assert "    print(epoch)" in result.after
    assert [(one.rule, "CT201" in one.reason) for one in result.findings] == [("CT003", True)] * refused


@pytest.mark.parametrize("select", ["CT4", "CT7", "CT9"])
def test_a_selection_without_the_conversion_asks_for_findings_only(select: str) -> None:
    result = _migrated(select=select)
    assert not result.changed and result.trains
    assert all(one.rule.startswith(select) for one in result.findings)


def test_refusals_can_be_silenced_like_any_finding() -> None:
    text = f"import torch.distributed.rpc as rpc\n{SCRIPT}rpc.init_rpc('worker')\n"
    assert _migrated(text).refused
    silent = _migrated(text, ignore="CT9")
    assert not silent.findings and not silent.changed
    assert not _migrated(text.replace("as rpc", "as rpc  # migrate: skip CT9")).findings


def test_unused_comments_are_reported_when_every_rule_was_asked() -> None:
    text = f"import json  # migrate: skip\n{SCRIPT}"
    (found,) = _migrated(text).findings
    assert (found.rule, found.line, found.severity) == ("CT002", 1, Severity.NOTE)
    assert not _migrated(text, ignore="CT401").findings
    assert not _migrated(_migrated(text).after).findings, "migrated: none was asked"


PREFIXES = [("", "", "CT101", True), ("", "CT1", "CT101", False), ("CT1", "", "CT401", False)]
PREFIXES += [("CT401", "CT4", "CT401", True), ("CT401", "CT4", "CT402", False)]
PREFIXES += [("CT4", "CT4", "CT401", False), ("CT4", "CT402", "CT402", False), ("CT4", "", "CT003", True)]
PREFIXES += [("CT4", "CT0", "CT003", False), ("CT CT401", "CT4", "CT401", True)]


@pytest.mark.parametrize(("select", "ignore", "code", "selected"), PREFIXES)
def test_the_longer_prefix_decides(select: str, ignore: str, code: str, selected: bool) -> None:
    assert Policy(suppressions(""), tuple(select.split()), tuple(ignore.split())).selected(code) is selected
