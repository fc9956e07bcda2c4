"""Does a changed script, or notebook, still train the same? Run both, trace both, compare: `crosstrain verify a.py b.py`.

* `engine`: `verify(original, migrated, ...) -> Report`, from the first run to the report;
* `running`: a process with torch loaded, from which every run is forked, and its other end;
* `emulation`, `tracing`: inside a run, what the script finds and the hooks that watch it;
* `records`: what a run leaves behind, without torch;
* `judging`: which runs are made, and the verdict on each;
* `report`, `render`, `command`: what the caller, the terminal and the command line get.

Running a script here does what running it would do, but for its working directory: verify only scripts that
you would run. Nothing in this package imports torch outside the server's process.
"""

from crosstrain_verify.engine import verify
from crosstrain_verify.report.report import Cause, Difference, Report, Run, Verdict
from crosstrain_verify.running.runs import VerifyInputError

__all__ = ["Cause", "Difference", "Report", "Run", "Verdict", "VerifyInputError", "verify"]
