"""Keeps the results of earlier runs, so that CI and editors do not pay twice for unchanged files.

A result depends on the text, the options and the tool, and on nothing else; all three are in its key. The tool is its
version and the size and time of each of its modules, so that an edited checkout never answers from its past. Entries
live under `$XDG_CACHE_HOME/crosstrain/migrate/`; any of them may go or be damaged at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crosstrain_migrate import __version__
from crosstrain_migrate.results import Change, Confidence, FileResult, Finding, RoleFact, Severity

from .sources import write_whole

_FORMAT = 1
_KEPT = 30 * 24 * 3600  # seconds after its last use
_REMOVAL = 24 * 3600  # seconds between two removals of old entries


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "crosstrain" / "migrate"


class Cache:
    """The results for one set of options. `about` says what made them: the options and the function."""

    def __init__(self, about: str) -> None:
        self._root = cache_directory()
        self._start = hashlib.sha256(repr((_FORMAT, _tool(), about)).encode("utf-8", "backslashreplace"))

    def get(self, path: Path, text: str) -> FileResult | None:
        """The earlier result for `text`, as if it had been found at `path`; None where there is none."""
        entry = self._entry(text)
        try:
            result = _loaded(path, text, json.loads(entry.read_bytes()))
            os.utime(entry)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # damaged: the run that follows writes it anew
        return result

    def put(self, result: FileResult) -> None:
        """Remembers a result; an input error is not one. A directory that cannot be written costs only time."""
        if result.error is not None:
            return
        entry = self._entry(result.before)
        with contextlib.suppress(OSError):
            entry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(entry, json.dumps(_saved(result)))

    def remove_old(self) -> None:
        """Removes, once a day, the entries that nobody has asked for in a month."""
        marker = self._root / "swept"
        now = time.time()
        with contextlib.suppress(OSError):
            if marker.exists() and now - marker.stat().st_mtime < _REMOVAL:
                return
            if not self._root.exists():
                return
            marker.touch()
            for entry in self._root.glob("??/*"):
                if now - entry.stat().st_mtime > _KEPT:
                    entry.unlink()

    def _entry(self, text: str) -> Path:
        key = self._start.copy()
        key.update(text.encode("utf-8", "surrogatepass"))
        name = key.hexdigest()
        return self._root / name[:2] / f"{name[2:]}.json"


def _tool() -> tuple[object, ...]:
    package = Path(__file__).parents[1]
    modules = sorted((str(file.relative_to(package)), *_made(file)) for file in package.rglob("*.py"))
    return (__version__, sys.version_info[:3], *_libcst(), *modules)


def _libcst() -> tuple[object, ...]:
    """LibCST's version, as the folder beside it says, and its files: to ask its metadata loads the e-mail parser."""
    spec = find_spec("libcst")
    assert spec is not None and spec.origin is not None
    origin = Path(spec.origin)
    versions = sorted(found.name for found in origin.parents[1].glob("libcst-*.dist-info"))
    return (spec.origin, *_made(origin), *versions)


def _made(file: Path) -> tuple[int, int]:
    about = file.stat()
    return about.st_size, about.st_mtime_ns


def _saved(result: FileResult) -> dict[str, Any]:
    return {
        "after": result.after if result.changed else None,
        "changes": [asdict(one) for one in result.changes],
        "findings": [asdict(one) for one in result.findings],
        "roles": [asdict(one) for one in result.roles],
        "trains": result.trains,
        "extras": result.extras,
    }


def _loaded(path: Path, text: str, saved: dict[str, Any]) -> FileResult:
    return FileResult(
        path,
        text,
        text if saved["after"] is None else saved["after"],
        tuple(Change(**{**one, "confidence": Confidence(one["confidence"])}) for one in saved["changes"]),
        tuple(Finding(**{**one, "severity": Severity(one["severity"])}) for one in saved["findings"]),
        tuple(RoleFact(**one) for one in saved["roles"]),
        trains=saved["trains"],
        extras=saved["extras"],
    )
