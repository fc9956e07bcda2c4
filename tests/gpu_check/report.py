"""The report: one Markdown file, written anew after each section, so that a check that is stopped has told what it did."""

import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Section:
    """What came of one part of the check. ``failures`` make the command fail."""

    title: str
    text: str
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def table(columns: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    """A block of output."""
    return f"```text\n{text.strip()}\n```"


def render(device: str, sections: list[Section]) -> str:
    """The whole report."""
    failures = [f"{section.title}: {failure}" for section in sections for failure in section.failures]
    verdict = "Everything passed." if not failures else f"{len(failures)} failed:"
    parts = [
        f"# GPU check: {device}",
        f"`make gpu-check`, {time.strftime('%Y-%m-%d')}. {verdict}",
        *(["\n".join(f"- {failure}" for failure in failures)] if failures else []),
        *(f"## {section.title}\n\n{section.text}\n\n({section.seconds:.0f} s)" for section in sections),
    ]
    return "\n\n".join(parts) + "\n"


def write(path: Path, device: str, sections: list[Section]) -> None:
    """Put the report where it is wanted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(device, sections), encoding="utf-8")
