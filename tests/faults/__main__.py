"""Many rounds of every fault: `python -m tests.faults --rounds 300`. Exit code 1 if anything was lost."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import defaultdict

from tests.faults.rounds import FAULTS, Outcome, make_reference, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=300, help="in all, shared among the faults (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="of the moments (default: the time)"
    )
    parser.add_argument(
        "--faults", default=",".join(FAULTS), help="names, separated by commas (default: all)"
    )
    options = parser.parse_args()
    names = options.faults.split(",")
    if unknown := sorted(set(names) - set(FAULTS)):
        parser.error(f"no fault {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's background jobs would not hear the first
        signal.signal(number, signal.default_int_handler)
    print(f"{options.rounds} rounds, seed {options.seed}", flush=True)
    # Ranks that die on purpose are no news: neither torch's account of it nor our warning that names the damage.
    os.environ |= {"TORCH_CPP_LOG_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore::UserWarning"}
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    try:
        reference = make_reference()
        for index in range(options.rounds):
            name = names[index % len(names)]
            started = time.monotonic()
            outcome = run(FAULTS[name], reference, options.seed + index)
            outcome.seconds = time.monotonic() - started
            outcomes[name].append(outcome)
            if outcome.bad:
                print(f"{name}: {outcome.reason}", flush=True)
    except KeyboardInterrupt:
        print("interrupted; what was done until then:")
    return report(names, outcomes)


def report(names: list[str], outcomes: dict[str, list[Outcome]]) -> int:
    """One line for each fault and one for all."""
    columns = ("rounds", "struck", "lost", "repeated", "dropped", "wrong", "seconds")
    print(f"{'fault':<42}" + "".join(f"{column:>10}" for column in columns))
    total = [0] * len(columns)
    for name in names:
        of_fault = outcomes[name]
        sums = [len(of_fault), *(round(sum(getattr(one, of) for one in of_fault)) for of in columns[1:])]
        total = [a + b for a, b in zip(total, sums, strict=True)]
        print(f"{name:<42}" + "".join(f"{number:>10}" for number in sums))
    print(f"{'all':<42}" + "".join(f"{number:>10}" for number in total))
    print("lost: checkpoints; repeated, dropped: batches; wrong: final weights that differ in any bit")
    return 1 if any(total[2:6]) else 0


if __name__ == "__main__":
    sys.exit(main())
