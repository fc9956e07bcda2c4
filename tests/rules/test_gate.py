"""CT901 and its neighbours: scripts that are not ours, or already converted, and scripts that only look like them."""

from __future__ import annotations

import pytest

from .support import CONVERTED, SLOTS, Case, each, keeps, leaves, migrate, refuses, script

FOREIGN, APEX, NO_LOADER = "CT901", "CT307", "CT902"


def foreign(name: str, imports: str, at: str = "", **more: str) -> Case:
    return keeps(FOREIGN, name, {"imports": imports, **more}, at=at or imports.split("\n")[0])


def ours(name: str, rule: str = FOREIGN, loop_after: str = "", **slots: str) -> Case:
    return leaves(rule, name, slots, {"loop": loop_after} if loop_after else {})


DISTRIBUTED = [
    foreign("Lightning", "import pytorch_lightning as pl", end="pl.seed_everything(1)"),
    foreign("Lightning by its new name", "import lightning"),
    foreign("Fabric", "from lightning.fabric import Fabric", options="fabric = Fabric()"),
    foreign("fastai", "from fastai.vision.all import *"),
    foreign("Ignite", "from ignite.engine import Engine"),
    foreign("Horovod", "import horovod.torch as hvd", options="hvd.init()"),
    foreign("DeepSpeed", "import deepspeed"),
    foreign(
        "DeepSpeed, where it is installed",
        "try:\n    import deepspeed\nexcept ImportError:\n    deepspeed = None",
        at="import deepspeed",
    ),
    foreign("torch_xla", "import torch_xla.core.xla_model as xm", end="xm.mark_step()"),
    foreign("Ray", "from ray import train"),
    foreign(
        "the Transformers Trainer",
        "from transformers import Trainer",
        end="Trainer(model)",
        at="Trainer(model)",
    ),
]

REFUSED = [
    refuses(
        FOREIGN,
        "GraphBolt's pipeline",
        {
            "imports": "import dgl.graphbolt as gb",
            "data": "train_loader = gb.DataLoader(gb.ItemSampler(range(48), batch_size=8))",
        },
        at="gb.DataLoader",
    ),
    refuses(
        FOREIGN,
        "Hogwild",
        {"imports": "import torch.multiprocessing as mp", "end": "mp.Process(target=print).start()"},
        at="mp.Process",
    ),
    refuses(
        FOREIGN,
        "FSDP",
        {
            "imports": "from torch.distributed.fsdp import fully_shard",
            "optimizer": "fully_shard(model)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        },
        at="fully_shard(model)",
    ),
]

OURS = [
    ours("a module whose name begins alike", imports="import ray_tracing"),
    ours("a model of a library that also has a trainer", imports="from transformers import AutoModel"),
    ours("a library's data", imports="from torchvision import datasets, transforms"),
    ours("a variable named like a framework", options='lightning = "fast"'),
    ours("a framework in a string or a comment", end='# import deepspeed\nnote = "import horovod"'),
    ours(
        "multiprocessing for something else",
        imports="import multiprocessing",
        options="cores = multiprocessing.cpu_count()",
    ),
    ours(
        "a start method",
        imports="import torch.multiprocessing as mp",
        options='mp.set_sharing_strategy("file_system")',
    ),
    ours("a local module named accelerate", imports="from .accelerate import faster"),
    ours("apex in a comment", APEX, options="# from apex import amp"),
    ours("a variable named amp", APEX, options="amp = 3"),
    ours(
        "a loader behind a bar",
        NO_LOADER,
        imports="from tqdm import tqdm",
        loop="for x, y in tqdm(train_loader):",
        loop_after="for x, y in tqdm(train_loader, disable=not accelerator.is_local_main_process):",
    ),
    ours("a loader that is counted", NO_LOADER, loop="for i, (x, y) in enumerate(train_loader):"),
]

POSITIVE = DISTRIBUTED + REFUSED
NEGATIVE = OURS


@each(DISTRIBUTED, REFUSED, OURS)
def test_gate(case: Case) -> None:
    case.check()


@pytest.mark.parametrize(
    "imported",
    [
        "from accelerate import Accelerator",
        "import accelerate",
        "from accelerate.utils import set_seed",
        "from crosstrain import Accelerator",
        "import crosstrain.utils",
    ],
)
def test_converted_scripts_are_left_alone(imported: str) -> None:
    text = script({**SLOTS, "imports": imported})
    result = migrate(text)
    assert not result.changed
    assert not result.findings


def test_what_was_converted_is_left_alone() -> None:
    text = script(CONVERTED)
    assert migrate(text).after == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# torch backward\n",
        "import torch\n",
        "import torch\n\nx = torch.ones(3, requires_grad=True)\nprint(x.backward)\n",
        "import torch\n\n\nclass F(torch.autograd.Function):\n    @staticmethod\n    def backward(ctx, g):\n        return g\n",
        'import torch\n\nmodel = torch.nn.Linear(2, 2).to("cuda")\nmodel.eval()\nprint(model(torch.ones(1, 2)))  # backward\n',
        "def backward(torch):\n    return torch\n\n\nprint(backward(3))\n",
    ],
    ids=[
        "nothing",
        "a comment",
        "an import",
        "an attribute",
        "a function of autograd's",
        "inference",
        "only names",
    ],
)
def test_scripts_that_do_not_train_are_left_alone(text: str) -> None:
    result = migrate(text)
    assert result.after == text
    assert not result.findings
    assert not result.trains
