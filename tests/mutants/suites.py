"""Which test notices a planted mistake: those near it first, then the short suite."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tests.mutants.planted import Planted
from tests.mutants.tree import Tree

ONE_TEST = 300  # seconds, after which a test that waits for ever has failed
SUITE = 3600  # seconds
ENDLESS = f"no end within {SUITE} s"
NEAR, SHORT = "near tests", "short suite"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Noticed:
    """What came of a mistake. test: the first test that failed; empty where none did. seconds: of all runs."""

    planted: Planted
    test: str
    suite: str
    seconds: float


class BrokenTests(Exception):
    """Tests cannot tell anything: they do not run, or cannot be imported without a mistake either."""


class Suites:
    """Runs tests in a copy of the repository.

    workers: of the short suite; None leaves that out. broken: tests that fail without a mistake too, and are left out.
    """

    def __init__(self, tree: Tree, workers: int | None) -> None:
        self.broken: list[str] = []
        self._tree = tree
        self._workers = workers

    def notice(self, planted: Planted) -> Noticed:
        """Plants a mistake, and looks for a test that notices it."""
        began = time.monotonic()
        suites: list[tuple[str, list[str]]] = [(NEAR, [*planted.near])]
        if self._workers is not None:
            workers = ["-n", str(self._workers), "--dist", "worksteal"]
            suites.append((SHORT, [*workers, "--ignore", "tests/mutants"]))
        for suite, arguments in suites:
            if test := self._noticed_by(planted, arguments):
                return Noticed(planted, test, suite, time.monotonic() - began)
        return Noticed(planted, "", "", time.monotonic() - began)

    def _noticed_by(self, planted: Planted, arguments: Sequence[str]) -> str:
        while True:
            left_out = [f"--deselect={one}" for one in self.broken]
            with self._tree.with_mistake(planted):
                test = first_failure(self._tree, [*arguments, *left_out])
            if test in ("", ENDLESS) or not first_failure(self._tree, [test]):
                return test
            if test in self.broken:
                raise BrokenTests(f"{test} fails without a mistake too")
            self.broken.append(test)


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
    if process.returncode in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):  # all near tests may be slow
        return ""
    if found := _FAILED.search(output):
        return found[1]
    raise BrokenTests(f"pytest {' '.join(arguments)} ended with code {process.returncode}:\n{output[-2000:]}")
