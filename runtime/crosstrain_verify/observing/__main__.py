"""`python -m crosstrain_verify.observing SCRIPT --output FACTS -- ARGS`: what `migrate --observe` starts.

Exit codes: 0 the facts were written; 1 the script did not train; 2 it could not be run. Standard output says why, and
standard error shows the progress of the runs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from crosstrain_verify.observing.document import text
from crosstrain_verify.observing.observe import observe
from crosstrain_verify.render import live
from crosstrain_verify.running.client import ServerError, VerifyInputError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m crosstrain_verify.observing")
    parser.add_argument("script", type=Path)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--data", choices=("real", "synthetic"), default="real")
    words = sys.argv[1:]
    place = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:place])
    try:
        with live(Console(stderr=True), given.steps) as progress:
            found = observe(
                given.script,
                args=words[place + 1 :],
                steps=given.steps,
                timeout=given.timeout,
                folder=given.folder,
                data=given.data,
                progress=progress,
            )
    except (VerifyInputError, ServerError) as error:
        print(error)
        return 2
    if found.facts is None:
        print(found.error)
        return 1
    given.output.write_text(text(found.facts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
