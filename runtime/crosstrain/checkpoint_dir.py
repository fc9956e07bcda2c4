"""Checkpoint directories that are whole or not there: written beside, synced, renamed, listed in a manifest."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crosstrain.files import sync_to_disk

MANIFEST = "crosstrain.json"
_NUMBERED = re.compile(r"checkpoint_(\d+)")


@dataclass
class Manifest:
    """What a complete checkpoint says about itself; its presence means that every file is there."""

    world: int
    step: int = 0
    window: int = 1
    sync_gradients: bool = True
    iteration: int = 0
    version: str = ""
    files: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> Manifest | None:
        """None for a directory without one (accelerate's, or an incomplete one)."""
        path = directory / MANIFEST
        if not path.is_file():
            return None
        said: dict[str, Any] = json.loads(path.read_text())
        known = cls.__dataclass_fields__
        manifest = cls(**{name: value for name, value in said.items() if name in known})
        missing = [name for name in manifest.files if not (directory / name).exists()]
        if missing:
            raise FileNotFoundError(f"the checkpoint {directory} lacks {', '.join(missing)}")
        return manifest


def beside(directory: Path) -> Path:
    """Where a checkpoint is written before it gets its name."""
    return directory.with_name(f".{directory.name}.new")


def _former(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.old")


def begin(directory: Path) -> Path:
    """An empty directory to fill."""
    recover(directory)
    fresh = beside(directory)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    return fresh


def publish(directory: Path, manifest: Manifest) -> None:
    """Sync what was written, add the manifest, and let it take the place of ``directory``.

    Files of the former directory that belong to no checkpoint (a script's logs, say) move over.
    """
    fresh, former = beside(directory), _former(directory)
    manifest.files = sorted(path.name for path in fresh.iterdir())
    for path in fresh.rglob("*"):
        sync_to_disk(path)
    (fresh / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n")
    sync_to_disk(fresh / MANIFEST)
    sync_to_disk(fresh)
    if directory.exists():
        directory.rename(former)
    fresh.rename(directory)
    sync_to_disk(directory.parent)
    recover(directory)


def recover(directory: Path) -> None:
    """Finish what an interrupted `publish` left: the former directory comes back, or its strangers move over."""
    former = _former(directory)
    if not former.exists():
        return
    if not directory.exists():
        former.rename(directory)
        return
    try:
        manifest = Manifest.read(former)
    except FileNotFoundError:
        manifest = None
    ours = {MANIFEST, *(manifest.files if manifest else ())}
    for path in former.iterdir():
        if path.name not in ours and not (directory / path.name).exists():
            path.rename(directory / path.name)
    shutil.rmtree(former)


def numbered(project: Path) -> list[tuple[int, Path]]:
    """Complete checkpoints of a project, oldest first. Those without any manifest (accelerate's) count if no
    other is there."""
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


def prune(project: Path, keep: int) -> None:
    """Remove the oldest complete checkpoints, so that ``keep`` stay."""
    checkpoints = numbered(project)
    for _, path in checkpoints[: max(0, len(checkpoints) - keep)]:
        (path / MANIFEST).unlink(missing_ok=True)  # half removed must not look complete
        shutil.rmtree(path)
