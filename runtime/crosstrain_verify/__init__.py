"""Does a changed script, or notebook, still train the same? Run both, trace both, compare: `crosstrain verify a.py b.py`.

* `engine`: `verify(original, migrated, ...) -> Report`, the whole road;
* `server`, `client`: a process with torch loaded, from which every run is forked, and its other end;
* inside a run: `cells`, `launched` (a notebook, and the processes that it starts); `tracer`, `trained`, `batches`,
  `late` (hooks); `devices`, `launcher`, `alone`, `eager`, `synthetic`, `confine` (what a script finds); `draws`,
  `fetching`, `double`, `frozen` (what is done in another way, to compare with);
* `traces`: what a run leaves behind, without torch;
* `originals`, `comparing`, `rank_by_rank`, `defaults`, `xla`: which runs are made, and the verdict on each;
  `compare`, `lines`, `evaluation`, `noise`, `tolerance`: what they are judged by; `causes`: why something differs;
* `report`, `curves`, `render`: what the caller and the terminal get.

Running a script here does what running it would do, but for its working directory: verify only scripts that
you would run. Nothing in this package imports torch outside the server's process.
"""

from crosstrain_verify.engine import verify
from crosstrain_verify.report import Cause, Difference, Report, Run, Verdict
from crosstrain_verify.runs import VerifyInputError

__all__ = ["Cause", "Difference", "Report", "Run", "Verdict", "VerifyInputError", "verify"]
