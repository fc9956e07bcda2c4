"""CT301 and CT302: the wrappers go, and what was reached through them is reached directly."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_verify import verify

from .support import Case, Slots, check_invariants, converts, each, leaves, migrate, refuses

THREADS, PROCESSES = "CT301", "CT302"
SHARED = "accelerator = Accelerator(split_batches=True)  # the fastest there is"
MODEL = "model = nn.Linear(8, 3).to(device)"
GROUP = {
    "imports": "import torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP",
    "setup": 'dist.init_process_group("gloo")\nmodel = DDP(model)',
}
GROUP_AFTER = {"imports": "", "setup": ""}
PREFIX = "state_dict"
CONSUME = "consume_prefix_in_state_dict_if_present"


EVALUATION = """\
losses = 0.0
for x, y in test_loader:
    y = y.to(device)
    losses += F.cross_entropy(model({x}), y).item()
losses /= len(test_loader)"""


def threads(
    name: str, before: Slots, after: Slots, at: str = "", findings: tuple[tuple[str, str], ...] = ()
) -> Case:
    """DataParallel splits the batch the script names: the processes share it."""
    return converts(
        THREADS,
        name,
        before,
        {"device": SHARED, **after},
        at=at or "DataParallel",
        findings=((THREADS, "DataParallel("), *findings),
    )


def processes(name: str, before: Slots, after: Slots, findings: tuple[tuple[str, str], ...] = ()) -> Case:
    return converts(
        PROCESSES, name, {**GROUP, **before}, {**GROUP_AFTER, **after}, at="DDP(", findings=findings
    )


POSITIVE = [
    threads("around the model", {"setup": "model = nn.DataParallel(model)"}, {"setup": ""}),
    threads(
        "where the model is made",
        {"model": "model = nn.DataParallel(nn.Linear(8, 3)).to(device)"},
        {"model": "model = nn.Linear(8, 3)"},
    ),
    threads(
        "with devices",
        {"setup": "model = torch.nn.DataParallel(model, device_ids=[0, 1], output_device=0)"},
        {"setup": ""},
    ),
    threads(
        "that moves the pictures of an evaluation, where the labels alone are moved by hand",
        {
            "setup": "model = nn.DataParallel(model)",
            "test_data": "test_loader = DataLoader(train_set, batch_size=8)",
            "after_epoch": EVALUATION.format(x="x"),
        },
        {
            "device": SHARED.replace("  #", "\ndevice = accelerator.device  #"),
            "setup": "",
            "after_epoch": EVALUATION.format(x="x.to(accelerator.device)"),
        },
        findings=(("CT603", "losses /= len(test_loader)"),),
    ),
    converts(
        "CT303",
        "only on several GPUs",
        {
            "setup": "if torch.cuda.device_count() > 1:\n    print('several GPUs')\n    model = nn.DataParallel(model)"
        },
        {"device": SHARED, "setup": ""},
        at="if torch.cuda.device_count",
        findings=((THREADS, "DataParallel("),),
    ),
    threads(
        "reached through module",
        {
            "setup": "model = nn.DataParallel(model)",
            "end": 'torch.save(model.module.state_dict(), "model.pt")\nprint(model.module.weight.shape)',
        },
        {
            "setup": "",
            "end": 'accelerator.save_model(model, "model.pt")\naccelerator.print(model.weight.shape)',
        },
    ),
    threads(
        "its own state had a prefix",
        {"setup": "model = nn.DataParallel(model)", "end": 'torch.save(model.state_dict(), "model.pt")'},
        {"setup": "", "end": 'accelerator.save_model(model, "model.pt")'},
        findings=((THREADS, PREFIX),),
    ),
    converts(
        THREADS,
        "a batch for every device is one process's",
        {
            "data": "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8 * torch.cuda.device_count(), shuffle=True)",
            "setup": "model = nn.DataParallel(model)",
        },
        {
            "data": "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8, shuffle=True)",
            "setup": "",
        },
        at="nn.DataParallel(model)",
    ),
    processes("distributed", {}, {}),
    processes(
        "with options that prepare needs not be told",
        {
            "setup": GROUP["setup"].replace(
                "DDP(model)", "DDP(model, device_ids=[0], find_unused_parameters=True)"
            )
        },
        {},
    ),
    processes(
        "an unwrapped name beside it",
        {
            "setup": GROUP["setup"] + '\nraw = model.module if hasattr(model, "module") else model',
            "end": 'torch.save(raw.state_dict(), "model.pt")',
        },
        {"setup": "", "end": 'accelerator.save(accelerator.unwrap_model(model).state_dict(), "model.pt")'},
    ),
    processes(
        "a second name of the author's own",
        {"setup": GROUP["setup"] + "\nwhole = model", "end": "whole.eval()"},
        {"setup": "whole = model", "end": "whole.eval()"},
    ),
    processes(
        "an unwrapped name, whose wrapped one then means something else",
        {
            "setup": GROUP["setup"] + '\nraw = model.module if hasattr(model, "module") else model',
            "end": 'model = None\ntorch.save(raw.state_dict(), "model.pt")',
        },
        {
            "setup": "raw = model",
            "end": 'model = None\naccelerator.save(accelerator.unwrap_model(raw).state_dict(), "model.pt")',
        },
    ),
    processes(
        "gradients that stay local",
        {"backward": "with model.no_sync():\n    loss.backward()"},
        {"backward": "with accelerator.no_sync(model):\n    accelerator.backward(loss)"},
    ),
]

NEGATIVE = [
    leaves(
        THREADS,
        "a module attribute of one's own",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.module = nn.Linear(8, 3)\n\n    def forward(self, x):\n        return self.module(x)",
            "model": "model = Net().to(device)",
            "end": "print(model.module.weight.shape)",
        },
        {"model": "model = Net()", "end": "accelerator.print(model.module.weight.shape)"},
    ),
    leaves(
        THREADS,
        "another DataParallel",
        {"imports": "from wrappers import DataParallel", "end": "watched = DataParallel"},
    ),
]
REFUSED = [
    refuses(
        PROCESSES,
        "a group of its own",
        {
            **GROUP,
            "setup": 'dist.init_process_group("gloo")\nmodel = DDP(model, process_group=mine)',
            "definitions": "mine = None",
        },
        "process_group=",
    ),
    refuses(
        PROCESSES,
        "a hook for the gradients",
        {**GROUP, "setup": GROUP["setup"] + "\nmodel.register_comm_hook(None, print)"},
        "register_comm_hook",
    ),
]


@each(POSITIVE, NEGATIVE, REFUSED)
def test_replicas(case: Case) -> None:
    case.check(runtime="accelerate" if case.rule == PROCESSES else "crosstrain")


@pytest.mark.parametrize("number", [0, 4])
def test_one_and_two_processes_train_as_the_original(number: int, tmp_path: Path) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(POSITIVE[number].script)
    result = migrate(POSITIVE[number].script)
    after.write_text(result.after)
    report = verify(before, after, args=(), processes=(1, 2), expect="equal", timeout=120)
    verdicts = [run.verdict.value for run in report.runs]
    assert verdicts[0] == "identical", report
    assert verdicts[1] in {"equal", "identical"}, report


@pytest.mark.parametrize(
    ("load", "loads"),
    [
        (
            'checkpoint = torch.load("old.pt")\nmodel.load_state_dict(checkpoint["model"])',
            f'checkpoint = torch.load("old.pt")\n{CONSUME}(checkpoint["model"], "module.")\n'
            'model.load_state_dict(checkpoint["model"])',
        ),
        (
            'model.load_state_dict(torch.load("old.pt"), strict=False)',
            f'state = torch.load("old.pt")\n{CONSUME}(state, "module.")\nmodel.load_state_dict(state, strict=False)',
        ),
    ],
    ids=["a part of a checkpoint", "a file"],
)
def test_files_of_the_wrapped_model_still_load(load: str, loads: str) -> None:
    case = processes("", {"end": load}, {})
    result = migrate(case.script)
    assert result.after.endswith(f"{loads}\n"), result.after
    assert f"from torch.nn.modules.utils import {CONSUME}\n" in result.after
    check_invariants(case.script, result)


@pytest.mark.parametrize(
    "end",
    [
        "best = copy.deepcopy(model.state_dict())\nmodel.load_state_dict(best)",
        'torch.save(model.module.state_dict(), "m.pt")\nmodel.load_state_dict(torch.load("m.pt"))',
    ],
    ids=["of this run", "of the model inside"],
)
def test_states_without_a_prefix_are_loaded_as_they_are(end: str) -> None:
    case = processes("", {"imports": GROUP["imports"] + "\nimport copy", "end": end}, {})
    result = migrate(case.script)
    assert result.changed and CONSUME not in result.after
