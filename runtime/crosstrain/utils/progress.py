"""Progress bars that only one process of each machine shows."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from crosstrain.config import read_place


def tqdm(*args: Any, main_process_only: bool = True, **kwargs: Any) -> Any:
    """tqdm.auto.tqdm. With ``main_process_only`` only the first process of each machine shows a bar.

    Raises ImportError if tqdm is not installed.
    """
    try:
        bar = import_module("tqdm.auto").tqdm
    except ImportError:
        raise ImportError("crosstrain.utils.tqdm shows tqdm's progress bars: pip install tqdm") from None
    place = read_place()
    if main_process_only and place is not None and place.local_rank != 0:
        kwargs["disable"] = True
    return bar(*args, **kwargs)
