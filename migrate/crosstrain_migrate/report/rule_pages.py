"""The documentation of the rules: a page for each, and the table of all rules.

`python -m crosstrain_migrate.report.rule_pages docs/rules.md` writes the table between `<!-- rules -->` and `<!-- /rules -->`.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from crosstrain_migrate import __version__
from crosstrain_migrate.rules.catalogue import Page, catalogue
from crosstrain_migrate.rules.policy import stands_alone

FAMILIES = {
    "CT0": "The tool's own work",
    "CT1": "Accelerator and device",
    "CT2": "Prepare and the training loop",
    "CT3": "What the library replaces",
    "CT4": "One process speaks",
    "CT5": "Checkpoints",
    "CT6": "Numbers",
    "CT7": "Advice for XLA",
    "CT8": "Notebooks",
    "CT9": "What is left to you",
}
_HEADINGS = {
    "What": "What it does",
    "Why": "Why",
    "Before": "Before",
    "After": "After",
    "Leaves": "What it leaves",
    "Refuses": "When it refuses",
}
# What stands above the code of an example, by its kind.
_EXAMPLES = {
    "Example": "Before",
    "Stays": "Stays as it is",
    "Noted": "Stays as it is, with a note",
    "Left": "The script stays as it is, with a note",
    "Refused": "The script is refused",
}
_SECTION = re.compile(rf"^({'|'.join(_HEADINGS)}): *", re.MULTILINE)
_START, _END = "<!-- rules -->", "<!-- /rules -->"


def parts_of(page: Page) -> Iterator[tuple[str, str, str]]:
    """(heading, prose, code) of all that a page says: prose is empty where there is code."""
    words = _SECTION.split(page.text)
    for word, body in zip(words[1::2], words[2::2], strict=True):
        text = " ".join(body.split())
        found = re.fullmatch(r"`([^`]+)`", text)
        yield _HEADINGS[word], "" if found else text, found[1] if found else ""
    for one in page.examples:
        yield _EXAMPLES[one.kind], "", _joined(one.before)
        if one.after:
            yield "After", "", _joined(one.after)
    yield "How to suppress it", _suppression(page.code), ""


def _suppression(code: str) -> str:
    if stands_alone(code):
        return f"`# migrate: skip {code}` on the line, or `--ignore {code}`."
    return (
        "This rule is a part of the conversion, which is made whole or not at all: a script that needs it is refused "
        "when it is suppressed (`# migrate: skip`, `--ignore`). `# migrate: skip-file` leaves the file alone."
    )


def rule_table() -> str:
    """One line per rule, for a terminal."""
    return "".join(f"{page.code}  {page.title}\n" for page in catalogue())


def rule_page(code: str) -> str | None:
    """A rule's page as text; None where no rule has the code."""
    page = next((one for one in catalogue() if one.code == code.strip().upper()), None)
    if page is None:
        return None
    title = f"{page.code}: {page.title}"
    parts = [f"{title}\n{'=' * len(title)}"]
    for heading, text, code in parts_of(page):
        parts.append(f"{heading}\n" + textwrap.indent(code or "\n".join(textwrap.wrap(text, 96)), "    "))
    return "\n\n".join(parts) + "\n"


def markdown() -> str:
    """All pages as one Markdown document."""
    parts = ["# Rules of migrate", markdown_table(link="#").rstrip()]
    parts += [
        f'<a id="{page.code.lower()}"></a>\n{markdown_page(page, level=2).rstrip()}' for page in catalogue()
    ]
    return "\n\n".join(parts) + "\n"


def markdown_page(page: Page, level: int = 1) -> str:
    """One rule's page; `level` is that of its heading."""
    parts = [f"{'#' * level} {page.code}: {page.title}"]
    for heading, text, code in parts_of(page):
        parts.append(f"**{heading}**" + (f"\n\n```python\n{code}\n```" if code else f": {text}"))
    return "\n\n".join(parts) + "\n"


def html() -> str:
    """All pages as one HTML file that needs nothing else."""
    from .html import prose
    from .templates import environment

    template = environment().get_template("rules.html.j2")
    pages = [(page, list(parts_of(page))) for page in catalogue()]
    return template.render(pages=pages, families=FAMILIES, version=__version__, prose=prose)


def markdown_table(link: str = "") -> str:
    """Every rule in one table; with `link`, each code leads to its page there."""
    lines = ["| rule | | can be suppressed alone |", "| --- | --- | --- |"]
    for page in catalogue():
        code = f"[{page.code}]({link}{page.code.lower()})" if link else page.code
        lines.append(f"| {code} | {page.title} | {'yes' if stands_alone(page.code) else ''} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """`text` with today's table between the markers. Raises ValueError where it has none."""
    before, start, rest = text.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise ValueError(f"holds no {_START} ... {_END}")
    return f"{before}{start}\n{markdown_table()}{end}{after}"


def _joined(places: dict[str, str]) -> str:
    """The code of several places of a script as one text; those that are emptied are not shown."""
    shown: list[str] = []
    margin = ""
    for code in filter(None, places.values()):
        shown.append(textwrap.indent(code, margin))
        margin = "    " if code.endswith(":") else margin  # the places that follow a loop's head stand in it
    return "\n".join(shown)


if __name__ == "__main__":
    for file in map(Path, sys.argv[1:]):
        file.write_text(with_table(file.read_text("utf-8")), "utf-8")
