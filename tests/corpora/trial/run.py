"""Runs the shared trial's programs on the cases beside it (README.md); an extra argument is passed on to them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def commands(options: argparse.Namespace, more: list[str]) -> list[str]:
    """The command line of the shared program that is asked for."""
    trial, python = options.trial, str(options.python)
    program = "run_originals.py" if options.what == "originals" else "evaluate.py"
    line = [python, str(trial / program), "--mirror", str(options.mirror), "--work", str(options.work)]
    line += ["--python", python, "--jobs", str(options.jobs)]
    if not options.known:
        line += ["--cases", str(HERE / "cases.toml")]
    if options.what == "tool":
        own = os.pathsep.join(str(ROOT / folder) for folder in ("migrate", "runtime", "templates"))
        line += ["--pythonpath", own, "--migrate-cmd"]
        line += [f"{python} -m crosstrain_migrate {{file}} --write"]
    elif options.what == "yardstick":
        line += ["--pythonpath", str(trial / "mini"), "--migrate-cmd"]
        line += [f"{python} {trial / 'distributed_by_use.py'} {{file}} --write"]
    return [*line, *more]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trial", type=Path, default=ROOT.parent / "shared" / "trial")
    parser.add_argument("--mirror", type=Path, required=True, help="where `fetch` brought the repositories")
    parser.add_argument("--work", type=Path, required=True, help="a folder outside the repository")
    parser.add_argument(
        "--python", type=Path, required=True, help="the interpreter of the trial's environment"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--known", action="store_true", help="the shared trial's own cases")
    parser.add_argument("what", choices=["originals", "tool", "yardstick"])
    options, more = parser.parse_known_args()
    if not (options.trial / "evaluate.py").exists():
        parser.error(f"no shared trial in {options.trial}")
    options.work = options.work.resolve()
    return subprocess.run(commands(options, more), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
