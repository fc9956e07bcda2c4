"""Chooses the backend when the run starts."""

from __future__ import annotations

import os
from datetime import timedelta

from crosstrain.comm.protocol import Comm
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.comm.xla.chips import xla_wanted


def start_comm(
    *,
    cpu: bool = False,
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    group_of_one: bool | None = None,
    index: int | None = None,
) -> Comm:
    """Start the backend of this machine: XLA if PJRT_DEVICE is set or there is a TPU, else torch's own.

    ``group_of_one``, ``index``: see `TorchComm.start`.
    """
    if not cpu and xla_wanted(os.environ):
        from crosstrain.comm.xla.backend import XlaComm

        return XlaComm.start(init_method=init_method, timeout=timeout, group_of_one=group_of_one)
    return TorchComm.start(
        cpu=cpu,
        backend=backend,
        init_method=init_method,
        timeout=timeout,
        group_of_one=group_of_one,
        index=index,
    )
