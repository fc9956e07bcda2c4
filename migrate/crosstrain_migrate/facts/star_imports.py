"""`from torch.nn import *`: which module a name that nothing else binds comes from."""

from __future__ import annotations

import ast
import builtins

from crosstrain_migrate.syntax.walks import statements, walk

from . import torch_api as api

# What these modules export, as far as rules ask for it. `torch.nn` exports classes, one and all.
EXPORTS = {
    "torch.optim": frozenset(
        [
            "ASGD",
            "Adadelta",
            "Adafactor",
            "Adagrad",
            "Adam",
            "AdamW",
            "Adamax",
            "LBFGS",
            "Muon",
            "NAdam",
            "Optimizer",
            "RAdam",
            "RMSprop",
            "Rprop",
            "SGD",
            "SparseAdam",
            "lr_scheduler",
            "swa_utils",
        ]
    ),
    "torch.utils.data": frozenset(
        [
            "BatchSampler",
            "ChainDataset",
            "ConcatDataset",
            "DataLoader",
            "Dataset",
            "DistributedSampler",
            "IterableDataset",
            "RandomSampler",
            "Sampler",
            "SequentialSampler",
            "StackDataset",
            "Subset",
            "SubsetRandomSampler",
            "TensorDataset",
            "WeightedRandomSampler",
            "default_collate",
            "get_worker_info",
            "random_split",
        ]
    ),
    "torch.nn.functional": api.LOSSES | api.ROW_WISE | frozenset(api.ALONG),
    "torch.autograd": frozenset({"Function", "Variable", "grad"}),
    "torch": api.FACTORIES
    | frozenset({"Tensor", "cuda", "device", "load", "manual_seed", "nn", "no_grad", "optim", "save"}),
}
NAMESPACES = frozenset({"functional", "init", "modules", "parallel", "utils", "parameter"})


def star_names(tree: ast.Module) -> dict[str, str]:
    """Every name the script reads that a star import of torch brings in, with the dotted name that it stands for."""
    stars = [
        node.module
        for node in statements(tree)
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and node.module and not node.level
    ]
    known = [module for module in stars if module.split(".")[0] == "torch"]
    if not known:
        return {}
    names = {n.id for n in walk(tree) if isinstance(n, ast.Name)}
    found = {name: _source(name, known) for name in names if not hasattr(builtins, name)}
    return {name: f"{module}.{name}" for name, module in found.items() if module}


def _source(name: str, stars: list[str]) -> str:
    """The last of the imported modules that exports `name`."""
    for module in reversed(stars):
        if module == "torch.nn":
            exported = name[:1].isupper() and not any(name in EXPORTS.get(m, ()) for m in stars)
            exported = exported or name in NAMESPACES
        elif module == "torch.optim.lr_scheduler":
            exported = name.endswith("LR") or name in {
                "ReduceLROnPlateau",
                "LRScheduler",
                "CosineAnnealingWarmRestarts",
            }
        else:
            exported = name in EXPORTS.get(module, ())
        if exported:
            return module
    return ""
