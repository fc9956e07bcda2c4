"""`[tool.crosstrain.migrate]` of the nearest pyproject.toml. Unknown keys and wrong types are errors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from crosstrain_migrate.choices import FailOn, Runtime
from crosstrain_migrate.files.sources import STDIN, unusable

TABLE = "[tool.crosstrain.migrate]"


@dataclass(frozen=True, slots=True)
class Config:
    """None: not said, so the command line's default holds."""

    select: tuple[str, ...] | None = None
    extend_select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    runtime: str | None = None
    follow: bool | None = None
    strict: bool = False
    fail_on: tuple[str, ...] | None = None


_CHOICES = {"runtime": [one.value for one in Runtime], "fail-on": [one.value for one in FailOn]}
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("select", "extend-select", "ignore", "exclude", "fail-on"), list),
    "runtime": str,
    "follow": bool,
    "strict": bool,
}
KEYS = tuple(_KINDS)
# What a value is not, and how to write it.
_KIND_WORDS = {
    list: ("a list of strings", '["..."]'),
    bool: ("true or false", "true or {key} = false"),
    str: ("a string", '"..."'),
}


def load(paths: Sequence[Path], given: Path | None) -> Config:
    """The configuration for these paths: from `given`, else from the nearest pyproject.toml above them.

    Raises `Unusable` for a file that is missing, not TOML, or says something unknown.
    """
    if given is not None:
        return _parse(given, required=True)
    for directory in _upward(paths):
        file = directory / "pyproject.toml"
        if file.is_file():
            return _parse(file, required=False)
        if (directory / ".git").exists():
            break
    return Config()


def _upward(paths: Sequence[Path]) -> list[Path]:
    """The directories from the paths' common parent to the root."""
    places = [Path.cwd() if path == STDIN else path.absolute() for path in paths] or [Path.cwd()]
    places = [place if place.is_dir() else place.parent for place in places]
    first, *others = places
    return [one for one in (first, *first.parents) if all(place.is_relative_to(one) for place in others)]


def _parse(file: Path, *, required: bool) -> Config:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
        raise unusable(file, reason, "Name an existing file with --config.") from error
    except ValueError as error:  # not UTF-8, not TOML
        raise unusable(file, f"is not TOML: {error}", "Correct it, then run again.") from error
    tool = document.get("tool", {})
    tool = tool if isinstance(tool, dict) else {}
    _check_names(file, tool)
    tables = tool.get("crosstrain", {})
    if not isinstance(tables, dict):
        raise unusable(file, "[tool.crosstrain] is not a table", f"Write {TABLE}.")
    if "migrate" not in tables:
        if keys := [key for key in tables if key in KEYS]:
            raise unusable(file, f"`{keys[0]}` in [tool.crosstrain] is not known", f"Write it below {TABLE}.")
        if near := get_close_matches("migrate", tables, 1):
            raise unusable(file, f"[tool.crosstrain.{near[0]}] is not known", f"Did you mean {TABLE}?")
        if required and file.name != "pyproject.toml":
            raise unusable(file, f"has no {TABLE}", "Add the table, or leave --config out.")
        return Config()
    return _config(file, tables["migrate"])


def _check_names(file: Path, tool: dict[str, Any]) -> None:
    """Tables that were probably meant to be ours. `[tool.migrate]` may be another tool's: its keys decide."""
    near = [one for one in get_close_matches("crosstrain", tool, cutoff=0.8) if one != "crosstrain"]
    other = tool.get("migrate")
    if isinstance(other, dict) and set(other) & set(KEYS):
        near.append("migrate")
    if near and "crosstrain" not in tool:
        raise unusable(file, f"[tool.{near[0]}] is not known", f"Did you mean {TABLE}?")


def _config(file: Path, table: Any) -> Config:
    if not isinstance(table, dict):
        raise unusable(file, f"{TABLE} is not a table", "Write its keys below that line.")
    for key, value in table.items():
        if key not in KEYS:
            near = get_close_matches(key, KEYS, 1)
            remedy = f"Did you mean `{near[0]}`?" if near else f"Known keys: {', '.join(KEYS)}."
            raise unusable(file, f"unknown key `{key}` in {TABLE}", remedy)
        _check_value(file, key, value)
    values: dict[str, Any] = {
        key.replace("-", "_"): tuple(value) if _KINDS[key] is list else value for key, value in table.items()
    }
    return Config(**values)


def _check_value(file: Path, key: str, value: Any) -> None:
    kind = _KINDS[key]
    if not isinstance(value, kind) or (kind is list and not all(isinstance(one, str) for one in value)):
        wanted, example = _KIND_WORDS[kind]
        raise unusable(
            file, f"`{key}` in {TABLE} is not {wanted}", f"Write {key} = {example.format(key=key)}."
        )
    for one in (value if kind is list else [value]) if key in _CHOICES else ():
        if one not in _CHOICES[key]:
            known = ", ".join(_CHOICES[key])
            raise unusable(file, f"`{key}` in {TABLE} cannot be {one!r}", f"Known: {known}.")
