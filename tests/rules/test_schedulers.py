"""CT205: schedulers step as they are written."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.support.ranks import run_ranks

from .as_one import ALIVE
from .support import SLOTS, Case, check_invariants, each, leaves, migrate, script, unbroken

RULE = "CT205"
NAMES = "torch.optim.lr_scheduler."
PER_EPOCH = "accelerator = Accelerator(step_scheduler_with_optimizer=False)  # the fastest there is"
PREPARED = """\
model, optimizer, train_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, scheduler
)"""


def prepared(*names: str, broken: bool = True) -> str:
    """The prepare line for the training's own and `names`; broken over lines as the author's lines are long."""
    everything = ", ".join(["model", "optimizer", "train_loader", *names])
    line = f"{everything} = accelerator.prepare({everything})"
    return f"{everything} = accelerator.prepare(\n    {everything}\n)" if broken else line


def per_batch(
    name: str, made: str, step: str = "scheduler.step()", slots: dict[str, str] | None = None
) -> Case:
    before = {"setup": made, "after_step": step, **(slots or {})}
    broken = max(len(line) for line in made.split("\n")) < 108
    after = {"setup": f"{made}\n{prepared('scheduler', broken=broken)}", "prepare": ""}
    return Case(RULE, name, before, after, at=made.split("\n")[-1])


def per_epoch(name: str, made: str, step: str = "scheduler.step()", after_epoch: str = "") -> Case:
    before = {"setup": made, "after_epoch": step}
    after = {"setup": f"{made}\n{prepared('scheduler')}", "prepare": "", "device": PER_EPOCH}
    if after_epoch:
        after["after_epoch"] = after_epoch
    return Case(RULE, name, before, after, at="device = torch.device")


POSITIVE = [
    per_epoch("each epoch", f"scheduler = {NAMES}StepLR(optimizer, 1)"),
    per_epoch(
        "its class chosen by name",
        'scheduler = getattr(torch.optim.lr_scheduler, "Step" + "LR")(optimizer, step_size=1)',
    ),
    per_epoch("in one chain", f"scheduler = {NAMES}ChainedScheduler([{NAMES}LinearLR(optimizer)])"),
    per_epoch(
        "one after the other",
        f"warm = {NAMES}LinearLR(optimizer)\n"
        f"cool = {NAMES}StepLR(optimizer, 1)\n"
        f"scheduler = {NAMES}SequentialLR(optimizer, [warm, cool], milestones=[2])",
    ),
    per_epoch(
        "under the name of another that it may be a part of",
        f"cool = {NAMES}StepLR(optimizer, 1)\n"
        "if input():\n"
        f"    warm = {NAMES}LinearLR(optimizer)\n"
        f"    scheduler = {NAMES}SequentialLR(optimizer, schedulers=[warm, cool], milestones=[2])\n"
        "else:\n"
        "    scheduler = cool",
    ),
    per_epoch(
        "its rate is printed",
        f"scheduler = {NAMES}StepLR(optimizer, 1)",
        "scheduler.step()\nprint(scheduler.get_last_lr()[0])",
        "scheduler.step()\naccelerator.print(scheduler.get_last_lr()[0])",
    ),
    per_epoch("with the epoch's number", f"scheduler = {NAMES}StepLR(optimizer, 1)", "scheduler.step(epoch)"),
    per_epoch(
        "on a plateau of the last loss",
        f"scheduler = {NAMES}ReduceLROnPlateau(optimizer)",
        "scheduler.step(loss)",
        'scheduler.step(accelerator.reduce(loss, reduction="mean"))',
    ),
    per_epoch(
        "only where one is wanted",
        f"scheduler = None\nif epochs > 1:\n    scheduler = {NAMES}StepLR(optimizer, 1)".replace(
            "epochs", "len(train_set)"
        ),
        "if scheduler is not None:\n    scheduler.step()",
    ),
    Case(
        RULE,
        "two each epoch",
        {
            "setup": f"a = {NAMES}LinearLR(optimizer)\nb = {NAMES}StepLR(optimizer, 1)",
            "after_epoch": "a.step()\nb.step()",
        },
        {
            "setup": f"a = {NAMES}LinearLR(optimizer)\nb = {NAMES}StepLR(optimizer, 1)\n{prepared('a', 'b')}",
            "prepare": "",
            "device": PER_EPOCH,
        },
        at="device = torch.device",
    ),
    per_batch("each batch", f"scheduler = {NAMES}LambdaLR(optimizer, lambda step: min(1.0, step / 10))"),
    per_batch(
        "for the loader's length",
        f"scheduler = {NAMES}CosineAnnealingLR(optimizer, T_max=2 * len(train_loader))",
    ),
    per_batch(
        "for a number of steps of its own",
        f"steps = 2 * len(train_loader)\nscheduler = {NAMES}LinearLR(optimizer, total_iters=steps)",
    ),
    per_batch(
        "by fractions of an epoch",
        f"scheduler = {NAMES}CosineAnnealingWarmRestarts(optimizer, 10)",
        "scheduler.step(epoch + i / len(train_loader))",
        {"loop": "for i, (x, y) in enumerate(train_loader):"},
    ),
    per_batch(
        "from another library",
        "scheduler = get_linear_schedule_with_warmup(optimizer, 10, 2 * len(train_loader))",
        slots={"imports": "from transformers import get_linear_schedule_with_warmup"},
    ),
    per_batch(
        "a class of the script's own",
        "scheduler = Poly(optimizer)",
        slots={
            "definitions": f"class Poly({NAMES}LRScheduler):\n    def get_lr(self):\n        return [0.1 for _ in self.base_lrs]\n"
        },
    ),
    Case(
        RULE,
        "each batch and each epoch: the second stays as it is",
        {
            "setup": f"warm = {NAMES}LinearLR(optimizer)\ncool = {NAMES}StepLR(optimizer, 1)",
            "after_step": "warm.step()",
            "after_epoch": "cool.step()",
        },
        {
            "setup": f"warm = {NAMES}LinearLR(optimizer)\ncool = {NAMES}StepLR(optimizer, 1)\n{prepared('warm')}",
            "prepare": "",
        },
        at="cool = torch",
    ),
    Case(
        RULE,
        "under a condition on the step: converted and reported",
        {
            "setup": f"scheduler = {NAMES}LinearLR(optimizer)\nn = 0",
            "after_step": "n += 1\nif n < 10:\n    scheduler.step()",
        },
        {"setup": f"scheduler = {NAMES}LinearLR(optimizer)\n{prepared('scheduler')}\nn = 0", "prepare": ""},
        at="scheduler = torch",
        findings=((RULE, "if n < 10"),),
    ),
]

NEGATIVE = [
    leaves(RULE, "no scheduler", {}),
    leaves(
        RULE,
        "something of torch.optim chosen by name, and not made",
        {"setup": 'rates = getattr(torch.optim, "lr_" + "scheduler")'},
    ),
    leaves(RULE, "a scheduler that is never stepped", {"setup": f"scheduler = {NAMES}StepLR(optimizer, 1)"}),
    leaves(
        RULE,
        "the rate set by hand each epoch",
        {"after_epoch": 'for group in optimizer.param_groups:\n    group["lr"] *= 0.5'},
    ),
    leaves(
        RULE,
        "the rate set by hand each batch",
        {
            "setup": "n = 0",
            "after_step": 'n += 1\nfor group in optimizer.param_groups:\n    group["lr"] = 0.1 * min(1.0, n / 10)',
        },
        findings=[(RULE, "min(1.0")],
    ),
    leaves(
        RULE,
        "a function that sets the rate",
        {
            "definitions": 'def adjust(optimizer, epoch):\n    for group in optimizer.param_groups:\n        group["lr"] = 0.1 * 0.5**epoch\n',
            "epoch": "model.train()\nadjust(optimizer, epoch)",
        },
    ),
    leaves(
        RULE,
        "a class that is no scheduler sets the rate",
        {
            "definitions": (
                "class Warmup:\n"
                "    def __init__(self, optimizer):\n"
                "        self.optimizer = optimizer\n"
                "        self.n = 0\n"
                "\n"
                "    def step(self):\n"
                "        self.n += 1\n"
                "        for group in self.optimizer.param_groups:\n"
                '            group["lr"] = 0.1 * min(1.0, self.n / 10)\n'
            ),
            "setup": "warmup = Warmup(optimizer)",
            "after_step": "warmup.step()",
        },
    ),
    leaves(
        RULE,
        "something else that steps",
        {"imports": "import robots", "setup": "arm = robots.Arm()", "after_step": "arm.step()"},
    ),
    leaves(RULE, "the optimizer's step", {"step": "optimizer.step()"}),
    leaves(RULE, "the rate is read", {"setup": 'rate = optimizer.param_groups[0]["lr"]'}),
    leaves(
        RULE,
        "a profiler's schedule",
        {"setup": "schedule = torch.profiler.schedule(wait=1, warmup=1, active=1)"},
    ),
    leaves(
        RULE,
        "a step under the epoch's condition stays under it",
        {
            "setup": f"scheduler = {NAMES}StepLR(optimizer, 1)",
            "after_epoch": "if epoch % 2:\n    scheduler.step()",
        },
        {"setup": f"scheduler = {NAMES}StepLR(optimizer, 1)\n{PREPARED}", "prepare": "", "device": PER_EPOCH},
    ),
    leaves(
        RULE,
        "a length that nothing but printing reads",
        {"setup": "steps = len(train_loader)", "end": "assert steps"},
    ),
    leaves(
        RULE,
        "a swa model's own update",
        {
            "setup": "average = torch.optim.swa_utils.AveragedModel(model)",
            "after_epoch": "average.update_parameters(model)",
        },
    ),
    leaves(RULE, "a counter called scheduler", {"setup": "scheduler = 0", "after_step": "scheduler += 1"}),
    leaves(
        RULE,
        "its state is saved as it is",
        {
            "setup": f"scheduler = {NAMES}StepLR(optimizer, 1)",
            "after_epoch": "scheduler.step()\nstate = scheduler.state_dict()",
        },
        {"setup": f"scheduler = {NAMES}StepLR(optimizer, 1)\n{PREPARED}", "prepare": "", "device": PER_EPOCH},
    ),
    leaves(
        RULE,
        "the word in a comment or a string",
        {"after_epoch": '# scheduler.step()\nnote = "scheduler.step()"'},
    ),
]


@each(POSITIVE, NEGATIVE)
def test_schedulers(case: Case) -> None:
    case.check()


def _notes_of(rate: str) -> list[int]:
    """The lines that are told to count steps, of a script that sets its learning rate itself after each step."""
    after_step = f"step += 1\nfor group in optimizer.param_groups:\n    group['lr'] = {rate}"
    text = script({**SLOTS, "setup": "step, warmup = 0, 500", "after_step": after_step})
    result = migrate(text)
    assert result.changed, result.findings
    check_invariants(text, result)
    return [finding.line for finding in result.findings if finding.rule == RULE]


@pytest.mark.parametrize("rate", ["0.1 * min(1.0, step / len(train_loader))", "0.1 * 0.9**epoch"])
def test_rates_that_follow_the_length_or_the_epoch(rate: str) -> None:
    assert not _notes_of(rate)


LATE = "scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (2 * len(train_loader)))"
EARLY = "total = 2 * len(train_loader)\n" + LATE.replace("(2 * len(train_loader))", "total")
GIVEN = (
    "def made(optimizer, loader):\n"
    "    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (2 * len(loader)))\n"
)


@pytest.mark.parametrize(
    ("definitions", "made", "follows"),
    [("", LATE, False), ("", EARLY, True), (GIVEN, "scheduler = made(optimizer, train_loader)", True)],
    ids=["asked each time", "asked once", "asked of the author's own"],
)
def test_a_schedule_ends_with_the_training(definitions: str, made: str, follows: bool) -> None:
    """A function that asks for the length behind prepare gets that of a share: stepped once a step, it ends in time."""
    slots = {"definitions": definitions, "setup": made, "after_step": "scheduler.step()"}
    left = "\nrates = [group['lr'] for group in optimizer.param_groups]\nweights = [p.tolist() for p in model.parameters()]\n"
    text = script({**SLOTS, **slots}) + left
    result = migrate(text)
    assert result.changed, result.findings
    check_invariants(text, result)
    prepared = "train_loader, scheduler = accelerator.prepare(" in unbroken(result.after)
    assert prepared == follows
    ((before, _),) = run_ranks(rates_left, 1, text)
    for after, _ in run_ranks(rates_left, 2, result.after):
        assert after == pytest.approx(before)


def rates_left(text: str) -> tuple[list[float], None]:
    namespace: dict[str, object] = {"__name__": "__main__"}
    ALIVE.append(namespace)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(text, "train.py", "exec"), namespace)
    rates = namespace["rates"]
    assert isinstance(rates, list)
    return rates, None
