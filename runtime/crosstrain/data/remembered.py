"""What `prepare` made of a script's own objects, so that the same object given again is the same prepared one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from crosstrain.data.options import DataPlan

T = TypeVar("T")


class Remembered:
    """Prepared loaders by the object that they were made of, which is not kept alive.

    A loader is made anew where the options differ from those that it was made with, and where the script has changed an
    attribute of its own object.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[weakref.ref[Any], Any, Any]] = {}

    def get(self, own: T, plan: DataPlan, make: Callable[[], Any]) -> tuple[Any, Any]:
        """What was made of ``own`` with this plan, or else what ``make`` makes now.

        Returns it, and what was made of ``own`` before in place of which it now stands, or None.
        """
        known, state = self._made.get(id(own)), (plan, _attributes(own))
        if known is not None and known[0]() is own and known[1] == state:
            return known[2], None
        made = make()
        if made is own:
            return made, None
        self._made[id(own)] = (weakref.ref(own, self._remover(id(own))), state, made)
        return made, None if known is None else known[2]

    def _remover(self, key: int) -> Callable[[object], None]:
        made = self._made

        def remove(dead: object) -> None:
            if key in made and made[key][0] is dead:
                del made[key]

        return remove

    def forget(self) -> None:
        """Forget everything."""
        self._made.clear()


def _attributes(own: Any) -> dict[str, int]:
    """The identities of the object's attributes, without the iterator that a DataLoader keeps."""
    return {name: id(value) for name, value in vars(own).items() if name != "_iterator"}
