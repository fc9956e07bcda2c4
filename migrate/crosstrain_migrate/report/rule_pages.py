"""The documentation of the rules: a page for each, and the table of all rules.

`python -m crosstrain_migrate.report.rule_pages docs/rules.md` writes the table between `<!-- rules -->` and `<!-- /rules -->`;
with `--check` it only says whether it would change.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crosstrain_migrate import __version__
from crosstrain_migrate.rules.catalogue import Example, catalogue
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


@dataclass(frozen=True, slots=True)
class RulePage:
    """`sections` maps the words of `_HEADINGS` to text, in the order of the docstring; `examples` are headings and code."""

    code: str
    title: str
    sections: dict[str, str]
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def suppression(self) -> str:
        if stands_alone(self.code):
            return f"`# migrate: skip {self.code}` on the line, or `--ignore {self.code}`."
        return (
            "This rule is a part of the conversion, which is made whole or not at all: a script that needs it is refused "
            "when it is suppressed (`# migrate: skip`, `--ignore`). `# migrate: skip-file` leaves the file alone."
        )

    def parts(self) -> Iterator[tuple[str, str, str]]:
        """(heading, prose, code) of all that it says: prose is empty where there is code."""
        for word, text in self.sections.items():
            code = code_of(text)
            yield _HEADINGS[word], "" if code else text, code
        for heading, code in self.examples:
            yield heading, "", code
        yield "How to suppress it", self.suppression, ""


def rule_pages() -> list[RulePage]:
    """Every rule's page, by code."""
    return [
        RulePage(page.code, page.title, _sections(page.text), _shown(page.examples)) for page in catalogue()
    ]


def rule_names() -> dict[str, str]:
    """Code -> title."""
    return {page.code: page.title for page in rule_pages()}


def rule_table() -> str:
    """One line per rule, for a terminal."""
    return "".join(f"{page.code}  {page.title}\n" for page in rule_pages())


def rule_page(code: str) -> str | None:
    """A rule's page as text; None where no rule has the code."""
    page = next((one for one in rule_pages() if one.code == code.strip().upper()), None)
    if page is None:
        return None
    title = f"{page.code}: {page.title}"
    parts = [f"{title}\n{'=' * len(title)}"]
    for heading, text, code in page.parts():
        parts.append(f"{heading}\n" + textwrap.indent(code or "\n".join(textwrap.wrap(text, 96)), "    "))
    return "\n\n".join(parts) + "\n"


def markdown() -> str:
    """All pages as one Markdown document."""
    parts = ["# Rules of migrate", markdown_table(link="#").rstrip()]
    parts += [
        f'<a id="{page.code.lower()}"></a>\n{markdown_page(page, level=2).rstrip()}' for page in rule_pages()
    ]
    return "\n\n".join(parts) + "\n"


def markdown_page(page: RulePage, level: int = 1) -> str:
    """One rule's page; `level` is that of its heading."""
    parts = [f"{'#' * level} {page.code}: {page.title}"]
    for heading, text, code in page.parts():
        parts.append(f"**{heading}**" + (f"\n\n```python\n{code}\n```" if code else f": {text}"))
    return "\n\n".join(parts) + "\n"


def html() -> str:
    """All pages as one HTML file that needs nothing else."""
    from .html import prose
    from .templates import environment

    template = environment().get_template("rules.html.j2")
    tools = {"headings": _HEADINGS, "code_of": code_of, "prose": prose}
    return template.render(pages=rule_pages(), families=FAMILIES, version=__version__, **tools)


def markdown_table(link: str = "") -> str:
    """Every rule in one table; with `link`, each code leads to its page there."""
    lines = ["| rule | | can be suppressed alone |", "| --- | --- | --- |"]
    for page in rule_pages():
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


def code_of(text: str) -> str:
    """The code of an example that is nothing but code; empty for prose."""
    found = re.fullmatch(r"`([^`]+)`", text)
    return found[1] if found else ""


def _shown(examples: Iterable[Example]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for one in examples:
        found.append((_EXAMPLES[one.kind], _joined(one.before)))
        if one.after:
            found.append(("After", _joined(one.after)))
    return tuple(found)


def _joined(places: dict[str, str]) -> str:
    """The code of several places of a script as one text; those that are emptied are not shown."""
    shown: list[str] = []
    margin = ""
    for code in filter(None, places.values()):
        shown.append(textwrap.indent(code, margin))
        margin = "    " if code.endswith(":") else margin  # the places that follow a loop's head stand in it
    return "\n".join(shown)


def _sections(doc: str) -> dict[str, str]:
    parts = _SECTION.split(doc)
    return {
        heading: " ".join(body.split())
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
        if body.strip()
    }


def main(arguments: Sequence[str]) -> int:
    check = "--check" in arguments
    wrong = 0
    for name in arguments:
        if name == "--check":
            continue
        file = Path(name)
        text = file.read_text("utf-8")
        fresh = with_table(text)
        if fresh != text and check:
            print(
                f"{name}: the table of rules is old; run python -m crosstrain_migrate.report.rule_pages {name}",
                file=sys.stderr,
            )
            wrong = 1
        elif fresh != text:
            file.write_text(fresh, "utf-8")
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
