"""What `prepare` made of a script's own objects, so that the same object given again is the same prepared one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils.data import DataLoader

from crosstrain.data.options import DataPlan

T = TypeVar("T")


class Remembered:
    """Prepared loaders by the object that they were made of, which is not kept alive.

    A loader is made anew where the options differ from those that it was made with, and where the script has changed an
    attribute of its own object.
    """

    def __init__(self) -> None:
        self._made: dict[int, tuple[Callable[[], Any], Any, Any]] = {}

    def get(self, own: T, plan: DataPlan, make: Callable[[], Any]) -> tuple[Any, Any]:
        """What was made of ``own`` with this plan, or else what ``make`` makes now.

        Returns it, and what was made of ``own`` before in place of which it now stands, or None.
        """
        known = self._made.get(id(own))
        if (there := self.known(own, plan)) is not None:
            return there, None
        made = make()
        if made is own:
            return made, None
        before = None if known is None or known[0]() is not own else known[2]
        self.put(own, plan, made)
        return made, before

    def known(self, own: Any, plan: DataPlan) -> Any:
        """What was made of ``own`` with this plan; None if nothing was, or the script has changed it since."""
        known = self._made.get(id(own))
        same = known is not None and known[0]() is own and known[1] == (plan, _attributes(own))
        return known[2] if known is not None and same else None

    def put(self, own: Any, plan: DataPlan, made: Any) -> None:
        """Remember what was made of ``own`` with this plan."""
        state = (plan, _attributes(own))
        try:
            self._made[id(own)] = (weakref.ref(own, self._remover(id(own))), state, made)
        except TypeError:  # a list or a range: it lives as long as what was made of it
            self._made[id(own)] = (lambda: own, state, made)

    def _remover(self, key: int) -> Callable[[object], None]:
        made = self._made

        def remove(dead: object) -> None:
            if key in made and made[key][0] is dead:
                del made[key]

        return remove

    def drop(self, made: Any) -> None:
        """Forget what this was made of, which is not kept alive any longer."""
        for key in [key for key, entry in self._made.items() if entry[2] is made]:
            del self._made[key]

    def forget(self) -> None:
        """Forget everything."""
        self._made.clear()


def _attributes(own: Any) -> dict[str, int]:
    """The identities of the object's attributes, without the iterator that a DataLoader keeps."""
    if not isinstance(own, DataLoader):
        return {}  # a script's own class counts batches in its attributes
    return {name: id(value) for name, value in vars(own).items() if name != "_iterator"}
