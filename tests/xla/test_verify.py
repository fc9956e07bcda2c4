"""`--backend xla`: the same training on XLA's CPU client, and what a TPU would choke on, step by step."""

from pathlib import Path

from crosstrain_verify import Report, verify

SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{start}
torch.manual_seed(1)
X, Y = torch.randn(48, 8), torch.arange(48) % 3
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(X, Y), batch_size=8)
{prepare}
for step, (x, y) in enumerate(loader):
    x = {change}
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    {backward}
    optimizer.step()
"""
PREPARED = {
    "start": "from crosstrain import Accelerator\naccelerator = Accelerator()",
    "prepare": "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    "backward": "accelerator.backward(loss)",
}


def run(place: Path, change: str, **more: str) -> Report:
    plain = {"start": "", "prepare": "", "backward": "loss.backward()"}
    (place / "before.py").write_text(SCRIPT.format(change=change, **plain))
    (place / "after.py").write_text(SCRIPT.format(change=change, **(PREPARED | more)))
    return verify(place / "before.py", place / "after.py", processes=[1], backend="xla", timeout=300)


def test_a_steady_training_is_equal_and_compiles_no_more(tmp_path: Path) -> None:
    report = run(tmp_path, "x * 2")
    assert [one.verdict.value for one in report.runs] == ["identical", "equal"], report
    xla = report.runs[1]
    assert len(xla.compiled) == 6 and sum(xla.compiled) > 0 and not any(xla.compiled[3:])
    assert "no step was compiled after step 3" in xla.notes
    assert not [note for note in xla.notes if "read one by one" in note]  # looking on reads nothing
    assert "--tpu" in xla.launch


def test_what_compiles_in_every_step_is_named_and_a_mistake_is_found(tmp_path: Path) -> None:
    change = "x * x[:, step:].sum(1, keepdim=True).tanh()"
    xla = run(tmp_path, change, backward="accelerator.backward(2 * loss)").runs[1]
    assert xla.verdict.value == "different" and xla.cause is not None and xla.cause.rule == "loss-scaled"
    assert all(xla.compiled)
    told = [note for note in xla.notes if "was compiled again" in note]
    assert told and "a slice" in told[0]
