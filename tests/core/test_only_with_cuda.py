"""What is moved only where CUDA is, and nothing else places, is named."""

import ast

import pytest
from crosstrain_migrate.core.reading.imported import is_left

from .converting import converted, notes
from .filling import filled
from .support import each_row

WITH_CUDA = """<torch>
cuda = torch.cuda.is_available()
model = nn.Linear(4, 2)
if cuda:
    model = model.cuda()
criterion = nn.CrossEntropyLoss()
if cuda:
    criterion = criterion.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 2), batch_size=8)
def train(cuda):
    for x, y in loader:
        if cuda:
            x, y = x.cuda(), y.cuda()
        {step}
        loss = criterion(model(x), y)
        <step loss>
train(cuda)
"""


@each_row(r"""
step
mask = masks[0]\n        if cuda:\n            mask = mask.cuda()\n        x = x * mask
mask = masks[0]\n        x = x * (mask.cuda() if cuda else mask)
mask = masks[0]\n        if x.is_cuda:\n            mask = mask.cuda()\n        x = x * mask
""")
def test_what_moves_only_where_cuda_is_is_named(step: str) -> None:
    (note,) = notes(WITH_CUDA.format(step=step), "CT105")
    assert note.reason == "this moves only where CUDA is: on another accelerator it stays on the CPU"
    assert "mask.cuda()" in filled(WITH_CUDA).format(step=step).splitlines()[note.line - 1]


@pytest.mark.parametrize(
    "step",
    ["pass", "mask = masks[0].cuda()\n        x = x * mask", "rows = [r.cuda() for r in x] if cuda else x"],
)
def test_what_is_on_the_device_anyway_is_not_named(step: str) -> None:
    assert not notes(WITH_CUDA.format(step=step), "CT105")


@pytest.mark.parametrize(
    ("line", "name"), [("import torch as th", "th"), ("import torch as th, torch", "torch")]
)
def test_torch_has_the_name_of_the_file(line: str, name: str) -> None:
    text = filled(WITH_CUDA).format(step="th.cuda.synchronize()").replace("import torch\n", line + "\n", 1)
    text = text.replace("torch.", "th.").replace("from th.", "from torch.")
    assert f"if {name}.cuda.is_available():\n            th.cuda.synchronize()" in converted(text)


@pytest.mark.parametrize("bound", ["class Accelerator:\n    pass", "def main():\n    Accelerator = 3"])
def test_a_name_of_the_runtime_that_the_script_uses_itself_is_written_out(bound: str) -> None:
    text = filled(WITH_CUDA).format(step="pass").replace("import torch\n", f"import torch\n{bound}\n", 1)
    after = converted(text)
    assert "import crosstrain\n" in after and "accelerator = crosstrain.Accelerator(" in after
    assert is_left(ast.parse(after)), "also for another script that imports it"
    assert "from crosstrain" not in after and "crosstrain" in converted(text.replace("Accelerator", "Other"))
