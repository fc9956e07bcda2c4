"""The long form: `python -m tests.fuzz --minutes 30` looks for scripts that break the oracle, and shrinks them."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz.grammar import training_script
from tests.fuzz.mutations import mutated_script
from tests.fuzz.oracle import examine

_BATCH = 200


class Found(AssertionError):
    """A script that breaks the oracle."""

    def __init__(self, text: str, wrong: dict[str, str]) -> None:
        super().__init__(", ".join(wrong))
        self.text = text
        self.wrong = wrong


def kind(oracle: str, evidence: str) -> str:
    """The same for two scripts that fail in the same way."""
    return oracle + re.sub(r"`[^`]*`|\d+", "_", evidence.strip().rpartition("\n")[2])


def batch(
    scripts: SearchStrategy[str], number: int, ends: float, known: set[str]
) -> tuple[int, Found | None]:
    """How many scripts were tried, and the smallest that fails in a way that is not `known`."""
    tried = 0

    def attempt(text: str) -> None:
        nonlocal tried
        if time.monotonic() > ends:
            return
        tried += 1
        try:
            wrong = examine(text)
        except Exception as error:  # a crash is what this looks for
            wrong = {"crashed": repr(error)}
        if any(kind(*one) not in known for one in wrong.items()):
            raise Found(text, wrong)

    run: Callable[[], None] = seed(number)(
        settings(
            max_examples=_BATCH,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )(given(scripts)(attempt))
    )
    try:
        run()
    except Found as found:
        return tried, found
    return tried, None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument(
        "--out", type=Path, default=Path(".fuzz"), help="where scripts that break something go"
    )
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    ends = time.monotonic() + options.minutes * 60
    tried, number = 0, options.seed
    known: set[str] = set()
    while time.monotonic() < ends:
        for name, scripts in (("grammar", training_script()), ("mutated", mutated_script())):
            more, found = batch(scripts, number, ends, known)
            tried += more
            if found is not None:
                known.update(kind(*one) for one in found.wrong.items())
                options.out.mkdir(parents=True, exist_ok=True)
                file = options.out / f"{name}-{number}.py"
                file.write_text(found.text, "utf-8")
                print(f"{file}: {found.wrong}", flush=True)
        number += 1
    print(f"{tried} scripts, {len(known)} ways to break something")
    return int(bool(known))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
