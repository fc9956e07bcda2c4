"""What a look at scripts that the tool had not met has found: a device's name, and a group in a module that others use."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from crosstrain_migrate.core.numbers.means import is_of_another

from .converting import converted
from .projects import convert, train, write

NAMED = """import torch
from torch.utils.data import DataLoader

device = "cuda" if torch.cuda.is_available() else "cpu"
settings = {{"rate": 0.1}}
{keep}
for name, value in settings.items():
    print(f"{{name:10}}{{value:>10}}")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
<loop torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))>
"""


@pytest.mark.parametrize("keep", ['settings["device"] = device', 'settings.update({"device": device})'])
def test_the_name_of_a_device_among_settings_stays_a_text(
    keep: str, capsys: pytest.CaptureFixture[str]
) -> None:
    after = converted(NAMED.format(keep=keep))
    assert "device = accelerator.device.type\n" in after
    exec(compile(after, "script.py", "exec"), {"__name__": "__main__"})
    assert "device           cpu" in capsys.readouterr().out


def test_a_device_that_is_only_moved_to_is_the_accelerators() -> None:
    assert "device = accelerator.device\n" in converted(NAMED.format(keep=""))


GROUP = """
import os
import torch
import torch.distributed as dist

def start(backend="gloo"):
    torch.manual_seed(0)
    dist.init_process_group(backend=backend)

def number():
    return dist.get_rank() if dist.is_initialized() else 0
"""
SCRIPT = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from group import number, start

def main():
    start()
    rows = TensorDataset(torch.arange(8.0).view(8, 1), torch.arange(8.0).view(8, 1))
    loader = DataLoader(rows, batch_size=2, sampler=DistributedSampler(rows))
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in loader:
        <step>
    return number(), len(loader)

if __name__ == "__main__":
    result = main()
"""


def test_another_script_still_has_the_group_that_a_shared_module_makes(tmp_path: Path) -> None:
    """The module's function makes it where no accelerator has; in the converted script there is one already."""
    write(tmp_path, group=GROUP, first=SCRIPT, second=SCRIPT)
    convert(tmp_path, "first")
    assert "PartialState(group_of_one=True)" in (tmp_path / "group.py").read_text()
    assert train(tmp_path, "second", 2) == [(0, 2), (1, 2)]
    assert train(tmp_path, "first", 2) == [(0, 2), (1, 2)]


def test_a_module_of_one_script_makes_no_group_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, group=GROUP, first=SCRIPT)
    convert(tmp_path, "first")
    assert "init_process_group" not in (tmp_path / "group.py").read_text()


SAMPLES = """import torch
import wandb
from PIL import Image
from torch.utils.data import DataLoader

def keep(picture, path):
    picture.save(path, quality=90)

wandb.init(project="samples")
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    <loop>
    picture = Image.new("RGB", (8, 8))
    keep(picture, "sample.jpg")
    {log}
"""


def test_one_process_shows_the_pictures_that_one_process_writes() -> None:
    log = 'wandb.log({"sample": wandb.Image("sample.jpg")}, step=epoch)'
    after = converted(SAMPLES.format(log=log))
    assert (
        f'    if accelerator.is_main_process:\n        keep(picture, "sample.jpg")\n        {log}\n' in after
    )


def test_numbers_go_to_a_silent_tracker() -> None:
    log = 'wandb.log({"epoch": epoch}, step=epoch)'
    assert f"\n    {log}\n" in converted(SAMPLES.format(log=log))


SETTINGS = """import json
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

def train(options):
    model = torch.nn.Linear(4, 2)
    model = model.to(options["run"]["device"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2):
        x, y = x.to(options["run"]["device"]), y.to(options["run"]["device"])
        <step>
    return str(next(model.parameters()).device)

if __name__ == "__main__":
    settings = {settings}
    {set}
    result = train(settings)
"""


@pytest.mark.parametrize("settings", ['{"run": {"device": "cpu"}}', "json.load(open('settings.json'))"])
def test_the_accelerator_is_given_the_device_that_stands_among_settings(
    settings: str, tmp_path: Path
) -> None:
    """Else it takes the GPU, and the batches go where the settings say."""
    write(tmp_path, script=SETTINGS.replace("{settings}", settings).replace("    {set}\n", ""))
    (tmp_path / "settings.json").write_text('{"run": {"device": "cpu"}}')
    convert(tmp_path, "script")
    after = (tmp_path / "script.py").read_text()
    made = 'accelerator = Accelerator(device=settings["run"]["device"])\n'
    assert made + '    settings["run"]["device"] = accelerator.device.type\n' in after
    assert train(tmp_path, "script", 1, launched=False) == ["cpu"]


@pytest.mark.parametrize(
    ("settings", "then"),
    [
        ('{"run": {"device": torch.device("cuda" if torch.cuda.is_available() else "cpu")}}', "pass"),
        ("json.load(open('settings.json'))", 'settings["run"]["device"] = choose()'),
        ("Settings()", "pass"),  # what is no dictionary may not be set
    ],
)
def test_other_settings_stay(settings: str, then: str) -> None:
    text = SETTINGS.replace("{settings}", settings).replace("{set}", then)
    assert "Accelerator(device=" not in converted(text)


RENAMED = """import os
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

def numbered(path):
    number = 0
    found = path
    while os.path.exists(found):
        number += 1
        found = path + "_" + str(number)
    return found

def main():
    path = "one"
    time.sleep(0.3 * int(os.environ.get("RANK", 0)))
    if os.path.exists(path):
        path = numbered(path)
        print("takes", path)
    {make}
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2):
        <step>
    torch.save(model.state_dict(), os.path.join(path, "last.pt"))
    model.load_state_dict(torch.load(os.path.join(path, "last.pt")))
    return path

if __name__ == "__main__":
    result = main()
"""


def test_all_processes_take_the_free_name_that_the_main_one_has_found(tmp_path: Path) -> None:
    """The second one finds the folder that the first has just made."""
    write(tmp_path, script=RENAMED.replace("{make}", "os.makedirs(path, exist_ok=True)"))
    convert(tmp_path, "script")
    assert train(tmp_path, "script", 2) == ["one", "one"]
    assert train(tmp_path, "script", 2) == ["one_1", "one_1"]


def test_a_path_that_is_only_read_is_found_by_each_process() -> None:
    assert "broadcast_object_list" not in converted(RENAMED.replace("{make}", "pass"))


PAIR = """import torch
from torch.utils.data import DataLoader
from parallel import {model}, DataParallelCriterion

net = torch.nn.Linear(4, 2)
model = {model}(net)
criterion = DataParallelCriterion(torch.nn.MSELoss())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
<loop criterion(model(x), y)>
torch.save(net.state_dict(), "net.pt")
"""


def test_a_model_whose_outputs_stay_on_their_gpus_goes_with_its_criterion() -> None:
    after = converted(PAIR.format(model="DataParallelModel"))
    assert "model = accelerator.prepare(net)" in after and "DataParallelCriterion(" not in after


def test_another_wrapper_of_the_project_stays() -> None:
    assert "model = ModelOfAll(net)" in converted(PAIR.format(model="ModelOfAll"))


@pytest.mark.parametrize(
    ("read", "other"),
    [
        ('log.columns["val"]', True),
        ('self.totals["val"]', False),
        ('totals["val"]', False),
        ("log.best[0]", False),
    ],
)
def test_an_entry_of_another_object_may_be_no_number(read: str, other: bool) -> None:
    """The names of a log's columns were averaged, beside the numbers that the log was given."""
    assert is_of_another(ast.parse(read, mode="eval").body) is other


FORMATTED = """import argparse
import torch
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
device = "cuda:{}".format(args.gpu) if torch.cuda.is_available() else "cpu"
where = "cuda:{}".format(args.gpu)
print("on", "cuda:{}".format(args.gpu))
model = torch.nn.Linear(4, 2).to(device)
model.load_state_dict(torch.load("net.pt", map_location=where))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
<loop torch.nn.functional.mse_loss(model(x.to(device)), y.to(device))>
"""


def test_a_number_that_is_formatted_names_a_gpu() -> None:
    """Launched processes would all move their batches to that one."""
    after = converted(FORMATTED)
    assert "\ndevice = accelerator.device\nwhere = accelerator.device\n" in after
    assert 'print("on", "cuda:{}".format(args.gpu))' in after
