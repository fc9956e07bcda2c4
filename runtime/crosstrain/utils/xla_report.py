"""`xla_report`: what XLA has done so far, for the user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from crosstrain.run import RUN

if TYPE_CHECKING:
    from crosstrain.comm.xla.watch import XlaReport


def xla_report() -> XlaReport:
    """Graphs compiled and reused, values read one by one, operations that fell back to the CPU, batch shapes.

    Print the result, or read its fields. Raises RuntimeError if this run does not use XLA.
    """
    backend = sys.modules.get("crosstrain.comm.xla.backend")
    comm = RUN.comm
    if backend is None or not isinstance(comm, backend.XlaComm):
        raise RuntimeError(f"this run is on {comm.device}, not on XLA: there is nothing to report.")
    report: XlaReport = comm.watch.report()
    return report
