"""What a training loop looks up by the number of its batch: each process has other numbers than the original's steps."""

from pathlib import Path

import pytest

from .converting import converted, notes
from .running import launched, plain
from .support import each_row

SCRIPT = """
<torch>
torch.manual_seed(0)
x = torch.arange(14.0).view(7, 2)
labels = torch.arange(7.0).view(7, 1)
loader = DataLoader(TensorDataset(x), batch_size=1)
<model nn.Linear(2, 1)>
for epoch in range(2):
    for i, batch in enumerate(loader):
        target = labels[i]
        loss = F.mse_loss(model(batch[0]), target.view(1, 1))
        <step loss>
        assert int(batch[0][0, 0]) // 2 == int(target)
        if epoch == 0:
            print("= step", i, int(target))
"""


def test_a_label_is_that_of_its_batch(tmp_path: Path) -> None:
    after = converted(SCRIPT)
    assert "for i, (number, batch) in enumerate(accelerator.prepare(enumerate(loader))):" in after
    assert "target = labels[number]" in after
    assert '"= step", i, ' in after, "the step is the process's own"
    assert plain(tmp_path, after) == [f"= step {i} {i}" for i in range(7)]
    assert launched(tmp_path, after) == [f"= step {i} {2 * i}" for i in range(4)]


@each_row("""
before => after => line
labels[i] => labels[i * 1:(i + 1) * 1] => target = labels[number * 1:(number + 1) * 1]
target.view(1, 1) => labels[i] => loss = F.mse_loss(model(batch[0]), labels[number])
""")
def test_other_ways_to_look_it_up(before: str, after: str, line: str) -> None:
    done = converted(SCRIPT.replace(before, after))
    assert "accelerator.prepare(enumerate(loader))" in done
    assert line in done


@each_row("""
line
target = batch[0][:, :1]  # no number
target = batch[0][:, :1]; names = labels[i]  # looked at alone
target = batch[0][:, :1]; optimizer.param_groups[0]['lr'] = labels[i]  # a step of a schedule
target = labels[i]; labels[i] = 0.9 * target  # a memory of its own
target = batch[0][:, :1] * beta[i]  # a weight of the step
target = batch[0][:, :1] * torch.linspace(0, 1, 14)[i]
target = batch[0][:, :1] * labels[epoch * 7 + i]  # all steps are counted, also behind the first pass
target = [nn.Identity(), nn.Flatten()][i % 2](batch[0][:, :1])  # in turn
""")
def test_what_is_not_trained_with_leaves_the_loader_to_its_prepare(line: str) -> None:
    after = converted(SCRIPT.replace("target = labels[i]", line).replace("i, int(target)", "i"))
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in after
    assert "for i, batch in enumerate(loader):" in after


def test_nothing_belongs_to_the_number_of_a_batch_that_is_drawn() -> None:
    after = converted(SCRIPT.replace("batch_size=1)", "batch_size=1, shuffle=True)"))
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in after
    assert "target = labels[i]" in after


def test_rows_of_weights_belong_to_a_batch() -> None:
    after = converted(SCRIPT.replace("labels[i]", "weights[i:i + 1]").replace("labels =", "weights ="))
    assert "target = weights[number:number + 1]" in after


def test_a_schedule_that_is_kept_leaves_batches_to_be_counted() -> None:
    """`len(loader)` is that of the prepared loader, and nothing is said."""
    text = SCRIPT.replace("target = labels[i]", "target = batch[0][:, :1] * labels[epoch * len(loader) + i]")
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in converted(text)
    assert not notes(text, "CT902")


@pytest.mark.parametrize("target", ["(x, y)", "( x, y )", "(x,)", "((x), y)"])
def test_a_batch_that_is_taken_apart_in_the_head_of_the_loop(target: str) -> None:
    after = converted(SCRIPT.replace("i, batch in", f"i, {target} in").replace("batch[0]", "x"))
    assert f"for i, (number, {target}) in enumerate(accelerator.prepare(enumerate(loader))):" in after
    assert "target = labels[number]" in after


def test_two_loops_over_one_loader_deal_it_each() -> None:
    """What is prepared is not enumerated and dealt once more."""
    second = SCRIPT + SCRIPT[SCRIPT.index("for epoch") :].replace("labels[i]", "batch[0][:, :1]")
    after = converted(second)
    assert "accelerator.prepare(model, optimizer)" in after
    assert "for i, batch in enumerate(accelerator.prepare(loader)):" in after


def test_where_batches_are_counted_every_process_takes_all_and_it_is_said() -> None:
    text = SCRIPT.replace('print("= step", i', 'print("= step", i, len(loader)')
    after = converted(text)
    assert "target = labels[i]" in after
    assert "prepare(model, optimizer)" in after
    assert [one.reason for one in notes(text, "CT902")]
    assert not notes(SCRIPT, "CT902")
