"""A script that torchrun may start, or nobody, and the parts of which it is made."""

from __future__ import annotations

from .support import Case, Slots, converts

GROUP, SAMPLER, DEVICE = "CT303", "CT304", "CT308"
IMPORTS = "import os\n\nimport torch.distributed as dist\nfrom torch.nn.parallel import DistributedDataParallel as DDP"
SAMPLING = IMPORTS + "\nfrom torch.utils.data.distributed import DistributedSampler"
WORLD = 'world = int(os.environ.get("WORLD_SIZE", 1))'
RANK = f'rank = int(os.environ.get("RANK", 0))\n{WORLD}'
INIT = 'dist.init_process_group("gloo")'
DATA = "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
PLAIN = DATA + "train_loader = DataLoader(train_set, batch_size=8, shuffle=True)"
WRAP = "model = DDP(model)"
GONE = {"imports": "", "options": "", "setup": ""}


def distributed(
    name: str,
    before: Slots,
    after: Slots,
    at: str,
    rule: str = GROUP,
    findings: tuple[tuple[str, str], ...] = (),
) -> Case:
    """A script that torchrun may start, or nobody."""
    ordinary = {
        "imports": IMPORTS,
        "options": f"{RANK if 'rank' in str(before) else WORLD}\nif world > 1:\n    {INIT}",
        "setup": f"if world > 1:\n    {WRAP}",
    }
    return converts(rule, name, {**ordinary, **before}, {**GONE, **after}, at=at, findings=findings)
