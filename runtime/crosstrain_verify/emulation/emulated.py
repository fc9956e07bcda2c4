"""Features that a script uses and that work differently in a run. The report has a note for each."""

from __future__ import annotations

COMPILE, SYNC_BATCH_NORM = "torch.compile", "SyncBatchNorm"
NOTES = {
    COMPILE: "torch.compile compiled nothing in any run: the models ran as they are written",
    SYNC_BATCH_NORM: "SyncBatchNorm needs a GPU: in all runs each process took the statistics of its own rows",
}

# The features that the script of this process has used; a process runs one rank of one script.
asked: set[str] = set()
