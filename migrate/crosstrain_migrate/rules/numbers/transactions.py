"""What a rule plans and may take back: edits, findings, and what they ask of other rules."""

from __future__ import annotations

from copy import copy

from crosstrain_migrate.rules.base import Context

PLANNED = ("edits", "findings", "options", "needs", "collective", "gathered", "averaged")


class Transaction:
    """The state of a context's plan when this was made."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._planned = {name: copy(getattr(context, name)) for name in PLANNED}
        self._names = {scope: copy(scope.names) for scope in context.facts.table.scopes.values()}

    def roll_back(self) -> None:
        """Takes back all that was planned since then."""
        for name, planned in self._planned.items():
            setattr(self._context, name, planned)
        for scope, names in self._names.items():
            scope.names = names
