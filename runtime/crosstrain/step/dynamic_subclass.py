"""Changing the methods of one object in place.

The object's class becomes a generated subclass. `isinstance`, `__class__`, attributes, representation and pickle remain
those of the original class, to which it is equal, and nothing is added to the object's own attributes, since a
scheduler's state is its ``__dict__``.
"""

from __future__ import annotations

from typing import Any

_ORIGINAL = "_crosstrain_original"
_ADOPTED = "_crosstrain_adopted"
_REAL_CLASS = vars(object)["__class__"]  # gets and sets any object's class


def original_class(obj: object) -> type[Any]:
    """The class that the object had before `adopt`."""
    return getattr(type(obj), _ORIGINAL, type(obj))


def adopt(obj: Any, methods: dict[str, Any]) -> None:
    """Give ``obj`` these methods (or properties), which override its own and those adopted before."""
    _dress(obj, getattr(type(obj), _ADOPTED, {}) | methods)


def restore(obj: Any, *names: str) -> None:
    """Undo `adopt` for these methods, or for all if none is named."""
    adopted = getattr(type(obj), _ADOPTED, {})
    _dress(obj, {name: method for name, method in adopted.items() if names and name not in names})


class _Unannounced:
    """A base class that keeps the user's `__init_subclass__` from being called for the generated subclass."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Do nothing."""


class _Equal(type):
    """The class of generated subclasses: `type(model) == nn.DataParallel` is what its author means by it."""

    def __eq__(cls, other: object) -> bool:
        return _meant(cls) is _meant(other)

    def __hash__(cls) -> int:
        return type.__hash__(_meant(cls))


def _meant(cls: Any) -> Any:
    """The original of a generated class; what is none is itself."""
    return vars(cls).get(_ORIGINAL, cls) if isinstance(cls, _Equal) else cls


def _dress(obj: Any, methods: dict[str, Any]) -> None:
    base: type = original_class(obj)
    if not methods:
        _REAL_CLASS.__set__(obj, base)
        return
    body = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        # pickle requires that an object has the class that it is made from.
        "__class__": property(original_class, _REAL_CLASS.__set__),
        "__reduce_ex__": _reduce_as_original,
        _ORIGINAL: base,
        _ADOPTED: methods,
        **methods,
    }
    # Not `kind(...)`, which would call a metaclass or `__init_subclass__` of the user's.
    kind = _Equal if type(base) is type else type(base)
    _REAL_CLASS.__set__(obj, type.__new__(kind, base.__name__, (_Unannounced, base), body))


def _reduce_as_original(self: Any, protocol: Any) -> Any:
    """Pickle and copy as a plain object of the original class, so that loading does not need Crosstrain."""
    adopted = type(self)
    restore(self)
    try:
        return self.__reduce_ex__(protocol)
    finally:
        _REAL_CLASS.__set__(self, adopted)
