"""What is made under a condition is prepared there: it may be missing where it is used."""

from pathlib import Path

import pytest

from .converting import converted
from .running import launched, plain

IN_FUNCTION = """import sys
<torch>
with_poses = "--poses" in sys.argv
def main():
    torch.manual_seed(0)
    <model>
    if with_poses:
        poses = torch.nn.Embedding(8, 4)
        second = torch.optim.SGD(poses.parameters(), lr=0.1){otherwise}
    for numbers in DataLoader(range(8), 2):
        x = poses(numbers) if with_poses else torch.ones(2, 4)
        <step model(x).square().mean()>
        if with_poses:
            second.step()
            second.zero_grad()
    print("=", round(model.weight.sum().item(), 6))
main()
"""


def test_an_option_that_makes_nothing(tmp_path: Path) -> None:
    script = IN_FUNCTION.format(otherwise="")
    after = converted(script)
    assert "        poses, second = accelerator.prepare(poses, second)\n" in after
    assert plain(tmp_path, after) == plain(tmp_path, script)


@pytest.mark.parametrize(
    "otherwise", ["else:\n        raise ValueError", "else:\n        poses, second = None, None"]
)
def test_what_is_there_in_any_case_is_prepared_with_the_rest(otherwise: str) -> None:
    after = converted(IN_FUNCTION.format(otherwise=f"\n    {otherwise}"))
    assert "model, poses, optimizer, second = accelerator.prepare(model, poses, optimizer, second)" in after


IN_BRANCHES = """import sys
<torch>
sparse = "--sparse" in sys.argv
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
if "--adam" in sys.argv:
    if sparse:
        second = torch.optim.Adam([model.bias], lr=0.1)
    optimizer = torch.optim.Adam([model.weight], lr=0.1)
else:
    if sparse:
        second = torch.optim.SGD([model.bias], lr=0.1)
    optimizer = torch.optim.SGD([model.weight], lr=0.1)
loader = DataLoader(torch.arange(32.0).reshape(8, 4), 2)
def train():
    for x in loader:
        model.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        {used}second.step()
train()
print("=", round(model.weight.sum().item(), 6), round(model.bias.sum().item(), 6))
"""


def test_what_branches_make_under_the_test_of_its_use(tmp_path: Path) -> None:
    script = IN_BRANCHES.format(used="if sparse:\n            ")
    after = converted(script)
    assert after.count("        second = accelerator.prepare(second)\n") == 2
    assert "optimizer, loader = accelerator.prepare(" in after
    assert plain(tmp_path, after) == plain(tmp_path, script)
    assert len(set(launched(tmp_path, after, "--sparse"))) == 1


def test_a_condition_around_the_whole_training_is_none() -> None:
    body = IN_FUNCTION.format(otherwise="").partition("def main():\n")[2].partition("    print(")[0]
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    after = converted(
        f"import sys, torch\nfrom torch.utils.data import DataLoader\nwith_poses = True\ndef main():\n    if sys.argv:\n{indented}\nmain()\n"
    )
    assert "model, optimizer = accelerator.prepare(model, optimizer)" in after


IN_CLASS = """import sys
<torch>
class Runner:
    def __init__(self, with_poses):
        torch.manual_seed(0)
        self.with_poses = with_poses
        <self.model>
        if self.with_poses:
            self.poses = torch.nn.Embedding(8, 4)
            self.second = torch.optim.SGD(self.poses.parameters(), lr=0.1)
        self.loader = DataLoader(range(8), 2)
    def run(self):
        for numbers in self.loader:
            x = self.poses(numbers) if self.with_poses else torch.ones(2, 4)
            <self.step self.model(x).square().mean()>
            if self.with_poses:
                self.second.step()
                self.second.zero_grad()
        print("=", round(self.model.weight.sum().item(), 6))
Runner("--poses" in sys.argv).run()
"""


def test_an_option_that_makes_attributes(tmp_path: Path) -> None:
    after = converted(IN_CLASS)
    assert "            self.poses, self.second = accelerator.prepare(self.poses, self.second)\n" in after
    assert len(set(launched(tmp_path, after, "--poses"))) == 1


def test_an_attribute_that_a_base_class_binds_in_any_case() -> None:
    base = "class Base:\n    def __init__(self, loader):\n        self.loader = loader\n\n\nclass Runner:"
    init = "super().__init__(DataLoader(range(8), 2))\n        if with_poses:\n            self.loader = list(self.loader)"
    text = IN_CLASS.replace("class Runner:", base).replace("Runner:", "Runner(Base):")
    after = converted(text.replace("self.loader = DataLoader(range(8), 2)", init))
    assert "for numbers in accelerator.prepare(self.loader):" in after


IN_OPTIONS = """import sys, types
<torch>
options = types.SimpleNamespace(decays="--decays" in sys.argv)
def train():
    for x in DataLoader(torch.ones(8, 4), 2):
        <step model(x).square().mean()>
        if options.decays:
            options.schedule.step()
torch.manual_seed(0)
<model>
{test}
    options.schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
train()
print("=", optimizer.param_groups[0]["lr"])
"""


@pytest.mark.parametrize(
    ("test", "is_there"), [("if options.decays:", True), ("with open(__file__):", False)]
)
def test_an_option_that_makes_a_part_of_the_options(test: str, is_there: bool, tmp_path: Path) -> None:
    script = IN_OPTIONS.format(test=test)
    after = converted(script)
    assert ("2)\n    accelerator.prepare(options.schedule)\n" in after) is is_there
    assert plain(tmp_path, after) == plain(tmp_path, script)
    assert set(launched(tmp_path, after, "--decays")) == set(plain(tmp_path, script, "--decays"))


IN_SUITES = """import sys
<torch>
class Trainer:
    def __init__(self, judged, trains):
        self.net = torch.nn.Linear(4, 2)
        if trains:
            if judged:
                self.judge = torch.nn.Linear(2, 1)
                self.judge.train()
        else:
            if judged:
                self.judge = torch.nn.Linear(2, 1)
                self.judge.eval()
        self.judged = judged
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def train(self, data):
        for x, y in data:
            self.optimizer.zero_grad()
            loss = self.net(x).square().mean()
            if self.judged:
                loss = loss + self.judge(self.net(x)).square().mean()
                self.judge.train()
            loss.backward()
            self.optimizer.step()
rows = torch.arange(32.0).view(8, 4)
torch.manual_seed(0)
trainer = Trainer("--judged" in sys.argv, True)
trainer.train(DataLoader(torch.utils.data.TensorDataset(rows / 32, rows), 2))
print("=", round(trainer.net.weight.sum().item(), 6))
"""


@pytest.mark.parametrize("option", [[], ["--judged"]])
def test_an_attribute_that_several_suites_may_make(option: list[str], tmp_path: Path) -> None:
    after = converted(IN_SUITES)
    assert after.count("self.judge = accelerator.prepare(self.judge)") == 2
    assert plain(tmp_path, after, *option) == plain(tmp_path, IN_SUITES, *option)
