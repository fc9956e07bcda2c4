"""Two processes that share each batch train, and print, what the original does on one."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
from crosstrain_migrate.results import FileResult

from tests.support.ranks import run_ranks

from .support import check_invariants, migrate


def check_two_are_one(text: str, printed: bool = True, options: str = "") -> FileResult:
    """A script that leaves `weights`, before and after its conversion; `printed`: their numbers are compared, too.

    options: further ones of the Accelerator.
    """
    result = migrate(text)
    assert not result.refused, result.findings
    check_invariants(text, result)
    shared = result.after.replace(
        "Accelerator(", f"Accelerator(split_batches=True, own_draws=False, {options}", 1
    )
    ((before, said),) = run_ranks(run, 1, text)
    processes = run_ranks(run, 2, shared)
    for after, _ in processes:
        for mine, own in zip(after, before, strict=True):
            assert _flat(mine) == pytest.approx(_flat(own), rel=1e-4, abs=1e-6)
    if printed:
        assert _numbers(processes[0][1]) == pytest.approx(_numbers(said), rel=1e-4, abs=1e-6)
        assert processes[1][1] == ""
    return result


# What the scripts of this process leave. A wrapper that is the last to hold a left group of gloo may hang as it ends: torch
# waits for the group's thread under Python's lock. Nothing in here ends before the process does.
ALIVE: list[dict[str, Any]] = []


def run(text: str) -> tuple[Any, str]:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    ALIVE.append(namespace)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(text, "train.py", "exec"), namespace)
    return namespace["weights"], said.getvalue()


def _flat(nested: Any) -> list[float]:
    return [nested] if isinstance(nested, float) else [n for part in nested for n in _flat(part)]


def _numbers(said: str) -> list[float]:
    found = []
    for word in said.replace("(", " ").replace(",", " ").split():
        with contextlib.suppress(ValueError):
            found.append(float(word))
    return found
