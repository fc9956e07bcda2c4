"""CT901: built on something that distributes training itself
CT902: training without a DataLoader

What:   Frameworks with a trainer of their own, other distribution libraries, hand-written distribution and precision.
Why:    Half a conversion of such a script would train something else.

Left CT901 (imports):
    import pytorch_lightning as pl
Refused CT901 (imports):
    from torch.distributed.fsdp import fully_shard
And (setup):
    fully_shard(model)
Noted CT902 (data):
    points, labels = torch.ones(48, 8), torch.zeros(48, dtype=torch.long)
And (loop):
    for first in range(0, 48, 8):
And (batch):
    x, y = points[first : first + 8].to(device), labels[first : first + 8].to(device)
And (backward):
    loss.backward()
Becomes (device):
    accelerator = Accelerator()
    device = accelerator.device  # the fastest there is
And (prepare):
    model, optimizer = accelerator.prepare(model, optimizer)
And (backward):
    accelerator.backward(loss)
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.frameworks import FRAMEWORKS, TRAINERS
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.walks import statements

from .base import finding

NOT_OURS = {
    "torch.distributed.rpc": "RPC",
    "torch.distributed.fsdp": "FSDP",
    "torch.distributed.tensor": "tensor parallelism",
    "torch.distributed.pipelining": "pipeline parallelism",
    "torch.distributed.device_mesh": "a device mesh",
    "torch.distributed._composable": "composable parallelism",
    "torch.multiprocessing.Process": "processes of its own (Hogwild)",
    "dgl.graphbolt.DataLoader": "GraphBolt, whose pipeline samples, places and shares batches (DistributedItemSampler)",
}
GPUS = "DataParallel takes all GPUs that it sees, and so would each process"
SHARED = "a DistributedSampler stays here that shares the data already: each process would train on a part of its part"
SCALED = (
    "the script chooses its precision here, beside the Accelerator: losses would be scaled, or cast, twice"
)
HAND_MADE = {
    "torch.nn.DataParallel": ("CT301", GPUS),
    "torch.nn.parallel.DataParallel": ("CT301", GPUS),
    "torch.nn.parallel.DistributedDataParallel": (
        "CT302",
        "a model stays in DistributedDataParallel here, beside `prepare`: its gradients would be averaged twice",
    ),
    "torch.distributed": (
        "CT303",
        "this call of torch.distributed stays: processes that no longer come to it alike would wait for each other",
    ),
    "torch.utils.data.distributed.DistributedSampler": ("CT304", SHARED),
    "torch.utils.data.DistributedSampler": ("CT304", SHARED),
    "torch.multiprocessing.spawn": (
        "CT305",
        "each process that the launcher starts would start processes of its own here",
    ),
    "torch.cuda.amp": ("CT306", SCALED),
    "torch.amp": ("CT306", SCALED),
    "torch.autocast": ("CT306", SCALED),
    "apex": ("CT307", "apex changes the model and the optimizer here, and `prepare` would change them again"),
    "torch.cuda.set_device": (
        "CT308",
        "the script makes a device the current one: several processes would work on that one",
    ),
}


def _is_in(path: str, name: str) -> bool:
    return path == name or path.startswith(name + ".")


def imports(tree: ast.Module) -> dict[str, ast.AST]:
    """Every dotted name that an import statement mentions, with the first such statement."""
    found: dict[str, ast.AST] = {}
    for node in statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.name, node)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found.setdefault(f"{node.module}.{alias.name}", node)
    return found


def already_migrated(tree: ast.Module) -> bool:
    """Whether a script has been converted; the state that `--todo` asks is no conversion."""
    return any(is_migrated(path) and not path.endswith(".PartialState") for path in imports(tree))


def is_migrated(path: str) -> bool:
    """Whether a dotted name is one that a conversion imports."""
    return path.split(".")[0] in ("accelerate", "crosstrain")


def distributes_by_hand(facts: Facts) -> bool:
    """Whether the script distributes itself or chooses its precision by hand."""
    return any(_is_in(path, name) for path, _ in uses(facts) for name in HAND_MADE)


def is_foreign(facts: Facts) -> bool:
    """Whether the script is built on something that this conversion cannot take apart."""
    return any(found.rule == "CT901" for found in obstacles(facts))


def obstacles(facts: Facts, settled: Collection[str] = (), kept: Collection[ast.AST] = ()) -> list[Finding]:
    """Findings for everything this conversion does not handle; empty when the way is free.

    settled: names of torch that other rules have decided may stay. kept: code that stays as the author has it.
    """
    imported = imports(facts.tree)
    inside = facts.table.is_inside
    used = dict(u for u in uses(facts) if not any(inside(u[1], code) for code in kept))
    both = {**imported, **used}
    others = [(framework_of(path), node, Severity.NOTE) for path, node in imported.items()]
    others += [(entry_for(path, TRAINERS), node, Severity.NOTE) for path, node in both.items()]
    others += [(entry_for(path, NOT_OURS), node, Severity.REFUSED) for path, node in both.items()]
    found = {what: built_on(node, what, severity) for what, node, severity in reversed(others) if what}
    return list(found.values()) or _left_over(used, settled)


def _left_over(used: dict[str, ast.AST], settled: Collection[str]) -> list[Finding]:
    """Distribution and precision by hand that no rule has taken apart."""
    found: list[Finding] = []
    remedy = "take this use out and run migrate again: the Accelerator does the rest"
    for name, (rule, what) in HAND_MADE.items():
        node = next((n for path, n in used.items() if _is_in(path, name)), None)
        if name not in settled and node is not None:
            found.append(finding(rule, node, what, remedy, Severity.REFUSED))
    return found


def framework_of(path: str) -> str | None:
    """The framework that a dotted name belongs to."""
    return FRAMEWORKS.get(path.split(".")[0])


def entry_for(path: str, names: dict[str, str]) -> str | None:
    """The entry of `names` for a dotted name, or for a name that it begins with."""
    return next((what for name, what in names.items() if _is_in(path, name)), None)


def built_on(node: ast.AST, what: str, severity: Severity) -> Finding:
    """Training is distributed already: nothing is left to do, or it is done by something we have no counterpart for."""
    reason = f"the script is built on {what}, which distributes training itself"
    remedy = "leave it as it is, or write the loop in plain PyTorch first"
    return finding("CT901", node, reason, remedy, severity)


def uses(facts: Facts) -> list[tuple[str, ast.AST]]:
    """(dotted name, call) of every call of something imported."""
    return [(path, call) for call in facts.calls for path in facts.paths(call.func)]
