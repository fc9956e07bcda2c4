"""A batch that a DataParallel deals to its GPUs is no batch of one process of several."""

import pytest

from .converting import converted

TRAINING = """import argparse
<torch>

args = argparse.ArgumentParser().parse_args()
size = {size}
loader = DataLoader(TensorDataset(torch.ones(32, 4), torch.zeros(32).long()), batch_size=size)
<model>
{wrapped}
for x, y in loader:
    <step>
"""
WRAPPED = "if args.n_gpu > 1:\n    model = torch.nn.DataParallel(model)"


@pytest.mark.parametrize(
    "count", ["args.n_gpu", "torch.cuda.device_count()", "len(args.gpu_ids)", "max(1, len(args.gpus))"]
)
def test_a_batch_for_all_gpus(count: str) -> None:
    several = ("accelerator.num_processes == 1 else 1", "PartialState().num_processes == 1 else 1")
    after = converted(TRAINING.format(size=f"8 * {count}", wrapped=WRAPPED))
    assert any(f"size = 8 * ({count} if {one})\n" in after for one in several)
    text = TRAINING.format(size="args.size", wrapped=WRAPPED).replace("<model>", "<model>\nargs.size = 8")
    text = text.replace("size = args.size\n", f"args.size *= {count}\n").replace("=size", "=args.size")
    assert any(f"args.size *= {count} if {one}\n" in converted(text) for one in several)


@pytest.mark.parametrize(
    ("size", "wrapped"),
    [
        ("8 * args.n_gpu", ""),
        ("8 * args.times", WRAPPED),
        ("8 // args.n_gpu", WRAPPED),
        ("args.n_gpu", WRAPPED),
    ],
)
def test_another_batch_stays(size: str, wrapped: str) -> None:
    """Nothing wraps the model; the number is another, divides, or is no factor."""
    assert f"size = {size}\n" in converted(TRAINING.format(size=size, wrapped=wrapped))
