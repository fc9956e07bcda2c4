"""Notebooks converted by use: what a training counts, evaluates and prints stands where it can run."""

from __future__ import annotations

from crosstrain_migrate.results import Options

from .notebooks import START
from .support import after, migrate

MODEL = """\
# %%
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
"""
TRAINING = """\
for x, y in train_loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
EVALUATION = """\
correct = 0
with torch.no_grad():
    for x, y in test_loader:
        correct += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
print("correct", correct)
"""
COUNTED = (
    START
    + MODEL
    + f"# %%\niter = 0\n# %%\n{TRAINING}    iter += 1\nprint('epoch', iter)\n"
    + "# %%\nhistory = [iter]\nprint('history', history)\n"
)
# Counts in two trainings, evaluates in the cell of the second and in one of its own.
EVALUATED = COUNTED + f"# %%\n{TRAINING}    iter += 1\n{EVALUATION}print('epoch', iter)\n# %%\n{EVALUATION}"


def converted(text: str) -> dict[int, str]:
    result = migrate(text, Options())
    assert not result.refused and not result.error
    return after(result)


def test_a_variable_that_has_a_builtins_name_is_passed_in_and_comes_back() -> None:
    """`iter += 1` is unbound in a function that is not given it."""
    cells = converted(COUNTED)
    assert "def training(model, optimizer, train_loader, iter):" in cells[7]
    assert "    return iter\n" in cells[7]
    assert "iter = notebook_launcher(training, (model, optimizer, train_loader, iter))" in cells[7]
    assert "print('epoch', iter)" in cells[7]


def test_an_evaluation_in_the_cell_that_trains_is_dealt_in_the_function() -> None:
    inner = "".join(f"    {line}\n" for line in (TRAINING + EVALUATION).splitlines())
    cells = converted(START + MODEL + f"# %%\nfor epoch in range(2):\n{inner}")
    function, launch = cells[6].split("\n\n\n")
    assert "    test_loader = accelerator.prepare_evaluation(test_loader)\n" in function
    assert launch == "notebook_launcher(training, (model, optimizer, train_loader, test_loader))"
    assert "own process" not in "".join(cells.values())


def test_what_stands_below_the_training_is_the_authors() -> None:
    cells = converted(START + MODEL + f"# %%\n{TRAINING}{EVALUATION}# %%\n{TRAINING}{EVALUATION}")
    for number in (6, 7):
        assert cells[number].endswith('\nprint("correct", correct)')
        assert cells[number].count("prepare_evaluation(") == 1
        assert cells[number].count("accelerator = Accelerator()") == 1
