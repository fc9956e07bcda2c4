"""What a script without devices makes for its batches is made on the device; what only the CPU reads comes from there."""

from pathlib import Path

from .converting import converted, notes
from .running import launched, plain
from .support import each_row

SCRIPT = """import numpy as np
import torch
from sklearn.metrics import accuracy_score
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
{above}
<model>
criterion = nn.CrossEntropyLoss({loss})
X, Y = torch.randn(32, 4), torch.arange(32) % 2
loader = DataLoader(TensorDataset(X, Y), batch_size=8)
{before}
for x, y in loader:
    {step}
    <step loss = criterion(model(x), y)>
{behind}
print("=", model.weight.sum().item())
"""
MODULE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(4)
        self.names = ["a"]

    def forward(self, x):
        start = torch.zeros(len(x), x.size(1))
        return x + start
"""


def script(step: str = "pass", above: str = "", before: str = "", behind: str = "", loss: str = "") -> str:
    return SCRIPT.format(step=step, above=above, before=before, behind=behind, loss=loss)


@each_row("""
step => becomes
x = x + torch.randn(x.shape) => torch.randn(x.shape, device=accelerator.device)
noise = torch.rand(8, 4); x = x + noise => torch.rand(8, 4, device=accelerator.device)
x = x * torch.tensor([1., 2., 1., 1.]) => [1., 2., 1., 1.], device=accelerator.device)
x = x * torch.from_numpy(np.ones(4, 'f')) => np.ones(4, 'f')).to(accelerator.device)
x = x * torch.FloatTensor([1, 1, 2, 1]) => torch.FloatTensor([1, 1, 2, 1]).to(accelerator.device)
x = x[torch.randperm(len(x))] => x[torch.randperm(len(x), device=accelerator.device)]
# What numpy and the like read comes from the CPU.
kept = y.numpy() => kept = y.cpu().numpy()
y = y.squeeze().numpy() => y = y.squeeze().cpu().numpy()
kept = model(x).detach().numpy() => kept = model(x).detach().cpu().numpy()
kept = [one.float().numpy() for one in y] => one.float().cpu().numpy()
right = accuracy_score(y.view(-1), y) => accuracy_score(y.view(-1), y.cpu())
n = y.long(); p = pack_padded_sequence(x, y) => pack_padded_sequence(x, y.cpu())
z = x[0].squeeze(); kept = np.clip(z, 0, 1) => np.clip(z.cpu(), 0, 1)
assert isinstance(y, torch.LongTensor) => (y, (torch.LongTensor, torch.cuda.LongTensor))
""")
def test_what_a_step_makes_is_made_where_it_is_read(step: str, becomes: str) -> None:
    assert becomes in converted(script(step))


@each_row("""
step
order = torch.randperm(8).tolist()
more = X[torch.randint(0, 32, (8,))]
x = x + torch.zeros_like(x)
x = x + x.new_zeros(4)
x = x + torch.zeros(4, device=x.device)
value = float(torch.rand(1))
# On the CPU already, or not known to be a tensor:
assert isinstance(y, torch.Tensor)
assert isinstance(y.cpu(), torch.LongTensor)
kept = y.cpu().numpy()
z = y.cpu(); kept = z.numpy()
z = x.cpu(); w = z[0].squeeze(); kept = np.clip(w, 0, 1)
n = y.long(); y, z = zip(*[(1, 2)]); kept = np.array(y)
z = np.argmax(y, 1); z = z.reshape(-1, 1); kept = np.tile(z, (1, 2))
kept = X.numpy()
kept = np.array(y)
""")
def test_what_the_cpu_reads_and_what_follows_the_batch_stays(step: str) -> None:
    assert step in converted(script(step))


READS = "def read(t):\n    return t.detach().cpu().numpy()\n"
TOP = "def top(h):\n    h = h.squeeze()\n    return np.zeros_like(h)\n"


@each_row("""
given => read
read(x) => h
x => h.cpu()
""")
def test_what_a_function_reads_out_of_a_tensor_is_none(given: str, read: str) -> None:
    assert f"np.zeros_like({read})" in converted(script(f"kept = top({given})", above=READS + TOP))


def test_what_next_gives_comes_from_there_too() -> None:
    text = script("kept = y.numpy(); [one.numpy() for one in x.names]").replace(
        "for x, y in loader:", "many = iter(loader)\nfor i in range(9):\n    x, y = next(many)"
    )
    assert "kept = y.cpu().numpy(); [one.numpy() for" in converted(text)


def test_scripts_that_choose_a_device_move_what_they_make() -> None:
    text = script("x = x.to(device) + torch.zeros(4).to(device)", before='device = torch.device("cuda")')
    assert "torch.zeros(4).to(device)" in converted(text)


def test_a_module_makes_its_tensors_beside_its_input_and_its_attributes_are_named() -> None:
    text = script("x = net(x)", above=MODULE, before="net = Net()")
    assert "start = torch.zeros(len(x), x.size(1), device=x.device)" in converted(text)
    (note,) = [one for one in notes(text, "CT105") if "self.scale" in one.reason]
    assert note.line == 13 and "register_buffer('scale'" in note.remedy


def test_the_weights_of_a_loss_go_to_the_device() -> None:
    text = converted(script(loss="weight=torch.tensor([1.0, 2.0])"))
    assert "criterion = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0])).to(accelerator.device)" in text
    assert "nn.CrossEntropyLoss()\n" in converted(script())


def test_what_a_model_is_given_behind_the_training_is_made_on_the_device() -> None:
    text = converted(script(behind="sample = torch.randn(3, 4)\ny = model(sample)\nother = torch.randn(3)"))
    assert "sample = torch.randn(3, 4, device=accelerator.device)" in text
    assert "other = torch.randn(3)\n" in text


def test_lists_of_batches_come_from_the_cpu_too() -> None:
    text = script("labels.append(y)", before="labels = []", behind="print(torch.cat(labels).numpy().mean())")
    assert "torch.cat(labels).cpu().numpy().mean()" in converted(text)
    text = script("labels.append(y.view(-1))", before="labels = []", behind="print(np.concatenate(labels))")
    assert any("`labels` holds tensors of the device" in one.reason for one in notes(text, "CT105"))
    text = script(
        "y = y.view(-1); y = y.cpu().numpy(); labels.append(y)",
        before="labels = []",
        behind="print(np.concatenate(labels))",
    )
    assert not [one for one in notes(text, "CT105") if "holds tensors" in one.reason]


def test_what_numpy_may_read_of_a_batch_is_named() -> None:
    text = script("kept = accuracy_score(y, y)")
    assert [one for one in notes(text, "CT105") if "`y` may be a tensor of the device" in one.reason]
    assert "cpu=" not in converted(text)
    moved = script("x = x.to(device); kept = accuracy_score(y, y)", before="device = torch.device('cuda')")
    array = script("counts = np.bincount(y.tolist()); kept = np.sum(counts)")
    for other in (moved, array, script("kept = accuracy_score(y.tolist(), y.tolist())")):
        assert not [one for one in notes(other, "CT105") if "may be a tensor of the device" in one.reason]
    mean = "found = (model(x).argmax(1) == y).float().mean(); kept = np.round(found, 3)"
    assert "np.round(found.cpu(), 3)" in converted(script(mean))


def test_both_train_the_same_on_one_process_and_on_two(tmp_path: Path) -> None:
    step = "x = x * torch.tensor([1., 2., 1., 1.]); kept = y.numpy()"
    text = script(
        step, above=MODULE, behind="sample = model(torch.ones(3, 4))", loss="weight=torch.tensor([1.0, 2.0])"
    )
    after = converted(text)
    assert plain(tmp_path, after) == plain(tmp_path, text)
    assert len(launched(tmp_path, after)) == 1


def test_a_type_of_cuda_is_named() -> None:
    chosen = "Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor"
    (note,) = [one for one in notes(script(before=chosen), "CT105") if "this type" in one.reason]
    assert note.line == 15
    assert not notes(script(before="Tensor = torch.FloatTensor"), "CT105")
