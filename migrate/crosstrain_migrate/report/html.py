"""The report as one HTML file: no network, nothing in it that a hostile script or file name could start."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup, escape
from pygments.lexers import PythonLexer  # type: ignore[import-untyped]
from pygments.token import Token  # type: ignore[import-untyped]

from crosstrain_migrate import __version__
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.outcome import Migrated, Outcome, display_name

from .diff import Hunk, part_hunks
from .templates import environment

_CLASSES = {
    Token.Keyword: "k",
    Token.Operator.Word: "k",
    Token.Name.Function: "f",
    Token.Name.Class: "f",
    Token.Name.Builtin: "b",
    Token.Comment: "c",
    Token.String: "s",
    Token.Number: "m",
}


def render(outcome: Outcome) -> str:
    """The whole report. All text is escaped, and the only script allowed is ours, by its hash."""
    environ = environment()
    script = environ.get_template("report.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environ.get_template("report.html.j2").render(
        outcome=outcome,
        errors=[(display_name(error.path), error) for error in outcome.errors],
        files=[_file(file) for file in outcome.by_urgency],
        version=__version__,
        prose=prose,
        written=outcome.mode is Mode.WRITE,
        script=Markup(script),
        script_hash=digest,
        proof=outcome.proof,
        # Our own drawing, in which every text is escaped; see `crosstrain_verify.report.curves`.
        figure=Markup((outcome.proof or {}).get("figure", "")),
    )


def prose(text: str) -> Markup:
    """Escaped, with `code` as code."""
    parts = re.split("`([^`]+)`", text)
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


def _file(file: Migrated) -> dict[str, Any]:
    result = file.result
    return {
        "name": file.name,
        "result": result,
        "findings": result.by_urgency,
        "hunks": list(_diff(file)),
        "spoken": file.source.spoken,
    }


def _diff(file: Migrated) -> Iterator[tuple[str, Hunk, list[Markup], list[Markup]]]:
    """Each hunk, with its part's label and all lines of that part, old and new."""
    for part in file.parts():
        before, after = highlighted(part.piece.before), highlighted(part.piece.after)
        for hunk in part_hunks(part):
            yield part.piece.label, hunk, before, after


def highlighted(text: str) -> list[Markup]:
    """Each line as escaped HTML with a class per kind of token."""
    lines = [Markup()]
    for kind, part in PythonLexer(stripnl=False, ensurenl=False).get_tokens(text):
        name = next((name for one, name in _CLASSES.items() if kind in one), "")
        for number, piece in enumerate(part.split("\n")):
            if number:
                lines.append(Markup())
            span = Markup('<span class="{}">{}</span>')
            lines[-1] += span.format(name, piece) if name and piece else escape(piece)
    return lines
