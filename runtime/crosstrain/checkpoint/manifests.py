"""Checkpoint directories that are complete or do not exist.

A checkpoint is written to a temporary directory, synced to disk, listed in a manifest and then renamed.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from crosstrain.checkpoint.checksums import THREADS, checksums
from crosstrain.utils.files import sync_to_disk

MANIFEST = "crosstrain.json"
OURS_ONLY = ("loader*.bin", "gradients_*.pt", "sharded_*")  # names that no other library uses
_NUMBERED = re.compile(r"checkpoint_(\d+)")


class CorruptCheckpointError(RuntimeError):
    """Files of a checkpoint are missing, cut short or changed; the message names the directory and each file."""


@dataclass
class Manifest:
    """The manifest of a checkpoint, which is written last: a directory with one was complete.

    ``world``: number of processes. ``step``, ``window``, ``sync_gradients``: the position in the accumulation window.
    ``iteration``: the number of the checkpoint. ``files`` maps each file's path, relative to the directory and with
    forward slashes, to its checksum (see `checksums`).
    """

    world: int
    step: int = 0
    window: int = 1
    sync_gradients: bool = True
    iteration: int = 0
    version: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """Read a directory's manifest; None where there is none, as in one of accelerate's or an incomplete one.

        The other files are not read. Raises CorruptCheckpointError for a manifest that cannot be read, was changed, or
        names files elsewhere.
        """
        path = directory / MANIFEST
        if not path.is_file():
            return None
        try:
            said: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            checksum = said.pop("checksum", None)
            manifest = cls(**said)
            names = list(manifest.files.items())
        except (ValueError, TypeError, AttributeError) as error:
            raise _corrupted(directory, [f"{MANIFEST} cannot be read ({error})"]) from None
        if checksum != _checksum_of(said):
            raise _corrupted(directory, [f"{MANIFEST} is not what was saved"])
        for name, checksum in names:
            inside = PurePosixPath(name)
            if inside.is_absolute() or ".." in inside.parts or "\\" in name or not isinstance(checksum, str):
                raise CorruptCheckpointError(f"{path} names a file outside of the checkpoint: {name!r}")
        return manifest

    def write(self, directory: Path) -> None:
        """Write the manifest to the directory and sync it to disk; the checkpoint is then complete."""
        said = asdict(self)
        text = json.dumps({**said, "checksum": _checksum_of(said)}, indent=2)
        (directory / MANIFEST).write_text(text + "\n", encoding="utf-8")
        sync_to_disk(directory / MANIFEST)

    def verify(self, directory: Path) -> None:
        """Raise CorruptCheckpointError unless every file is there with the content that was saved."""
        found = checksums(directory / name for name in self.files)
        wrong = [
            f"{name} is missing" if now is None else f"{name} is not what was saved"
            for (name, saved), now in zip(self.files.items(), found, strict=True)
            if now != saved
        ]
        if wrong:
            raise _corrupted(directory, wrong)


def _corrupted(directory: Path, wrong: list[str]) -> CorruptCheckpointError:
    return CorruptCheckpointError(f"the checkpoint {directory} is corrupted: {'; '.join(wrong)}")


def _checksum_of(said: dict[str, Any]) -> str:
    """A checksum of the manifest itself, which detects a changed step or number of processes."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def beside(directory: Path) -> Path:
    """The temporary directory that a checkpoint is written to before it gets its name."""
    return directory.with_name(f".{directory.name}.new")


def _former(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.old")


def begin(directory: Path) -> Path:
    """Make the temporary directory of a checkpoint, empty, and return it."""
    recover(directory)
    fresh = beside(directory)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    return fresh


def abandon(directory: Path) -> None:
    """Remove what was written of a checkpoint that failed, since the disk may be full."""
    shutil.rmtree(beside(directory), ignore_errors=True)


def publish(directory: Path, manifest: Manifest, threads: int = THREADS) -> None:
    """Sync what was written, add the manifest, and rename the temporary directory to ``directory``.

    Files in the directory that it replaces that belong to no checkpoint, such as a script's logs, move to the new one.
    ``threads``: see `checksums`.
    """
    fresh, former = beside(directory), _former(directory)
    written = sorted(path for path in fresh.rglob("*") if path.is_file())
    manifest.files = {
        path.relative_to(fresh).as_posix(): checksum
        for path, checksum in zip(written, checksums(written, threads), strict=True)
        if checksum is not None
    }
    for path in fresh.rglob("*"):
        sync_to_disk(path)
    manifest.write(fresh)
    sync_to_disk(fresh)
    if directory.exists():
        directory.rename(former)
    fresh.rename(directory)
    sync_to_disk(directory.parent)
    recover(directory)


def recover(directory: Path) -> None:
    """Finish an interrupted `publish`: bring the former directory back, or move its other files to the new one."""
    former = _former(directory)
    if not former.exists():
        return
    if not directory.exists():
        former.rename(directory)
        return
    try:
        manifest = Manifest.read(former)
    except CorruptCheckpointError:  # which files belonged to the checkpoint is unknown: keep them all
        manifest = None
    ours = {MANIFEST, *(PurePosixPath(name).parts[0] for name in (manifest.files if manifest else ()))}
    for path in former.iterdir():
        if path.name not in ours and not (directory / path.name).exists():
            path.rename(directory / path.name)
    shutil.rmtree(former)


def complete_checkpoints(project: Path) -> list[tuple[int, Path]]:
    """The numbers and directories of a project's complete checkpoints, oldest first.

    Where none has a manifest, as with accelerate's, all of them count.
    """
    folder = project / "checkpoints"
    found: list[tuple[int, Path]] = []
    for path in folder.glob(".checkpoint_*.old"):
        recover(path.with_name(path.name[1 : -len(".old")]))
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _NUMBERED.fullmatch(path.name)
        if match and path.is_dir():
            found.append((int(match[1]), path))
    whole = [entry for entry in found if (entry[1] / MANIFEST).is_file()]
    return sorted(whole or found)


def newest(project: Path) -> Path:
    """The newest checkpoint whose files are unchanged; warns about each newer one that is corrupted.

    Raises FileNotFoundError where the project has no checkpoint, CorruptCheckpointError where all are corrupted.
    """
    reasons: list[str] = []
    for _, path in reversed(complete_checkpoints(project)):
        try:
            verify(path)
        except CorruptCheckpointError as error:
            reasons.append(str(error))
            continue
        for reason in reasons:
            warnings.warn(f"{reason}; {path} is loaded instead", stacklevel=3)
        return path
    if reasons:
        raise CorruptCheckpointError("\n".join(reasons))
    raise FileNotFoundError(f"{project} holds no complete checkpoint")


def verify(directory: Path) -> None:
    """Raise FileNotFoundError if there is no such checkpoint, CorruptCheckpointError if its files have changed."""
    if not directory.is_dir():
        raise FileNotFoundError(f"there is no checkpoint {directory}")
    manifest = Manifest.read(directory)
    if manifest is not None:
        manifest.verify(directory)
    elif any(path for pattern in OURS_ONLY for path in directory.glob(pattern)):
        raise _corrupted(directory, [f"{MANIFEST} is missing"])


def highest(project: Path) -> int:
    """The highest number of a checkpoint, complete or not; -1 where there is none."""
    names = (path.name for path in (project / "checkpoints").glob("checkpoint_*"))
    return max((int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))), default=-1)


def prune(project: Path, keep: int) -> None:
    """Remove the oldest complete checkpoints until ``keep`` are left."""
    checkpoints = complete_checkpoints(project)
    for _, path in checkpoints[: max(0, len(checkpoints) - keep)]:
        # A directory that is removed in part must not look complete.
        path.rename(path.with_name(f".{path.name}.gone"))
    for path in (project / "checkpoints").glob(".checkpoint_*.gone"):
        shutil.rmtree(path)
