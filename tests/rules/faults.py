"""A fault that a trial of the tool found, and the check that it does not come back."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tests.rules.support import SLOTS, check_invariants, migrate, script


@dataclass(frozen=True)
class Fault:
    name: str
    slots: dict[str, str]
    holds: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    refused: str = ""
    says: str = ""  # the code of a finding

    def check(self) -> None:
        text = script({**SLOTS, **self.slots})
        result = migrate(text)
        check_invariants(text, result)
        if self.refused:
            assert self.refused in {f.rule for f in result.findings}
            assert result.refused
            return
        assert result.changed or result.refused
        assert not self.says or self.says in {f.rule for f in result.findings}
        for line in self.holds:
            # Where a long line is broken is not what was wrong.
            assert line in result.after or line.replace('"', "'") in ast.unparse(ast.parse(result.after))
        for line in self.lacks:
            assert line not in result.after
