"""The verdict's arithmetic on traces made by hand: tolerances, printed lines, ranks, scratch copies."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crosstrain.cli import main
from crosstrain_verify.judging.compare import (
    Comparison,
    compare,
    files_of_several,
    global_events,
    out_of_order,
    ranks_disagree,
)
from crosstrain_verify.judging.migrated_runs import is_amplified_rounding
from crosstrain_verify.judging.noise import beyond_noise
from crosstrain_verify.judging.printed_lines import same_line, volatile
from crosstrain_verify.judging.tolerance import Tolerance, same
from crosstrain_verify.records.traces import Batch, Event, Parameter, RankTrace
from crosstrain_verify.report.report import Difference
from crosstrain_verify.running.client import VerifyInputError
from crosstrain_verify.running.scratch import copy_project
from typer.testing import CliRunner

FP32 = 2.0**-23
CLOSE, EXACT = Tolerance(FP32), Tolerance(0.0)


def trace(losses: list[float], weights: Any = (1.0, 2.0), moved: float = 1, signal: float = 1) -> RankTrace:
    """A backward pass and a step for each loss; one parameter."""
    final = np.array(weights)
    events = [e for loss in losses for e in (Event("loss", 0, (loss,)), Event("step", 0, (1.0, 2.0, 0.1)))]
    parameter = Parameter("fc.weight", (2,), FP32, moved, signal)
    return RankTrace("finished", tuple(events), (parameter,), FP32, weights=final)


CLOCKS = [("took 0h 0m 59s", "took 0h 1m 0s"), ("took 2m 9.5s", "took 2m 10.2s")]
SAME_LINES = [("loss 0.5000 (7)", "loss 0.5001 (7)"), ("loss: 9.99 | acc", "loss: 10.00 | acc")]
SAME_LINES += [("loss   9.99 %", "loss  10.00 %"), ("loss 1.0000004e-05", "loss 1.0000003e-05")]
SAME_LINES += [("tensor(0.12345)", "tensor(0.12346)"), ("perplexity 12345.6789", "perplexity 12345.6792")]
SAME_LINES += [("loss nan", "loss nan"), *CLOCKS]
OTHER_LINES = [("loss 0.5000", "loss 0.5003"), ("correct 87/100", "correct 88/100"), ("epoch 1", "epoch 2")]
OTHER_LINES += [("seen 1000000 rows", "seen 1000001 rows"), ("loss 0.5", "Loss 0.5"), ("", "0")]
OTHER_LINES += [("loss 0.5", "loss 0.5 0.5"), ("loss nan", "loss 0.5"), ("loss -0.5", "loss 0.5")]
OTHER_LINES += [("at 3 m, 5 samples", "at 3 m, 6 samples")]


@pytest.mark.parametrize(("a", "b"), SAME_LINES)
def test_lines_that_say_the_same(a: str, b: str) -> None:
    assert same_line(a, b, CLOSE, 1)
    assert same_line(b, a, CLOSE, 1)
    assert (a == b or (a, b) in CLOCKS) == same_line(a, b, EXACT, 1), "what a clock says is no result"


@pytest.mark.parametrize(("a", "b"), OTHER_LINES)
def test_lines_that_do_not(a: str, b: str) -> None:
    assert not same_line(a, b, CLOSE, 1)
    assert not same_line(b, a, CLOSE, 1)


def test_numbers_that_no_run_repeats_are_left_out_wherever_the_words_are_the_same() -> None:
    ours = ["step 1: loss 0.5000, 0.01 s", "step 2: loss 0.4, 0.02 s", "at 2026-01-01 10:00:59 acc 3"]
    again = ["step 1: loss 0.5000, 0.01 s", "step 2: loss 0.4, 0.03 s", "at 2026-01-01 10:01:00 acc 3"]
    places = volatile(ours, again)
    assert not volatile(ours, ours)
    for exactness in (EXACT, CLOSE):
        assert same_line(ours[0], "step 1: loss 0.5000,   12.5 s", exactness, 1, places)
        assert not same_line(ours[0], "step 1: loss 0.6000, 0.01 s", exactness, 1, places)
        assert not same_line(ours[0], "step 2: loss 0.5000, 0.01 s", exactness, 1, places)
        assert same_line(ours[2], "at 2026-01-02 00:00:00 acc 3", exactness, 1, places)
        assert not same_line(ours[2], "at 2026-01-01 10:00:59 acc 4", exactness, 1, places)
        assert same_line("Total time: 0:00:00", "Total time: 0:00:01", exactness, 1), "no run has shown it"
    assert not same_line(ours[1], again[1], EXACT, 1)


def test_losses_are_means_over_the_ranks() -> None:
    merged = global_events([trace([1.0, 2.0]), trace([3.0, 0.0])])
    assert [event.values[0] for event in merged if event.kind == "loss"] == [2.0, 1.0]


def test_ranks_that_do_not_do_the_same_are_named() -> None:
    difference = out_of_order([trace([1.0, 2.0]), trace([1.0])])
    assert difference is not None
    assert str(difference) == "ranks disagree: another order: rank 0: backward; rank 1: nothing more"


def test_a_batch_that_is_only_looked_at_may_be_whole_on_every_process() -> None:
    """`next(iter(loader))` before prepare was taken for a training batch that was not shared."""
    looked, whole, half = Batch(0, 0, 4, 10, True), Batch(0, 0, 4, 20, True), Batch(0, 0, 2, 10, True)
    original = dataclasses.replace(trace([1.0]), batches=[looked, whole])
    shared = dataclasses.replace(trace([1.0]), batches=[looked, half])
    assert compare(original, [shared, shared]).difference is None
    found = compare(original, [original, original]).difference
    assert found is not None and found.migrated == "each of 2 processes all 4 rows"


def test_tolerance_grows_with_the_step_and_stays_far_below_a_mistake() -> None:
    assert CLOSE.loss(1, 1.0, 1.0) < CLOSE.loss(2, 1.0, 1.0) < 1e-3
    assert CLOSE.loss(8, 1.0, 1.0) < 1e-3
    assert CLOSE.weights(8, 1.0, 10.0) < 1e-2
    assert Tolerance(2.0**-52).weights(8, 1.0, 10.0) < 1e-6
    limits = [EXACT.loss(5, 1.0, 1.0), EXACT.gradient(5, 1.0), EXACT.rate(1.0), EXACT.size(5, 1.0)]
    assert [*limits, EXACT.weights(5, 1.0, 1.0), EXACT.printed(5, 1.0, 0.1)] == [0.0] * 6


ONE, MOVED = trace([1.0]), trace([1.0], [1.0001, 2.0])


@pytest.mark.parametrize(
    ("original", "migrated", "quantity"),
    [
        (trace([2.0, 1e-7]), trace([2.0, 2e-7]), None),  # as exact as the losses before it
        (trace([1e-7]), trace([2e-7]), "loss"),
        (ONE, MOVED, None),  # the same error is rounding after a long way
        (trace([1.0], moved=1e-3), MOVED, "weights"),  # and a mistake after a short one
        (trace([math.nan]), trace([math.nan]), None),
        (ONE, trace([math.nan]), "loss"),
        (ONE, trace([1.0], [math.nan, 2.0]), "weights"),
    ],
)
def test_losses_and_weights_of_two(original: RankTrace, migrated: RankTrace, quantity: str | None) -> None:
    difference = compare(original, [migrated] * 2).difference
    assert (difference.quantity if difference else None) == quantity
    assert quantity != "weights" or "fc.weight" in str(difference)


def test_parameter_with_a_gradient_of_rounding_error_is_left_out_and_named() -> None:
    result = compare(trace([1.0], signal=1e-7), [trace([1.0], [1.1, 2.0])] * 2)
    assert result.difference is None
    assert result.notes == ["gradient is rounding error only, not compared: fc.weight"]
    assert compare(trace([1.0], signal=1e-7), [trace([1.0], [1.1, 2.0])]).difference is not None


def test_nan_equals_nan_and_nothing_else() -> None:
    assert same(math.nan, math.nan, 0.0)
    assert not same(math.nan, 1.0, math.inf)
    assert same(math.inf, math.inf, 0.0)


def test_noise_is_judged_by_the_originals_own_spread() -> None:
    members = [trace([1.0, 0.9], [1.0, 2.0]), trace([1.1, 0.7], [1.2, 2.0]), trace([1.05, 0.8], [1.1, 2.1])]
    assert beyond_noise(members, [trace([1.2, 0.5], [1.3, 2.1])]) is None
    for run, quantity, step in (
        (trace([1.2, 3.0], [1.3, 2.1]), "loss", 2),
        (trace([1.2, 0.5], [4.0, 2.1]), "weights", None),
        (trace([1.0]), "order", None),
    ):
        found = beyond_noise(members, [run])
        assert found is not None and found.quantity == quantity
        assert step in (None, found.step)
    assert beyond_noise(members[:1] * 2, [trace([1.0, 0.9000001], [1.0, 2.0])]) is not None


def test_ranks_that_differ_in_the_last_bit_disagree() -> None:
    drifted = np.nextafter(2.0, 3.0)
    difference = ranks_disagree([trace([1.0]), trace([1.0]), trace([1.0], [1.0, float(drifted)])])
    assert difference is not None
    assert difference.detail == "final fc.weight, element 1"
    assert str(difference).startswith("ranks disagree: final fc.weight, element 1: rank 0: 2.0; rank 2: 2.00")


def test_an_error_that_grows_from_rounding_is_told_from_a_mistake() -> None:
    def result(before: float, value: float) -> Comparison:
        difference = Difference("gradient norm", 4, "2.0", repr(value))
        return Comparison(difference, {"loss": before / 10, "gradient norm": before, "weight norm": 1.0})

    assert is_amplified_rounding(result(1e-8, 2.001))
    assert not is_amplified_rounding(result(1e-13, 2.001))
    assert not is_amplified_rounding(result(1e-8, math.nan))
    assert not is_amplified_rounding(Comparison(None)) and not is_amplified_rounding(
        Comparison(Difference("batch", 1, "a", "b"))
    )


def test_copy_leaves_out_what_no_script_reads_and_refuses_what_is_too_large(tmp_path: Path) -> None:
    project = tmp_path / "project"
    files = ("src/__pycache__/a.pyc", "src/a.py", ".git/config", "data/x.bin", ".venv/lib/b.py", "train.py")
    for name in files:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("12345678")
    (project / "latest").symlink_to("src")
    copy_project(project, tmp_path / "copy", links=["data"])
    names = {path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*")}
    assert {"src/a.py", "train.py", "data", "latest"} <= names
    assert not [name for name in names if "__pycache__" in name or ".git" in name or ".venv" in name]
    assert (tmp_path / "copy" / "data").is_symlink()
    with pytest.raises(VerifyInputError, match=r"data \(0 MB\).*--link"):
        copy_project(project, tmp_path / "other", limit=20)
    assert not (tmp_path / "other").exists()


SCRIPT = """
import sys, torch
w = torch.nn.Parameter(torch.ones(2)); o = torch.optim.SGD([w], lr=float(sys.argv[1]))
for i in range(3):
    o.zero_grad(); (w * w).sum().backward(); o.step()
"""


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text(SCRIPT)
    (tmp_path / "b.py").write_text(SCRIPT.replace("float(sys.argv[1])", "0.2"))
    monkeypatch.chdir(tmp_path)

    def crosstrain(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(main, ["verify", *arguments])
        return result.exit_code, result.output

    code, output = crosstrain("a.py", "b.py", "--processes", "1", "--", "0.2")
    assert (code, "identical" in output) == (0, True), output
    code, output = crosstrain("a.py", "b.py", "--processes", "1", "--", "0.1")
    assert code == 1
    assert "1 process: learning rate at step 1: 0.1 became 0.2 (must be identical)" in output
    code, output = crosstrain("a.py", "b.py", "--processes", "1", "--output-format", "json", "--", "0.1")
    answer = json.loads(output)
    assert (code, answer["ok"], answer["runs"][0]["verdict"]) == (1, False, "different")
    assert answer["runs"][0]["difference"]["step"] == 1
    for wrong, message in [
        (["a.py", "no.py"], "no script"),
        (["a.py", "b.py", "--processes", "x"], "--processes x"),
        (["a.py"], "MIGRATED is missing"),
        (["a.py", "b.py", "--link", "nothing", "--", "0.1"], "nothing"),
        (["a.py", "b.py", "--ignore", "(", "--", "0.1"], "--ignore"),
    ]:
        code, output = crosstrain(*wrong)
        assert (code, message in output) == (2, True), output


def test_a_library_s_cache_is_no_file_of_several() -> None:
    cache = "outside/home/ann/.cache/matplotlib/fontlist.json"
    written = {"work/log.txt": False, cache: False, "work/model.pt": True}
    ranks = [RankTrace("finished", written=written)] * 2
    found = [difference.migrated for difference in files_of_several(ranks, text=True)]
    assert found == ["log.txt is written by ranks 0 and 1"]


@pytest.mark.parametrize(("rows", "same_batch"), [(None, True), (8, True), (4, False)])
def test_rows_that_only_one_run_knows_are_no_difference(rows: int | None, same_batch: bool) -> None:
    original, migrated = (
        dataclasses.replace(trace([1.0]), batches=(Batch(0, 0, known, None, True),)) for known in (rows, 8)
    )
    assert (compare(original, [migrated], EXACT).difference is None) == same_batch
