"""`crosstrain verify`, behind its options: compare, show, and write what was asked for."""

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
from crosstrain_verify.running.client import ServerError
from crosstrain_verify.running.runs import VerifyInputError

INTERRUPTED = 130  # as a shell says that Ctrl-C ended a program


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
    """The exit code. ``fail`` ends the command where there is nothing to compare; ``options`` are those of `verify`."""
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
    for path, content in ((output, text), (figure, svg(report))):
        if path is not None:
            path.write_text(content, encoding="utf-8")
    if shown_as == "json":
        print(text)
    else:
        render(report, Console(emoji=False))  # `:100:` is a line of a file
