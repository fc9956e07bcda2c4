"""Messages for the user."""

from __future__ import annotations

import logging
import os
import sys

logger = logging.getLogger("crosstrain")


def say(line: str) -> None:
    """Log a line for the user, or print it to standard error if no logging is configured; not with CROSSTRAIN_QUIET."""
    if quiet():
        return
    if logger.hasHandlers():
        logger.info(line)
    else:
        print(f"crosstrain: {line}", file=sys.stderr)


def warn(line: str) -> None:
    """`say` for what makes a training useless, which CROSSTRAIN_QUIET does not turn off."""
    if logger.hasHandlers():
        logger.warning(line)
    else:
        print(f"crosstrain: {line}", file=sys.stderr)


def shortened(text: str, limit: int) -> str:
    """The text, cut to ``limit`` characters with "..." at its end where it is longer."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def quiet() -> bool:
    """Whether CROSSTRAIN_QUIET turns informational messages off."""
    return os.environ.get("CROSSTRAIN_QUIET", "") not in ("", "0")
