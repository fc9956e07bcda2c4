"""A device that mixes with the CPU as little as CUDA does.

torch_xla computes `cpu - xla`, and stores what is on the device into tensors of the CPU; CUDA refuses both. The first run on a GPU
found a golden case that had passed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

# Operators that CUDA lets meet tensors of the CPU: copies between devices (what Python's `a[0:3] = b` does is one), lengths of
# packed sequences, and an index on the CPU.
APART = frozenset(
    {"copy_", "_to_copy", "_copy_from", "_copy_from_and_resize", "set_", "_pack_padded_sequence"}
)
INDEXED = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"})
SAID = "Expected all tensors to be on the same device"  # what CUDA's messages say, too


class Strict(TorchDispatchMode):
    """Raises RuntimeError, as CUDA does, where an operator meets tensors of two devices that have dimensions."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name not in APART:
            given = (
                (args[0], *args[2:]) if name in INDEXED and args[0].device.type != "cpu" else (args, kwargs)
            )
            kinds = {t.device.type for t in tensors(given) if t.dim()}
            if len(kinds) > 1:
                raise RuntimeError(f"{SAID}, but {func} found {', '.join(sorted(kinds))}")
        return func(*args, **(kwargs or {}))


def tensors(given: Any) -> Iterable[Tensor]:
    return (leaf for leaf in tree_iter(given) if isinstance(leaf, torch.Tensor))


def be_strict() -> None:
    """In a script's process: from now on."""
    Strict().__enter__()
