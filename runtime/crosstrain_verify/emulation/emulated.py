"""What a script asked for and a run does in another way, by name: the report has a note about each."""

from __future__ import annotations

COMPILE, SYNC_BATCH_NORM = "torch.compile", "SyncBatchNorm"
NOTES = {
    COMPILE: "torch.compile compiled nothing in any run: the models ran as they are written",
    SYNC_BATCH_NORM: "SyncBatchNorm needs a GPU: in all runs each process took the statistics of its own rows",
}

# Of this process, which runs one rank of one script.
asked: set[str] = set()
