"""Where the nodes of a concrete tree stand: the answers of LibCST's PositionProvider in half the time."""

from __future__ import annotations

import re
from types import TracebackType

import libcst as cst
from libcst.metadata.position_provider import PositionProvidingCodegenState

Place = tuple[int, int]  # line and column, in characters
Positions = dict[cst.CSTNode, tuple[Place, Place]]

_NEWLINE = re.compile(r"\r\n?|\n")


def positions_of(module: cst.Module) -> Positions:
    """The start and the end of each node; white space around it does not count."""
    state = _Writer(module)
    module._codegen(state)  # as PositionProvider does
    return state.found


class _Writer(PositionProvidingCodegenState):
    """Writes a module and notes its position whenever a node begins or ends."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__(module.default_indent, module.default_newline, provider=None)  # type: ignore[arg-type]
        self.found: Positions = {}
        self.begun: list[Place] = []

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        if "\n" in value or "\r" in value:
            lines = _NEWLINE.split(value)
            self.line += len(lines) - 1
            self.column = len(lines[-1])
        else:
            self.column += len(value)

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.begun.append((self.line, self.column))

    def after_codegen(self, node: cst.CSTNode) -> None:
        begun = self.begun.pop()
        if node not in self.found:
            self.found[node] = begun, (self.line, self.column)

    def record_syntactic_position(  # type: ignore[override]
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> _Recording:
        return _Recording(self, node, start_node, end_node)


class _Recording:
    """Notes the place of a node without the white space that belongs to it. LibCST's own is a generator."""

    __slots__ = ("begun", "first", "last", "node", "writer")

    def __init__(
        self, writer: _Writer, node: cst.CSTNode, first: cst.CSTNode | None, last: cst.CSTNode | None
    ) -> None:
        self.writer = writer
        self.node = node
        self.first = first
        self.last = last

    def __enter__(self) -> None:
        self.begun = (self.writer.line, self.writer.column)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        found = self.writer.found
        begun = self.begun if self.first is None else found[self.first][0]
        end = (self.writer.line, self.writer.column) if self.last is None else found[self.last][1]
        found[self.node] = begun, end
