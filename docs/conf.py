"""Sphinx reads this: `make docs`. What is generated, is generated here, from the sources that it describes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from crosstrain_migrate import __version__
from crosstrain_migrate.report import rule_pages
from crosstrain_migrate.rules.catalogue import catalogue

DOCS = Path(__file__).parent
_MAINS = {"migrate": "crosstrain_migrate.cli", "crosstrain": "crosstrain.cli"}

project = "Crosstrain"
author = "the Crosstrain authors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
default_role = "code"
html_theme = "furo"
html_title = f"Crosstrain {__version__}"
html_static_path = ["pictures"]
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "separated"
pygments_style = "friendly"
pygments_dark_style = "native"


def _write(name: str, text: str) -> None:
    """A page, left alone where it is the same already: Sphinx builds again what is newer."""
    file = DOCS / name
    file.parent.mkdir(exist_ok=True)
    if not file.exists() or file.read_text("utf-8") != text:
        file.write_text(text, "utf-8")


def _rules() -> None:
    for page in catalogue():
        _write(f"rules/{page.code.lower()}.md", rule_pages.markdown_page(page))


def _command_line() -> None:
    commands = [
        "migrate",
        *(f"crosstrain {one}".strip() for one in ("", "launch", "config", "test", "verify")),
    ]
    commands += ["crosstrain merge-weights", "crosstrain env"]
    parts = ["# Command line\n\nEvery command knows `-h` and `--help`; this is what they print.\n"]
    for command in commands:
        name, *rest = command.split()
        code = f"import sys; from {_MAINS[name]} import main; sys.argv[0] = {name!r}; main()"
        variables = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
        text = subprocess.run(
            [sys.executable, "-c", code, *rest, "--help"],
            capture_output=True,
            text=True,
            check=True,
            env=variables,
        ).stdout
        parts.append(f"## {command}\n\n```text\n{text.strip()}\n```\n")
    _write("reference/command_line.md", "\n".join(parts))


_rules()
_command_line()
