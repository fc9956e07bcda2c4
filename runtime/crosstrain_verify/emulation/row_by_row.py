"""Makes the model compute each row by itself: no dropout, and normalisation with the running statistics.

What remains does not depend on how the rows are shared out, so the losses and gradients of several processes can be compared
with those of one even where training draws random numbers.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from crosstrain_verify.emulation.eager_compile import replace_batch_norm

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


def _unchanged(*args: Any, **kwargs: Any) -> Any:
    return args[0] if args else kwargs["input"]


def install() -> None:
    """Replace the functions, for the rest of this process."""
    without_dropout()
    replace_batch_norm(_with_running_statistics)


def _with_running_statistics(
    real: Any, values: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
) -> Any:
    return real(values, weight, bias, mean, var, training and mean is None, *rest)


def without_dropout() -> None:
    """Switch dropout off, for the rest of this process."""
    functional: Any = torch.nn.functional
    for name in DROPOUTS:
        setattr(functional, name, functools.wraps(getattr(functional, name))(_unchanged))
    attention = functional.scaled_dot_product_attention

    @functools.wraps(attention)
    def kept_whole(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        *rest: Any,
        **more: Any,
    ) -> Any:
        return attention(query, key, value, attn_mask, 0.0, *rest, **more)

    functional.scaled_dot_product_attention = kept_whole
