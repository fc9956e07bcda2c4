"""What an observed run writes down: which expressions are means over the batch, and which are sums."""

import json
from pathlib import Path

import pytest
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Observed, Options
from crosstrain_verify.observing.document import kinds, text
from crosstrain_verify.observing.observe import observe
from crosstrain_verify.records.observations import Observations, Place

from tests.golden.cases import GOLDEN
from tests.notebooks.support import notebook


def test_the_facts_of_the_golden_registry_are_those_of_a_run_today() -> None:
    case = GOLDEN / "registry"
    found = observe(case / "before" / "train.py", folder=case / "before", timeout=300)
    kept = json.loads((case / "facts.json").read_text(encoding="utf-8"))
    assert found.facts is not None, found.error
    fresh = json.loads(text(found.facts))
    for facts in (fresh, kept):
        del facts["run"]["seconds"]
    assert fresh == kept


def test_a_script_that_distributes_itself_is_seen_on_two_processes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "from torch import nn\n"
        "from torch.utils.data import DataLoader, DistributedSampler, TensorDataset\n"
        "dist.init_process_group('gloo')\n"
        "data = TensorDataset(torch.randn(32, 6), torch.randn(32, 1))\n"
        "loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))\n"
        "net = nn.parallel.DistributedDataParallel(nn.Linear(6, 1))\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for x, y in loader:\n"
        "    optimizer.zero_grad(); nn.functional.mse_loss(net(x), y).backward(); optimizer.step()\n"
        "if dist.get_rank() == 0:\n"
        "    print('done')\n"
    )
    found = observe(script, folder=tmp_path, timeout=300)
    assert found.facts is not None, found.error
    assert found.facts["run"]["processes"] == 2
    assert {tuple(one["at"][1:3]) for one in found.facts["places"] if one["tensor"]["is"] == "mean"} == {
        (10, 27)
    }


def test_a_script_that_fails_says_why(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nraise SystemExit('no data here')\n")
    found = observe(script, folder=tmp_path, timeout=300)
    assert found.facts is None and "no data here" in found.error


@pytest.mark.parametrize(
    ("once", "twice", "kind"),
    [
        pytest.param([2.0, 3.0], [2.0, 3.0], "mean", id="mean"),
        pytest.param([2.0, 3.0], [4.0, 6.0], "sum", id="sum"),
        pytest.param([2.0], [3.1], "", id="drawn"),
        pytest.param([2.0, 3.0], [2.0, 6.0], "", id="now-this-now-that"),
        pytest.param([2.0, 0.0], [2.0, 0.0], "mean", id="a-zero-shows-nothing"),
        pytest.param([2.0], [], "", id="never-doubled"),
    ],
)
def test_what_a_run_with_doubled_batches_says(once: list[float], twice: list[float], kind: str) -> None:
    place = Place("train.py", 1, 0, 1, 4)
    seen, doubled = (Observations(["train.py"], {place: {1: numbers}}) for numbers in (once, twice))
    assert kinds(seen, doubled).get(place, "") == kind
    assert kinds(seen, None) == {}


CELLS = """\
# %%
%matplotlib inline
import torch
from torch import nn, utils
# %%
def build(place, name, *args, **more):
    return getattr(place, name)(*args, **more)
# %%
data = utils.data.TensorDataset(torch.randn(40, 6), torch.arange(40) % 3)
loader = build(utils.data, "DataLoader", data, batch_size=8)
net = build(nn, "Linear", 6, 3)
optimizer = build(torch.optim, "SGD", net.parameters(), lr=0.1)
# %%
for x, y in loader:
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_the_cells_of_a_notebook(tmp_path: Path) -> None:
    """Places are those of the cells, and the conversion finds them there again."""
    file = tmp_path / "train.ipynb"
    file.write_bytes(notebook(CELLS))
    found = observe(file, folder=tmp_path, timeout=300)
    assert found.facts is not None, found.error
    observed = Observed(file.resolve(), text(found.facts))
    outcome = run(Request((file,), Options(observed=observed), Mode.PREVIEW, cache=False), migrate_text)
    (converted,) = outcome.files
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in converted.result.after
    assert any(one.severity.value == "observed" for one in converted.result.findings)
