"""Reads environment variables as values, and sets them temporarily."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from crosstrain.config import parse_flag


def str_to_bool(value: str) -> int:
    """1 for yes, true, on, 1; 0 for no, false, off, 0; ValueError for anything else."""
    return int(parse_flag(value, "value"))


def get_int_from_env(env_keys: Iterable[str], default: int) -> int:
    """The value of the first of these variables that is 0 or more, else ``default``."""
    for key in env_keys:
        value = int(os.environ.get(key, -1))
        if value >= 0:
            return value
    return default


def parse_flag_from_env(key: str, default: bool = False) -> bool:
    """Whether a variable says yes; ``default`` if it is not set, ValueError if it says neither yes nor no."""
    return parse_flag(os.environ[key], key) if key in os.environ else default


def parse_choice_from_env(key: str, default: str = "no") -> str:
    """A variable's text, else ``default``."""
    return os.environ.get(key, default)


@contextmanager
def patch_environment(**variables: Any) -> Iterator[None]:
    """Set variables inside, with their names in upper case, and restore them afterwards."""
    before = {key.upper(): os.environ.get(key.upper()) for key in variables}
    os.environ.update({key.upper(): str(value) for key, value in variables.items()})
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def clear_environment() -> Iterator[None]:
    """Empty the environment inside, and restore it afterwards."""
    before = dict(os.environ)
    os.environ.clear()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
