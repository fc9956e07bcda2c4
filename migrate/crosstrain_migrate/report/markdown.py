"""The report as Markdown, small enough for a comment on a pull request."""

from __future__ import annotations

import re
from typing import Any

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.outcome import Outcome, display_name

from .diff import readable
from .templates import environment

COMMENT_LIMIT = 60_000  # characters; GitHub takes 65,536 in a comment


def render(outcome: Outcome, limit: int = COMMENT_LIMIT) -> str:
    """Summary, findings and diffs; says so where a diff would take it over `limit` characters."""
    template = environment().get_template("report.md.j2")
    diffs: dict[str, str] = {}
    room = limit - len(template.render(_context(outcome, {})))
    for file in outcome.changed:
        diff = readable(file)
        room -= len(diff)
        if room > 0:
            diffs[file.name] = diff
    return template.render(_context(outcome, diffs))


def _context(outcome: Outcome, diffs: dict[str, str]) -> dict[str, Any]:
    return {
        "outcome": outcome,
        "written": outcome.mode is Mode.WRITE,
        "diffs": diffs,
        "code": code,
        "inline": inline,
        "fence": fence,
        "display_name": display_name,
        "proof": outcome.proof,
    }


def code(text: str) -> str:
    """A code span that holds any text, in a table too."""
    text = re.sub(r"\s+", " ", text).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def inline(text: str) -> str:
    """Prose with `code` in it: outside code nothing becomes a tag, a mention or a table's column."""
    parts = re.split(r"(`[^`]+`)", re.sub(r"\s+", " ", text).replace("|", "\\|"))
    parts[::2] = [part.replace("<", "&lt;").replace("@", "&#64;") for part in parts[::2]]
    return "".join(parts)


def fence(text: str) -> str:
    """A fence that `text` cannot close."""
    return "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
