"""Gives the original the rows that several processes of the result trained on, joined to one batch for each of theirs.

The processes take batches of their own, in an order of their own. Given the same rows, the original must compute the same
losses and gradients, whoever dealt the rows out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.data import DataLoader

from crosstrain_verify.tracing.batches import LoaderWatch, length_of, samples_of

KEPT_FILE = "batches.pt"
PLAIN = (int, float, bool, str, type(None))


class Kept(NamedTuple):
    """A batch that a process got. length: `len` of its loader, 0 without one."""

    loader: int
    first: bool
    length: int
    leaves: list[Any]


class Keeping:
    """Keeps copies of the batches of some loaders."""

    def __init__(self, loaders: Sequence[int]) -> None:
        self._loaders = frozenset(loaders)
        self._kept: list[Kept] = []

    def install(self, watch: LoaderWatch) -> None:
        """Copy every batch of the loaders that the script gets from now on."""
        watch.alter = self._keep
        self._number = watch.number

    def _keep(self, batch: Any, first: bool, loader: Any) -> Any:
        number = self._number(loader)
        if number in self._loaders:
            leaves = [
                one.detach().cpu().clone() if isinstance(one, Tensor) else one
                for one in tree_flatten(batch)[0]
            ]
            plain = all(isinstance(one, (Tensor, *PLAIN)) for one in leaves)
            self._kept.append(Kept(number, first, length_of(loader), leaves if plain else []))
        return batch

    def write(self, folder: Path) -> None:
        """Write the batches for `Replay`."""
        torch.save([tuple(one) for one in self._kept], folder / KEPT_FILE)


class Replay:
    """Replaces the batches of this process by those that were kept below a folder, which has one folder for each rank.

    mixed: set where a batch could not be joined; the script then got its own.
    """

    def __init__(self, folder: Path) -> None:
        ranks = [torch.load(file, weights_only=True) for file in sorted(folder.glob(f"*/{KEPT_FILE}"))]
        steps = [[Kept(*one) for one in rank] for rank in ranks]
        self._steps: dict[int, list[tuple[Kept, ...]]] = {}
        for shares in zip(*steps, strict=False):
            self._steps.setdefault(shares[0].loader, []).append(shares)
        self._next = dict.fromkeys(self._steps, 0)
        self.mixed = False

    def install(self, watch: LoaderWatch) -> None:
        """Replace the batches and the lengths of the loaders, for the rest of this process."""
        watch.replaced = self._replaced
        watch.ends.append(self._ends_pass)
        real: Any = DataLoader.__len__
        self._number = watch.number

        def length(loader: Any) -> int:
            steps = self._steps.get(watch.number(loader))
            return (steps[0][0].length if steps else 0) or int(real(loader))

        DataLoader.__len__ = length  # type: ignore[method-assign]

    def _ends_pass(self, loader: Any, given: int) -> bool:
        number = self._number(loader)
        if number not in self._steps:
            return False
        steps, at = self._steps[number], self._next[number]
        return at >= len(steps) or (given > 0 and steps[at][0].first)

    def _replaced(self, loader: Any, batch: Any, given: int) -> Any:
        number = self._number(loader)
        if number not in self._steps:
            return batch
        shares = self._steps[number][self._next[number]]
        self._next[number] += 1
        leaves, form = tree_flatten(batch)
        if any(len(share.leaves) != len(leaves) for share in shares):
            self.mixed = True
            return batch
        samples = samples_of(loader, given)
        joined = [
            self._joined(own, parts, samples)
            for own, *parts in zip(leaves, *(share.leaves for share in shares), strict=True)
        ]
        return tree_unflatten(joined, form)

    def _joined(self, own: Any, parts: Sequence[Any], samples: int | None) -> Any:
        if not isinstance(own, Tensor) or not own.dim():
            self.mixed = self.mixed or any(part != own for part in parts)
            return own
        dim = 1 if samples is not None and own.shape[0] != samples and own.dim() > 1 else 0
        try:
            return torch.cat(list(parts), dim).to(own)
        except (RuntimeError, TypeError):  # padded to different lengths
            self.mixed = True
            return own
