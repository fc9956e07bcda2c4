"""The page of first looks: a table that can be read by a program, newest first, with a section for each row."""

import datetime
import json
import re
from pathlib import Path

from .console import ROOT

PAGE = ROOT / "docs" / "first_look.md"
CORPORA = ROOT / "tests" / "corpora"
COLUMNS = "date|commit|measurement|scripts|repositories|convertible|converted"
COLUMNS += "|right|wrong|unsharded|notes|run|run right|causes"


def test_each_measurement_is_counted_from_a_section_with_a_line_for_each_script() -> None:
    sections = _sections(PAGE)
    measurements = _table(sections["Measurements"])
    dates = [datetime.date.fromisoformat(row["date"]) for row in measurements]
    assert dates == sorted(dates, reverse=True)
    for row in measurements:
        assert re.fullmatch("[0-9a-f]{7,40}", row["commit"]), row
        lines = _table(sections[row["measurement"]], first="script")
        assert len({line["script"] for line in lines}) == len(lines) == int(row["scripts"])
        counted = [line["reading"] for line in lines if line["an expert"] == "converts"]
        right, wrong = counted.count("right"), counted.count("wrong")
        found = [str(number) for number in (len(counted), right + wrong, right, wrong)]
        assert [row[name] for name in ("convertible", "converted", "right", "wrong")] == found, row
        assert int(row["repositories"]) <= len(lines) and int(row["unsharded"]) <= wrong, row
        assert not row["run"] or int(row["run right"]) <= int(row["run"]) <= right + wrong, row
        assert all(line["why"] for line in lines if line["reading"] == "wrong"), "say what is wrong"


def test_the_repositories_of_the_public_scripts_count_as_seen() -> None:
    seen = [line for line in (CORPORA / "seen.txt").read_text("utf-8").splitlines() if line[:1] != "#"]
    assert seen == sorted(set(seen), key=str.casefold)
    public = json.loads((CORPORA / "public" / "scripts.json").read_text("utf-8"))["scripts"]
    assert {script["repo"] for script in public} <= set(seen)


def _sections(page: Path) -> dict[str, str]:
    """The text below each heading of the second level, by its title."""
    parts = re.split(r"^## (.+)$", page.read_text("utf-8"), flags=re.M)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _table(text: str, first: str = "date") -> list[dict[str, str]]:
    """The rows of the table whose first column is called `first`."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    start = next(number for number, row in enumerate(rows) if row[0] == first)
    header, _, *body = rows[start:]
    if first == "date":
        assert header == COLUMNS.split("|")
    return [dict(zip(header, row, strict=True)) for row in body]
