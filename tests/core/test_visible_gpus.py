"""The GPUs that a script makes visible, before the accelerator takes one."""

import pytest

from .converting import converted, notes, once_more
from .support import each_row

CHOSEN_INSIDE = """import argparse
import os
<torch>
def choose(args):
    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
    print("GPU", args.gpu)
def main():
    args = argparse.ArgumentParser().parse_args()
    {first}
    <model>
    {then}
    <loop>
main()
"""


@each_row("""
choice
choose(args)
os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu
os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(args.gpus)
""")
def test_the_accelerator_comes_behind_the_choice_of_a_gpu(choice: str) -> None:
    text = CHOSEN_INSIDE.format(first=choice, then="pass")
    assert f"{choice}\n    accelerator = Accelerator()\n" in converted(text)
    assert not notes(text, "CT105")


def test_the_accelerator_comes_behind_a_choice_under_the_main_guard() -> None:
    choice = 'os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"'
    text = "import os\n<torch>\nclass Trainer:\n    def train(self):\n        <model>\n        <loop>\n"
    text += f'if __name__ == "__main__":\n    {choice}\n    trainer = Trainer()\n    trainer.train()\n'
    assert f"{choice}\n    accelerator = Accelerator()\n" in converted(text)


def test_an_option_that_says_which_gpus_there_are_names_no_device() -> None:
    option = 'args = argparse.ArgumentParser(); args.add_argument("--device"); args = args.parse_args()'
    text = CHOSEN_INSIDE.format(first='os.environ["CUDA_VISIBLE_DEVICES"] = args.device', then="model.cuda()")
    assert "Accelerator()" in converted(text.replace("args = argparse.ArgumentParser().parse_args()", option))


TRAINED_APART = """import argparse
import os
<torch>
def train(args, model, optimizer):
    for x, y in DataLoader([], 8):
        if torch.cuda.is_available() and args.use_gpu:
            x, y = x.cuda(), y.cuda()
        <step>
def main(given):
    args = argparse.ArgumentParser().parse_args(given)
    {above}
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    model = torch.nn.Linear(4, 2)
    if torch.cuda.is_available() and args.use_gpu:
        model = torch.nn.DataParallel(model).cuda()
    train(args, model, torch.optim.SGD(model.parameters(), lr=0.1))
if __name__ == "__main__":
    given = []
    main(given)
"""


@pytest.mark.parametrize(("above", "is_behind"), [('rows = "rows.csv"', True), ('os.makedirs("out")', False)])
def test_so_does_one_that_keeps_the_choice_of_the_cpu(above: str, is_behind: bool) -> None:
    """Unless something above needs it."""
    after = converted(TRAINED_APART.format(above=above))
    assert ('= "0,1"\n    accelerator = Accelerator(cpu=not args.use_gpu)\n' in after) is is_behind


def test_a_choice_of_a_gpu_that_comes_behind_the_accelerator_is_said() -> None:
    text = CHOSEN_INSIDE.format(first="pass", then="if True:\n        choose(args)")
    assert [one.remedy for one in notes(text, "CT105")] == ["use `crosstrain launch --gpu-ids`"]


WRAPPED_ABOVE = """import os
<torch>
def place(model, gpus):
    if len(gpus) > 1:
        model = torch.nn.DataParallel(model, device_ids=gpus)
    os.environ["CUDA_VISIBLE_DEVICES"] = str(gpus[0])
    return model.cuda()
def train():
    <model>
    model = place(model, [0, 1])
    <loop>
def main():
    print("start")
    train()
main()
"""


def test_a_choice_that_comes_too_late_holds_no_other_accelerator_back() -> None:
    assert "def place(model, gpus):\n    accelerator = Accelerator()\n" in converted(WRAPPED_ABOVE)


LOGGED = """import argparse
import os
<torch>
class Notes:
    def __init__(self, path):
        self.file = open(path, "w")
parser = argparse.ArgumentParser()
parser.add_argument("--cpu", action="store_true")
args = parser.parse_args()
{lines}
def main():
    device = torch.device("cpu" if args.cpu else "cuda")
    <model torch.nn.Linear(4, 2).to(device)>
    <loop>
        notes.file.write("step")
main()
"""


@pytest.mark.parametrize("lines", ["{choice}\n{made}", "{made}\n{choice}"])
def test_one_process_writes_what_an_object_opens_above_or_below_the_choice(lines: str) -> None:
    """To ask which process it is takes no GPU yet where nobody launched it."""
    choice, made = 'os.environ["CUDA_VISIBLE_DEVICES"] = "1"', 'notes = Notes("log")'
    assert "open(path if " in converted(LOGGED.format(lines=lines.format(choice=choice, made=made)))


@each_row("""
gpus => test
"0" => "LOCAL_RANK" not in os.environ
str(args.gpu) => "LOCAL_RANK" not in os.environ or "," in str(args.gpu)
args.gpu.strip() => "LOCAL_RANK" not in os.environ or "," in args.gpu.strip()
gpus[:-1] => "LOCAL_RANK" not in os.environ or "," in gpus[:-1]
"0,1" => ''  # the processes share them
"-1" => ''  # the CPU
",".join(args.gpus) => "LOCAL_RANK" not in os.environ or len(args.gpus) != 1
",".join(str(i) for i in args.gpus) => "LOCAL_RANK" not in os.environ or len(args.gpus) != 1
", ".join(map(str, args.gpus)) => "LOCAL_RANK" not in os.environ or len(args.gpus) != 1
",".join(str(i) for i in args.gpus if i) => ''
",".join(str(i) for i in gpus_of(args)) => ''  # would be asked twice
str(args.local_rank) => ''  # each process has its own
""")
def test_one_gpu_is_visible_to_a_process_that_nobody_launched(gpus: str, test: str) -> None:
    """Launched processes would all have the same one."""
    choice = f'os.environ["CUDA_VISIBLE_DEVICES"] = {gpus}'
    after = converted(CHOSEN_INSIDE.format(first=choice, then="pass"))
    guarded = f"    if {test}:\n        {choice}\n" if test else f"    {choice}\n"
    assert guarded + "    accelerator = Accelerator()\n" in after
    assert once_more(after) == after


@each_row("""
gpus => test
args.gpu => args.gpu and ("LOCAL_RANK" not in os.environ or "," in args.gpu)
"0" => args.gpu and "LOCAL_RANK" not in os.environ
""")
def test_what_asks_for_the_option_goes_first(gpus: str, test: str) -> None:
    """What is None is not looked into."""
    choice = f'if args.gpu:\n        os.environ["CUDA_VISIBLE_DEVICES"] = {gpus}'
    assert f"    if {test}:\n        os.environ" in converted(CHOSEN_INSIDE.format(first=choice, then="pass"))


@pytest.mark.parametrize("gpus", ['os.environ.get("LOCAL_RANK", "0")', '",".join(mapped)'])
def test_a_script_that_asks_who_launched_it_chooses_by_itself(gpus: str) -> None:
    """And so does one whose GPUs may not be counted first."""
    choice = f'mapped = map(str, args.gpus)\n    os.environ["CUDA_VISIBLE_DEVICES"] = {gpus}'
    assert f"    {choice}\n" in converted(CHOSEN_INSIDE.format(first=choice, then="pass"))


CHOSEN = """import os
<torch>
def choose(gpu):
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    print("on", gpu)
choose("0")
print("start")
<model>
<loop>
torch.save(model.state_dict(), "model.pt")
"""


def test_a_function_that_chooses_the_gpu_runs_before_the_accelerator_is_made() -> None:
    after = converted(CHOSEN)
    assert '    PartialState().print("on", gpu)' in after
    assert 'accelerator.print("start")' in after
    assert 'accelerator.save(model.state_dict(), "model.pt")' in after, "behind the choice"


@pytest.mark.parametrize(
    ("use", "one"), [('writer.add_scalar("x", 1)', True), ("folder = writer.log_dir", False)]
)
def test_an_event_file_above_the_choice_of_a_gpu_is_the_main_process_s(use: str, one: bool) -> None:
    made = "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter()\n\ndef choose"
    after = converted(CHOSEN.replace("def choose", made) + use)
    assert ("SummaryWriter() if PartialState().is_main_process else None" in after) is one


IN_A_GUARD = """import os
<torch>
import torch.distributed as dist
def main():
    dist.init_process_group("nccl")
    <model>
    model = torch.nn.parallel.DistributedDataParallel(model)
    <loop>
{head}
if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
    {address}
    main()
"""
ADDRESS = 'os.environ["MASTER_PORT"] = "12355"'


@pytest.mark.parametrize(("head", "address", "is_behind"), [("", ADDRESS, True), (ADDRESS, "pass", False)])
def test_a_group_begins_where_its_address_is_written(head: str, address: str, is_behind: bool) -> None:
    """In the script's guard that is behind its choice of GPUs; an address at the head of the file must not come first."""
    after = converted(IN_A_GUARD.format(head=head, address=address))
    assert (after.index("CUDA_VISIBLE_DEVICES") < after.index("PartialState(group_of_one")) is is_behind
    assert after.index("PartialState(group_of_one") < after.index("MASTER_PORT")


@pytest.mark.parametrize(
    ("head", "is_below"),
    [("config = locals().copy()", True), ("x = len(locals())", True), ("torch.rand(2), locals()", False)],
)
def test_the_accelerator_is_no_setting_of_a_function(head: str, is_below: bool) -> None:
    """`locals()` at the head of a function are its arguments, which are written to a file; what all draw comes first."""
    text = f"<torch>\ndef main(rate):\n    {head}\n    <model>\n    for x, y in DataLoader([], 8):\n        <step>\nmain(1)\n"
    after = converted(text)
    assert (after.index("locals()") < after.index("accelerator = ")) is is_below


SELECTED = """import argparse, os
<torch>
def select(device):
    off = device.lower() == "cpu"
    if device and not off:
        {chosen} = device
    return torch.device("cuda:0" if not off and torch.cuda.is_available() else "cpu")
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="")
parser.add_argument("--local_rank", type=int, default=-1)
opt = parser.parse_args()
device = select(opt.device)
<model torch.nn.Linear(4, 2).to(device)>
if opt.local_rank != -1:
    torch.cuda.set_device(opt.local_rank)
    torch.distributed.init_process_group("nccl")
    model = torch.nn.parallel.DistributedDataParallel(model)
<loop>
"""


@pytest.mark.parametrize(("chosen", "stays"), [('os.environ["CUDA_VISIBLE_DEVICES"]', True), ("name", False)])
def test_a_function_that_chooses_gpus_or_the_cpu_by_an_option_stays(chosen: str, stays: bool) -> None:
    """The accelerator, which has the choice, comes behind it."""
    text = SELECTED.format(chosen=chosen)
    after, own = converted(text), text[text.index("def select") : text.index("parser =")]
    assert (own in after) is stays and not notes(text, "CT105")
    made = "accelerator = Accelerator(cpu=opt.device.lower() == 'cpu')\ndevice = accelerator.device\n"
    assert (f"select(opt.device)\n{made}" in after) is stays is ("Accelerator(device=opt" not in after)
    assert 'if accelerator.device.type == "cuda":\n        torch.cuda.set_device(accelerator' in after


def test_batches_that_are_made_above_are_dealt_below() -> None:
    text = """
<torch>
import argparse, os
gpu = argparse.ArgumentParser().parse_args().gpu
def made(size):
    while True:
        yield torch.randn(size, 2)
batches = made(4)
width = next(batches).shape[1]
os.environ["CUDA_VISIBLE_DEVICES"] = gpu
model = nn.Linear(width, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    loss = model(next(batches)).mean()
    <step loss>
"""
    after = converted(text)
    assert "accelerator = Accelerator()\nbatches = accelerator.prepare(batches)\n" in after
    assert "\nbatches = made(4)\n" in after
    no_gpu = converted(text.replace('os.environ["CUDA_VISIBLE_DEVICES"] = gpu\n', ""))
    assert "\nbatches = accelerator.prepare(made(4))\n" in no_gpu
