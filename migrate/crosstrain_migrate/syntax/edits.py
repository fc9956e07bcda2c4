"""The edits that a rule may ask for. They name nodes of the stdlib `ast` tree; `rewrite` finds them in LibCST's by position.

An edit belongs to a transaction: if one member of a transaction cannot be made, none is. Edits of the core conversion
(accelerator, prepare, backward, device, numbers) share the transaction "core"; independent ones stand alone.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from crosstrain_migrate.results import Confidence

from .nodes import line_of

CORE = "core"


@dataclass(frozen=True, eq=False)
class Edit:
    """Common to all edits. `rule` and `reason` are what the report shows; an edit without a reason is a mere
    consequence of another one and is not listed."""

    node: ast.AST
    rule: str
    reason: str = ""
    confidence: Confidence = Confidence.APPLIED
    transaction: str = CORE

    @property
    def line(self) -> int:
        """The line it is listed at; an edit of a whole file is listed at the first line."""
        return line_of(self.node) or 1


def nodes_of(edit: Edit) -> list[ast.AST]:
    """The nodes of the text that an edit names: its own (unless that is the module), and those it moves or leaves out."""
    others = [getattr(edit, name, None) for name in ("argument", "last")]
    found = [edit.node, *getattr(edit, "holes", {}).values(), *(node for node in others if node is not None)]
    return [node for node in found if not isinstance(node, ast.Module)]


@dataclass(frozen=True, eq=False)
class Replace(Edit):
    """An expression becomes `template`, whose holes `{name}` are filled with other (edited) expressions of the file.

    A hole may only stand where an argument or an assigned value stands, so that no parentheses are needed.
    """

    template: str = ""
    holes: dict[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ReplaceStatement(Edit):
    """A simple statement becomes `code` (one line); its comments stay. Holes as in `Replace`."""

    code: str = ""
    holes: dict[str, ast.expr] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RemoveStatement(Edit):
    """The statement goes; its comments move to the next one."""


@dataclass(frozen=True, eq=False)
class InsertBefore(Edit):
    code: str = ""


@dataclass(frozen=True, eq=False)
class InsertAfter(Edit):
    code: str = ""


@dataclass(frozen=True, eq=False)
class Guard(Edit):
    """The statements from `node` to `last` go under `if test:`."""

    last: ast.stmt | None = None
    test: str = ""


@dataclass(frozen=True, eq=False)
class Within(Edit):
    """The statement goes under `with context:`, which neighbours of the same context share."""

    context: str = ""


@dataclass(frozen=True, eq=False)
class InsertArgument(Edit):
    """`node` (a call) gets `code` as its last argument."""

    code: str = ""


@dataclass(frozen=True, eq=False)
class RemoveArgument(Edit):
    """`node` (a call) loses the argument whose value is `argument`."""

    argument: ast.expr | None = None


@dataclass(frozen=True, eq=False)
class AddImport(Edit):
    """`code` joins the module's imports. `node` is the module."""

    code: str = ""
