"""Statement lists of the concrete tree: inserting, removing and guarding lines without losing a comment."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import libcst as cst

from . import edits as e
from .edit_plan import EditPlan


class Blocks:
    """Rebuilds the bodies of a tree for the statement edits of a plan."""

    def __init__(self, plan: EditPlan) -> None:
        self.plan = plan

    def indented(self, original: cst.IndentedBlock, updated: cst.IndentedBlock) -> cst.IndentedBlock:
        if not any(self._edits(statement) for statement in original.body):
            return updated
        body, rest = self.rebuild(original.body, updated.body)
        if not body:
            body = [cst.SimpleStatementLine([cst.Pass()])]
        return updated.with_changes(body=body, footer=[*carry_over(rest), *updated.footer])

    def one_line(
        self, original: cst.SimpleStatementSuite, updated: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        """`if x: y = 1` becomes an indented block when one of its statements is edited."""
        edited = any(self.plan.edits_of(small) for small in original.body)
        if not edited or all(
            isinstance(edit, e.ReplaceStatement)
            for small in original.body
            for edit in self.plan.edits_of(small)
        ):
            return updated
        lines = [
            cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            for small in original.body
        ]
        fresh = [
            cst.SimpleStatementLine([small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
            for small in updated.body
        ]
        owners = {id(line): small for line, small in zip(lines, original.body, strict=True)}
        body, rest = self._rebuild(lines, fresh, lambda line: list(self.plan.edits_of(owners[id(line)])))
        header = updated.trailing_whitespace
        return cst.IndentedBlock(
            body=body or [cst.SimpleStatementLine([cst.Pass()])], header=header, footer=carry_over(rest)
        )

    def insert_at_start(self, node: cst.FunctionDef, code: str) -> cst.FunctionDef:
        body = node.body
        if isinstance(body, cst.SimpleStatementSuite):
            lines = [
                cst.SimpleStatementLine([s.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
                for s in body.body
            ]
            body = cst.IndentedBlock(body=lines)
        statements = list(body.body)
        position = 1 if statements and _is_docstring(statements[0]) else 0
        statements[position:position] = _parse(code, self.plan.module)
        return node.with_changes(body=body.with_changes(body=statements))

    def rebuild(
        self, original: Sequence[cst.BaseStatement], updated: Sequence[cst.BaseStatement]
    ) -> tuple[list[cst.BaseStatement], list[cst.EmptyLine]]:
        """The new body, and comments of removed lines that found no statement after them."""
        return self._rebuild(original, updated, self._edits)

    def guards_whole(self, original: cst.BaseSuite, updated: cst.BaseSuite) -> cst.If | None:
        """The `if` of a guard that holds all of a body, where nothing else was put into it."""
        if not isinstance(original, cst.IndentedBlock) or len(updated.body) != 1:
            return None
        only = updated.body[0]
        guarded = any(isinstance(edit, e.Guard) for edit in self._edits(original.body[0]))
        plain = isinstance(only, cst.If) and only.orelse is None and not only.leading_lines
        return only if guarded and plain and isinstance(only, cst.If) else None

    def _edits(self, statement: cst.BaseStatement) -> list[e.Edit]:
        if isinstance(statement, cst.SimpleStatementLine):
            return [edit for small in statement.body for edit in self.plan.edits_of(small)]
        return list(self.plan.edits_of(statement))

    def _rebuild(
        self, original: Sequence[Any], updated: Sequence[Any], edits_of: Any
    ) -> tuple[list[Any], list[cst.EmptyLine]]:
        body: list[cst.BaseStatement] = []
        pending: list[cst.EmptyLine] = []
        removed = False
        open_guard: tuple[e.Guard, list[cst.BaseStatement], cst.BaseStatement] | None = None
        shared: cst.With | None = None
        for index, (old, new) in enumerate(zip(original, updated, strict=True)):
            edits = edits_of(old)
            before = [edit for edit in edits if isinstance(edit, e.InsertBefore)]
            after = [edit for edit in edits if isinstance(edit, e.InsertAfter)]
            self.plan.done.update([*before, *after])
            guard = next((edit for edit in edits if isinstance(edit, e.Guard)), None)
            opens = removed and not body and open_guard is None
            pieces, pending = self._one(old, new, edits, pending, opens)
            removed = removed or not pieces
            if guard is not None and open_guard is None:
                # What goes before a guarded statement is for all processes.
                body.extend(self._with_insertions([], before, []))
                before = []
            within = next((edit for edit in edits if isinstance(edit, e.Within)), None)
            if within is not None and pieces and open_guard is None:
                self.plan.done.add(within)
                above = body.pop() if body and body[-1] is shared and not before else None
                shared = _within(within.context, pieces, above)
                pieces = [shared]
            heirs = not pieces and bool(before)
            pieces = self._with_insertions(pieces, before, after)
            shared = _moved(shared, pieces)
            if heirs:  # what takes the place of a removed statement gets what stood above that
                pieces[0] = pieces[0].with_changes(leading_lines=pending)
                pending = []
            if guard is not None and open_guard is None:
                open_guard = (guard, [], old)
                self.plan.done.add(guard)
            if open_guard is None:
                body.extend(pieces)
                continue
            open_guard[1].extend(pieces)
            last = open_guard[0].last
            ends = last is None or self.plan.nodes.get(last) in _parts(old)
            if ends or index == len(original) - 1:
                body.append(_guarded(open_guard[0].test, open_guard[1]))
                open_guard = None
        return body, pending

    def _one(
        self, old: Any, new: Any, edits: list[e.Edit], pending: list[cst.EmptyLine], opens: bool
    ) -> tuple[list[Any], list[cst.EmptyLine]]:
        """One statement after its edits, with the comments that removed neighbours left to it.

        opens: it is the first of its block now because others were removed, so it keeps no blank line above.
        """
        removals = [edit for edit in edits if isinstance(edit, e.RemoveStatement)]
        unwraps = [edit for edit in edits if isinstance(edit, e.Unwrap)]
        folds = [edit for edit in edits if isinstance(edit, e.Fold)]
        self.plan.done.update([*unwraps, *folds])
        if folds:
            return _folded(new, folds[0].arms, pending)
        if unwraps:
            return _spliced(new.body, [*new.leading_lines, *_bracketed(new)], pending)
        if removals:
            self.plan.done.update(removals)
            new = self._without(old, new, removals)
            if new is None:
                return [], _left_behind(old, pending)
        if pending or opens:
            new = _with_leading(new, pending, opens)
        return [new], []

    def _without(self, old: Any, new: Any, removals: list[e.RemoveStatement]) -> Any:
        if not isinstance(old, cst.SimpleStatementLine):
            return None
        gone = {id(self.plan.nodes[edit.node]) for edit in removals}
        kept = [n for o, n in zip(old.body, new.body, strict=True) if id(o) not in gone]
        if not kept:
            return None
        kept[-1] = kept[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return new.with_changes(body=kept)

    def _with_insertions(
        self, pieces: list[cst.BaseStatement], before: list[e.InsertBefore], after: list[e.InsertAfter]
    ) -> list[cst.BaseStatement]:
        module = self.plan.module
        if before:
            fresh = [s for edit in before for s in _parse(edit.code, module)]
            if pieces:
                blanks, rest = _split_blanks(leading_of(pieces[0]))
                fresh[0] = fresh[0].with_changes(leading_lines=blanks)
                if isinstance(fresh[-1], cst.FunctionDef):
                    rest = [cst.EmptyLine(indent=False), *rest]
                pieces = [pieces[0].with_changes(leading_lines=rest), *pieces[1:]]
            pieces = [*fresh, *pieces]
        for edit in after:
            pieces = [*pieces, *_parse(edit.code, module)]
        return pieces


def _spliced(
    suite: Any, leading: Sequence[cst.EmptyLine], pending: list[cst.EmptyLine]
) -> tuple[list[cst.BaseStatement], list[cst.EmptyLine]]:
    """The statements of a suite whose header goes, and the comments below them, which the next statement gets."""
    if isinstance(suite, cst.SimpleStatementSuite):
        body: list[cst.BaseStatement] = [
            cst.SimpleStatementLine([s.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for s in suite.body
        ]
        header_comment, footer = suite.trailing_whitespace.comment, []
    else:
        body = list(suite.body)
        header_comment, footer = suite.header.comment, carry_over(list(suite.footer))
    lines = [*pending, *leading]
    if header_comment is not None:
        lines.append(cst.EmptyLine(comment=header_comment))
    body[0] = body[0].with_changes(leading_lines=[*lines, *leading_of(body[0])])
    return body, footer


def _folded(
    node: Any, arms: tuple[str, ...], pending: list[cst.EmptyLine]
) -> tuple[list[cst.BaseStatement], list[cst.EmptyLine]]:
    """What is left of an `if` chain when the fate of some of its branches is known."""
    branches: list[Any] = []
    current = node
    while current is not None:
        branches.append(current)
        current = current.orelse if isinstance(current, cst.If) else None
    if arms == ("negate", "keep"):
        return [_turned_round(branches[0], branches[1], pending)], []
    fates = list(zip(branches, arms, strict=True))
    kept = [branch for branch, fate in fates if fate == "keep" and isinstance(branch, cst.If)]
    last = next(
        (b for b, fate in fates if fate == "always" or (fate == "keep" and isinstance(b, cst.Else))), None
    )
    if not kept:
        if last is None:
            return [], [*pending, *node.leading_lines]
        above = [] if last is node else carry_over(list(last.leading_lines))
        return _spliced(last.body, [*node.leading_lines, *above, *_bracketed(last)], pending)
    tail: Any = None
    if last is not None:
        tail = cst.Else(body=last.body, leading_lines=last.leading_lines if last is not node else [])
    for branch in reversed(kept):
        tail = branch.with_changes(orelse=tail)
    return [tail.with_changes(leading_lines=[*pending, *node.leading_lines])], []


def _turned_round(node: cst.If, other: cst.Else, pending: list[cst.EmptyLine]) -> cst.If:
    """`if not test:` around the other branch."""
    comments = [cst.EmptyLine(comment=comment) for comment in _comments_in(node.body)]
    leading = [*pending, *node.leading_lines, *comments, *other.leading_lines]
    return node.with_changes(test=_negated(node.test), body=other.body, orelse=None, leading_lines=leading)


def _negated(test: cst.BaseExpression) -> cst.BaseExpression:
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return test.expression
    plain = isinstance(test, cst.Name | cst.Attribute | cst.Call | cst.Subscript) or test.lpar
    inner = test if plain else test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.UnaryOperation(cst.Not(), inner)


def _parts(statement: cst.BaseStatement) -> list[cst.CSTNode]:
    return [statement, *statement.body] if isinstance(statement, cst.SimpleStatementLine) else [statement]


def _parse(code: str, module: cst.Module) -> list[cst.BaseStatement]:
    return list(cst.parse_module(code + "\n", config=module.config_for_parsing).body)


def _is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def leading_of(statement: cst.BaseStatement) -> Sequence[cst.EmptyLine]:
    """The lines above a statement: every kind of statement may have some, which their base class does not say."""
    assert isinstance(statement, LEADING)
    return statement.leading_lines


def _split_blanks(lines: Sequence[cst.EmptyLine]) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    count = next((i for i, line in enumerate(lines) if line.comment is not None), len(lines))
    return list(lines[:count]), list(lines[count:])


def _left_behind(old: cst.BaseStatement, pending: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """What a removed statement leaves to the next one: its blank lines and all its comments."""
    lines = [*pending, *leading_of(old)]
    lines.extend(cst.EmptyLine(comment=comment) for comment in _comments_in(old))
    return lines


def _comments_in(node: cst.CSTNode) -> list[cst.Comment]:
    """Every comment inside a statement, its own leading lines excepted."""
    found: list[cst.Comment] = []
    skipped = set(map(id, getattr(node, "leading_lines", ())))

    def visit(part: cst.CSTNode) -> None:
        if id(part) in skipped:
            return
        if isinstance(part, cst.Comment):
            found.append(part)
        for child in part.children:
            visit(child)

    visit(node)
    return found


LEADING = (
    cst.SimpleStatementLine,
    cst.BaseCompoundStatement,
)  # statements that may have comment lines above them
_SUITES = ("body", "orelse", "finalbody", "handlers", "cases", "leading_lines")


def with_lost_comments(original: cst.CSTNode, updated: Any) -> Any:
    """Comments that stood inside the statement, in brackets, with what an edit took out: they go above it."""
    lost = Counter(comment.value for comment in _own_comments(original))
    lost -= Counter(comment.value for comment in _own_comments(updated))
    if not lost:
        return updated
    lines = []
    for comment in _own_comments(original):
        if lost[comment.value] > 0:
            lost[comment.value] -= 1
            lines.append(cst.EmptyLine(comment=comment))
    return updated.with_changes(leading_lines=[*updated.leading_lines, *lines])


def _own_comments(statement: cst.CSTNode) -> list[cst.Comment]:
    """The comments in a statement, of a compound one those in its header; comment lines above are none of them."""
    if isinstance(statement, cst.SimpleStatementLine):
        return _comments_in(statement)
    body = getattr(statement, "body", None)
    skipped = _SUITES if isinstance(body, cst.IndentedBlock) else _SUITES[1:]
    inner: set[int] = set()
    for name in skipped:
        value = getattr(statement, name, None)
        inner.update(map(id, value if isinstance(value, tuple | list) else [value]))
    found = [c for child in statement.children if id(child) not in inner for c in _comments_in(child)]
    if isinstance(body, cst.IndentedBlock) and body.header.comment is not None:
        found.append(body.header.comment)
    return found


def _bracketed(statement: Any) -> list[cst.EmptyLine]:
    """The comments in brackets of a compound statement's header, which goes."""
    header = getattr(statement.body, "header", None)
    behind = header.comment if header is not None else None
    return [cst.EmptyLine(comment=c) for c in _own_comments(statement) if c is not behind]


def _with_leading(new: cst.BaseStatement, pending: list[cst.EmptyLine], first: bool) -> cst.BaseStatement:
    own = list(leading_of(new))
    comments = [line for line in pending if line.comment is not None]
    if comments:
        own_blanks, own_rest = _split_blanks(own)
        lines = [*pending, *own] if not own_blanks else [*pending, *own_blanks, *own_rest]
    else:
        blanks, _ = _split_blanks(own)
        lines = own if blanks else [*pending, *own]
    if first:
        _, lines = _split_blanks(lines)
    return new.with_changes(leading_lines=lines)


def carry_over(lines: list[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Only the comments: blank lines at the end of a block are no loss."""
    return [line for line in lines if line.comment is not None]


def _within(context: str, statements: list[cst.BaseStatement], above: cst.BaseStatement | None) -> cst.With:
    """The statements under `with context:`, below those that the same block above holds."""
    if isinstance(above, cst.With):
        return above.with_deep_changes(above.body, body=[*above.body.body, *statements])
    first = statements[0]
    body = [first.with_changes(leading_lines=[]), *statements[1:]]
    item = cst.WithItem(cst.parse_expression(context))
    return cst.With([item], cst.IndentedBlock(body), leading_lines=list(leading_of(first)))


def _moved(shared: cst.With | None, pieces: list[cst.BaseStatement]) -> cst.With | None:
    """That `with`, as what was put above it has left it."""
    held = (p for p in pieces if isinstance(p, cst.With) and shared is not None and p.body is shared.body)
    return next(held, shared)


def _guarded(test: str, statements: list[cst.BaseStatement]) -> cst.If:
    first = statements[0]
    leading = list(leading_of(first))
    body = [first.with_changes(leading_lines=[]), *statements[1:]]
    return cst.If(test=cst.parse_expression(test), body=cst.IndentedBlock(body=body), leading_lines=leading)


def splice_imports(module: cst.Module, codes: list[str]) -> cst.Module:
    """Adds `from package import name` lines to the imports around torch's, where a sorter would put them."""
    body = list(module.body)
    codes = _joined(codes)
    for code in codes:
        if _has_joined(body, code):
            continue
        fresh = cst.ensure_type(_parse(code, module)[0], cst.SimpleStatementLine)
        package = code.split()[1]
        of_library = code.startswith("import ") and package in sys.stdlib_module_names
        position, first_of_block = (_beside_library if of_library else _import_position)(
            body[: _first_use(body, code)], package
        )
        if first_of_block:
            following = cst.ensure_type(body[position], cst.SimpleStatementLine)
            fresh = fresh.with_changes(leading_lines=following.leading_lines)
            body[position] = following.with_changes(leading_lines=[])
        body.insert(position, fresh)
    return module.with_changes(body=body)


def _has_joined(body: list[_Statement], code: str) -> bool:
    """Whether the file imports `code` already, or from the same package what a conversion has put there before."""
    lines = [_import_line(statement) for statement in body]
    if code in lines or any(code in _plain_imports(statement) for statement in body):
        return True
    start, keyword, names = code.partition(" import ")
    line = next((n for n, text in enumerate(lines) if text.startswith(start + keyword)), None)
    if not keyword or line is None or start not in _RUNTIMES:
        return False
    _, _, there = lines[line].partition(keyword)
    if not all(name.strip().isidentifier() for name in there.split(",")):
        return False
    joined = ", ".join(sorted({n.strip() for n in (*there.split(","), *names.split(","))}))
    found = cst.ensure_type(body[line], cst.SimpleStatementLine)
    fresh = cst.ensure_type(cst.parse_statement(start + keyword + joined), cst.SimpleStatementLine)
    body[line] = found.with_changes(body=fresh.body)
    return True


def _import_line(statement: _Statement) -> str:
    """An import without the comments around it; empty for anything else."""
    if _imported_module(statement) is None:
        return ""
    line = cst.ensure_type(statement, cst.SimpleStatementLine)
    return cst.Module([]).code_for_node(line.body[0]) if len(line.body) == 1 else ""


def _plain_imports(statement: _Statement) -> list[str]:
    """`import os, sys` as `import os` and `import sys`."""
    first = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if not isinstance(first, cst.Import):
        return []
    return [f"import {alias.evaluated_name}" for alias in first.names if alias.asname is None]


_Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_RUNTIMES = frozenset({"from crosstrain", "from accelerate"})


def _first_use(body: Sequence[cst.BaseStatement], code: str) -> int:
    """The first statement that runs with an imported name at the top level: a notebook's cells import as they go."""
    names = {name.strip() for name in code.partition("import ")[2].split(",")}
    for index, statement in enumerate(body):
        if not isinstance(statement, cst.FunctionDef | cst.ClassDef) and _mentions(statement, names):
            return index
    return len(body)


def _mentions(node: cst.CSTNode, names: set[str]) -> bool:
    if isinstance(node, cst.Name):
        return node.value in names
    return not isinstance(node, cst.FunctionDef | cst.Lambda) and any(
        _mentions(child, names) for child in node.children
    )


def _joined(codes: list[str]) -> list[str]:
    """One line for all that comes from one package: `from crosstrain import Accelerator, PartialState`."""
    names: dict[str, list[str]] = {}
    for code in codes:
        start, keyword, name = code.partition(" import ") if code.startswith("from ") else (code, "", "")
        names.setdefault(start + keyword, []).append(name)
    return [start + ", ".join(sorted(found)) for start, found in names.items()]


def _beside_library(body: Sequence[cst.BaseStatement], package: str) -> tuple[int, bool]:
    """Where `import package` of the standard library goes: among its like, by name, or above all other imports."""
    plain = [
        (index, name)
        for index, statement in enumerate(body)
        if (name := _imported_module(statement)) is not None
        if isinstance(cst.ensure_type(statement, cst.SimpleStatementLine).body[0], cst.Import)
        if name.split(".")[0] in sys.stdlib_module_names
    ]
    later = next((index for index, name in plain if name > package), None)
    if later is not None:
        return later, True
    if plain:
        return plain[-1][0] + 1, False
    imports = (i for i, s in enumerate(body) if _imported_module(s) not in (None, "__future__"))
    return next(imports, 1 if body and _is_docstring(body[0]) else 0), True


def _import_position(body: Sequence[cst.BaseStatement], package: str) -> tuple[int, bool]:
    """(index, whether the statement there opens the block and must pass its leading lines on)."""
    imports = [i for i, s in enumerate(body) if _imported_module(s) is not None]
    if not imports:
        return (1 if body and _is_docstring(body[0]) else 0), False
    torch_at = next(
        (i for i in imports if (_imported_module(body[i]) or "").split(".")[0] == "torch"), imports[-1]
    )
    start = torch_at
    while start - 1 in imports and not _opens_block(body[start]):
        start -= 1
    end = torch_at
    while end + 1 in imports and not _opens_block(body[end + 1]):
        end += 1
    for index in range(start, end + 1):
        name = _imported_module(body[index]) or ""
        line = cst.ensure_type(body[index], cst.SimpleStatementLine)
        if isinstance(line.body[0], cst.ImportFrom) and name > package and name != "__future__":
            return index, index == start and bool(line.leading_lines)
    return end + 1, False


def _opens_block(statement: cst.BaseStatement) -> bool:
    return any(
        line.comment is None for line in cst.ensure_type(statement, cst.SimpleStatementLine).leading_lines
    )


def _imported_module(statement: cst.BaseStatement) -> str | None:
    if not isinstance(statement, cst.SimpleStatementLine):
        return None
    first = statement.body[0]
    if isinstance(first, cst.ImportFrom):
        return cst.Module([]).code_for_node(first.module) if first.module is not None else "."
    if isinstance(first, cst.Import):
        return cst.Module([]).code_for_node(first.names[0].name)
    return None
