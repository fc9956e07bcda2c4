"""A wrapper goes, unless the names that it gives to weights are used: then files fit as before."""

from pathlib import Path

import pytest

from .converting import conversion, notes
from .converting import converted as text_of
from .projects import convert, train, write
from .support import each_row

# What stands above the wrapping, and behind it.
USED = {
    "its state is written": ("", "torch.save(model.state_dict(), 'w.pt')"),
    "its state is read": ("", "model.load_state_dict(torch.load('w.pt'))"),
    "it is written whole": ("", "torch.save(model, 'w.pt')"),
    "it is in a dictionary": ("", "save({'model': model})"),
    "a library has it": ("from timm.utils import ModelEma", "average = ModelEma(model)"),
    "a library's object has it": (
        "from timm.utils import ModelEma\naverage = ModelEma(model)",
        "average.update(model)",
    ),
    "a helper reads its names": ("def keep(net):\n    return net.state_dict()", "keep(model)"),
    "a helper of a helper": (
        "def names(of):\n    return list(of.named_parameters())\ndef show(net):\n    print(names(of=net))",
        "show(model)",
    ),
    "under another name": ("", "other = model\nprint(other.state_dict().keys())"),
    "as a part of another": ("", "pair = torch.nn.ModuleList()\npair.one = model"),
    "an object of the project has it": (
        "class Saver:\n    def __init__(self, net):\n        self.net = net\n    def save(self):\n"
        "        torch.save(self.net.state_dict(), 'w.pt')",
        "Saver(model).save()",
    ),
    "a function sees it": ("def save():\n    torch.save(model.state_dict(), 'w.pt')", "save()"),
}
UNUSED = {
    "its own state is written": ("", "torch.save(model.module.state_dict(), 'w.pt')"),
    "its own state by a test": (
        "",
        "raw = model.module if hasattr(model, 'module') else model\ntorch.save(raw.state_dict(), 'w.pt')",
    ),
    "its own state by getattr": ("", "torch.save(getattr(model, 'module', model).state_dict(), 'w.pt')"),
    "read above": ("model.load_state_dict(torch.load('w.pt'))", ""),
    "a helper calls it": ("def run(net, x):\n    net.eval()\n    return net(x)", "run(model, torch.ones(1))"),
    "a helper unwraps it": ("def save(net):\n    torch.save(net.module.state_dict(), 'w.pt')", "save(model)"),
    "another model of that name": (
        "def other():\n    model = torch.nn.Linear(1, 1)\n    torch.save(model.state_dict(), 'w.pt')",
        "other()",
    ),
    "only looked at": ("", "print(type(model), isinstance(model, torch.nn.Module))"),
}


def _script(above: str, behind: str, wrapper: str) -> str:
    group = "torch.distributed.init_process_group('nccl')\n" if "Distributed" in wrapper else ""
    return (
        f"import torch\nfrom torch.utils.data import DataLoader\nfrom store import save\n{group}"
        f"model = torch.nn.Linear(1, 1)\n{above}\nmodel = {wrapper}\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in DataLoader(open('rows'), 8):\n    optimizer.zero_grad()\n"
        f"    torch.nn.functional.mse_loss(model(x), y).backward()\n    optimizer.step()\n{behind}\n"
    )


WRAPPERS = {
    "torch.nn.DataParallel(model, device_ids=[0, 1])": (
        "torch.nn.DataParallel(model, device_ids=[0, 1] if accelerator.num_processes == 1 else None)"
    ),
    "torch.nn.DataParallel(module=model, device_ids=gpus)": (
        "torch.nn.DataParallel(module=model, device_ids=gpus if accelerator.num_processes == 1 else None)"
    ),
    "torch.nn.DataParallel(model, gpus, None, dim, chunk_sizes=rows)": (
        "torch.nn.DataParallel(model, gpus if accelerator.num_processes == 1 else None, None, dim, "
        "chunk_sizes=rows if accelerator.num_processes == 1 else None)"
    ),
    "DataParallel(model, gpus)": (
        "DataParallel(model, gpus if accelerator.num_processes == 1 else [accelerator.device])"
    ),
    "DataParallel(model)": (
        "DataParallel(model, device_ids=None if accelerator.num_processes == 1 else [accelerator.device])"
    ),
    "torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], static_graph=True)": (
        "torch.nn.parallel.DistributedDataParallel(model, static_graph=True)"
    ),
}


@pytest.mark.parametrize("use", USED)
def test_it_stays_where_its_names_are_used(use: str) -> None:
    text = _script(*USED[use], "torch.nn.DataParallel(model)")
    assert "model = accelerator.prepare(torch.nn.DataParallel(model))" in text_of(text)
    said = [one.reason for one in conversion(text).findings if "the wrapper stays" in one.reason]
    assert len(said) == 1


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_it_stays_on_the_devices_of_one_process(wrapper: str) -> None:
    """A group's wrapper has a device in each process; the other one keeps to its author's GPUs where nothing is launched."""
    own = "class DataParallel(torch.nn.Module):\n    def __init__(self, module, device_ids=None): pass"
    above, behind = USED["its state is written"]
    text = _script(own if wrapper.startswith("Data") else above, behind, wrapper)
    after = "".join(text_of(text).split())
    assert f"model=accelerator.prepare({''.join(WRAPPERS[wrapper].split())})" in after.replace(",)", ")")


@pytest.mark.parametrize("use", UNUSED)
def test_it_goes_where_nobody_sees_its_names(use: str) -> None:
    text = _script(*UNUSED[use], "torch.nn.DataParallel(model)")
    assert "model = accelerator.prepare(model)" in text_of(text)
    assert not [one for one in conversion(text).findings if "the wrapper stays" in one.reason]


def test_the_branch_without_a_wrapper_stays() -> None:
    """`net` may be wrapped or not: the files have the names that they had."""
    text = _script("", "torch.save(model.state_dict(), 'w.pt')", "model")
    text = text.replace(
        "model = model\n", "if torch.cuda.device_count() > 1:\n    model = torch.nn.DataParallel(model)\n"
    )
    assert "    model = accelerator.prepare(torch.nn.DataParallel(model))\n" in text_of(text)


OWN_KIND = """<torch>
class Parallel(torch.nn.DataParallel):
    {method}
        return getattr(self.module, name)
def main():
    nets = {{"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 1)}}
    for name in nets:
        nets[name] = Parallel(nets[name]{given})
    weights = [weight for net in nets.values() for weight in net.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for x in DataLoader(torch.ones(8, 4), 2):
        <step nets["b"](nets["a"](x)).mean()>
    global result
    result = [weight.tolist() for weight in weights]
main()
"""
BY_NAME = "def called(self, name):"


def test_a_kind_of_its_own_computes_on_the_device_of_its_process(tmp_path: Path) -> None:
    text = OWN_KIND.format(method=BY_NAME, given="")
    assert "nets[name] = Parallel(nets[name], device_ids=[accelerator.device])\n" in text_of(text)
    folder = write(tmp_path, script=f"import torch\ntorch.manual_seed(1)\n{text}")
    before = train(folder, "script")
    convert(folder, "script")
    assert train(folder, "script") == before
    first, second = train(folder, "script", 2)
    assert first == second != before[0]


@pytest.mark.parametrize("given", ["gpus", "device_ids=gpus"])
def test_a_kind_of_its_own_keeps_the_devices_of_its_author_on_one_process(given: str) -> None:
    own = f"{given} if accelerator.num_processes == 1 else [accelerator.device]\n"
    assert own in text_of(OWN_KIND.format(method=BY_NAME, given=f", {given}"))
    assert "[accelerator" not in text_of(OWN_KIND.format(method=BY_NAME, given=f", {given}, dim=0"))


def test_outputs_of_replicas_that_are_gathered_are_one_on_one_device() -> None:
    above = (
        "from torch.nn.parallel import gather\nfrom torch.nn.parallel.scatter_gather import gather as all_of"
    )
    text = text_of(_script(above, "z = gather(y, 0)\nprint(all_of(y, 0))", "torch.nn.DataParallel(model)"))
    assert "z = gather(y, 0) if isinstance(y, list) else y\n" in text and "all_of(y, 0))" in text


@pytest.mark.parametrize(
    ("devices", "times", "expected"),
    [
        ("list(range(n))", "n", "1"),
        ("gpus", "len(gpus)", "1"),
        ("None", "torch.cuda.device_count()", "1"),
        ("list(range(n))", "rows", "rows"),
    ],
)
@pytest.mark.parametrize("call", ["y.repeat({}, 2)", "y.view({}, -1, 2)"])
def test_what_is_laid_out_for_each_gpu_is_there_once(
    devices: str, times: str, expected: str, call: str
) -> None:
    text = _script("", f"model({call.format(times)})", f"torch.nn.DataParallel(model, {devices})")
    assert f"model({call.format(expected)})" in text_of(text)
    stays = text_of(text + "torch.save(model.state_dict(), 'w.pt')\n")
    many = f"({times} or 1) if accelerator.num_processes == 1 else 1" if expected == "1" else times
    assert f"model({call.format(many)})" in stays
    if times == "n":  # what is cut by the number, too, is laid out by it
        assert f"y[:n].{call[2:].format('n')}" in text_of(text.replace("model(y.", "model(y[:n]."))


# A layer that a wrapper tells of its replicas, and one that waits for a replica on each GPU.
SHARING = [
    "    def __data_parallel_replicate__(self, context, index):\n        self.context = context",
    "    def __init__(self):\n        self.others = [Queue() for _ in range(torch.cuda.device_count())]\n"
    "    def forward(self, x):\n        return x",
]


@pytest.mark.parametrize("layer", SHARING)
@pytest.mark.parametrize("used", ["Heir", "Plain", "Pool"])
def test_a_layer_that_shares_its_statistics_between_replicas_is_named(layer: str, used: str) -> None:
    classes = f"Plain = torch.nn.BatchNorm1d\nclass Shared(Plain):\n{layer}\nclass Heir(Shared):\n    pass\n"
    classes += (
        "class Pool:\n    def __init__(self, n):\n        self.q = [Queue(n)] * torch.cuda.device_count()\n"
    )
    text = _script(f"from queue import Queue\n{classes}\nmodel.norm = {used}(1)", "", "model")
    assert any("batch statistics" in note.reason for note in notes(text, "CT301")) is (used == "Heir")


@each_row("""
size => factor
8 * args.num_gpu => args.num_gpu
args.rows * max(1, torch.cuda.device_count()) => max(1, torch.cuda.device_count())
8 * len(ids) => len(ids)
8 * len(args.seen['gpus']) => len(args.seen['gpus'])
8 * len(cut) => len(cut)
8 * len(parts) => ''
8 * args.views => ''  # no number of GPUs
args.gpus + 8 => ''
""")
@pytest.mark.parametrize("wrapper", ["torch.nn.DataParallel(model, device_ids=ids)", ""])
@pytest.mark.parametrize(
    "given", ["size", "batch_sampler=Buckets([], 4, size)", "batch_sampler=Buckets([], batch_size=size)"]
)
def test_a_batch_for_all_gpus(size: str, factor: str, wrapper: str, given: str) -> None:
    """Several processes take a batch of one GPU each."""
    text = "import os\n<torch>\nfrom options import args, ids\nparts = args.views.split(',')\n"
    text += "cut = [int(one) for one in args.seen['gpus'].split(',')]\n"
    text += "os.environ['CUDA_VISIBLE_DEVICES'] = ','.join(args.seen['gpus'])\n<model>\n"
    text += f"def make(size):\n    return DataLoader([], {given})\nsize = {size}\nloader = make(size)\n"
    text += f"if args.gpus > 1:\n    model = {wrapper or 'model'}\nfor x, y in loader:\n    <step>\n"
    share = f"({factor} if accelerator.num_processes == 1 else 1)" if factor and wrapper else factor
    expected = size.replace(factor, share.replace("accelerator", "PartialState()")) if factor else size
    assert f"size = {expected}\n" in text_of(text).replace("accelerator.num", "PartialState().num")


@pytest.mark.parametrize(
    ("use", "is_one"),
    [
        ("torch.randn({}, 2)", True),
        ("{}\nnoise = torch.zeros((rows, 2))", True),
        ("100 // ({})", False),
        ("{}\nrate = rows / 256", False),
    ],
)
def test_noise_has_as_many_rows_as_a_batch_for_all_gpus(use: str, is_one: bool) -> None:
    text = (
        "<torch>\nfrom options import args\n<model>\nloader = DataLoader([], args.size * args.n_gpu)\nrows = "
    )
    text += use.format("args.size * args.n_gpu")
    text += "\nfor x, y in loader:\n    torch.nn.parallel.data_parallel(model, x, [0, 1])\n    <step>\n"
    after = text_of(text)
    assert after.count("(args.n_gpu if accelerator.num_processes == 1 else 1)") == 1 + is_one


def test_a_batch_by_which_the_rate_is_made_stays_and_is_said() -> None:
    text = "<torch>\nfrom options import args\nsize = 8 * torch.cuda.device_count()\nlr = 0.1 * size / 256\n<model>\n"
    text += "model = torch.nn.DataParallel(model)\nfor x, y in DataLoader([], size):\n    <step>\n"
    assert "size = 8 * torch.cuda.device_count()\n" in text_of(text)
    assert ["rate is comp" in one.reason for one in notes(text, "CT301") if "batch" in one.reason] == [True]


@pytest.mark.parametrize(
    "wrapper", ["DataParallel(model).cuda()", "parallel.DistributedDataParallel(model, [0])"]
)
def test_what_the_wrapper_moved_is_moved(wrapper: str) -> None:
    behind = "z = torch.zeros(8, 1)\nmodel(z)\nz = model(x=torch.rand(1))\nz = model(z)\nprint(len(z))\n"
    after = text_of(_script("", behind, f"torch.nn.{wrapper}"))
    first, second = "model(z.to(accelerator.device))", "model(x=torch.rand(1).to(accelerator.device))"
    assert f"{first}\nz = {second}\nz = model(z)\n" in after and "z = torch.zeros(8, 1)\n" in after


# A model that is wrapped under a condition is prepared whether or not that holds.
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
    after = text_of(HEAD.format(wrapped="", device="") + judged + INLINE)
    assert "prepare(net, optimizer, loader)" in after


def test_a_model_that_a_function_is_given_is_prepared_with_its_optimizer() -> None:
    after = text_of(HEAD.format(wrapped="", device="") + GROUPED)
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
    after = text_of(ABOVE)
    assert "        net = torch.nn.DataParallel(net)\n    accelerator = Accelerator(" in after
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in after
    assert [note.remedy for note in notes(ABOVE, "CT301")] == ["nothing needs to be done"]


@each_row("""
given => is_dropped
torch.ones(torch.cuda.device_count()).cuda() => True
torch.squeeze(torch.ones(torch.cuda.device_count())), retain_graph=True => True
torch.ones(2) => False
""")
def test_what_is_given_for_the_loss_of_each_replica_goes(given: str, is_dropped: bool) -> None:
    text = f"""
<torch>
model = nn.DataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 2), batch_size=4):
    loss = model(x).mean()
    loss.backward({given})
    optimizer.step()
"""
    after = text_of(text)
    assert ("accelerator.backward(loss" in after and "loss.backward(torch" not in after) is is_dropped


def test_it_also_goes_where_no_accelerator_is_at_hand() -> None:
    text = """
<torch>
def go(loss, optimizer):
    loss.backward(torch.ones(torch.cuda.device_count()).cuda(), retain_graph=True)
    optimizer.step()
def main():
    <model>
    model = nn.DataParallel(model)
    for x in DataLoader(torch.ones(8, 2), batch_size=4):
        go(model(x).mean(), optimizer)
main()
"""
    assert "    loss.backward(retain_graph=True)\n" in text_of(text)


@each_row("""
size => given => prepared
self.share => head => False
8 => head => True
self.share => torch.nn.parallel.DistributedDataParallel(head) => True
""")
def test_what_trains_an_own_part_of_a_layer_averages_nothing(size: str, given: str, prepared: bool) -> None:
    head = (
        "class Head(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.share: int = 8 // torch.distributed.get_world_size()\n"
        f"        self.rows = torch.nn.Parameter(torch.ones({size}, 1))\nhead = Head()\nhead = {given}"
    )
    text = _script(head, "", "torch.nn.parallel.DistributedDataParallel(model)")
    after = text_of(
        text.replace("SGD(model", "SGD([*head.parameters()] + [*model").replace("(), lr", "()], lr")
    )
    assert ("optimizer = accelerator.prepare(optimizer)" in after) is prepared
    assert "accelerator.backward(" in after


OF_TWO_CLASSES = """
import argparse
<torch>
class Options:
    def initialize(self, parser):
        parser.add_argument("--gpu_ids", default="0")
        return parser
    def parse(self):
        return self.initialize(argparse.ArgumentParser()).parse_args()
class Model:
    def initialize(self, opt):
        self.net = wrapped(torch.nn.Linear(4, 2), opt.gpu_ids)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
def wrapped(net, gpus):
    if len(gpus) > 0:
        net.cuda()
        net = torch.nn.DataParallel(net)
    return net
opt = Options().parse()
device = torch.device("cuda" if opt.gpu_ids else "cpu")
model = Model()
model.initialize(opt)
for x, y in DataLoader(data, 4):
    loss = F.mse_loss(model.net(x.to(device)), y.to(device))
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
"""


def test_a_method_of_the_options_does_not_make_that_of_the_model_early() -> None:
    """What `Options.initialize` is called by runs before the device is chosen; `Model.initialize` makes the nets behind it."""
    assert "net = accelerator.prepare(torch.nn.DataParallel(net))" in text_of(OF_TWO_CLASSES)
