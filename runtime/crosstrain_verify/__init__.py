"""The proof that a migrated script or notebook trains as the original does: `crosstrain verify a.py b.py`.

* `engine`: `verify(original, migrated, ...) -> Report` makes all runs and returns the report.
* `running`: a server process that has torch loaded and forks every run, and the client that gives it jobs.
* `emulation`: what a script finds inside a run, where that differs from the machine. `tracing`: the hooks that record it.
* `records`: the files that a run leaves behind. They are read without torch.
* `judging`: which runs are made, and the verdict on each.
* `report`, `render`, `command`: the result for the caller, the terminal and the command line.

Running a script here has the effects of running it, except that it works in another directory: verify only scripts that
you would run. Only the server's process imports torch.
"""

from crosstrain_verify.engine import verify
from crosstrain_verify.report.report import Cause, Difference, Report, Run, Verdict
from crosstrain_verify.running.client import VerifyInputError

__all__ = ["Cause", "Difference", "Report", "Run", "Verdict", "VerifyInputError", "verify"]
