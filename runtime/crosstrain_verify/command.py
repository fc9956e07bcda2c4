"""What `crosstrain verify` does with its options: compare, print the report, and write the files that were asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from crosstrain_verify.engine import verify
from crosstrain_verify.render import live, render
from crosstrain_verify.report.curves import svg
from crosstrain_verify.report.report import Report
from crosstrain_verify.running.client import ServerError, VerifyInputError

INTERRUPTED = 130  # a shell's exit code for a program that Ctrl-C ended


def run(
    scripts: tuple[Path, Path],
    steps: int | None,
    *,
    shown_as: str,
    output: Path | None,
    figure: Path | None,
    fail: Callable[[Exception], NoReturn],
    **options: Any,
) -> int:
    """Compare two scripts, present the report, and return the exit code.

    Args:
        shown_as: "json", or anything else for the terminal.
        output: where to write the report as JSON.
        figure: where to write the loss curves as SVG.
        fail: called with the error where the scripts cannot be run; it ends the command.
        options: the other arguments of `verify`.
    """
    try:
        with live(Console(stderr=True), steps) as progress:
            report = verify(*scripts, steps=steps, progress=progress, **options)
    except (VerifyInputError, ServerError) as error:
        fail(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    _present(report, shown_as, output, figure)
    return report.exit_code


def _present(report: Report, shown_as: str, output: Path | None, figure: Path | None) -> None:
    text = json.dumps(report.to_json(), indent=2)
    for path, content in ((output, text), (figure, svg(report.curves))):
        if path is not None:
            path.write_text(content, encoding="utf-8")
    if shown_as == "json":
        print(text)
    else:
        render(report, Console(emoji=False))  # `:100:` is a line of a file
