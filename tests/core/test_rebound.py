"""A name that stands for one optimizer after another: each is prepared with its own model."""

import pytest

from .converting import converted

PART = """
model_{n} = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model_{n}.parameters(), lr=0.1)
<loop torch.nn.functional.mse_loss(model_{n}(x), y)>
"""


def test_each_training_prepares_what_it_has_made() -> None:
    text = "import torch\nfrom torch.utils.data import DataLoader\n" + PART.format(n=0) + PART.format(n=1)
    first, _, second = converted(text).partition("model_1 = torch")
    assert "model_0, optimizer = accelerator.prepare(model_0, optimizer)" in first
    assert "model_1, optimizer = accelerator.prepare(model_1, optimizer)" in second
    assert "model_0" not in second


ONE_BAR = """<torch>
from tqdm import tqdm
def train(model, optimizer, rows, others):
    train_loader, test_loader = DataLoader(rows, 8), DataLoader(others, 8)
    for epoch in range(3):
        bar = tqdm(train_loader)
        for x, y in bar:
            <step>
        total = 0.0
        with torch.no_grad():
            {second} = tqdm(test_loader)
            for x, y in {second}:
                total += torch.nn.functional.mse_loss(model(x), y).item()
        print(total / len(test_loader))
model = torch.nn.Linear(4, 2)
train(model, torch.optim.SGD(model.parameters(), lr=0.1), [], [])
"""


@pytest.mark.parametrize("second", ["bar", "other_bar"])
def test_a_bar_of_the_same_name_is_that_of_its_own_loop(second: str) -> None:
    after = converted(ONE_BAR.format(second=second))
    assert "test_loader = accelerator.prepare_evaluation(test_loader)" in after, after
    assert "total = accelerator.merge(test_loader, total)" in after


def test_a_bar_that_one_branch_makes_is_that_of_both() -> None:
    made = "if epoch:\n            bar = tqdm(test_loader)\n        for x, y in bar:"
    after = converted(ONE_BAR.format(second="other").replace("for x, y in bar:", made))
    assert "bar = tqdm(accelerator.prepare(test_loader)" in after, after
