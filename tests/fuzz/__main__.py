"""The long form: `python -m tests.fuzz --minutes 30` looks for scripts that break the oracle, and shrinks them."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.mutations import examine, mutated_script

SETTINGS = settings(
    max_examples=200,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


class Found(AssertionError):
    """A script that breaks the oracle."""

    def __init__(self, text: str, wrong: dict[str, str]) -> None:
        super().__init__(", ".join(wrong))
        self.text, self.wrong = text, wrong


def kind(oracle: str, evidence: str) -> str:
    """The same for two scripts that fail in the same way."""
    return oracle + re.sub(r"`[^`]*`|\d+", "_", evidence.strip().rpartition("\n")[2])


def batch(number: int, ends: float, known: set[str]) -> Found | None:
    """The smallest script of a seed that fails in a way that is not `known`."""

    @seed(number)
    @SETTINGS
    @given(mutated_script())
    def attempt(text: str) -> None:
        if time.monotonic() > ends:
            return
        try:
            wrong = examine(text)
        except Exception as error:  # a crash is what this looks for
            wrong = {"crashed": repr(error)}
        if any(kind(*one) not in known for one in wrong.items()):
            raise Found(text, wrong)

    try:
        attempt()
    except Found as found:
        return found
    return None


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    parser.add_argument("--out", type=Path, default=Path(".fuzz"), help="where they go")
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    ends, number = time.monotonic() + options.minutes * 60, options.seed
    known: set[str] = set()
    while time.monotonic() < ends:
        if found := batch(number, ends, known):
            known.update(kind(*one) for one in found.wrong.items())
            options.out.mkdir(parents=True, exist_ok=True)
            file = options.out / f"{number}.py"
            file.write_text(found.text, "utf-8")
            print(f"{file}: {found.wrong}", flush=True)
        number += 1
    print(f"{number - options.seed} batches, {len(known)} ways to break something")
    return int(bool(known))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
