"""The entry point of every rank: `python worker.py script|module TARGET ARGUMENTS...`.

A rank prints no traceback, because several ranks that fail together would print theirs interleaved. It writes the traceback
to the file that the agent names in TORCHELASTIC_ERROR_FILE, in the form that the agent reads
(`torch.distributed.elastic.multiprocessing.errors`). The file also has the time in nanoseconds: the agent's own time stamps
are whole seconds and do not show which rank failed first.
"""

from __future__ import annotations

import faulthandler
import io
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType

from crosstrain.launch.target import Target, clean_traceback, hide_from_tracebacks

PR_SET_PDEATHSIG = 1  # linux/prctl.h


hide_from_tracebacks(__file__)


def main() -> None:
    die_with_parent()
    write_by_line()
    faulthandler.enable(all_threads=True)
    sys.excepthook = record_exception
    _, kind, name, *arguments = sys.argv
    Target(name, is_module=kind == "module", arguments=tuple(arguments)).run()


def write_by_line() -> None:
    """Write whole lines at once: ranks share a terminal, and logs are read while they are written."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, write_through=False)


def record_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The rank's `sys.excepthook`: write the error file, or print the traceback if the agent named no file."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    text = clean_traceback(error)
    if not path:
        sys.stderr.write(text)
        return
    now = time.time_ns()
    message = {
        "message": "".join(traceback.format_exception_only(kind, error)).strip(),
        "extraInfo": {"py_callstack": text, "timestamp": str(now // 10**9)},
    }
    rank = int(os.environ.get("RANK", "0"))
    record = {"message": message, "time_ns": now, "rank": rank}
    partial = Path(path + ".part")  # the agent may end this rank, and read the file, at any moment
    partial.write_text(json.dumps(record), encoding="utf-8")
    partial.replace(path)


def die_with_parent(death: signal.Signals = signal.SIGKILL) -> None:
    """Make Linux end this process when its parent ends for any reason. On other systems this does nothing."""
    if sys.platform != "linux":
        return
    import ctypes

    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(death), 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the call
        os.kill(os.getpid(), death)


if __name__ == "__main__":
    main()
