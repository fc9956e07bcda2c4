"""Names that users import from ``accelerate.big_modeling``: accelerate's own where it is installed."""

from __future__ import annotations

from typing import Any

from crosstrain.compat import not_supported
from crosstrain.utils.modeling import load_checkpoint_in_model

__all__ = ["load_checkpoint_in_model"]


def __getattr__(name: str) -> Any:
    return not_supported.__getattr__(name)
