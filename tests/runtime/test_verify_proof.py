"""What tells a mistake from what may differ: draws per share, double precision, frozen runs, noise, stalls."""

import json
from pathlib import Path

import torch
import torch.utils.checkpoint
from crosstrain_verify import Report
from crosstrain_verify.emulation.draws import SharedDraws
from crosstrain_verify.judging.printed_lines import aligned, words
from crosstrain_verify.report.curves import svg
from crosstrain_verify.report.report import Verdict
from crosstrain_verify.tracing.batches import checksum
from torch import nn

from tests.runtime import verify_scripts

PLAIN = """
import random, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{start}
torch.manual_seed(1)
X, Y = torch.randn(70, 6), torch.arange(70) % 3
VX, VY = torch.randn(24, 6), torch.arange(24) % 3
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
train = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(VX, VY), batch_size=8)
{prepare}
def evaluate():
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in valid:
            hit = model(x).argmax(1) == y
            hits += {gathered}.sum().item()
    {say}("hits", hits)
for epoch in range(3):
    model.train()
    for x, y in train:
        loss = F.cross_entropy(model(x) + 0.1 * torch.randn(len(x), 3), y)
        optimizer.zero_grad()
        {backward}
        optimizer.step()
    scheduler.step()
    evaluate()
"""
BEFORE = verify_scripts.before(PLAIN, gathered="hit")


def after(**changes: str) -> str:
    parts = {
        "start": "from crosstrain import Accelerator\n"
        "accelerator = Accelerator(step_scheduler_with_optimizer=False)",
        "gathered": "accelerator.gather_for_metrics(hit)",
    }
    return verify_scripts.after(PLAIN, "model, optimizer, train, valid, scheduler", **(parts | changes))


def run(place: Path, /, migrated: str, original: str = BEFORE, **options: object) -> Report:
    return verify_scripts.run(place, migrated, original, **{"processes": [2]} | options)


def test_dropout_noise_and_batch_statistics_are_verified_exactly(tmp_path: Path) -> None:
    """70 rows in batches of 16 leave 6: with 3 processes the states of the random streams drift apart, too."""
    report = run(tmp_path, after(), processes=[1, 2, 3], default_launch=True)
    assert [one.verdict.value for one in report.runs] == ["identical", "equal", "equal", "agree"], report
    assert "random draws and batch statistics" in report.runs[1].against
    assert report.runs[3].largest["evaluation lines"] == 3
    assert "16 x 3 = 48 rows" in report.runs[3].notes[-1]
    assert [one.launch.split("--num-processes ")[1] for one in report.runs] == [
        "1 after.py",
        "2 --split-batches --common-draws after.py",
        "3 --split-batches --common-draws after.py",
        "3 after.py",
    ]


AUGMENTED = """
import random, time, numpy as np, torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
{start}
torch.manual_seed(1); random.seed(1); np.random.seed(1)
class Crops(Dataset):
    def __init__(self, rows):
        self.images, self.labels = torch.randn(rows, 9), torch.arange(rows) % 3
        self.own = torch.Generator().manual_seed(5)
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, index):
        left = torch.randint(0, 4, (1,)).item()
        image = self.images[index][left : left + 6] * (1 + np.random.rand()) + torch.rand(6, generator=self.own)
        return (image.flip(0) if random.random() < 0.5 else image), self.labels[index]
def masked(samples):
    x, y = torch.utils.data.default_collate(samples)
    return x * (torch.rand(len(x), 1) > 0.2), y
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Dropout(0.2), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = DataLoader(Crops(39), batch_size=8, shuffle=True, collate_fn=masked)
valid = DataLoader(Crops(10), batch_size=4, shuffle=True)
{prepare}
begin = time.perf_counter()
for epoch in range(2):
    for x, y in train:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(); {backward}; optimizer.step()
    with torch.no_grad():
        total = sum(F.cross_entropy(model(x), y).item() for x, y in valid)
    {say}(f"epoch {{epoch}} {{total:.3f}} in {{time.perf_counter() - begin:.6f}} s, done at {{time.strftime('%H:%M:%S')}}")
"""

NAMES = "model, optimizer, train"


def test_augmentation_is_drawn_for_the_rows_of_each_process(tmp_path: Path) -> None:
    """From torch's, python's and numpy's streams, and while collating; uneven batches make the streams drift.

    The evaluation is not prepared: each process reads all of it, in an order of its own. Times are no results.
    """
    after, before = verify_scripts.after(AUGMENTED, NAMES), verify_scripts.before(AUGMENTED)
    report = run(tmp_path, after, before, processes=[1, 2])
    assert [one.verdict.value for one in report.runs] == ["identical", "equal"], report
    assert "'epoch # # in # s, done at (clock)'" in " ".join(report.runs[0].notes)
    assert len(report.runs[1].compared) == len(report.runs[1].losses)
    assert "original, drawing as 2" in svg(report.curves)


def test_a_mistake_under_dropout_is_no_noise_and_the_report_is_json(tmp_path: Path) -> None:
    report = run(tmp_path, after(backward="accelerator.backward(2 * loss)"), processes=[1, 2])
    scaled = report.runs[1]
    assert scaled.verdict is Verdict.DIFFERENT
    assert scaled.difference is not None and scaled.difference.step == 1
    data = json.loads(json.dumps(report.to_json()))
    one = data["runs"][0]
    assert (one["verdict"], one["cause"]["rule"], one["frozen"]) == ("different", "loss-scaled", False)
    assert one["meaning"] and one["losses"] and data["figure"].startswith("<svg")


def test_few_steps_still_reach_the_evaluation(tmp_path: Path) -> None:
    """Two steps of an epoch's five: its evaluation is compared all the same."""
    report = run(tmp_path, after(), steps=2, default_launch=True)
    assert [one.verdict.value for one in report.runs] == ["equal", "agree"], report
    assert [one.steps for one in report.runs] == [2, 2]
    assert report.runs[1].largest["evaluation lines"] == 1
    broken = run(tmp_path, after(gathered="hit"), steps=2, default_launch=True)
    assert [one.verdict.value for one in broken.runs] == ["equal", "different"], broken


def test_rounding_that_training_amplifies_is_told_apart_in_double_precision(tmp_path: Path) -> None:
    """The same sum in another order, and a branch on its last bit: no tolerance can judge that."""
    script = (
        "import os, torch\nimport torch.distributed as dist\n"
        "world = int(os.environ.get('WORLD_SIZE', 1))\nif world > 1: dist.init_process_group('gloo')\n"
        "torch.manual_seed(0)\nX = torch.rand(5000, 3)\n"
        "w = torch.nn.Parameter(torch.full((3,), 0.5)); o = torch.optim.SGD([w], lr=0.01)\n"
        "for step in range(4):\n"
        "    o.zero_grad()\n"
        "    rows = X * w\n"
        "    loss = ORDER\n"
        "    exact = (X.double() * w.detach().double()).sum()\n"
        "    error = (loss.detach() - exact.to(w.dtype)).abs() > 1e-8 * exact.abs()\n"
        "    (loss * (1.01 if error else 1.0)).backward(); o.step()\n"
    )
    before = script.replace("ORDER", "rows.double().sum().to(w.dtype) if world else 0")
    other = script.replace("ORDER", "rows.flip(0).cumsum(0)[-1].sum()")
    report = run(tmp_path, other, original=before)
    assert report.runs[0].verdict is Verdict.EQUAL, report
    assert any("rounding was amplified in float32" in note for note in report.runs[0].notes)
    wrong = other.replace("1.0)).backward", "1.02)).backward")
    assert run(tmp_path, wrong, original=before).runs[0].verdict is Verdict.DIFFERENT


def test_ranks_that_wait_for_each_other_are_found_before_the_time_is_up(tmp_path: Path) -> None:
    stuck = after(
        start="from crosstrain import Accelerator\nimport torch.distributed as dist\naccelerator = Accelerator()"
    ) + ("if accelerator.is_main_process:\n    dist.barrier()\n")
    report = run(tmp_path, stuck, timeout=300.0)
    assert report.runs[0].verdict is Verdict.HUNG
    assert report.runs[0].error.startswith("every rank waits for another")
    cause = report.runs[0].cause
    assert cause is not None and cause.rule == "guarded-collective"
    assert cause.lines[0].startswith("rank 0 waits at ") and cause.lines[0].endswith(
        f" after.py:{len(stuck.splitlines())}"
    )
    assert cause.lines[1] == "rank 1 is done"


def test_shared_draws_are_those_of_the_processes() -> None:
    """7 rows for 3 processes: 3, 2 and 2. Each draws a mask for its rows from the state that it has."""
    rows: list[int | None] = [7]
    torch.manual_seed(3)
    start = torch.get_rng_state()
    with SharedDraws(3, lambda: rows[0], lambda: True):
        first = nn.functional.dropout(torch.ones(7, 5), 0.5)
        second = torch.randn(7, 20)
        scalar = torch.rand(())
    for rank, (low, high) in enumerate([(0, 3), (3, 5), (5, 7)]):
        torch.set_rng_state(start)
        assert torch.equal(first[low:high], nn.functional.dropout(torch.ones(high - low, 5), 0.5))
        assert torch.equal(second[low:high], torch.randn(high - low, 20))
        if rank == 0:
            assert torch.equal(scalar, torch.rand(()))


def test_checksums_of_shares_add_up_in_any_order() -> None:
    x, y = torch.randn(11, 3), torch.arange(11)
    rows, whole = checksum([x, y])
    assert (rows, whole) == (11, checksum({"a": x, "b": y})[1])
    assert sum([checksum([x[i], y[i]])[1] or 0 for i in torch.randperm(11).split(4)]) % (1 << 64) == whole
    assert checksum([x.flip(0), y])[1] != whole
    assert checksum([x, y], real=5) == checksum([x[:5], y[:5]])
    names = [f"n{i}" for i in range(11)]
    assert checksum([x, names]) != checksum([x, names[::-1]])
    assert checksum([x, 3]) == (None, None)
    assert checksum([x, y[:4]]) == (None, None)
    assert checksum(torch.zeros(0, 3)) == (0, 0)


def test_lines_are_aligned_by_their_words() -> None:
    assert words("epoch 3: acc 0.512") == words("epoch 12: acc 1") == "epoch # : acc #"
    ours = ["step 1 loss 2", "epoch 1 acc 3", "step 2 loss 2", "epoch 2 acc 3"]
    assert aligned(ours, ["epoch 1 acc 4", "epoch 2 acc 4"]) == [(1, 0), (3, 1)]
