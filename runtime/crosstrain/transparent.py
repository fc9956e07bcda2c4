"""Changing how one object behaves while it stays the object it was.

The object's class becomes a generated subclass: `isinstance`, attributes, representation and pickle are those
of the original class, and nothing is added to the object's own attributes (a scheduler's state is its
``__dict__``).
"""

from __future__ import annotations

import copyreg
from typing import Any

_ORIGINAL = "_crosstrain_original"
_ADOPTED = "_crosstrain_adopted"
# The two functions pickle makes objects with; the type stubs know neither.
_NEWOBJ = vars(copyreg)["__newobj__"]
_RECONSTRUCTOR = vars(copyreg)["_reconstructor"]


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


def _dress(obj: Any, methods: dict[str, Any]) -> None:
    base: type = original_class(obj)
    if not methods:
        obj.__class__ = base
        return
    body = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": _reduce_as_original,
        _ORIGINAL: base,
        _ADOPTED: methods,
        **methods,
    }
    obj.__class__ = type(base)(base.__name__, (base,), body)


def _reduce_as_original(self: Any, protocol: Any) -> Any:
    """Pickles and copies are plain objects of the original class: loading them needs no crosstrain."""
    adopted = type(self)
    restore(self)
    try:
        reduced = self.__reduce_ex__(protocol)
    finally:
        self.__class__ = adopted
    if reduced[0] is _NEWOBJ and len(reduced[1]) == 1:
        # pickle insists that __newobj__ makes an object of its argument's present class; this one does not.
        return (_RECONSTRUCTOR, (reduced[1][0], object, None), *reduced[2:])
    return reduced
