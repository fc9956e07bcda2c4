"""``--todo``: what becomes of a script that is refused.

A line `# TODO(crosstrain CT903): ...` above each place that needs a person says what to write. Where every reason concerns
one place, the core of the conversion is made, too. Until these lines are gone, such a script stops at its start under several
processes, and ``migrate --check`` fails.
"""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from crosstrain_migrate.results import Change, Confidence, FileResult, Finding, Severity
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.lines import Lines
from crosstrain_migrate.syntax.program import MARKER, join, modules_of, parse, parts
from crosstrain_migrate.syntax.suppress import MARK, TODO

if TYPE_CHECKING:
    from crosstrain_migrate.core.conversion import Conversion

_WIDTH = 100
CONVERTED = ("CT903",)  # the reasons that concern one place of a script whose core can be converted
GUARD = """\
# TODO(crosstrain CT005): take these lines out with the last of those below
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    raise SystemExit("this script trains in one process until its lines TODO(crosstrain ...) are gone")
"""


def left_to_you(result: FileResult, convert: Callable[[str], Conversion]) -> FileResult:
    """A refused script with a comment for each reason, and with the core of its conversion where that can be made.

    convert: makes the conversion in spite of the reasons.
    """
    from crosstrain_migrate.syntax.checks import check_result

    reasons = [one for one in result.findings if one.severity is Severity.REFUSED]
    marked = _marked(result.before, reasons)
    changes = {Change(TODO, one.line, "left to a person", Confidence.REVIEW) for one in reasons}
    if all(one.rule in CONVERTED for one in reasons):
        made = convert(marked)
        after = _guarded(made.text)
        if made.changes and not check_result(result.before, after):
            line_of = Lines(result.before, marked)
            changes |= {replace(one, line=line_of(one.line)) for one in made.changes}
            return _changed(result, after, changes)
    after = _guarded(marked)
    if problems := check_result(result.before, after):
        reason = f"the lines for --todo did not pass the tool's own checks ({'; '.join(problems)})"
        remedy = "report this script to us; it was left as it was"
        said = Finding("CT001", 1, 1, reason, remedy, Severity.NOTE)
        return replace(result, findings=(*result.findings, said))
    return _changed(result, after, changes)


def _changed(result: FileResult, after: str, changes: Iterable[Change]) -> FileResult:
    return replace(result, after=after, changes=tuple(sorted(changes, key=lambda one: (one.line, one.rule))))


def _marked(text: str, reasons: Iterable[Finding]) -> str:
    """The text with a comment above the statement that each reason is about."""
    lines = text.split("\n")
    tree = ast.parse(text)
    starts = sorted({node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt)})
    above: dict[int, list[Finding]] = {}
    for one in reasons:
        start = max((line for line in starts if line <= one.line), default=1)
        above.setdefault(start, []).append(one)
    for line, found in sorted(above.items(), reverse=True):
        own = lines[line - 1]
        margin = own[: len(own) - len(own.lstrip())]
        place = line if own.startswith(MARKER) else line - 1  # which must stay the first of its file
        lines[place:place] = [f"{margin}{row}" for one in found for row in _comment(one)]
    return "\n".join(lines)


def _comment(finding: Finding) -> list[str]:
    """What to do, then why."""
    return textwrap.wrap(
        f"{finding.remedy.rstrip('.')}: {finding.reason}",
        _WIDTH,
        initial_indent=f"{MARK}{finding.rule}): ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _guarded(text: str) -> str:
    """The text with an exit for several processes below the first imports of the script."""
    from crosstrain_migrate.syntax.rewrite import rewrite

    *modules, script = (part.text for part in parts(text))
    body = ast.parse(script).body
    opening = itertools.takewhile(_opens, body)
    line = max((node.end_lineno or node.lineno for node in opening), default=0)
    lines = script.split("\n")
    lines[line:line] = ["", *GUARD.split("\n")[:-1]]
    guarded = join(text, [*modules, "\n".join(lines)])
    module = modules_of(parse(guarded))[-1]
    return rewrite(guarded, [e.AddImport(module, TODO, code="import os")])  # for the test of WORLD_SIZE


def _opens(node: ast.stmt) -> bool:
    """A docstring or an import."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text or isinstance(node, ast.Import | ast.ImportFrom)
