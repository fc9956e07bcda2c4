"""CONTRIBUTING.md: the places that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", re.findall(r"`((?:migrate|runtime|tests|golden)/[\w./]*)`", TEXT))
def test_a_place_exists(place: str) -> None:
    assert (ROOT / place).exists()
