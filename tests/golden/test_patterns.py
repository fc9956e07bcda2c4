"""The corpus holds what people write: every pattern of the table at least once, and Windows files as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cases import GOLDEN
from .patterns import PATTERNS, counts, main, table


def test_no_pattern_of_public_scripts_is_missing() -> None:
    assert [name for name, cases in counts().items() if not cases] == []


def test_the_corpus_has_fifty_cases() -> None:
    assert len(list(GOLDEN.glob("*/run.toml"))) >= 50


def test_the_table_is_written_between_its_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "README.md"
    file.write_text("before\n<!-- patterns -->\nold\n<!-- /patterns -->\nafter\n")
    assert main([str(file)]) == 0
    assert file.read_text() == f"before\n<!-- patterns -->\n{table()}<!-- /patterns -->\nafter\n"
    assert table().count("\n") == len(PATTERNS) + 2
    file.write_text("nothing")
    assert main([str(file)]) == 1
    assert "<!-- patterns -->" in capsys.readouterr().err
