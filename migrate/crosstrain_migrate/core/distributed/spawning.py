"""What a script does before `mp.spawn`: its one process did it then, and every process that is launched does it now."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.program import is_main_test


class BeforeSpawn:
    """Answers for the code of a script that spawns its processes."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.spawns = [c for c in script.calls if script.dotted(c.func).endswith("multiprocessing.spawn")]
        self._frames: dict[Frame, bool] = {}

    def is_alone(self, node: ast.AST) -> bool:
        """Whether a node runs in the first process of a script that starts others."""
        return bool(self.spawns) and self.holds(node)

    def holds(self, node: ast.AST) -> bool:
        """Whether a node runs in the first process alone, by whichever way."""
        frame = self.script.frame(node)
        own = [spawn for spawn in self.spawns if self.script.frame(spawn) is frame]
        if own:
            return all(place_of(node) < place_of(spawn) for spawn in own)
        if isinstance(frame, ast.Module):
            return any(isinstance(one, ast.If) and is_main_test(one) for one in self.script.around(node))
        if frame not in self._frames:
            self._frames[frame] = False  # for a function that calls itself
            calls = self.script.callers(frame)
            self._frames[frame] = bool(calls) and all(map(self.holds, calls))
        return self._frames[frame]
