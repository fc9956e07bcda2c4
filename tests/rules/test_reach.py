"""What the analysis must not depend on: the order of definitions, the number of models, code that nothing runs."""

from __future__ import annotations

import ast
import itertools
import random

import pytest
from crosstrain_migrate.facts.facts import understand
from crosstrain_migrate.results import Severity

from .support import SLOTS, Case, converts, each, leaves, migrate, script

BACKWARD, PREPARE = "CT202", "CT201"
ZOO = 48  # models of which one is chosen by its name
IDLE = """\
def check():
    net = nn.Linear(8, 3)
    net(torch.randn(2, 8)).backward(torch.ones(2, 3))
"""
CHOSEN = "\n".join(
    f'{"el" if number else ""}if name == "m{number}":\n    model = nn.Linear(8, {number + 3})'
    for number in range(ZOO)
)
GRAPHS = "from torch_geometric.loader import DataLoader as GraphLoader"
GRAPH_LOADER = "train_loader = GraphLoader(graphs, batch_size=8, shuffle=True)"
OPTIMIZER = SLOTS["optimizer"]
TRAIN = "train = True"
FUNCTIONS = """\
def accuracy(net, loader):
    net.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += hits(guess(net, x), y)
    return right


def guess(net, x):
    return pick(net(x))


def pick(out):
    return out.argmax(1)


def hits(predicted, y):
    return predicted.eq(y).sum().item()


def choose(which):
    return wide() if which else narrow()


def wide():
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3))


def narrow():
    return nn.Linear(8, 3)
"""

CASES = [
    leaves(
        BACKWARD,
        "a function that nothing calls, with a gradient given to backward",
        {"definitions": IDLE},
        findings=((BACKWARD, "net(torch.randn(2, 8))"),),
    ),
    converts(
        PREPARE,
        "one of ever so many models",
        {"options": "import sys\nname = sys.argv[1]", "model": f"{CHOSEN}\nmodel = model.to(device)"},
        {"model": CHOSEN},
        at="optimizer = torch",
    ),
    leaves(
        PREPARE,
        "a loader of graphs",
        {
            "imports": GRAPHS,
            "data": f"graphs = torch.load('graphs.pt')\n{GRAPH_LOADER}",
            "loop": "for batch in train_loader:",
            "batch": "batch = batch.to(device)",
            "loss": "out = model(batch)\nloss = F.cross_entropy(out, batch.y)",
        },
        {"batch": ""},
    ),
    leaves(
        PREPARE,
        "an evaluation loader of one branch",
        {
            "test_data": "if TESTS:\n    test_loader = DataLoader(train_set, batch_size=8)",
            "definitions": "TESTS = True",
            "end": (
                "if TESTS:\n    model.eval()\n    right = 0\n    for x, y in test_loader:\n"
                "        right += model(x.to(device)).argmax(1).eq(y.to(device)).sum().item()\n    print(right)"
            ),
        },
        {
            "test_data": (
                "if TESTS:\n    test_loader = DataLoader(train_set, batch_size=8)\n"
                "    test_loader = accelerator.prepare(test_loader)"
            ),
            "end": (
                "if TESTS:\n    model.eval()\n    right = 0\n    for x, y in test_loader:\n"
                "        right += accelerator.gather_for_metrics(model(x).argmax(1).eq(y)).sum().item()\n"
                "    accelerator.print(right)"
            ),
        },
    ),
]

# The layers go over all nodes, batch by batch: nothing that a rule knows leaves the loop.
LAYERWISE = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 3)

    def forward(self, x):
        return self.inner(x)

    def inference(self, whole, loader):
        found = []
        for size, nodes, edges in loader:
            found.append(self.inner(whole[nodes]).cpu())
        return torch.cat(found)
"""
SUBGRAPHS = "from torch_geometric.loader import ClusterLoader, NeighborLoader"


def test_a_loader_of_subgraphs_gives_no_rows_of_samples() -> None:
    text = script(
        {
            **SLOTS,
            "imports": SUBGRAPHS,
            "definitions": LAYERWISE,
            "data": "graph = torch.load('graph.pt')\ntrain_loader = ClusterLoader(graph, batch_size=8, shuffle=True)\n"
            "whole_loader = NeighborLoader(graph, batch_size=8)",
            "model": "model = Net().to(device)",
            "loop": "for batch in train_loader:",
            "batch": "batch = batch.to(device)",
            "loss": "out = model(batch.x)[batch.mask]\nloss = F.nll_loss(out, batch.y[batch.mask])",
            "after_step": "print(batch.mask.sum().item())",
            "end": "model.eval()\nprint(model.inference(graph.x, whole_loader).sum())",
        }
    )
    result = migrate(text)
    assert (
        "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)" in result.after
    )
    assert "gather_for_metrics" not in result.after
    assert "accelerator.print(batch.mask.sum().item())" in result.after
    assert [f for f in result.findings if f.rule == "CT603"]


@each(CASES)
def test_reach(case: Case) -> None:
    case.check()


def _orders() -> list[list[str]]:
    functions = [f"{part.strip()}\n" for part in FUNCTIONS.split("\n\n\n")]
    found = []
    for seed in range(6):
        mixed = functions[:]
        random.Random(seed).shuffle(mixed)
        found.append(mixed)
    return found


@pytest.mark.parametrize("order", _orders(), ids=itertools.count())
def test_the_order_of_definitions_says_nothing(order: list[str]) -> None:
    """The same edits, whichever function is met first."""
    slots = {
        "model": "model = choose(len(train_set) > 9).to(device)",
        "test_data": "test_loader = DataLoader(train_set, batch_size=8)",
        "after_epoch": "print(accuracy(model, test_loader))",
    }
    usual = _parts(migrate(script({**SLOTS, **slots, "definitions": FUNCTIONS})).after)
    result = migrate(script({**SLOTS, **slots, "definitions": "\n\n".join(order)}))
    assert result.changed
    assert _parts(result.after) == usual


def _parts(text: str) -> dict[str, str]:
    """The functions of a script by their names, and the rest."""
    tree = ast.parse(text)
    named = {n.name: ast.unparse(n) for n in tree.body if isinstance(n, ast.FunctionDef)}
    rest = [ast.unparse(n) for n in tree.body if not isinstance(n, ast.FunctionDef)]
    return {**named, "": "\n".join(rest)}


@pytest.mark.parametrize("order", _orders(), ids=itertools.count())
def test_the_roles_depend_on_no_order(order: list[str]) -> None:
    text = script({**SLOTS, "model": "model = choose(len(train_set) > 9)", "definitions": "\n\n".join(order)})
    facts = understand(ast.parse(text))
    assert [type(model).__name__ for model in facts.models] == ["External", "External"]
    assert len(facts.train_loaders) == 1


def test_what_each_branch_makes_is_prepared_there() -> None:
    """The model serves two branches, and its optimizer and loader are made in one of them."""
    text = """\
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(train):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(8, 3).to(device)
    if train:
        loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48).long()), batch_size=8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
    else:
        model.load_state_dict(torch.load("model.pt"))


main(len(sys.argv) < 2)
"""
    result = migrate(text)
    assert not result.refused, result.findings
    assert (
        "    model = nn.Linear(8, 3)\n    model = accelerator.prepare(model)\n    if train:" in result.after
    )
    assert (
        "        optimizer, loader = accelerator.prepare(optimizer, loader)\n        for x, y" in result.after
    )


def test_a_module_for_others_is_judged_whole() -> None:
    """Where nothing in a file runs, what its functions do is what others run."""
    text = script(SLOTS, main=True).replace('if __name__ == "__main__":\n    main()\n', "")
    result = migrate(text)
    assert "accelerator.backward(loss)" in result.after
    assert not any(f.severity is Severity.REFUSED for f in result.findings)


def test_a_bar_that_a_with_statement_binds_goes_over_the_prepared_loader() -> None:
    text = script(
        {
            **SLOTS,
            "imports": "from tqdm import tqdm",
            "definitions": "def fit(model, loader, optimizer, device):\n    with tqdm(loader) as bar:\n        for x, y in bar:\n"
            "            x, y = x.to(device), y.to(device)\n            loss = F.cross_entropy(model(x), y)\n"
            "            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()",
            "epoch": "fit(model, train_loader, optimizer, device)",
            "loop": "if True:",
            "batch": "continue",
            **dict.fromkeys(("loss", "backward", "step"), ""),
        }
    )
    result = migrate(text)
    assert (
        "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)" in result.after
    )
    assert "with tqdm(loader, disable=not accelerator.is_local_main_process) as bar:" in result.after
