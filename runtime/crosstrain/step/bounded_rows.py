"""Embeddings with `max_norm`, whose forward pass shortens the rows that it reads.

A rank reads the rows of its own batch alone. Those that the others have read are shortened, too, before the step: the
averaged gradient tells which they are.
"""

from __future__ import annotations

import torch
from torch import nn

Bounded = nn.Embedding | nn.EmbeddingBag


def bounded_embeddings(model: nn.Module | None) -> list[Bounded]:
    """The embeddings of a model that have a largest norm."""
    modules = [] if model is None else list(model.modules())
    return [one for one in modules if isinstance(one, Bounded) and one.max_norm is not None]


def shorten_rows(embeddings: list[Bounded]) -> None:
    """Shorten the rows that have a gradient."""
    for one in embeddings:
        grad = one.weight.grad
        if grad is None or one.max_norm is None:
            continue
        rows = grad.coalesce().indices()[0] if grad.is_sparse else grad.any(1).nonzero().flatten()
        # By `data`, since a further backward pass through the same graph may need the weight.
        torch.embedding_renorm_(one.weight.data, rows, one.max_norm, one.norm_type)
