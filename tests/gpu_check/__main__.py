"""Try everything on this machine's GPU, and write one report: ``make gpu-check``.

Exit codes: 0 everything passed; 1 something failed, which the report names; 2 a wrong option; 3 torch sees no GPU.
``--device cpu`` runs the same on the CPU, to try the check itself; ``--device xla`` on XLA's CPU client, whose tensors do not
mix with the CPU's: golden cases and tests on one process there, and the rest on the CPU.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.gpu_check.commands import Check
from tests.gpu_check.report import Section, write
from tests.gpu_check.sections import SECTIONS

NO_GPU = 3
REPORT = Path("build") / "gpu-check.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_check", description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="cpu or xla: try the check itself [the accelerator that torch sees]")
    parser.add_argument("--only", nargs="+", choices=sorted(SECTIONS), help="sections [all]")
    parser.add_argument("--cases", nargs="+", default=[], help="golden cases [all]")
    parser.add_argument("--fast", action="store_true", help="small sizes: numbers that mean nothing")
    parser.add_argument("--output", type=Path, default=REPORT, help="the report [%(default)s]")
    options = parser.parse_args(arguments)
    kind = options.device or _accelerator()
    if kind is None:
        print(f"gpu-check: torch {torch.__version__} sees no GPU here; nothing was run")
        return NO_GPU
    check = Check(kind, tuple(options.cases), options.fast)
    sections: list[Section] = []
    for name in SECTIONS:
        if options.only and name not in options.only:
            continue
        print(f"gpu-check: {name}", flush=True)
        sections.append(_timed(name, check))
        write(options.output, _name(kind), sections)
    failures = sum(len(section.failures) for section in sections)
    print(f"gpu-check: {failures} failed; the report is {options.output}")
    return 1 if failures else 0


def _timed(name: str, check: Check) -> Section:
    """A section that breaks is a failure, and not the end of the others."""
    started = time.monotonic()
    try:
        done = SECTIONS[name](check)
    except Exception as error:
        done = Section(name, "It broke off.", [f"{type(error).__name__}: {error}"])
    done.seconds = time.monotonic() - started
    return done


def _accelerator() -> str | None:
    found = torch.accelerator.current_accelerator(check_available=True)
    return None if found is None else found.type


def _name(kind: str) -> str:
    if kind != "cuda":
        return kind
    return str(torch.cuda.get_device_name())


if __name__ == "__main__":
    sys.exit(main())
