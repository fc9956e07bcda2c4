"""Parameters and buffers that begin with the same values on all ranks."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from crosstrain.comm.collectives import broadcast_tensors
from crosstrain.comm.protocol import Comm


def check_alike(owner: str, tensors: Mapping[str, Tensor], comm: Comm, kind: str = "model") -> None:
    """Raise RuntimeError where the tensors' names, shapes or dtypes differ over the ranks, naming them (collective).

    ``owner``: what has these tensors, for the message; a model or an optimizer (``kind``).
    """
    mine = [(name, _shape(tensor), str(tensor.dtype)) for name, tensor in tensors.items()]
    for rank, theirs in enumerate(comm.all_gather_object(mine)):
        if theirs != mine:
            odd = sorted({entry[0] for entry in set(theirs) ^ set(mine)})
            raise RuntimeError(
                f"{owner} is not the same {kind} on rank {rank} as on rank {comm.rank}: "
                f"{', '.join(odd[:5]) or 'the order of its parameters'} differ in name, shape, dtype or "
                f"requires_grad. Build and freeze the model alike on every rank."
            )


def start_alike(model: nn.Module, comm: Comm) -> None:
    """Copy rank 0's parameters and buffers to every rank (collective); RuntimeError where a rank has another model."""
    tensors: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    check_alike(type(model).__name__, tensors, comm)
    broadcast_tensors(initialized(tensors), comm)


def initialized(tensors: Mapping[str, Tensor]) -> list[Tensor]:
    """The tensors that have values; those of lazy layers get theirs in the first forward pass.

    By ``data``, which may be overwritten by the same values between a forward pass and its backward pass.
    """
    return [tensor.data for tensor in tensors.values() if not is_lazy(tensor)]


def _shape(tensor: Tensor) -> tuple[int, ...] | None:
    return None if is_lazy(tensor) else tuple(tensor.shape)
