"""What README and the documentation show is what a reader gets."""

import difflib
import re
from pathlib import Path

import pytest

from .console import ROOT, Page, dry, prepare, read, run, same

GUIDE = ROOT / "runtime" / "crosstrain" / "SKILL.md"
PAGES = [ROOT / "README.md", GUIDE, *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "rules" not in page.relative_to(ROOT).parts[:-1]]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
@pytest.mark.timeout(1800)
def test_the_commands_of_a_page_show_what_it_shows(path: Path, tmp_path: Path) -> None:
    page = read(path)
    folder = tmp_path / "project"
    folder.mkdir()
    prepare(page, folder)
    wrong = _wrong(page, folder)
    assert not wrong, f"run `python -m tests.docs.update {path.relative_to(ROOT)}`\n" + "\n".join(wrong)


def _wrong(page: Page, folder: Path) -> list[str]:
    wrong: list[str] = []
    for block in page.blocks:
        for command in block.commands:
            if block.dry:
                tried = dry(command.text)
                came = run(f"touch train.py; {tried} && echo READ", folder) if tried else "READ\n"
                if not came.endswith("READ\n"):
                    wrong.append(f"$ {tried}\n{came}")
                continue
            came = run(command.text, folder)
            if not same(command.shown, came):
                lines = difflib.unified_diff(
                    command.shown.splitlines(), came.splitlines(), "page", "came", lineterm=""
                )
                wrong.append(f"$ {command.text}\n" + "\n".join(lines))
    return wrong


def test_code_is_shown_as_code_and_commands_as_commands() -> None:
    """A block without a language is neither run nor highlighted."""
    for path in PAGES:
        fences = re.findall(r"^```(.*)$", path.read_text("utf-8"), re.M)
        assert all(fences[::2]), f"{path}: a block has no language"


def test_links_lead_somewhere() -> None:
    for path in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text("utf-8")):
            if "://" not in target and "/rules/" not in f"/{target}":
                assert (path.parent / target).exists(), f"{path}: {target}"


def test_the_places_that_contributing_names_exist() -> None:
    places = re.findall(
        r"`((?:migrate|runtime|tests|golden)/[\w./]*)`", (ROOT / "CONTRIBUTING.md").read_text()
    )
    assert places and [place for place in places if not (ROOT / place).exists()] == []
