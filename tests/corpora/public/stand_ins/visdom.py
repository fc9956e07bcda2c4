"""visdom without a server: what is plotted goes nowhere."""

from __future__ import annotations

from typing import Any


class Visdom:
    """Takes the calls that scripts make."""

    def __init__(self, **options: Any) -> None:
        del options

    def line(self, *values: Any, **options: Any) -> None:
        """A curve."""

    def text(self, *values: Any, **options: Any) -> None:
        """A text."""

    def images(self, *values: Any, **options: Any) -> None:
        """Pictures."""
