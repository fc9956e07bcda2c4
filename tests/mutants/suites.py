"""Which test notices a planted mistake: those near it first, then the short suite."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.mutants.planted import Planted
from tests.mutants.tree import Tree

ONE_TEST = 300  # seconds, after which a test that waits for ever has failed
SUITE = 3600  # seconds
ENDLESS = f"no end within {SUITE} s"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


class BrokenTests(Exception):
    """Tests cannot tell anything: they do not run, or cannot be imported without a mistake either."""


def noticed_by(tree: Tree, planted: Planted, workers: int | None, broken: list[str]) -> str:
    """The first test that fails with a mistake, with its suite; nothing where none does.

    workers: of the short suite; None leaves that out. broken: tests that fail without a mistake too, and are left out.
    """
    suites = {"near tests": [*planted.near]}
    if workers is not None:
        suites["short suite"] = ["-n", str(workers), "--dist", "worksteal", "--ignore", "tests/mutants"]
    for suite, arguments in suites.items():
        while True:
            with tree.with_mistake(planted):
                test = first_failure(tree, [*arguments, *(f"--deselect={one}" for one in broken)])
            if test in ("", ENDLESS) or not first_failure(tree, [test]):
                break
            if test in broken:
                raise BrokenTests(f"{test} fails without a mistake too")
            broken.append(test)
        if test:
            return f"{test} ({suite})"
    return ""


def first_failure(tree: Tree, arguments: Sequence[str]) -> str:
    """The first test that fails, or the file that cannot be imported; empty where all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["--timeout", str(ONE_TEST), *arguments]
    process = subprocess.Popen(
        command,
        cwd=tree.root,
        env=tree.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SUITE)
    except subprocess.TimeoutExpired:
        return ENDLESS
    finally:
        with contextlib.suppress(ProcessLookupError):  # what the tests have left running, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""  # all near tests may be slow
    if found := _FAILED.search(output):
        return found[1]
    raise BrokenTests(f"pytest {' '.join(arguments)} ended with code {process.returncode}:\n{output[-2000:]}")
