"""CT105: no `.cuda()` stays behind without a word, whatever it moves."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.support.ranks import run_ranks

from .support import SLOTS, check_invariants, migrate, script, unbroken

TAKEN = {
    "definitions": "class Points(TensorDataset):\n    def __init__(self):\n        super().__init__(torch.ones(48, 8), "
    "torch.zeros(48, dtype=torch.long))\n        self.data, self.targets = self.tensors",
    "device": "test_set = Points()\ntest_x = torch.unsqueeze(test_set.data, dim=1).type(torch.FloatTensor)[:20].cuda()/255.\n"
    "test_y = test_set.targets[:20].cuda()",
    "model": "model = nn.Linear(8, 3).cuda()",
    "batch": "x, y = x.cuda(), y.cuda()",
    "end": "print(len(model(test_x.squeeze(1))), test_y.device)",
}


@pytest.mark.parametrize(
    ("slots", "moved"),
    [
        (TAKEN, "[:20].to(accelerator.device)/255."),
        (TAKEN, "test_y = test_set.targets[:20].to(accelerator.device)"),
        (
            {"imports": "from others import points", "device": "test_x = points.test_data[:20].cuda()"},
            "test_x = points.test_data[:20].to(accelerator.device)",
        ),
        (
            {"imports": "from others import load", "device": "test_x = load(3)[0].cuda(non_blocking=True)"},
            "test_x = load(3)[0].to(accelerator.device, non_blocking=True)",
        ),
        ({"imports": "from others import net", "after_epoch": "net.cuda()"}, "net.to(accelerator.device)"),
        (
            {"imports": "from others import hook", "after_epoch": "hook(lambda z: z.cuda())"},
            "hook(lambda z: z.to(accelerator.device))",
        ),
    ],
)  # fmt: skip
def test_what_nobody_prepares_goes_to_the_accelerators_device(slots: dict[str, str], moved: str) -> None:
    text = script({**SLOTS, **slots})
    result = migrate(text)
    check_invariants(text, result)
    assert moved in unbroken(result.after)
    assert ".cuda(" not in result.after


def test_a_helper_of_a_file_of_its_own_follows_the_tensor_at_hand() -> None:
    """Nothing is handed to it: no caller changes."""
    helper = (
        "def similarity(a, b):\n    window = torch.ones(3)\n    if a.is_cuda:\n        window = window.cuda(a.get_device())\n"
        "    return (a * b * window.sum()).mean()"
    )
    slots = {"definitions": helper, "end": "print(similarity(torch.ones(3), torch.ones(3)).item())"}
    after = migrate(script({**SLOTS, **slots})).after
    assert "    window = window.to(a.device)\n    return" in after
    assert "similarity(torch.ones(3), torch.ones(3))" in after


@pytest.mark.parametrize(
    "slots",
    [
        {
            "definitions": "class Data(torch.utils.data.Dataset):\n    def __len__(self):\n        return 48\n\n"
            "    def __getitem__(self, index):\n        return torch.ones(8).cuda(), index % 3",
            "data": "train_loader = DataLoader(Data(), batch_size=8)",
        },
        {
            "definitions": "class Part(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.f = nn.Linear(8, 3)\n\n    def forward(self, x):\n        return self.f(x) + torch.ones(3).cuda()",
            "model": "model = Part().cuda()",
        },
    ],
    ids=["a data set", "a module"],
)
def test_what_no_accelerator_reaches_is_named_with_its_line(slots: dict[str, str]) -> None:
    text = script({**SLOTS, **slots})
    result = migrate(text)
    assert result.changed
    line = next(number for number, one in enumerate(text.split("\n"), 1) if ".cuda()" in one)
    assert ("CT105", line) in {(f.rule, f.line) for f in result.findings}


def test_a_method_of_the_scripts_own_is_no_move() -> None:
    code = "class Clock:\n    def cuda(self):\n        return 3\n\nclock = Clock()"
    after = migrate(script({**SLOTS, "definitions": code, "end": "print(clock.cuda())"})).after
    assert "accelerator.print(clock.cuda())" in after


def _said(text: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return said.getvalue()


def test_the_converted_script_runs_where_there_is_no_gpu() -> None:
    after = migrate(script({**SLOTS, **TAKEN})).after
    assert run_ranks(_said, 2, after, timeout=60) == ["20 cpu\n", ""]
