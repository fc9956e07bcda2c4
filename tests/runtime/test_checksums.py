"""Checksums tell any change of a file's content or length."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain.checkpoint import checksums as module
from crosstrain.checkpoint.checksums import checksums


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 64)
    monkeypatch.setattr(module, "_READ", 24)


def _of(path: Path, content: bytes) -> str | None:
    path.write_bytes(content)
    return checksums([path])[0]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 300])
def test_every_byte_and_the_length_count(size: int, tmp_path: Path) -> None:
    content = bytes(number % 251 for number in range(size))
    file = tmp_path / "file"
    right = _of(file, content)
    assert _of(tmp_path / "twin", content) == right
    changed = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(size)]
    others = [*changed, content + b"\0", *([content[:-1]] if size else [])]
    assert right not in [_of(file, other) for other in others]


def test_pieces_that_change_places_are_told(tmp_path: Path) -> None:
    a, b = b"a" * 64, b"b" * 64
    assert _of(tmp_path / "one", a + b) != _of(tmp_path / "other", b + a)


def test_a_file_that_is_not_there_has_none(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    missing, there = checksums([tmp_path / "missing", tmp_path / "there"])
    assert missing is None
    assert there is not None
