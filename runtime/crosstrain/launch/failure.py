"""Which rank failed first, and what the user is told: one traceback, and one line for each other rank."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from crosstrain.utils.messages import shortened

# Exit codes of the launcher's own.
USAGE_ERROR = 2  # the options cannot be carried out, so another attempt will fail, too
# EX_TEMPFAIL of sysexits: machines did not connect, or one was lost; another attempt may succeed.
MACHINES_APART = 75
LINE_LIMIT = 100  # characters of another rank's error, which usually says only that its peer is gone


class ProcessFailure(Protocol):
    """The part of torch's `ProcessFailure` that is read here."""

    exitcode: int
    error_file_data: dict[str, Any]


@dataclass(frozen=True)
class RankFailure:
    """How one rank ended.

    exit_code: negative for a signal. traceback: "" if there was no Python exception. summary: the exception's message.
    """

    rank: int
    exit_code: int
    traceback: str
    summary: str
    time_ns: int

    @classmethod
    def of(cls, rank: int, exit_code: int, data: Mapping[str, Any]) -> RankFailure:
        """From a rank's error file, which this package or torch wrote; without a file ``data`` has few entries."""
        message = data.get("message", "")
        detail = message if isinstance(message, dict) else {}
        extra = detail.get("extraInfo", {})
        return cls(
            rank=rank,
            exit_code=exit_code,
            traceback=str(extra.get("py_callstack", "")),
            summary=str(detail.get("message", "")).strip(),
            time_ns=int(data.get("time_ns", int(extra.get("timestamp", 0)) * 10**9)),
        )

    @property
    def ended_by_agent(self) -> bool:
        """Whether the agent ended this rank, by SIGTERM, after another one had failed."""
        return self.exit_code == -signal.SIGTERM and not self.traceback

    @property
    def died(self) -> bool:
        """Whether it ended without a Python exception: by a signal or an exit code."""
        return not self.traceback

    def ending(self) -> str:
        """One line, such as `exited with code 3`, `was killed by SIGSEGV`, or the exception."""
        if self.summary:
            return shortened(self.summary.splitlines()[-1], LINE_LIMIT)
        if self.exit_code >= 0:
            return f"exited with code {self.exit_code}"
        name = signal.Signals(-self.exit_code).name
        hint = " (often: out of memory)" if -self.exit_code == signal.SIGKILL else ""
        return f"was killed by {name}{hint}"

    def process_exit_code(self) -> int:
        """The exit code in the shell's convention: 128 + n for signal n."""
        return self.exit_code if self.exit_code > 0 else 128 - self.exit_code


def error_files(folder: Path) -> dict[int, dict[str, Any]]:
    """By rank, the error files of the last attempt in the agent's log folder."""
    attempts: dict[int, dict[int, dict[str, Any]]] = {}
    for path in folder.glob("*/attempt_*/*/error.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        if "rank" in data:
            attempt = int(path.parts[-3].removeprefix("attempt_"))
            attempts.setdefault(attempt, {})[data["rank"]] = data
    return attempts[max(attempts)] if attempts else {}


def order_of_failure(
    failures: Mapping[int, ProcessFailure], written: Mapping[int, dict[str, Any]] | None = None
) -> list[RankFailure]:
    """The failed ranks, the likely cause first, without ranks that the agent ended.

    A rank that died without an exception comes first: its peers only notice that the connection is gone, but their
    exceptions are earlier than the time at which the agent finds the dead one. The others follow by time.

    failures: the ranks that the agent found. written: error files by rank. If ranks run a function, the agent stops at the
    first dead rank that it finds, which may be one that only lost its connection; the files tell of the others.
    """
    ranks = [RankFailure.of(rank, seen.exitcode, seen.error_file_data) for rank, seen in failures.items()]
    unseen = {rank: data for rank, data in (written or {}).items() if rank not in failures}
    ranks += [RankFailure.of(rank, 1, data) for rank, data in unseen.items()]
    causes = [failure for failure in ranks if not failure.ended_by_agent] or ranks
    return sorted(causes, key=lambda failure: (not failure.died, failure.time_ns, failure.rank))


def describe(failures: list[RankFailure], world_size: int, speaker: str = "crosstrain launch") -> str:
    """The message for the user: the first failure with its traceback, the others in a line each, equal ones together."""
    first, *others = failures
    same = [other.rank for other in others if other.summary and other.summary == first.summary]
    ranks = ", ".join(str(rank) for rank in sorted([first.rank, *same]))
    name = f"rank{'s' if same else ''} {ranks} of {world_size}"
    if first.traceback:
        lines = [first.traceback.rstrip("\n"), f"{speaker}: {name} failed with the error above."]
    else:
        lines = [f"{speaker}: {name} {first.ending()}."]
    lines += [
        f"  then rank {other.rank} {'failed: ' if other.summary else ''}{other.ending()}"
        for other in others
        if other.rank not in same
    ]
    return "\n".join(lines)
