"""`migrate --observe`: runs the unchanged script for a few steps, and keeps what is seen in the run as facts.

It runs in a process of its own, as in `verify`, in a copy of the project. `--facts` keeps the facts in a file, from which
a later run takes them without running anything, as long as the files they are about are the same.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from crosstrain_migrate.files.sources import unusable, write_whole
from crosstrain_migrate.results import Observed
from crosstrain_migrate.verify import Settings, folder_of

VERSION = 1
STEPS = 60


def observe(script: Path, settings: Settings) -> Observed:
    """Run a script and say what was seen. Raises Unusable where it does not train."""
    path = script.resolve()
    with tempfile.TemporaryDirectory(prefix="crosstrain-observed-") as place:
        answer = Path(place) / "facts.json"
        command = [
            *(sys.executable, "-m", "crosstrain_verify.observing", str(path)),
            *("--folder", str(folder_of(path)), "--output", str(answer), "--steps", str(STEPS)),
            *("--timeout", str(settings.timeout), "--data", settings.data),
            *("--", *settings.arguments),
        ]
        # From an empty folder: `-m` puts the working directory first on the path.
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=place)
        if done.returncode or not answer.exists():
            said = (done.stdout.strip().splitlines() or ["it ended without a message"])[-1]
            remedy = "Make it train on the CPU, or leave --observe out"
            raise unusable(script, f"could not be observed: {said}", remedy)
        return Observed(path, answer.read_text(encoding="utf-8"))


def keep(facts: Observed, file: Path) -> None:
    """Write a facts file, whole or not at all. Raises Unusable where that cannot be done."""
    try:
        write_whole(file, facts.document)
    except OSError as error:
        raise unusable(file, f"cannot be written: {error.strerror or error}", "Name another file") from None


def read(file: Path, script: Path) -> Observed:
    """The facts of an earlier run. Raises Unusable where they are not about the script as it is now."""
    again = f"Observe it again: migrate {script} --observe --facts {file}"
    try:
        text = file.read_text(encoding="utf-8")
        facts: dict[str, Any] = json.loads(text)
        version, name, files = facts["version"], facts["script"], dict(facts["files"])
    except FileNotFoundError:
        raise unusable(file, "no such file", again) from None
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(file, f"cannot be read: {error}", again) from None
    except (ValueError, KeyError, TypeError):
        raise unusable(file, "is not a facts file", again) from None
    if version != VERSION:
        raise unusable(file, f"has version {version}, and this migrate reads version {VERSION}", again)
    if name != script.name:
        raise unusable(file, f"is about a run of {name}, not of {script.name}", again)
    for own, checksum in files.items():
        place = script.resolve().parent / own
        if not place.is_file() or hashlib.sha256(place.read_bytes()).hexdigest() != checksum:
            change = "was changed" if place.is_file() else "is gone"
            raise unusable(file, f"is stale: {own} {change} since the run", again)
    return Observed(script.resolve(), text)
