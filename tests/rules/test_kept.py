"""CT602: what a module keeps of its batches parts the processes, in whatever way it is written."""

from __future__ import annotations

import pytest

from .support import SLOTS, migrate, script

NET = """\
SEEN = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.total = 0.0
        self.stats = {{}}
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        {line}
        return self.layer(x)
"""

KEPT = [
    "self.mean += x.mean(0)",
    "self.mean = 0.9 * self.mean + 0.1 * x.mean(0)",
    "self.mean[0] += x.sum()",
    "self.mean[:] = x.mean(0)",
    "self.mean.copy_(x.mean(0))",
    "self.mean.data = x.mean(0)",
    "torch.add(self.mean, x.sum(0), out=self.mean)",
    "self.mean = torch.maximum(self.mean, x.abs().max(0)[0])",
    'self.register_buffer("last", x.mean(0))',
    "nn.init.constant_(self.layer.bias, x.mean().item())",
    "self.total += x.sum().item()",
    'setattr(self, "total", self.total + x.sum().item())',
    'Net.count = getattr(Net, "count", 0) + len(x)',
    "self.stats[0] = x.mean().item()",
    "self.stats.update(mean=x.mean().item())",
    "SEEN.append(x.mean().item())",
]
HARMLESS = [
    "h = x.clone()",
    "h = x.mul_(1.0)",
    "self.width = x.shape[1]",
    "parts = []; parts.append(x)",
    "self.features = x",
    "nn.init.zeros_(self.layer.bias)",
    "parts = dict(out=self.layer(x)); parts['aux'] = x",
]


def converted(line: str) -> set[str]:
    """The codes of what refused the script; empty where it was converted."""
    model = {"definitions": NET.format(line=line), "model": "model = Net().to(device)"}
    result = migrate(script({**SLOTS, **model}))
    assert result.changed != result.refused
    return {f.rule for f in result.findings if result.refused}


@pytest.mark.parametrize("line", KEPT)
def test_what_is_kept_is_refused(line: str) -> None:
    assert converted(line) == {"CT602"}


@pytest.mark.parametrize("line", HARMLESS)
def test_what_ends_with_the_batch_is_not(line: str) -> None:
    assert not converted(line)
