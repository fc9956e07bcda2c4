"""Informational lines for the user."""

from __future__ import annotations

import logging
import os
import sys

logger = logging.getLogger("crosstrain")


def say(line: str) -> None:
    """One line for the user, unless CROSSTRAIN_QUIET asks for none."""
    if quiet():
        return
    if logger.hasHandlers():
        logger.info(line)
    else:  # a script that configured no logging should see it too
        print(f"crosstrain: {line}", file=sys.stderr)


def shortened(text: str, limit: int) -> str:
    """The text, cut to ``limit`` characters with "..." at its end where it is longer."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def quiet() -> bool:
    """CROSSTRAIN_QUIET=1 turns the informational lines off."""
    return os.environ.get("CROSSTRAIN_QUIET", "") not in ("", "0")
