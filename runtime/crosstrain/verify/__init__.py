"""Does a changed script still train the same? Run both, trace both, compare: `crosstrain verify a.py b.py`.

* `engine`: `verify(original, migrated, ...) -> Report`, the whole road;
* `server`, `client`: a process with torch loaded, from which every run is forked, and its other end;
* `tracer`: hooks inside a run; `traces`: what they leave behind, without torch;
* `compare`, `tolerance`: the verdict; `report`, `render`: what the caller and the terminal get;
* `scratch`: where runs may write.

Running a script here does what running it would do, but for its working directory: verify only scripts that
you would run. Nothing in this package imports torch outside the server's process.
"""

from crosstrain.verify.engine import verify
from crosstrain.verify.report import Cause, Difference, Report, Run, Verdict
from crosstrain.verify.runs import VerifyInputError

__all__ = ["Cause", "Difference", "Report", "Run", "Verdict", "VerifyInputError", "verify"]
