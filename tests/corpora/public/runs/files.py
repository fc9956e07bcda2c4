"""Files that the scripts read, made by seeded code."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image


def replaced(path: Path, changes: dict[str, str]) -> None:
    """Put other values where a script writes down its own: ``{"default=128": "default=8"}``."""
    text = path.read_text()
    for old, new in changes.items():
        assert old in text, f"no {old} in {path.name}"
        text = text.replace(old, new)
    path.write_text(text)


def picture(path: Path, seed: int, size: tuple[int, int] = (48, 48)) -> None:
    """A few rectangles at random."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn(random.Random(seed), "RGB", size, 255).save(path)


def drawn(chosen: random.Random, mode: str, size: tuple[int, int], brightest: int) -> Image.Image:
    picture = Image.new(mode, size)
    for _ in range(4):
        left, top = chosen.randrange(size[0] // 2), chosen.randrange(size[1] // 2)
        colour = [chosen.randrange(brightest + 1) for _ in mode]
        box = (left, top, left + size[0] // 3, top + size[1] // 3)
        picture.paste(tuple(colour) if len(mode) > 1 else colour[0], box)
    return picture
