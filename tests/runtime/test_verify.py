"""`verify` on planted differences: every mistake is caught, named, and nothing else is.

The "migrated" script here is written by hand on torch.distributed, so that these tests depend on nothing
but the engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.verify_scripts import DISTRIBUTED, changed, differences, run, verdicts


def test_one_process_is_identical_and_two_are_equal(tmp_path: Path) -> None:
    report = run(tmp_path, DISTRIBUTED, args=["--name", "x y"])
    assert verdicts(report) == ["identical", "equal"], report
    assert report.ok
    assert report.exit_code == 0
    assert report.original.steps == 6
    alone, both = report.runs
    assert alone.largest == {
        "loss": 0.0,
        "gradient norm": 0.0,
        "weight norm": 0.0,
        "learning rate": 0.0,
        "weights": 0.0,
    }
    assert 0 < both.largest["weights"] < 1e-4


# Each planted mistake, and what must be reported for one and for two processes: (quantity, step).
PLANTED = {
    "learning_rate_from_step_3": (
        [
            (
                "    optimizer.step()",
                "    if i == 32: optimizer.param_groups[0]['lr'] = 0.11\n    optimizer.step()",
            )
        ],
        [("learning rate", 3), ("learning rate", 3)],
    ),
    "weights_touched_at_the_end": (
        [('if rank == 0:\n    print("done"', 'model[0].bias.data += 1e-3\nif rank == 0:\n    print("done"')],
        [("weights", None), ("weights", None)],
    ),
    "gradients_summed": (
        [("        average(parameter.grad)", "        average(parameter.grad); parameter.grad *= world")],
        [("gradient norm", 1)],
    ),
    "every_rank_sees_everything": (
        [("share = 16 // world", "share = 16"), ("rank * share", "0"), ("(rank + 1) * share", "share")],
        [],  # the same mathematics, done twice: nothing that training can show
    ),
    "a_rank_that_drifts": (
        [("    optimizer.step()", "    optimizer.step()\n    model[0].weight.data += 1e-6 * rank")],
        [("ranks", 2)],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_difference_is_named(tmp_path: Path, name: str) -> None:
    changes, expected = PLANTED[name]
    report = run(tmp_path, changed(DISTRIBUTED, *changes))
    assert differences(report) == expected, report
    assert report.ok == (not expected)
    assert report.exit_code == (1 if expected else 0)


def test_expect_agree_asks_for_nothing_more(tmp_path: Path) -> None:
    changes, _ = PLANTED["gradients_summed"]
    report = run(tmp_path, changed(DISTRIBUTED, *changes), expect="agree")
    assert verdicts(report) == ["identical", "agree"]
    drifting, _ = PLANTED["a_rank_that_drifts"]
    report = run(tmp_path, changed(DISTRIBUTED, *drifting), expect="agree")
    assert differences(report) == [("ranks", 2)]


ACCUMULATING = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
{gate}
for i in range(6):
    (model(torch.ones(2, 4) * i).mean() / 2).backward()
    if {when}:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_suppressed_step_is_not_recorded(tmp_path: Path) -> None:
    """A step that gradient accumulation turns into nothing is not a step, however it is called."""
    gate = (
        "real_step, real_zero, calls = optimizer.step, optimizer.zero_grad, []\n"
        "optimizer.step = lambda: (calls.append(1), len(calls) % 2 == 0 and real_step())\n"
        "optimizer.zero_grad = lambda: len(calls) % 2 == 0 and real_zero()\n"
    )
    report = run(
        tmp_path,
        ACCUMULATING.format(gate=gate, when="True"),
        original=ACCUMULATING.format(gate="", when="i % 2"),
        processes=[1],
    )
    assert verdicts(report) == ["identical"], report
    assert report.runs[0].steps == 3


def test_two_processes_get_the_weighted_split(tmp_path: Path) -> None:
    show = "import os\nrank == 0 and print(os.environ['CROSSTRAIN_CONFIG'])\n"
    report = run(tmp_path, DISTRIBUTED + show, processes=[2])
    assert report.runs[0].difference is not None
    assert '"even_batches": "weighted"' in report.runs[0].difference.migrated
    assert '"split_batches": true' in report.runs[0].difference.migrated


def test_lines_of_other_ranks_are_noted(tmp_path: Path) -> None:
    report = run(tmp_path, DISTRIBUTED + "rank == 1 and print('me too')\n", processes=[2])
    assert verdicts(report) == ["equal"]
    assert report.runs[0].notes == ("rank 1 printed 1 line of its own: 'me too'",)


def test_ignored_lines(tmp_path: Path) -> None:
    timed = DISTRIBUTED + "rank == 0 and print('took 12 s')\n"
    assert differences(run(tmp_path, timed, processes=[1])) == [("printed line", None)]
    assert verdicts(run(tmp_path, timed, processes=[1], ignore=[r"^took .* s$"])) == ["identical"]
