"""What a rule plans and may take back: edits, findings, and what they ask of other rules."""

from __future__ import annotations

from crosstrain_migrate.rules.base import Context


class Transaction:
    """The state of a context's plan when this was made."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._edits, self._findings = list(context.edits), list(context.findings)
        self._options = dict(context.options)
        self._sets = [set(s) for s in self._of(context)]
        self._names = {scope: set(scope.names) for scope in context.facts.table.scopes.values()}

    @staticmethod
    def _of(context: Context) -> list[set[object]]:
        return [context.needs, context.collective, context.gathered, context.averaged]  # type: ignore[list-item]

    def roll_back(self) -> None:
        """Nothing that was planned since then is planned."""
        context = self._context
        context.edits[:], context.findings[:] = self._edits, self._findings
        context.options.clear()
        context.options.update(self._options)
        for current, before in zip(self._of(context), self._sets, strict=True):
            current.intersection_update(before)
        for scope, names in self._names.items():
            scope.names.intersection_update(names)
