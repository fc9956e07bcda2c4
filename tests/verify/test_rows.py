"""The permutation test: a tensor that has as many rows as the batch only by chance."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator
from crosstrain_verify.records.operands import Operand, misplaced, permutation
from crosstrain_verify.tracing.permuting import Permuting

from tests.runtime.verify_scripts import after, before, run, verdicts

ROWS = 4
ORDER = list(permutation(ROWS))
SQUARE = np.random.default_rng(0).normal(size=(ROWS, ROWS))


@pytest.mark.parametrize(
    ("plain", "permuted", "dimension"),
    [
        pytest.param(SQUARE, SQUARE[ORDER], None, id="rows"),
        pytest.param(SQUARE, SQUARE[:, ORDER], 1, id="columns"),
        pytest.param(SQUARE[:2], SQUARE[:2, ORDER], 1, id="fewer-rows-than-columns"),
        pytest.param(SQUARE[None], SQUARE[None, :, ORDER], 2, id="a-third-dimension"),
        pytest.param(SQUARE, SQUARE[ORDER][:, ORDER], None, id="pairs-of-rows"),
        pytest.param(SQUARE, SQUARE + 1, None, id="other-random-numbers"),
        pytest.param(SQUARE, SQUARE, None, id="nothing-of-the-batch"),
        pytest.param(SQUARE * 0, SQUARE * 0, None, id="all-the-same"),
        pytest.param(SQUARE, SQUARE[:, ORDER] * (1 + 1e-6), 1, id="rounding"),
        pytest.param(SQUARE, SQUARE[:, :2], None, id="another-shape"),
    ],
)
def test_where_the_rows_are(plain: np.ndarray, permuted: np.ndarray, dimension: int | None) -> None:
    a, b = (Operand("train.py", 3, ROWS, values) for values in (plain, permuted))
    assert misplaced(a, b) == dimension


@pytest.mark.parametrize("permute", [True, False])
def test_the_first_batch_of_a_pass_is_permuted_in_one_of_two_runs(
    permute: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `install` replaces it.
    monkeypatch.setattr(Accelerator, "gather_for_metrics", Accelerator.gather_for_metrics)
    watch: Any = SimpleNamespace()
    Permuting(permute=permute).install(watch)
    rows = list(range(ROWS))
    assert watch.alter(torch.tensor(rows), True, None).tolist() == (ORDER if permute else rows)
    assert watch.alter(torch.tensor(rows), False, None).tolist() == rows


SCRIPT = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{start}
torch.manual_seed(1)
data = TensorDataset(torch.randn(24, 6), torch.arange(24) % 4)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train, valid = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
{prepare}
for epoch in range(2):
    model.train()
    for x, y in train:
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad(); {backward}; optimizer.step()
        seen = {gather}(out.detach())
    model.eval()
    best = []
    with torch.no_grad():
        for x, y in valid:
            best.append({gather}({operand}))
    {say}(f"{{float({number}):.3f}}")
"""


@pytest.mark.parametrize(
    ("operand", "number", "expected"),
    [
        # 4 classes, and each of two processes has 4 rows of the batch.
        ("model(x)", "torch.cat(best).max(0).values.sum()", ["identical", "equal", "agree"]),
        ("model(x).t()", "torch.cat(best).mean()", ["identical", "equal", "failed", "different"]),
    ],
    ids=["rows", "transposed"],
)
def test_rows_by_coincidence(tmp_path: Path, operand: str, number: str, expected: list[str]) -> None:
    parts = {"operand": operand, "number": number}
    converted = after(
        SCRIPT, "model, optimizer, train, valid", gather="accelerator.gather_for_metrics", **parts
    )
    report = run(tmp_path, converted, before(SCRIPT, gather="", **parts), default_launch=True)
    assert verdicts(report) == expected, report
    if len(expected) > 3:
        last = report.runs[-1]
        place = f"after.py:{last.checks[0].line}"
        said = f"{place}: the rows of what is gathered are in dimension 1 of shape [4, 8], not in dimension 0"
        assert str(last.difference) == said
        assert last.cause is not None and last.cause.rule == "rows-elsewhere"
    rows = {check.line: check.status for check in report.checks if check.kind == "rows"}
    assert sorted(rows.values()) == (["failed", "held"] if len(expected) > 3 else ["held", "held"])
