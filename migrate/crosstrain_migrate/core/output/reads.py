"""Which calls read what is written somewhere: themselves, or in what they lead to."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.script import Script

from . import commands, writers
from .audience import Audience
from .paths import Paths

_OF_PATH = ("open", "read_text", "read_bytes")  # methods of a path
_WORD = re.compile(r"[^\s<>|;/]+(?![^\s<>|;])")  # the last part of each word
_DEPTH = 2  # how far calls are followed to one that reads a file


class Reads:
    """Knows of each call whether it reads a file, and of which paths it may be given."""

    def __init__(self, script: Script, audience: Audience, paths: Paths) -> None:
        self.script = script
        self.audience = audience
        self.paths = paths
        self._given: dict[ast.Call, set[str]] = {}  # how the paths are written that a call may be given
        self._readers: dict[tuple[ast.Call, int], bool] = {}  # whether it reads a file, by depth

    def behind(self, call: ast.Call, statement: ast.stmt, paths: set[str], *, before: bool = False) -> bool:
        """Whether all read behind a statement, or before it, what is written there, by a call that is given one of its
        paths."""
        if call not in self._given:
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if isinstance(call.func, ast.Attribute) and call.func.attr in _OF_PATH:
                given.append(call.func.value)
            texts = {text for one in given for text in self.paths.spelled(one) | self.paths.in_folder(one)}
            if commands.is_heard(self.script, call):
                texts |= self.paths.told(call) | {*_WORD.findall(commands.command_of(*call.args))}
            self._given[call] = texts
        if not paths & self._given[call]:
            return False
        is_read = self.audience.is_all(call) and self._reads(call, 0)
        return is_read and self.audience.comes_after(*((statement, call) if before else (call, statement)))

    def _reads(self, call: ast.Call, depth: int) -> bool:
        """Whether a call reads a file, itself or in the function or class of the project that it calls."""
        if (call, depth) not in self._readers:
            self._readers[call, depth] = self._find_read(call, depth)
        return self._readers[call, depth]

    def _find_read(self, call: ast.Call, depth: int) -> bool:
        if writers.reads_file(self.script, call) or commands.is_heard(self.script, call):
            return True
        return depth < _DEPTH and any(
            self._reads(one, depth + 1)
            for function in self.script.run_by(call)
            for one in self.script.calls_in(function)
        )
