"""What the code says of a loss: a sum over rows, wherever it is computed, is added over the processes."""

from textwrap import indent

import pytest

from .converting import converted, notes

SCRIPT = """
<torch>
class Criterion(nn.Module):
    def forward(self, out, y):
        each = {each}
        loss = {loss}
        return {returned}
torch.manual_seed(0)
rows = torch.arange(32.0).reshape(16, 2) / 32
loader = DataLoader(TensorDataset(rows, rows[:, :1]), batch_size={size})
model = nn.Linear(2, 1)
criterion = Criterion().to("cpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    {bound} = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = model.weight.sum().item()
"""
NONE = 'F.mse_loss(out, y, reduction="none")'


def script(
    each: str = NONE, loss: str = "each.sum()", returned: str = "loss", bound: str = "loss", size: int = 4
) -> str:
    return SCRIPT.format(each=each, loss=loss, returned=returned, bound=bound, size=size)


MOVED = 'nn.MSELoss(size_average=False).cuda().to("cpu")'
NAMED = script("None", "made(out, y)").replace(
    "class Criterion",
    'def made(out, y, how="sum"):\n    return F.mse_loss(out, y, reduction=how)\n\n\nclass Criterion',
)
HELPED = (
    script()
    .replace("    loss.backward()\n    optimizer.step()", "    step(loss, optimizer)")
    .replace(
        "class Criterion",
        "def step(error, by):\n    error.backward()\n    by.step()\n\n\nclass Criterion",
    )
)
HEAD, LOOP = script(returned="loss, len(y)", bound="loss, n").split("for x")
LOOP = indent(f"for x{LOOP}".replace("criterion(", "self.by("), " " * 8)
INIT = 'class Fit:\n    def __init__(self, by):\n        self.by = by.to("cpu")\n    def run(self):\n'
GIVEN = f"{HEAD}{INIT}{LOOP}Fit(criterion).run()\n"
SUMS = {
    "in a module": script(),
    "a part of a tuple": script(returned="each, loss", bound="each, loss"),
    "by a loss function": script("None", 'F.mse_loss(out, y, reduction="sum")'),
    "by a word left to a default": NAMED.replace("made(out, y)", "made(out, y)\n        loss = loss"),
    "by a loss object that is moved": script().replace('Criterion().to("cpu")', MOVED),
    "by a loss object that is bound again where it is moved": script().replace(
        'Criterion().to("cpu")', 'nn.MSELoss(size_average=False)\ncriterion = criterion.to("cpu")'
    ),
    "by a module that an object is given and moves": GIVEN,
    "of what is computed element by element": script("(out - y) ** 2", "0.5 * torch.sum(each)"),
    "of functions of what is given": script("torch.sqrt(torch.add(out, -y) ** 2 + 1e-6)", "torch.sum(each)"),
    "that takes the name of its rows": script("out - y", "each ** 2\n        loss = loss.sum()").replace(
        "return loss", 'return loss + F.mse_loss(out, y, reduction="sum")'
    ),
    "of a helper's parameter": HELPED,
    "by a variable of its method": script().replace(
        "    loss.backward()", "    go = loss.backward\n    go()"
    ),
    "a half of one": script(loss="each.sum() / 2"),
    "that is scaled": script().replace("loss.backward()", "scaler.scale(loss).backward()"),
    "added up step by step": script("-torch.sum(y * torch.log(out + 1))", "0\n        loss += each"),
}
OTHERS = {
    "a helper's parameter, of a mean": HELPED.replace("each.sum()", "each.mean()"),
    "by a word that a call gives": NAMED.replace("made(out, y)\n", 'made(out, y, how="mean")\n'),
    "a sum and a mean": script(loss="each.sum() + each.mean()"),
    "a mean by a module that an object is given": GIVEN.replace("each.sum()", "each.mean()"),
    "a mean of rows": script(loss="each.mean()"),
    "a sum that is divided": script(loss="each.sum() / len(y)"),
    "a sum that is divided by a number": script(loss="each.sum() / 4"),
    "a sum over one dimension": script(loss="each.sum(1)", returned="loss.mean()"),
    "a sum of what has no rows": script("torch.stack([F.mse_loss(out, y), F.l1_loss(out, y)])"),
    "a mean by a loss object that is moved": script().replace('Criterion().to("cpu")', "nn.MSELoss().cuda()"),
    "a loss object that is bound again to a mean": script().replace(
        'Criterion().to("cpu")', "nn.MSELoss(size_average=False)\ncriterion = nn.MSELoss()"
    ),
    "a sum of what other functions return": script("torch.sqrt(F.mse_loss(out, y) * y)", "torch.sum(each)"),
    "sums that are added up and divided": script("0", "((out - y) ** 2).sum()\n        loss /= 4"),
    "a penalty on the weights, beside a mean": script(loss="each.mean()").replace(
        "    optimizer.step()", "    penalty(model.weight).backward()\n    optimizer.step()"
    )
    + "\ndef penalty(weight):\n    return torch.sum(weight * weight)\n",
    "another part of the tuple": script(returned="each.mean(), loss", bound="loss, added"),
}


@pytest.mark.parametrize("name", [*SUMS, *OTHERS])
def test_what_is_a_sum_over_rows(name: str) -> None:
    after = converted({**SUMS, **OTHERS}[name])
    assert 'Accelerator(loss_reduction="sum")' in after if name in SUMS else "= Accelerator()\n" in after


def test_a_loss_that_no_reached_code_gives_a_helper_says_nothing() -> None:
    unused = "\ndef unused(out, y, by):\n    step(F.mse_loss(out, y, reduction='sum'), by)\n"
    text = HELPED.replace("each.sum()", "each.mean()") + unused
    assert "= Accelerator()\n" in converted(text)
    assert 'loss_reduction="sum"' in converted(text + "unused(model(x), y, optimizer)\n")


def test_a_helper_may_go_backward_twice() -> None:
    twice = HELPED.replace(
        "    error.backward()\n", "    error.backward(retain_graph=True)\n    error.backward()\n"
    )
    assert 'Accelerator(loss_reduction="sum")' in converted(
        twice.replace("each.sum()", "((out - y) ** 2).sum()")
    )


def test_a_helper_that_has_no_accelerator_adds_the_gradients() -> None:
    head, torchs = HELPED.split("torch.manual_seed(0)\n")
    text = f"{head}def main():\n{indent(torchs, '    ')}if __name__ == '__main__':\n    main()\n"
    assert "    Accelerator().backward(error)\n" in converted(text)
    assert "    error.backward()\n" in converted(text.replace("each.sum()", "each.mean()"))


def beside(term: str) -> str:
    return SUMS["by a loss function"].replace("loss.backward()", f"(loss + {term}).backward()")


def returning(value: str) -> str:
    return script("None", 'F.mse_loss(out, y, reduction="sum")', value)


@pytest.mark.parametrize("text", [beside("model.weight.norm() / 8"), returning("loss + out.sum() / len(y)")])
def test_a_sum_beside_what_is_not_known_is_no_mean(text: str) -> None:
    assert 'Accelerator(loss_reduction="sum")' in converted(text)
    assert ["taken for a sum" in one.reason for one in notes(text, "CT202")] == [True]


@pytest.mark.parametrize("mean", ["F.l1_loss(model(x), y)", "(model(x) - y).abs().mean()"])
def test_a_sum_beside_a_mean_stays_assumed(mean: str) -> None:
    assert "accelerator = Accelerator()\n" in converted(beside(mean))
    assert "accelerator = Accelerator()\n" in converted(returning("(loss + out.sum() / 2) / len(y)"))


IN_A_TABLE = """
<torch>
class Trainer:
    def __init__(self, model, measure, optimizer):
        self.model = model
        self.measure = measure
        self.optimizer = optimizer
    def fit(self, loader):
        for x in loader:
            loss = self.measure(self.model(x), x[:, :1])
            <self.step loss>
model = nn.Linear(4, 1)
table = {"loss": nn.MSELoss(reduction="sum"), "shown": nn.L1Loss()}
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
Trainer(model, optimizer=optimizer, measure=table["loss"]).fit(DataLoader(torch.randn(32, 4), batch_size=4))
"""


@pytest.mark.parametrize("other", ["sum", "mean"])
def test_a_function_of_a_table(other: str) -> None:
    made = 'def {0}(x, y):\n    return F.mse_loss(x, y, reduction="{0}")\n'
    table = "LOSSES = {'near': sum, 'far': OTHER}\n".replace("OTHER", other)
    text = IN_A_TABLE.replace("self.measure(", 'LOSSES["near" if len(x) else "far"](', 1)
    begin = made.format("sum") + made.format("mean") + table
    after = converted(text.replace("class Trainer", begin + "class Trainer"))
    assert ('Accelerator(loss_reduction="sum")' in after) is (other == "sum")


def test_a_sum_that_a_table_gives_to_a_class() -> None:
    assert 'Accelerator(loss_reduction="sum")' in converted(IN_A_TABLE)
    for other in (IN_A_TABLE.replace('table["loss"]', 'table["shown"]'), IN_A_TABLE.replace("sum", "mean")):
        assert "loss_reduction" not in converted(other)
