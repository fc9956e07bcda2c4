"""torch.profiler around a part of the training, with one trace for each process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from crosstrain.comm.protocol import Comm

if TYPE_CHECKING:
    from crosstrain.utils.dataclasses import ProfileKwargs


@contextmanager
def profile(comm: Comm, handler: ProfileKwargs) -> Iterator[torch.profiler.profile]:
    """See `Accelerator.profile`."""
    options = handler.to_kwargs()
    folder = options.pop("output_trace_dir", None)
    if names := options.pop("activities", None):
        options["activities"] = [torch.profiler.ProfilerActivity.__members__[name.upper()] for name in names]
    if schedule := options.pop("schedule_option", None):
        options["schedule"] = torch.profiler.schedule(**schedule)
    with torch.profiler.profile(**options) as profiler:
        yield profiler
    if folder is not None:  # without one nothing is shared: one process may profile alone
        Path(folder).mkdir(parents=True, exist_ok=True)
        profiler.export_chrome_trace(str(Path(folder) / f"profile_{comm.rank}.json"))
        comm.barrier()
