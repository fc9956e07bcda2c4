"""A model that is wrapped under a condition is prepared whether or not that holds."""

from pathlib import Path

import pytest

from .converting import converted, notes
from .projects import convert, train, write

HEAD = """
import argparse
<torch>
parser = argparse.ArgumentParser()
parser.add_argument("--parallel", action="store_true")
parser.add_argument("--cuda", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
rows = torch.randn(16, 3)
loader = DataLoader(TensorDataset(rows), batch_size=2)
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
{wrapped}
{device}
"""
INLINE = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net.train()
for x, in loader:
    <step net(x).square().mean()>
"""
GROUPED = """
def groups(net):
    return [{"params": list(net.parameters())}]
optimizer = torch.optim.SGD(groups(net), lr=0.1)
def epoch(net, loader, optimizer):
    net.train()
    for x, in loader:
        <step net(x).square().mean()>
epoch(net, loader, optimizer)
"""
TAIL = """
result = [buffer.tolist() for buffer in net.buffers()]
"""
WRAPPED = "if args.parallel:\n    net = torch.nn.DataParallel(net)"
CHOSEN = "if args.cuda:\n    net.cuda()"


@pytest.mark.parametrize("loop", [INLINE, GROUPED])
@pytest.mark.parametrize("device", ["", CHOSEN])
@pytest.mark.parametrize("options", [(), ("--parallel",)])
def test_statistics_are_the_same_on_all_processes(
    loop: str, device: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    text = HEAD.format(wrapped=WRAPPED, device=device) + loop + TAIL
    convert(write(tmp_path, script=text), "script")
    first, second = train(tmp_path, "script", 2, *options)
    assert first == second


def test_a_model_that_is_only_evaluated_beside_the_training_is_not_prepared() -> None:
    judged = "judge = torch.nn.Linear(3, 1)\njudge.eval()\n"
    after = converted(HEAD.format(wrapped="", device="") + judged + INLINE)
    assert "prepare(net, optimizer, loader)" in after


def test_a_model_that_a_function_is_given_is_prepared_with_its_optimizer() -> None:
    after = converted(HEAD.format(wrapped="", device="") + GROUPED)
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)\nepoch(" in after


ABOVE = """
import gflags
import sys
<torch>
Flags = gflags.FLAGS
gflags.DEFINE_bool("cuda", True, "")
gflags.DEFINE_string("gpus", "0,1", "")
if __name__ == "__main__":
    Flags(sys.argv)
    loader = DataLoader(range(8))
    net = torch.nn.Linear(1, 1)
    if len(Flags.gpus.split(",")) > 1:
        net = torch.nn.DataParallel(net)
    if Flags.cuda:
        net.cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.train()
    for x in loader:
        <step net(x).square().mean()>
    torch.save(net.state_dict(), "net.pt")
"""


def test_a_wrapper_above_the_choice_of_the_device_is_said_to_be_prepared() -> None:
    after = converted(ABOVE)
    assert "        net = torch.nn.DataParallel(net)\n    accelerator = Accelerator(" in after
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in after
    assert [note.remedy for note in notes(ABOVE, "CT301")] == ["nothing needs to be done"]
