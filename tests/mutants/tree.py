"""A copy of the repository in which mistakes are planted, one after another."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.mutants.planted import REPOSITORY, Planted

SOURCES = ("migrate", "runtime", "templates")


class Tree:
    """The files that git tracks, as they are in the working tree, in a folder of their own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._time = int(time.time())
        listed = _git(REPOSITORY, "ls-files", "-z").split("\0")
        for name in filter(None, listed):
            source, target = REPOSITORY / name, root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)
        # Some tests clone the repository that they stand in.
        _git(root, "init", "-q")
        _git(root, "add", "-A")
        author = ("-c", "user.name=mutants", "-c", "user.email=mutants@localhost")
        _git(root, *author, "commit", "-q", "-m", "a copy")

    def environment(self) -> dict[str, str]:
        """The variables with which Python imports the copy, and not what is installed."""
        path = os.pathsep.join(str(self.root / name) for name in SOURCES)
        return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}

    @contextmanager
    def with_mistake(self, planted: Planted) -> Iterator[None]:
        """Plants a mistake for a while."""
        file = self.root / planted.file
        before = file.read_text(encoding="utf-8")
        self._write(file, planted.applied(before))
        try:
            yield
        finally:
            self._write(file, before)

    def _write(self, file: Path, text: str) -> None:
        """Python, and the tool's own cache, tell a changed file by its size and time: no two texts have the same."""
        self._time += 2
        file.write_text(text, encoding="utf-8")
        os.utime(file, (self._time, self._time))


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout
