"""Progress bars that one process of a machine shows."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from crosstrain.config import read_place


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """tqdm.auto.tqdm; with ``main_process_only`` (the default) other processes show nothing."""
    try:
        bar = import_module("tqdm.auto").tqdm
    except ImportError:
        raise ImportError("crosstrain.utils.tqdm shows tqdm's progress bars: pip install tqdm") from None
    place = read_place()
    if main_process_only and place is not None and place.local_rank != 0:
        kwargs["disable"] = True
    return bar(*args, **kwargs)
