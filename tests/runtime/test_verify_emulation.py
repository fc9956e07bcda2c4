"""Scripts that were written for a GPU, for a launcher, for the network: what they see when they are verified."""

import os
from pathlib import Path

import pytest
from crosstrain_verify import Report

from tests.runtime import verify_scripts
from tests.runtime.verify_scripts import verdicts

LOOP = """
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
X, Y = torch.randn(24, 6), torch.arange(24) % 2
for x, y in DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True, num_workers=2, pin_memory=True):
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print("loss", loss.item())
"""
START = "import copy, io, os, pickle, sys, threading, torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"


def run(place: Path, original: str, migrated: str = "", **options: object) -> Report:
    return verify_scripts.run(place, migrated or original, original, **{"processes": [1]} | options)


EVERYWHERE = """
device = torch.device("cuda", 0)
assert isinstance(device, torch.device) and copy.deepcopy(device) == device
assert pickle.loads(pickle.dumps(device)) == device
assert torch.zeros(2, device="cuda:1").device == device == torch.device("cuda")
assert torch.ones(2).cuda(non_blocking=True).to("cuda", torch.float64).to(0).dtype is torch.float64
assert isinstance(torch.ones(1).type("torch.cuda.FloatTensor"), torch.cuda.FloatTensor)
assert torch.cuda.LongTensor([1, 2]).dtype is torch.int64
generator = torch.Generator(device="cuda").manual_seed(3)
assert isinstance(generator, torch.Generator)
torch.randn(3, device="cuda", generator=generator), torch.randn_like(torch.ones(2), device="cuda")
torch.nn.Linear(2, 2, device="cuda").cuda(0).to("cuda:0")
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record(); end.record(); torch.cuda.synchronize()
assert start.elapsed_time(end) >= 0
stream = torch.cuda.Stream()
with torch.cuda.stream(stream), torch.cuda.device(0):
    torch.cuda.current_stream().wait_stream(stream)
torch.cuda.empty_cache(), torch.cuda.manual_seed_all(1), torch.cuda.memory_allocated()
file = io.BytesIO(); torch.save(torch.ones(2), file); file.seek(0)
assert torch.load(file, map_location="cuda:0").sum() == 2
file.seek(0)
assert torch.load(file, map_location=device).sum() == 2
found = []
thread = threading.Thread(target=lambda: found.append(torch.zeros(1, device="cuda") + torch.ones(1).cuda()))
thread.start(); thread.join()
assert len(found) == 1
with torch.device("cuda"):
    assert torch.empty(1).device.type == "cpu"
assert torch.nn.DataParallel(torch.nn.Linear(2, 2)).cuda()(torch.ones(1, 2)).shape == (1, 2)
"""


def test_every_road_to_a_device_leads_to_the_cpu(tmp_path: Path) -> None:
    none = "assert not torch.cuda.is_available() and not torch.cuda.device_count()\n"
    report = run(tmp_path, START + EVERYWHERE + none + LOOP)
    assert verdicts(report) == ["identical"], report
    assert report.original.steps == 3
    assert any("is_available() was false" in note for note in report.notes)


def test_script_that_refuses_to_run_without_a_gpu_is_told_that_there_is_one(tmp_path: Path) -> None:
    refuses = START + "if not torch.cuda.is_available(): sys.exit('needs a GPU')\ndevice = 'cuda'\n" + LOOP
    report = run(tmp_path, refuses)
    assert verdicts(report) == ["identical"], report
    assert any("refuses to run without a GPU" in note for note in report.notes)
    assert run(tmp_path, START + "sys.exit('no')  # cuda\n").original.verdict.value == "failed"


def test_script_that_asks_for_a_launcher_is_its_only_process(tmp_path: Path) -> None:
    launched = (
        START + "import torch.distributed as dist\n"
        "device = torch.device('cuda', int(os.environ['LOCAL_RANK']))\n"
        "dist.init_process_group('nccl')\nassert dist.get_world_size() == 1\n"
    )
    sampled = LOOP.replace("shuffle=True", "sampler=torch.utils.data.DistributedSampler(range(24))")
    plain = START + "device = 'cpu'\n" + LOOP
    report = run(tmp_path, launched + sampled, plain)
    assert verdicts(report) == ["identical"], report
    for said in ("needs a launcher", "its own seed"):
        assert any(said in note for note in report.notes)
    caught = "try:\n    os.environ['LOCAL_RANK']\nexcept KeyError as error:\n    sys.exit(print(repr(error), file=sys.stderr) or 1)\n"
    report = run(tmp_path, START + caught + "device = 'cpu'\n" + LOOP, plain)
    assert verdicts(report) == ["identical"], report
    fixed = "sampler=torch.utils.data.DistributedSampler(range(24), shuffle=False)"
    report = run(tmp_path, launched + LOOP.replace("shuffle=True", fixed), plain)
    assert verdicts(report) == ["different"], report


AMP = """
torch.manual_seed(0)
model = torch.nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = {scaler}
for step in range(4):
    with {autocast}:
        loss = model(torch.randn(8, 6)).square().mean()
        assert model(torch.randn(8, 6)).dtype is torch.{dtype}
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
    scaler.step(optimizer)
    scaler.update()
print(scaler.get_scale())
"""


@pytest.mark.parametrize(
    ("scaler", "autocast", "dtype"),
    [
        ("torch.cuda.amp.GradScaler()", "torch.cuda.amp.autocast()", "float16"),
        ("torch.amp.GradScaler('cuda')", "torch.autocast('cuda')", "float16"),
        ("torch.amp.GradScaler(enabled=False)", "torch.autocast('cuda', dtype=torch.bfloat16)", "bfloat16"),
    ],
)
def test_mixed_precision_of_gpus_is_the_cpus(tmp_path: Path, scaler: str, autocast: str, dtype: str) -> None:
    script = START + AMP.format(scaler=scaler, autocast=autocast, dtype=dtype)
    enabled = dtype == "float16"
    plain = START + AMP.format(
        scaler=f"torch.amp.GradScaler('cpu', enabled={enabled})",
        autocast=f"torch.autocast('cpu', dtype=torch.{dtype})",
        dtype=dtype,
    )
    report = run(tmp_path, script, plain, devices="present")
    assert verdicts(report) == ["identical"], report
    # Without a GPU torch leaves CUDA's precision off, and so does an emulation that says there is none.
    assert verdicts(run(tmp_path, script.replace(f"is torch.{dtype}", "is torch.float32"))) == ["identical"]


WRITES = """
import pathlib, shutil, socket, numpy
target = pathlib.Path(sys.argv[1])
(target / "new" / "deep").mkdir(parents=True)
(target / "new" / "note.txt").write_text("mine")
assert (target / "new" / "note.txt").read_text() == "mine" and (target / "new").is_dir()
torch.save({"a": 1}, target / "model.pt")
assert torch.load(target / "model.pt") == {"a": 1}
numpy.save(target / "array.npy", numpy.ones(3))
with open(target / "old.txt", "a") as file: file.write(" and more")
assert (target / "old.txt").read_text() == "old and more"
os.replace(target / "new" / "note.txt", target / "moved.txt")
assert (target / "moved.txt").exists() and not (target / "new" / "note.txt").exists()
try: socket.create_connection(("192.0.2.1", 80), timeout=1); raise SystemExit("connected")
except OSError as error: assert "verify" in str(error)
device = "cpu"
"""


def test_nothing_is_written_outside_and_everything_is_found_again(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "old.txt").write_text("old")
    before = {path: path.stat().st_mtime_ns for path in outside.rglob("*")}
    report = run(tmp_path, START + WRITES + LOOP, args=[str(outside)])
    assert verdicts(report) == ["identical"], report
    assert {path: path.stat().st_mtime_ns for path in outside.rglob("*")} == before
    assert (outside / "old.txt").read_text() == "old"


@pytest.mark.skipif(not Path("/sys/kernel").exists(), reason="Linux only")
def test_what_writes_behind_python_is_stopped_by_the_kernel(tmp_path: Path) -> None:
    from crosstrain_verify.emulation import landlock

    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child gives up its rights
        os._exit(0 if landlock.write_only_below([tmp_path]) else 1)
    if os.waitpid(pid, 0)[1]:
        pytest.skip("this kernel has no Landlock")
    target = tmp_path / "by_a_child"
    script = f"import subprocess\nprint(subprocess.call(['touch', {str(target)!r}]) != 0)\ndevice = 'cpu'\n"
    report = run(tmp_path, START + script + LOOP)
    assert verdicts(report) == ["identical"], report
    assert not target.exists()


def test_synthetic_data_stand_in_for_missing_files_only(tmp_path: Path) -> None:
    """A package with torchvision's shape: its own reader fails without files."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "datasets.py").write_text(
        "import os\n"
        "class MNIST:\n"
        "    def __init__(self, root, train=True, transform=None, target_transform=None, download=False):\n"
        "        if not os.path.exists(root): raise RuntimeError('Dataset not found')\n"
        "        self.transform = transform\n"
        "    def __len__(self): return 5\n"
        "    def __getitem__(self, index): return 0.0, index\n"
    )
    script = (
        START + "from torchvision import datasets\nimport numpy as np\n"
        "to_tensor = lambda image: torch.tensor(np.asarray(image)).float().flatten() / 255\n"
        "train = datasets.MNIST('missing', train=True, download=True, transform=to_tensor)\n"
        "test = datasets.MNIST('missing', train=False, transform=to_tensor)\n"
        "assert len(datasets.MNIST('.')) == 5 and datasets.MNIST('.')[3] == (0.0, 3)\n"
        "assert len(train) > len(test) and len(train.classes) == 10 and train.data.shape[1:] == (28, 28)\n"
        "assert torch.equal(train[1][0], train[1][0]) and not torch.equal(train[1][0], train[2][0])\n"
        "model = torch.nn.Linear(784, 10); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in DataLoader(train, batch_size=32, shuffle=True):\n"
        "    loss = torch.nn.functional.cross_entropy(model(x), y)\n"
        "    optimizer.zero_grad(); loss.backward(); optimizer.step()\n"
        "print(loss.item())\n"
    )
    report = run(tmp_path, script, data="synthetic")
    assert verdicts(report) == ["identical"], report
    assert report.original.steps == 7
    assert "Dataset not found" in run(tmp_path, script).original.error
