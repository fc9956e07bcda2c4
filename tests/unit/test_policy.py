"""Selections and comments on real scripts: singly where nothing relies on an edit, otherwise a refusal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileResult, Options, Severity
from crosstrain_migrate.rules.policy import Policy
from crosstrain_migrate.syntax.suppress import suppressions

SCRIPT = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
loader = DataLoader(data, batch_size=4)
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
os.makedirs("out")  #makedirs
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        loss = loss_fn(net(x), y)
        loss.backward()  #backward
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)  #clip
        opt.step()
    print(epoch)  #print
torch.save(net.state_dict(), "net.pt")  #save
"""


def _migrated(
    comments: dict[str, str] | None = None, head: str = "", **options: tuple[str, ...]
) -> FileResult:
    """SCRIPT migrated, with a comment in each of the places named."""
    text = head + SCRIPT
    for place in ("makedirs", "backward", "clip", "print", "save"):
        text = text.replace(f"  #{place}\n", f"  {(comments or {}).get(place, '')}".rstrip() + "\n")
    return migrate_text(Path("train.py"), text, Options(**options))


@pytest.mark.parametrize(
    ("place", "kept", "others"),
    [
        ("print", "    print(epoch)", "accelerator.save("),
        ("makedirs", 'os.makedirs("out")', "accelerator.print("),
        ("save", 'torch.save(net.state_dict(), "net.pt")', "accelerator.print("),
        ("backward", "        loss.backward()", "accelerator.clip_grad_norm_("),
        ("clip", "        nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "accelerator.backward("),
    ],
)
@pytest.mark.parametrize("comment", ["# migrate: skip", "# migrate: skip CT2,CT4,CT5 -- ours"])
def test_what_nothing_relies_on_stays_away_alone(place: str, kept: str, others: str, comment: str) -> None:
    result = _migrated({place: comment})
    assert f"{kept}  {comment}" in result.after
    assert others in result.after
    assert not result.findings


def test_a_part_of_the_conversion_kept_away_refuses_the_whole() -> None:
    text = SCRIPT.replace("for x, y in loader:", "for x, y in batches():  # migrate: skip")
    text = text.replace("loss_fn =", "def batches():\n    yield x[:2], y[:2]\n\nloss_fn =")
    result = migrate_text(Path("train.py"), text, Options())
    (finding,) = result.findings
    assert not result.changed
    assert not result.changes
    assert (finding.rule, finding.severity) == ("CT003", Severity.REFUSED)
    line = next(n for n, text in enumerate(result.before.split("\n"), 1) if "# migrate: skip" in text)
    assert finding.line == line
    assert "`# migrate: skip`" in finding.reason


def test_skip_file_leaves_the_file_alone() -> None:
    result = _migrated(head="# migrate: skip-file -- a baseline\n")
    assert not result.changed
    assert not result.findings
    assert not result.trains


def test_skip_file_holds_for_a_text_that_does_not_parse() -> None:
    text = "# migrate: skip-file\nimport torch\nprint 'backward'\n"
    assert migrate_text(Path("old.py"), text, Options()).error is None
    assert migrate_text(Path("old.py"), text.replace("skip-file", "skip"), Options()).error is not None


@pytest.mark.parametrize(
    "options", [{"ignore": ("CT401",)}, {"ignore": ("CT4",)}, {"select": ("CT1", "CT2", "CT5")}]
)
def test_ignored_rules_that_nothing_relies_on(options: dict[str, tuple[str, ...]]) -> None:
    result = _migrated(**options)
    assert "accelerator.backward(loss)" in result.after
    assert "    print(epoch)" in result.after
    assert not result.findings


@pytest.mark.parametrize(
    "options",
    [{"ignore": ("CT201",)}, {"ignore": ("CT2",), "select": ("CT202", "CT203")}, {"select": ("CT1",)}],
)
def test_leaving_out_a_part_of_the_conversion_refuses_it(options: dict[str, tuple[str, ...]]) -> None:
    result = _migrated(**options)
    assert not result.changed
    (finding,) = result.findings
    assert finding.rule == "CT003"
    assert "CT201" in finding.reason


@pytest.mark.parametrize("select", ["CT4", "CT7", "CT9"])
def test_a_selection_without_the_conversion_asks_for_findings_only(select: str) -> None:
    result = _migrated(select=(select,))
    assert not result.changed
    assert all(one.rule.startswith(select) for one in result.findings)
    assert result.trains


def test_refusals_can_be_silenced_like_any_finding() -> None:
    text = "import torch.distributed.rpc as rpc\n" + SCRIPT + 'rpc.init_rpc("worker")\n'
    assert migrate_text(Path("train.py"), text, Options()).refused
    silent = migrate_text(Path("train.py"), text, Options(ignore=("CT9",)))
    assert not silent.findings
    assert not silent.changed
    silent = migrate_text(Path("train.py"), text.replace("as rpc", "as rpc  # migrate: skip CT9"), Options())
    assert not silent.findings


def test_unused_comments_are_reported_when_every_rule_was_asked() -> None:
    head = "import json  # migrate: skip\n"
    assert [(one.rule, one.line, one.severity) for one in _migrated(head=head).findings] == [
        ("CT002", 1, Severity.NOTE)
    ]
    assert not _migrated(head=head, ignore=("CT401",)).findings
    assert not migrate_text(Path("a.py"), _migrated(head=head).after, Options()).findings, (
        "migrated: none was asked"
    )


@pytest.mark.parametrize(
    ("select", "ignore", "code", "selected"),
    [
        ((), (), "CT101", True),
        ((), ("CT1",), "CT101", False),
        (("CT1",), (), "CT401", False),
        (("CT401",), ("CT4",), "CT401", True),
        (("CT401",), ("CT4",), "CT402", False),
        (("CT4",), ("CT4",), "CT401", False),
        (("CT4",), ("CT402",), "CT402", False),
        (("CT4",), (), "CT003", True),
        (("CT4",), ("CT0",), "CT003", False),
        (("CT", "CT401"), ("CT4",), "CT401", True),
    ],
)
def test_the_longer_prefix_decides(
    select: tuple[str, ...], ignore: tuple[str, ...], code: str, selected: bool
) -> None:
    assert Policy(suppressions(""), select, ignore).selected(code) is selected


def test_no_comment_and_no_selection_ever_gives_half_a_conversion() -> None:
    """Every single statement skipped: the result is the whole conversion less that line, or the original."""
    lines = _migrated().before.split("\n")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        text = "\n".join([*lines[:number], f"{line}  # migrate: skip", *lines[number + 1 :]])
        after = migrate_text(Path("train.py"), text, Options()).after
        ast.parse(after)
        # A plain backward averages as well, and processes clip the same averaged gradients.
        assert ("Accelerator(" in after) == ("accelerator.prepare(" in after) == (after != text)


def test_off_around_the_loop_refuses_once_for_each_rule() -> None:
    text = SCRIPT.replace("for epoch", "# migrate: off\nfor epoch").replace(
        "torch.save", "# migrate: on\ntorch.save"
    )
    result = migrate_text(Path("train.py"), text, Options())
    assert not result.changed
    assert {one.rule for one in result.findings} == {"CT003"}
    assert len({one.reason for one in result.findings}) == len(result.findings)
