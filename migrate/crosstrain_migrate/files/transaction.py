"""Writing files so that none is ever half written, and several are written all or none.

A write goes through a directory of its own under `$XDG_STATE_HOME/crosstrain/migrate/`:

1. the journal names every file, with the hashes of both texts, and the old bytes are kept beside it;
2. each new text is written to a temporary file next to its target, with the target's mode, and synced;
3. the journal says "renaming", and each temporary file is renamed over its target;
4. the journal says "done". It stays, for `undo`.

A failure or Ctrl-C puts the old bytes back at once. After a kill, the next run finds a journal that is not
"done" and whose lock nobody holds, and does the same: a file that holds the new text gets the old one back,
one that was edited since is left alone, and temporary files go.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .sources import Unusable, unusable

_JOURNAL = "journal.json"
_LOCK = "lock"
_KEPT = 20  # writes that can be undone
_ABANDONED = 3600.0  # seconds after which a directory without a journal is nobody's


@dataclass(frozen=True, slots=True)
class Replacement:
    """`target` (no link) holds `before` and shall hold `after`. `path` is the name to speak of it by."""

    path: Path
    target: Path
    before: bytes
    after: bytes


@dataclass(frozen=True, slots=True)
class Restored:
    """What came of putting old bytes back: files that have them again, and files edited since, left alone."""

    files: tuple[Path, ...]
    left_alone: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    target: str
    temporary: str
    before: str  # sha256
    after: str  # sha256


def state_directory() -> Path:
    """Where journals live: never in the user's repository."""
    base = os.environ.get("XDG_STATE_HOME", "")
    # The specification says that a relative path is to be ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "crosstrain" / "migrate"


def write(replacements: Sequence[Replacement]) -> None:
    """Replaces all files, or none. Raises `Unusable` naming the file that stood in the way."""
    if replacements:
        _Transaction.begin(replacements).run(replacements)


def recover() -> list[Restored]:
    """Puts back what killed runs left half done. One entry per such run."""
    restored = []
    for directory in _journals():
        journal = _read_journal(directory)
        if journal is not None and journal.state != "done":
            with _lock(directory, wait=False) as ours:
                # Read again: a run that was still going on may have ended between reading and locking.
                journal = _read_journal(directory) if ours else None
                if journal is not None and journal.state != "done":
                    restored.append(journal.roll_back())
                    journal.discard()
        elif journal is None and _is_abandoned(directory):
            shutil.rmtree(directory, ignore_errors=True)  # killed before it had touched anything
    return restored


def _is_abandoned(directory: Path) -> bool:
    try:
        return time.time() - directory.stat().st_mtime > _ABANDONED
    except FileNotFoundError:  # another run has just ended
        return False


def undo(below: Sequence[Path]) -> tuple[Path, ...]:
    """Takes back the last write that touched a file under one of `below`; all its files, or none.

    Raises `Unusable` when there is none, or when a file was edited since.
    """
    places = [Path(os.path.realpath(place)) for place in below]
    for directory in reversed(_journals()):
        journal = _read_journal(directory)
        if journal is None or journal.state != "done":
            continue
        targets = [Path(entry.target) for entry in journal.entries]
        if not any(target.is_relative_to(place) for target in targets for place in places):
            continue
        back = journal.reversed()
        if back:
            _Transaction.begin(back).run(back, keep=False)
        journal.discard()
        if back:  # otherwise an earlier undo was killed when all that remained was this journal
            return tuple(targets)
    where = ", ".join(str(place) for place in below)
    raise unusable(Path(where), "holds no file that migrate wrote", "Name the file or directory.")


@dataclass(slots=True)
class _Transaction:
    directory: Path
    entries: tuple[_Entry, ...]
    state: str

    @classmethod
    def begin(cls, replacements: Sequence[Replacement]) -> _Transaction:
        root = state_directory()
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            directory = Path(tempfile.mkdtemp(prefix=f"{time.time_ns():020d}-", dir=root))
        except OSError as error:
            reason = f"the journal cannot be kept here: {error.strerror or error}"
            raise unusable(root, reason, "Set XDG_STATE_HOME to a directory that can be written.") from error

        def temporary(target: Path) -> Path:
            return target.parent / f".{target.name}.{directory.name[-8:]}.migrate-tmp"

        entries = tuple(
            _Entry(str(one.target), str(temporary(one.target)), _hash(one.before), _hash(one.after))
            for one in replacements
        )
        return cls(directory, entries, "staging")

    def run(self, replacements: Sequence[Replacement], *, keep: bool = True) -> None:
        """Replaces all files or none; with `keep`, remembers it for `undo`."""
        with _lock(self.directory, wait=True):
            try:
                self._replace_all(replacements)
                if keep:
                    self._save("done")
            except BaseException as error:
                self.roll_back()
                self.discard()
                if isinstance(error, OSError):
                    raise _unwritable(error) from error
                raise
            if not keep:
                self.discard()
        _forget_old()

    def _replace_all(self, replacements: Sequence[Replacement]) -> None:
        for number, one in enumerate(replacements):
            _write_synced(self._kept(number), one.before, 0o600)
        self._save("staging")
        for one, entry in zip(replacements, self.entries, strict=True):
            _stage(one, Path(entry.temporary))
        self._save("renaming")
        for one, entry in zip(replacements, self.entries, strict=True):
            _expect(one)
            Path(entry.temporary).replace(one.target)
        for parent in {one.target.parent for one in replacements}:
            _sync_directory(parent)

    def roll_back(self) -> Restored:
        restored, left_alone = [], []
        for number, entry in enumerate(self.entries):
            target = Path(entry.target)
            current = _current(target)
            if current is not None and _hash(current) == entry.after and entry.before != entry.after:
                mode = stat.S_IMODE(target.stat().st_mode)
                _replace_synced(Path(entry.temporary), target, self._kept(number).read_bytes(), mode)
                restored.append(target)
            elif current is None or _hash(current) != entry.before:
                left_alone.append(target)
            Path(entry.temporary).unlink(missing_ok=True)
        return Restored(tuple(restored), tuple(left_alone))

    def reversed(self) -> list[Replacement]:
        """What would take this write back; nothing where all files hold the old bytes already.

        Raises `Unusable` when a file holds neither text.
        """
        back = []
        for number, entry in enumerate(self.entries):
            target = Path(entry.target)
            current = _current(target)
            if current is None or _hash(current) not in (entry.after, entry.before):
                reason = "was edited after the write, so nothing was taken back"
                raise unusable(target, reason, "Take it back by hand or with version control.")
            if _hash(current) != entry.before:
                back.append(Replacement(target, target, current, self._kept(number).read_bytes()))
        return back

    def discard(self) -> None:
        # The journal goes first: without it the rest means nothing.
        (self.directory / _JOURNAL).unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _kept(self, number: int) -> Path:
        return self.directory / f"{number}.before"

    def _save(self, state: str) -> None:
        self.state = state
        text = json.dumps({"state": state, "entries": [asdict(entry) for entry in self.entries]})
        journal = self.directory / _JOURNAL
        _replace_synced(journal.with_name(f"{_JOURNAL}.new"), journal, text.encode(), 0o600)


def _stage(one: Replacement, temporary: Path) -> None:
    status = one.target.stat()
    if not status.st_mode & 0o222:
        remedy = f"Make it writable: chmod u+w {one.path}"
        raise unusable(one.path, "is read-only; no file was changed", remedy)
    _expect(one)
    _write_synced(temporary, one.after, stat.S_IMODE(status.st_mode))
    if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        # Only root may give files away; the file is then the writer's.
        with contextlib.suppress(PermissionError):
            os.chown(temporary, status.st_uid, status.st_gid)


def _expect(one: Replacement) -> None:
    if _current(one.target) != one.before:
        reason = "changed on disk while migrate was running; no file was changed"
        raise unusable(one.path, reason, "Run again.")


def _current(target: Path) -> bytes | None:
    try:
        return target.read_bytes()
    except FileNotFoundError:
        return None


def _write_synced(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, not a path)
        file.write(data)
        file.flush()
        path.chmod(mode)
        os.fsync(file.fileno())


def _replace_synced(temporary: Path, target: Path, data: bytes, mode: int) -> None:
    _write_synced(temporary, data, mode)
    temporary.replace(target)
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    """Makes renames in it survive a power cut, on systems where a directory can be opened at all."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _journals() -> list[Path]:
    """Every transaction's directory, oldest first (their names begin with the time)."""
    try:
        return sorted(place for place in state_directory().iterdir() if place.is_dir())
    except OSError:  # there are none yet, or they may not be read: a write that needs them says so
        return []


def _read_journal(directory: Path) -> _Transaction | None:
    """None where it was not finished, or was damaged: then no file had been touched, or nothing can be said of it."""
    try:
        saved = json.loads((directory / _JOURNAL).read_bytes())
        entries = tuple(_Entry(**entry) for entry in saved["entries"])
        return _Transaction(directory, entries, saved["state"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _forget_old() -> None:
    for directory in _journals()[:-_KEPT]:
        if (journal := _read_journal(directory)) is not None and journal.state == "done":
            journal.discard()


def _unwritable(error: OSError) -> Unusable:
    place = Path(error.filename) if isinstance(error.filename, str) else state_directory()
    reason = f"cannot be written: {error.strerror or error}; no file was changed"
    return unusable(place, reason, "Correct that, then run again.")


@contextlib.contextmanager
def _lock(directory: Path, *, wait: bool) -> Iterator[bool]:
    """Holds the transaction's lock; False when a living process has it. A lock ends with its process."""
    try:
        import fcntl
    except ImportError:  # Windows: a run that is still going on cannot be told from a dead one
        yield True
        return
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            ours = False
        else:
            ours = True
        yield ours
    finally:
        os.close(descriptor)
