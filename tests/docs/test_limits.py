"""The page of limits names every script that is refused, and each of them is."""

import pytest
from crosstrain_migrate.core import refusals
from crosstrain_migrate.core.conversion import convert
from crosstrain_migrate.results import Finding

from tests.rules.support import script

from .console import ROOT

LIMITS = (ROOT / "docs" / "limits.md").read_text("utf-8")
BY_NAME = """
import sys, torch
class Jobs:
    def train(self):
        for x, y in batches:
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
globals()[sys.argv[1]]()
"""
BY_HAND = """\
for p, g in zip(model.parameters(), torch.autograd.grad(loss, model.parameters())):
    p.grad = g"""
HIDDEN = {"loss": "scale(F.cross_entropy(model(x), y), optimizer)", "zero": "", "backward": "", "step": ""}
TIMM = {"imports": "from timm.utils import NativeScaler", "setup": "scale = NativeScaler()"}
FSDP = {"imports": "from torch.distributed.fsdp import fully_shard", "setup": "fully_shard(model)"}


def golden(name: str) -> str:
    return (ROOT / "golden" / name / "before.py").read_text("utf-8")


def refused(text: str) -> list[Finding]:
    done = convert(text, "crosstrain", lambda rule, node: True)
    return list(done.findings) if done.text == text else []


def test_the_script_of_these_tests_is_converted() -> None:
    assert not refused(script())


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (script(imports="import horovod.torch as hvd", setup="hvd.init()"), "CT901", "Horovod"),
        (script(imports="import deepspeed", setup="m = deepspeed.initialize(model)"), "CT901", "DeepSpeed"),
        (script(**FSDP), "CT901", "`fsdp`"),
        (golden("tensor_parallel"), "CT901", "layers that communicate"),
        (golden("hogwild"), "CT901", "Hogwild"),
        (golden("lbfgs"), "CT903", "LBFGS"),
        (golden("policy_gradient"), "CT901", "env.step"),
        (script(backward=BY_HAND), "CT202", "torch.autograd.grad"),
        (script(**TIMM, **HIDDEN), "CT202", "NativeScaler"),
        (BY_NAME, "CT905", "name in a string"),
    ],
)
def test_what_the_page_names_is_left_as_it_is(text: str, code: str, named: str) -> None:
    (found,) = refused(text)
    assert found.rule == code
    (row,) = [line for line in LIMITS.splitlines() if line.startswith("|") and named in line]
    assert code in row


def test_the_page_names_every_framework_that_is_refused() -> None:
    modules = {path.split(".")[-1].removeprefix("_") for path in refusals._NOT_OURS}
    for name in refusals._DISTRIBUTES | modules - {"composable"}:
        assert name.lower() in LIMITS.lower(), name
