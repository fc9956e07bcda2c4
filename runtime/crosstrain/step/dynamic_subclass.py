"""Changing how one object behaves while it stays the object it was.

The object's class becomes a generated subclass: `isinstance`, `__class__`, attributes, representation and pickle are
those of the original class, and nothing is added to the object's own attributes (a scheduler's state is its
``__dict__``).
"""

from __future__ import annotations

from typing import Any

_ORIGINAL = "_crosstrain_original"
_ADOPTED = "_crosstrain_adopted"
_REAL_CLASS = vars(object)["__class__"]  # what every object answers, and is told, about its class


def original_class(obj: object) -> type[Any]:
    """The class the object had before `adopt`."""
    return getattr(type(obj), _ORIGINAL, type(obj))


def adopt(obj: Any, methods: dict[str, Any]) -> None:
    """Give ``obj`` these methods (or properties) in front of its own, and of those adopted before."""
    _dress(obj, getattr(type(obj), _ADOPTED, {}) | methods)


def restore(obj: Any, *names: str) -> None:
    """Undo `adopt`, for these methods or for all."""
    adopted = getattr(type(obj), _ADOPTED, {})
    _dress(obj, {name: method for name, method in adopted.items() if names and name not in names})


class _Unannounced:
    """Stands before the user's class, so that its `__init_subclass__` is not told of a subclass."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Nothing."""


def _dress(obj: Any, methods: dict[str, Any]) -> None:
    base: type = original_class(obj)
    if not methods:
        _REAL_CLASS.__set__(obj, base)
        return
    body = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        # pickle insists that an object is of the class that it is made of again.
        "__class__": property(original_class, _REAL_CLASS.__set__),
        "__reduce_ex__": _reduce_as_original,
        _ORIGINAL: base,
        _ADOPTED: methods,
        **methods,
    }
    # Not `type(base)(...)`: neither a metaclass nor `__init_subclass__` of the user's takes this for a class of theirs.
    _REAL_CLASS.__set__(obj, type.__new__(type(base), base.__name__, (_Unannounced, base), body))


def _reduce_as_original(self: Any, protocol: Any) -> Any:
    """Pickles and copies are plain objects of the original class: loading them needs no crosstrain."""
    adopted = type(self)
    restore(self)
    try:
        return self.__reduce_ex__(protocol)
    finally:
        _REAL_CLASS.__set__(self, adopted)
