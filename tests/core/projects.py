"""Projects of several files: one script is converted with what it imports, any script is run on one or several processes."""

import contextlib
import os
import runpy
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.outcome import Outcome
from crosstrain_migrate.results import Options

from tests.support.ranks import run_ranks

from .filling import filled

_LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def write(folder: Path, **files: str) -> Path:
    """Writes `name.py` for each name; the folder."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(filled(dedent(text)).lstrip())
    return folder


def convert(folder: Path, script: str) -> Outcome:
    """Converts a script, and what it imports, where it stands."""
    outcome = run(Request((folder / f"{script}.py",), Options(), Mode.WRITE, cache=False), migrate_text)
    assert not outcome.errors, outcome.errors
    assert not [f for one in outcome.files for f in one.result.findings if f.severity.value == "refused"]
    return outcome


def rewritten(folder: Path, script: str, /, **files: str) -> dict[str, str]:
    """What a project's files are, by name, once one of its scripts is converted."""
    convert(write(folder, **files), script)
    return {name: (folder / f"{name}.py").read_text() for name in files}


def train(folder: Path, script: str, world: int = 1, *arguments: str, launched: bool = True) -> list[Any]:
    """Runs a script on each of `world` processes: the values of its variable `result`."""
    return run_ranks(_run, world, str(folder), script, arguments, launched)


def _run(folder: str, script: str, arguments: tuple[str, ...], launched: bool) -> Any:
    become(folder, script, arguments, launched)
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        return runpy.run_path(f"{script}.py", run_name="__main__").get("result")


def become(folder: str, script: str, arguments: tuple[str, ...], launched: bool) -> None:
    """Makes this process one that runs a script of a folder."""
    if not launched:
        for name in _LAUNCHED:
            os.environ.pop(name, None)
    os.chdir(folder)
    sys.argv = [f"{script}.py", *arguments]
    sys.path.insert(0, folder)
