"""How a run is shown: one module per format, each with `render(outcome) -> str | bytes`.

In: the `Outcome` of a run, or the rules themselves (`rule_pages`). Out: text and bytes. The command imports this room,
and nothing else.
"""

from __future__ import annotations

import sys
from importlib import import_module

from crosstrain_migrate.outcome import Outcome


def render(outcome: Outcome, name: str) -> bytes:
    """The whole report in one of the formats of `--output-format`."""
    report = import_module(f"crosstrain_migrate.report.{name}").render(outcome)
    # Names that are not valid UTF-8 must not stop a report.
    return report if isinstance(report, bytes) else report.encode("utf-8", "backslashreplace")


def print_diff(outcome: Outcome) -> None:
    """The diff on standard output: bytes that `git apply` takes, or coloured on a terminal."""
    if sys.stdout.isatty():
        from .terminal import print_diff

        print_diff(outcome)
        return
    from .text import render

    sys.stdout.buffer.write(render(outcome))
    sys.stdout.buffer.flush()
