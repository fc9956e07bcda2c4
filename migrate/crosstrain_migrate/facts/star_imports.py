"""`from torch.nn import *`: which module a name that nothing else binds comes from."""

from __future__ import annotations

import ast
import builtins

from crosstrain_migrate.syntax.walks import statements, walk

from . import torch_api as api
from .torch_api import words

# What these modules export, as far as rules ask for it. Except for `NAMESPACES`, `torch.nn` exports classes only.
EXPORTS = {
    "torch.optim": words("""
        ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS Muon NAdam Optimizer RAdam RMSprop Rprop SGD SparseAdam
        lr_scheduler swa_utils
    """),
    "torch.utils.data": words("""
        BatchSampler ChainDataset ConcatDataset DataLoader Dataset DistributedSampler IterableDataset RandomSampler
        Sampler SequentialSampler StackDataset Subset SubsetRandomSampler TensorDataset WeightedRandomSampler
        default_collate get_worker_info random_split
    """),
    "torch.nn.functional": api.LOSSES | api.ROW_WISE | api.ALONG,
    "torch.autograd": words("Function Variable grad"),
    "torch": api.FACTORIES | words("Tensor cuda device load manual_seed nn no_grad optim save"),
}
NAMESPACES = words("functional init modules parallel utils parameter")
SCHEDULERS = words("ReduceLROnPlateau LRScheduler CosineAnnealingWarmRestarts")  # and names that end in LR


def star_names(tree: ast.Module) -> dict[str, str]:
    """Every name that the script reads and a star import of torch binds, with the dotted name that it stands for."""
    stars = [
        node.module
        for node in statements(tree)
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module and not node.level
    ]
    known = [module for module in reversed(stars) if module.split(".")[0] == "torch"]
    if not known:
        return {}
    names = {n.id for n in walk(tree) if isinstance(n, ast.Name)}
    # The last import wins.
    sources = {
        n: next((m for m in known if _exports(m, n, known)), "") for n in names if not hasattr(builtins, n)
    }
    return {name: f"{module}.{name}" for name, module in sources.items() if module}


def _exports(module: str, name: str, stars: list[str]) -> bool:
    """Whether a module exports a name; a class that none of the other star imports is known to export is torch.nn's."""
    if module == "torch.nn":
        elsewhere = any(name in EXPORTS.get(star, ()) for star in stars)
        return name in NAMESPACES or (name[:1].isupper() and not elsewhere)
    if module == "torch.optim.lr_scheduler":
        return name.endswith("LR") or name in SCHEDULERS
    return name in EXPORTS.get(module, ())
