"""CT201 where no one function holds everything: training in stages, and loaders that several functions are given."""

from __future__ import annotations

from pathlib import Path

from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .support import check_invariants, migrate, unbroken

STAGES = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build(width):
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3))


def accuracy(net, batches):
    net.eval()
    right = 0
    for x, y in batches:
        with torch.no_grad():
            right += (net(x).argmax(1) == y).sum().item()
    return right / len(batches.dataset)


def first(net, batches):
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        steps.zero_grad()
        F.cross_entropy(net(x), y).backward()
        steps.step()


def second(small, big, batches):
    steps = torch.optim.SGD(small.parameters(), lr=0.1)
    decay = torch.optim.lr_scheduler.StepLR(steps, 1)
    for x, y in batches:
        with torch.no_grad():
            wanted = big(x)
        steps.zero_grad()
        F.mse_loss(small(x), wanted).backward()
        steps.step()
    decay.step()


def main():
    train = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)
    test = DataLoader(TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long)), batch_size=8)
    teacher = build(16)
    student = build(4)
    first(teacher, train)
    print(accuracy(teacher, test))
    second(student, teacher, train)
    print(accuracy(student, test))


main()
"""
SHARED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def accuracy(net, batches):
    net.eval()
    right = 0
    for x, y in batches:
        with torch.no_grad():
            right += (net(x).argmax(1) == y).sum().item()
    return right / len(batches.dataset)


def fit(net, batches, held_out):
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        steps.zero_grad()
        F.cross_entropy(net(x), y).backward()
        steps.step()
    print(accuracy(net, held_out))


def main():
    train = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)
    test = DataLoader(TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long)), batch_size=8)
    net = nn.Linear(8, 3)
    fit(net, train, test)
    print(accuracy(net, test))


main()
"""


def test_each_stage_prepares_what_it_trains() -> None:
    result = migrate(STAGES)
    check_invariants(STAGES, result)
    assert not result.findings
    assert "    net, steps = accelerator.prepare(net, steps)\n" in result.after
    assert "    small, steps, decay = accelerator.prepare(small, steps, decay)\n" in result.after
    assert "    train, test = accelerator.prepare(train, test)\n" in result.after
    assert result.after.count(".prepare(") == 3


def test_a_model_that_runs_before_its_stage() -> None:
    """It is prepared where it is made: the prepared loader's batches are on its device."""
    early = STAGES.replace(
        "    first(teacher, train)\n", "    print(accuracy(student, test))\n    first(teacher, train)\n"
    )
    result = migrate(early)
    check_invariants(early, result)
    assert not result.refused, result.findings
    assert "    student, train, test = accelerator.prepare(student, train, test)\n" in result.after
    assert "    steps, decay = accelerator.prepare(steps, decay)\n" in result.after


def test_accelerate_prepares_another_object() -> None:
    result = migrate_text(Path("train.py"), STAGES, Options(runtime="accelerate"))
    assert result.refused
    assert "stages" in result.findings[0].reason


def test_two_optimizers_for_one_model_in_two_functions() -> None:
    """The model is prepared where it is made, before either of them."""
    both = STAGES.replace("second(student, teacher, train)", "second(teacher, student, train)")
    result = migrate(both)
    check_invariants(both, result)
    assert "teacher, train, test = accelerator.prepare(teacher, train, test)\n" in result.after
    assert "    steps = accelerator.prepare(steps)\n" in result.after
    assert "    steps, decay = accelerator.prepare(steps, decay)\n" in result.after


def test_a_loader_that_its_maker_goes_on_with_is_prepared_there() -> None:
    result = migrate(SHARED)
    check_invariants(SHARED, result)
    assert "    test = accelerator.prepare(test)\n" in result.after
    assert "    net, steps, batches = accelerator.prepare(net, steps, batches)\n" in result.after


def test_a_loader_that_only_the_function_reads_is_prepared_in_it() -> None:
    inside = SHARED.replace("    print(accuracy(net, test))\n\n\nmain", "\n\nmain")
    result = migrate(inside)
    check_invariants(inside, result)
    assert result.after.count(".prepare(") == 1


def test_a_look_between_the_stages_and_the_first_prepare_is_refused() -> None:
    """The look was moved below the loader's prepare, and printed the numbers of a share."""
    text = STAGES.replace(
        "    first(teacher, train)",
        "    images, labels = next(iter(train))\n    print(labels.sum())\n    first(teacher, train)",
    )
    result = migrate(text)
    check_invariants(text, result)
    assert result.refused
    assert any("a whole batch" in finding.reason for finding in result.findings)


TRIED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def fit(batches, rate):
    images, labels = next(iter(batches))
    print(labels.sum())
    net = nn.Linear(images.shape[1], 3)
    steps = torch.optim.SGD(net.parameters(), lr=rate)
    for x, y in batches:
        steps.zero_grad()
        F.cross_entropy(net(x), y).backward()
        steps.step()


train = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)
for rate in (0.1, 0.2):
    fit(train, rate)
"""


def test_a_look_in_a_function_that_is_called_twice_sees_whole_batches() -> None:
    """The prepared loader has a name of the function's own, so the next call looks at the plain one again."""
    result = migrate(TRIED)
    check_invariants(TRIED, result)
    assert "    accelerator.print(labels.sum())" in result.after
    assert "    net, steps, batches = accelerator.prepare(net, steps, batches)" in result.after
    assert "    fit(train, rate" in result.after


ONE_AFTER_THE_OTHER = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)


def fit(net, optimizer):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net, [1.0]


small = nn.Linear(8, 3).to(device)
steps = torch.optim.SGD(small.parameters(), lr=0.1)
small, history = fit(small, steps)

big = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 3)).to(device)
big_steps = torch.optim.SGD(big.parameters(), lr=0.1)
big, history = fit(big, big_steps)
"""


def test_trainings_one_after_the_other_prepare_for_themselves() -> None:
    result = migrate(ONE_AFTER_THE_OTHER)
    check_invariants(ONE_AFTER_THE_OTHER, result)
    assert "small, steps, loader = accelerator.prepare(small, steps, loader)\nsmall, history" in result.after
    assert "big, big_steps = accelerator.prepare(big, big_steps)\nbig, history" in result.after


def test_a_second_optimizer_for_a_model_that_has_trained_is_prepared_by_itself() -> None:
    again = "big_steps = torch.optim.Adam(small.parameters())\nsmall, history = fit(small, big_steps)\n"
    text = ONE_AFTER_THE_OTHER[: ONE_AFTER_THE_OTHER.index("big = ")] + again
    result = migrate(text)
    check_invariants(text, result)
    assert "big_steps = accelerator.prepare(big_steps)\nsmall, history" in result.after


def test_a_model_that_trains_before_its_optimizer_is_made_is_prepared_before() -> None:
    used = "fit(big, steps)\nbig_steps = torch.optim"
    text = ONE_AFTER_THE_OTHER.replace("big_steps = torch.optim", used)
    result = migrate(text)
    check_invariants(text, result)
    assert "big = accelerator.prepare(big)\nfit(big, steps)\n" in result.after
    assert "big_steps = accelerator.prepare(big_steps)\nbig, history" in result.after


def test_a_loader_without_a_name_is_prepared_where_it_is_made() -> None:
    text = (
        ONE_AFTER_THE_OTHER.replace("loader = DataLoader", "stream = iter(DataLoader")
        .replace("batch_size=8)\n", "batch_size=8))\n")
        .replace("for x, y in loader:", "for x, y in stream:")
    )
    result = migrate(text)
    check_invariants(text, result)
    assert "stream = iter(accelerator.prepare(DataLoader(" in unbroken(result.after)
    assert "small, steps = accelerator.prepare(small, steps)" in result.after


APART = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Learner:
    def __init__(self, device):
        self.net = nn.Linear(8, 3).to(device)

    def loss(self, x, y):
        return nn.functional.cross_entropy(self.net(x), y)


class Rule:
    def __init__(self, learner):
        self.optimizer = torch.optim.SGD(learner.net.parameters(), lr=0.1)

    def step(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48).long()), batch_size=8)
    learner = Learner(device)
    rule = Rule(learner)
    for x, y in loader:
        rule.step(learner.loss(x.to(device), y.to(device)))


if __name__ == "__main__":
    main()
"""
GLOBAL = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(8, 3)


def main():
    loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48).long()), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
"""


def test_what_no_function_holds_together_is_prepared_where_it_is_made() -> None:
    result = migrate(APART)
    assert not result.refused, result.findings
    assert "self.net = self.accelerator.prepare(self.net)" in result.after
    assert "self.optimizer = self.accelerator.prepare(self.optimizer)" in result.after
    assert "loader = accelerator.prepare(loader)" in result.after
    assert result.after.index("accelerator = Accelerator()") < result.after.index("loader = DataLoader")
    assert "self.accelerator.backward(loss)" in result.after
    check_invariants(APART, result)


def test_a_model_of_the_file_and_an_optimizer_of_main() -> None:
    result = migrate(GLOBAL)
    assert not result.refused, result.findings
    assert (
        "accelerator = Accelerator()\nmodel = nn.Linear(8, 3)\nmodel = accelerator.prepare(model)\n"
        in result.after
    )
    assert "    optimizer, loader = accelerator.prepare(optimizer, loader)\n" in result.after
    check_invariants(GLOBAL, result)
