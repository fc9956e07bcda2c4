"""Constant folding: the values of expressions, where they are certain."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownValue:
    """A certain value. from_launch: it would be different if the script ran on several processes."""

    value: object
    from_launch: bool = False

    @property
    def truth(self) -> bool:
        return bool(self.value)


PENDING = KnownValue("pending")
BINARY: dict[type[ast.operator], Callable[..., object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARE: dict[type[ast.cmpop], Callable[..., object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
PURE: dict[str, Callable[..., object]] = {
    "int": int,
    "str": str,
    "float": float,
    "bool": bool,
    "len": len,
    "max": max,
    "min": min,
    "abs": abs,
    "range": range,
    "list": list,
}


def join(found: list[KnownValue | None]) -> KnownValue | None:
    settled = [k for k in found if k is not PENDING]
    if not settled:
        return PENDING if found else None
    if any(k is None for k in settled):
        return None
    values = [k for k in settled if k is not None]
    first = values[0]
    if all(type(k.value) is type(first.value) and k.value == first.value for k in values):
        return KnownValue(first.value, any(k.from_launch for k in values))
    return None


def marked(found: KnownValue | None, from_launch: bool) -> KnownValue | None:
    """A value that, if `from_launch`, would be different on several processes."""
    if found is None or found is PENDING or not from_launch:
        return found
    return KnownValue(found.value, True)


def apply(function: Callable[..., object], arguments: list[KnownValue]) -> KnownValue | None:
    """What a pure function returns for these values; None if it raises."""
    try:
        return KnownValue(function(*(a.value for a in arguments)), any(a.from_launch for a in arguments))
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, IndexError, KeyError):
        return None
