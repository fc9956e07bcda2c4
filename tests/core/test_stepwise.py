"""Trainings that take batches by `next`, and whose steps, or whose trainer, are functions of their own."""

from .converting import converted, notes
from .support import each_row

ADAPTS = """
import argparse
<torch>
def label(loader, model):
    with torch.no_grad():
        batches = iter(loader)
        return [model(next(batches)) for _ in range(len(loader))]
def train(args):
    loaders = {"target": DataLoader(torch.rand(16, 2), 2), "test": DataLoader(torch.rand(8, 2), 2)}
    model = torch.nn.Linear(2, 1)
    groups = []
    for parameter in model.parameters():
        if args.decay > 0:
            groups.append({"params": parameter, "lr": args.decay})
        else:
            parameter.requires_grad = False
    optimizer = torch.optim.SGD(groups, lr=0.1)
    step, steps = 0, args.epochs * len(loaders["target"])
    while step < steps:
        try:
            x = next(batches)
        except:
            batches = iter(loaders["target"])
            x = next(batches)
        step += 1
        out = model(x)
        out = out[out < 3]
        if len(out) == 0:
            continue
        <step loss = out.mean()>
        args.log.write(str(loss.item()))
        known = label(loaders["test"], model)
parser = argparse.ArgumentParser()
args = parser.parse_args()
args.log = open("log.txt", "w")
train(args)
"""


def test_of_two_iterators_of_one_name_the_trainings_alone_is_dealt() -> None:
    after = converted(ADAPTS)
    assert 'batches = iter(accelerator.prepare(loaders["target"]))' in after
    assert "batches = iter(loader)\n" in after
    assert 'steps = 0, args.epochs * len(accelerator.prepare(loaders["target"]))' in after


@each_row("""
test => is_share
step >= 3 * len(loaders["target"]) => True
step == len(loaders["target"]) - 1 => True
best >= len(loaders["target"]) => False
""")
def test_a_length_that_the_count_of_steps_is_compared_with_is_one_processs(test: str, is_share: bool) -> None:
    below = f"step += 1\n        if {test}:\n            args.best = step\n"
    after = converted(
        ADAPTS.replace("step += 1\n", below).replace("step, steps = 0", "best, step, steps = 0, 0")
    )
    prepared = test.replace('loaders["target"]', 'accelerator.prepare(loaders["target"])')
    assert (f"if {prepared}:" in after) is is_share, after


def test_a_member_of_the_options_that_differs_leaves_the_others_alike() -> None:
    assert "if args.decay > 0:" in converted(ADAPTS)
    changed = ADAPTS.replace("args.log.write(str(loss.item()))", "args.decay = loss.item()")
    assert "if args.decay > 0:" not in converted(changed)


def test_a_step_that_a_process_leaves_out_in_a_while_loop_is_left_out_by_all() -> None:
    assert 'if accelerator.reduce(int(bool(len(out) == 0)), "sum") > 0:' in converted(ADAPTS)
    assert "if step == 3:" in converted(ADAPTS.replace("len(out) == 0", "step == 3"))
    counted = ADAPTS.replace("            continue", "            step -= 1\n            continue")
    assert [one for one in notes(counted, "CT605") if "makes the others wait" in one.reason]


TRAINER = """
<torch>
class Trainer:
    def __init__(self, model):
        self.model, self.loader = model, DataLoader([], 4)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def start(self):
        for data in self.loader:
            losses = self.train_step(data)
            print(losses)
            self.optimizer.step()
            self.optimizer.zero_grad()
class Own(Trainer):
    def losses(self, data):
        if "rows" not in data:
            return None
        loss = self.model(data["rows"]).mean()
        loss.backward()
        return loss.item()
    def train_step(self, data):
        return self.losses(data)
Own(torch.nn.Linear(2, 1)).start()
"""


def test_an_optimizer_is_stepped_two_calls_above_its_backward() -> None:
    after = converted(TRAINER)
    assert "self.optimizer, self.loader = accelerator.prepare(self.optimizer, self.loader)" in after
    assert "accelerator.backward(loss)" in after


def test_a_batch_that_is_asked_for_a_key_is_no_number() -> None:
    assert "reduce(" not in converted(TRAINER)


@each_row("""
shown => kept => asked => is_said
print(losses) => pass => 1 => True
print('step') => pass => 1 => False
pass => self.log['a'].append(loss.item()) => self.log => True
pass => self.log['a'].append(loss.item()) => 1 => False
pass => self.log['a'].append(1) => self.log => False
""")
def test_what_a_step_returns_or_keeps_is_one_process_s_own(
    shown: str, kept: str, asked: str, is_said: bool
) -> None:
    text = TRAINER.replace("print(losses)", shown).replace("return loss", f"{kept}\n        return loss")
    show = f"Own(Trainer):\n    def show(self):\n        return {asked}\n"
    assert bool(notes(text.replace("Own(Trainer):", show) + "Own.show(model)\n", "CT602")) is is_said


STEPS = """
<torch>
def step(x):
    <step loss = model(x).mean()>
    return {returned}
def over(x):
    last = step(x)
    return last
<model torch.nn.Linear(2, 1)>
for epoch in range(2):
    total = 0.0
    for i, x in enumerate(DataLoader(torch.rand(8, 2), 2)):
        loss = over(x)
        total += over(x)
        {inside}
    print(epoch, {behind})
"""


@each_row("""
returned => inside => behind => becomes
loss.item() => pass => loss => print(epoch, accelerator.reduce(loss, "mean"))
float(loss) => print(f'{loss}') => 0 => print(f'{accelerator.reduce(loss, "mean")}')
loss.item() => pass => total / (i + 1) => total = accelerator.reduce(total, "mean")
loss => print(loss) => 0 => .print(loss)
(loss.item(), x) => print(loss) => 0 => .print(loss)
loss.item() => if loss > 3: print(loss) => 0 => .print(loss)
loss.item() => print(len(x) * loss) => 0 => .print(len(x) * loss)
""")
def test_the_loss_that_a_step_returns_is_shown_of_the_whole_batch(
    returned: str, inside: str, behind: str, becomes: str
) -> None:
    after = converted(STEPS.format(returned=returned, inside=inside, behind=behind))
    assert becomes.replace('"', "'") in after.replace('"', "'")
