"""Prepared data loaders: sharded, dispatched, skipped and resumed exactly.

- `shard`: the arithmetic of who gets which rows, without torch.
- `samplers`, `rng`, `workers`: this rank's index batches, drawn from the user's own sampler and generator.
- `feeds`, `dispatch`, `wire`: where the batches come from; `place`, `rows`: nested batches.
- `adopted`: loaders that the script has sharded; `fingerprint`, `self_sharded`: what differs by process and must not.
- `loader`: the prepared DataLoader; `active`, `unprepared`: which loaders are being iterated; `prepare`: puts it
  together.
"""

from __future__ import annotations

from .active import ActiveLoaders
from .loader import PreparedLoader
from .plan import DataPlan
from .prepare import prepare_loader, skip_first_batches
from .samplers import SeedableRandomSampler, SkipBatchSampler

__all__ = [
    "ActiveLoaders",
    "DataPlan",
    "PreparedLoader",
    "SeedableRandomSampler",
    "SkipBatchSampler",
    "prepare_loader",
    "skip_first_batches",
]
