"""A device that mixes with the CPU as little as CUDA does.

torch_xla computes `cpu - xla`, and adds what is on the device to tensors of the CPU; CUDA refuses both. The first run on a GPU
found a golden case that had passed here.
"""

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter

# What CUDA lets meet tensors of the CPU: copies, what asks another tensor for its shape or type only, and lengths.
APART = frozenset({"copy_", "set_", "__set__", "to", "type_as", "view_as", "expand_as", "reshape_as"})
APART |= {"module_load", "ctc_loss", "lstm", "gru", "rnn_tanh", "rnn_relu"}
INDEXED = frozenset({"__getitem__", "__setitem__"})  # an index may be on the CPU, and a value is copied
SAID = "Expected all tensors to be on the same device"  # what CUDA's messages say, too


class Strict(TorchFunctionMode):
    """Raises RuntimeError, as CUDA does, where a function meets tensors of two devices that have dimensions."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in INDEXED:
            given = args[:2] if args[0].device.type == "cpu" else ()
        else:
            internal = name.startswith("_") and not name.startswith("__")
            given = () if internal or name in APART else (args, kwargs)
        kinds = {leaf.device.type for leaf in tree_iter(given) if isinstance(leaf, Tensor) and leaf.dim()}
        if len(kinds) > 1:
            raise RuntimeError(f"{SAID}, but {name} found {', '.join(sorted(kinds))}")
        return func(*args, **(kwargs or {}))


def be_strict() -> None:
    """In a script's process: from now on."""
    Strict().__enter__()
