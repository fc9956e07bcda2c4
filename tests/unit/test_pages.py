"""What the command says of its own rules: every code has a page, the same text in every form."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crosstrain_migrate.cli.config import KEYS
from crosstrain_migrate.report import rule_pages
from crosstrain_migrate.rules.catalogue import catalogue, titles

from tests.unit.conftest import Page, Ran

ROOT = Path(__file__).parents[2]
Migrate = Callable[..., Ran]


def test_every_code_in_the_source_has_a_title_and_a_page() -> None:
    """The docstring of a rule's file begins with a line for each of its codes."""
    used = {
        code
        for file in (ROOT / "migrate" / "crosstrain_migrate").rglob("*.py")
        for code in re.findall(r'"(CT\d{3})"', file.read_text("utf-8"))
    }
    assert used <= titles().keys()
    for page in catalogue():
        headings = {heading for heading, _, _ in rule_pages.parts_of(page)}
        assert {"What it does", "Why"} <= headings, page.code
        assert page.code[:3] in rule_pages.FAMILIES


def test_a_rule_is_explained_with_its_example(migrate: Migrate) -> None:
    page = migrate("--explain", "ct203").out.decode()
    title = f"CT203: {titles()['CT203']}"
    assert page.startswith(f"{title}\n{'=' * len(title)}\n\nWhat it does\n    ")
    assert "\n\nBefore\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n" in page
    assert "\n\nAfter\n    accelerator.clip_grad_norm_(model.parameters(), 1.0)\n" in page
    assert "\n\nStays as it is\n    vector = nn.utils.parameters_to_vector(model.parameters())\n" in page
    assert "\n\nHow to suppress it\n" in page
    assert "`# migrate: skip CT401` on the line" in migrate("--explain", "CT401").out.decode()
    lines = migrate("--list-rules").out.decode().splitlines()
    assert lines == sorted(lines)
    assert f"CT203  {titles()['CT203']}" in lines


def test_all_pages_become_one_markdown_document(migrate: Migrate, tmp_path: Path) -> None:
    assert migrate("--list-rules", "--output-format", "markdown", "--output", tmp_path / "rules.md").code == 0
    text = (tmp_path / "rules.md").read_text("utf-8")
    links = set(re.findall(r"\]\(#(ct\d{3})\)", text))
    assert links == {code.lower() for code in titles()}
    assert links == set(re.findall(r'<a id="(ct\d{3})">', text))


def test_all_pages_become_one_html_file(migrate: Migrate) -> None:
    page = Page()
    page.feed(migrate("--list-rules", "--output-format", "html").out.decode())
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert {str(attrs["href"]).removeprefix("#") for _, attrs in page.tags if "href" in attrs} <= set(ids)
    assert len(set(ids)) == len(ids)
    assert set(titles()) <= set(ids)


def test_the_documentation_has_todays_table_and_every_key_of_the_configuration() -> None:
    text = (ROOT / "docs" / "rules.md").read_text("utf-8")
    update = "run python -m crosstrain_migrate.report.rule_pages docs/rules.md"
    assert rule_pages.with_table(text) == text, update
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([\w-]+)` \|", text, re.M)) >= set(KEYS)


def test_the_documentation_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path / "html")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "rules" / "ct602.html").exists()
