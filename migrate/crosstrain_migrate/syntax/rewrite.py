"""Carries edits out with LibCST: one parse, one transform, comments and formatting kept.

Edits name `ast` nodes. A LibCST node is found by its position (converted from `ast`'s UTF-8 byte columns to character
columns) and kind; an edit whose node is not found is an error, never a guess.
"""

from __future__ import annotations

import ast
import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import cast

import libcst as cst

from . import edits as e
from . import program
from .blocks import LEADING, Blocks, only_comments, with_lost_comments
from .edit_plan import EditNotApplied, EditPlan
from .new_imports import add_imports
from .places import Places
from .skeleton import Skeleton, skeleton, without_end

_HOLE = "__hole_{}__"


def rewrite(text: str, edits: Iterable[e.Edit]) -> str:
    """Returns `text`, a script or a program, with all `edits` made. Raises EditNotApplied."""
    wanted: dict[int, list[e.Edit]] = defaultdict(list)
    own = program.parts(text)
    firsts = [part.first for part in own]
    for edit in edits:
        wanted[bisect.bisect(firsts, edit.line) - 1].append(edit)
    pieces = (_rewrite(part.text, part.first, wanted.get(number, [])) for number, part in enumerate(own))
    return program.join(text, pieces)


def _rewrite(text: str, first: int, wanted: list[e.Edit]) -> str:
    """One file's text, whose line 1 is the line `first` of its nodes."""
    if not wanted:
        return text
    text, end = without_end(text)
    shape = skeleton(text, wanted, first)
    after = shape.restored(_transformed(shape, wanted))
    return (after if after is not None else _transformed(Skeleton(Places(text, first)), wanted)) + end


def _transformed(shape: Skeleton, wanted: list[e.Edit]) -> str:
    plan = EditPlan(cst.parse_module(shape.text), shape, wanted)
    module = plan.module.visit(_Rewriter(plan))
    missing = [edit for edit in wanted if edit not in plan.done]
    if missing:
        raise EditNotApplied(missing[0])
    return module.code


class _Rewriter(cst.CSTTransformer):
    def __init__(self, plan: EditPlan) -> None:
        super().__init__()
        self.plan = plan
        self.updated: dict[cst.CSTNode, cst.CSTNode] = {}
        holes = [h for edits in plan.edits.values() for edit in edits for h in _holes(edit).values()]
        self.keep = {plan.nodes[hole] for hole in holes if hole in plan.nodes}
        self.skips = True  # whether expressions without edits are passed over: they hold no comment to lose
        self.quotes: list[str] = []  # opening quotes of the f-strings around the current node
        self.blocks = Blocks(plan)

    def on_visit(self, node: cst.CSTNode) -> bool:
        # LibCST makes every node that it visits anew, which takes most of its time.
        if node.__class__ is cst.SimpleStatementLine:
            if not self.plan.concerns(node):
                return False
            self.skips = not self.plan.has_comment(node)
        elif self.skips and self.plan.is_untouched_expression(node):
            return False
        return super().on_visit(node)

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> cst.CSTNodeT:
        # No `leave_` method here removes a node or makes several of it.
        result = cast(cst.CSTNode, super().on_leave(original_node, updated_node))
        kept = original_node in self.keep
        if kept:
            self.updated[original_node] = result  # an edit may wrap the very node it replaces
        for edit in self.plan.edits_of(original_node):
            if isinstance(edit, e.Replace | e.ReplaceStatement):
                result = self._in_parentheses_of(result, self._replaced(edit))
                self.plan.done.add(edit)
                if kept:
                    self.updated[original_node] = result
        if (
            result is not original_node
            and isinstance(result, LEADING)
            and self.plan.has_comment(original_node)
        ):
            result = with_lost_comments(original_node, result)
        return cast(cst.CSTNodeT, result)

    # -- expressions -----------------------------------------------------------------------------------------

    def _replaced(self, edit: e.Replace | e.ReplaceStatement) -> cst.CSTNode:
        config = self.plan.module.config_for_parsing
        if isinstance(edit, e.Replace):
            template = edit.template
            if self.quotes and self.quotes[-1].endswith('"'):
                # Before Python 3.12 a string inside an f-string may not use the f-string's own quotes.
                template = template.replace('"', "'")
            node: cst.CSTNode = cst.parse_expression(_with_holes(template, edit), config=config)
        else:
            line = cst.parse_statement(_with_holes(edit.code, edit), config=config)
            node = cst.ensure_type(line, cst.SimpleStatementLine).body[0]
        if not edit.holes:
            return node
        places = {name: self.plan.concrete(hole, edit) for name, hole in edit.holes.items()}
        fillings = {_HOLE.format(name): self.updated[place] for name, place in places.items()}
        return cast(cst.CSTNode, node.visit(_Fill(cast(dict[str, cst.BaseExpression], fillings))))

    def _in_parentheses_of(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
        """The author's parentheses stay around what has several lines: a chain of calls, each on a line of its own."""
        if not isinstance(old, cst.BaseExpression) or not isinstance(new, cst.BaseExpression):
            return new
        needs = old.lpar and not new.lpar and "\n" in self.plan.module.code_for_node(new)
        return new.with_changes(lpar=old.lpar, rpar=old.rpar) if needs else new

    def visit_FormattedString(self, node: cst.FormattedString) -> None:
        self.quotes.append(node.start)

    def leave_FormattedString(
        self, original_node: cst.FormattedString, updated_node: cst.FormattedString
    ) -> cst.BaseExpression:
        self.quotes.pop()
        return updated_node

    # -- calls -----------------------------------------------------------------------------------------------

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if not self.plan.edits_of(original_node):
            return updated_node
        arguments = list(zip(original_node.args, updated_node.args, strict=True))
        for removal in self.plan.made(original_node, e.RemoveArgument):
            assert removal.argument is not None
            target = self.plan.concrete(removal.argument, removal)
            kept = [pair for pair in arguments if pair[0].value is not target]
            if len(kept) == len(arguments):
                raise EditNotApplied(removal)
            if kept and arguments[-1][0].value is target:
                last, gone = kept[-1][1], arguments[-1][1]
                closed = last.with_changes(comma=gone.comma, whitespace_after_arg=gone.whitespace_after_arg)
                kept[-1] = (kept[-1][0], closed)
            arguments = kept
        args = [updated for _, updated in arguments]
        for insertion in self.plan.made(original_node, e.InsertArgument):
            args = _insert_argument(args, insertion)
        return updated_node.with_changes(args=args)

    # -- statements ------------------------------------------------------------------------------------------

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.BaseSuite:
        return self.blocks.indented(original_node, updated_node)

    def leave_SimpleStatementSuite(
        self, original_node: cst.SimpleStatementSuite, updated_node: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        return self.blocks.one_line(original_node, updated_node)

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        """`if best:` all of whose body is left to one process: `if best and accelerator.is_main_process:`."""
        guarded = self.blocks.guards_whole(original_node.body, updated_node.body)
        if guarded is None or updated_node.orelse is not None:
            return updated_node
        tests = _within_and(updated_node.test), _within_and(guarded.test)
        both = cst.BooleanOperation(left=tests[0], operator=cst.And(), right=tests[1])
        return updated_node.with_changes(
            test=both, body=updated_node.body.with_changes(body=guarded.body.body)
        )

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        body, rest = self.blocks.rebuild(original_node.body, updated_node.body)
        module = updated_node.with_changes(body=body, footer=[*only_comments(rest), *updated_node.footer])
        additions = self.plan.made(original_node, e.AddImport)
        return add_imports(module, list(dict.fromkeys(edit.code for edit in additions)))


def _within_and(test: cst.BaseExpression) -> cst.BaseExpression:
    """A condition as it may stand beside `and`."""
    is_or = isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.Or)
    if test.lpar or not (is_or or isinstance(test, cst.IfExp | cst.Lambda | cst.NamedExpr)):
        return test
    return test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _holes(edit: e.Edit) -> dict[str, ast.expr]:
    return edit.holes if isinstance(edit, e.Replace | e.ReplaceStatement) else {}


def _with_holes(code: str, edit: e.Edit) -> str:
    """Code that parses: its holes are names."""
    return re.sub(r"\{(\w+)\}", lambda found: _HOLE.format(found[1]), code) if _holes(edit) else code


class _Fill(cst.CSTTransformer):
    def __init__(self, fillings: dict[str, cst.BaseExpression]) -> None:
        super().__init__()
        self.fillings = fillings

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        filling = self.fillings.get(updated_node.value)
        if filling is None:
            return updated_node
        if updated_node.lpar and not filling.lpar:  # `({x}).backward()`: the template's own parentheses stay
            return filling.with_changes(lpar=updated_node.lpar, rpar=updated_node.rpar)
        return filling

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        """A filling that is a whole argument needs no parentheses of its own."""
        filled = isinstance(original_node.value, cst.Name) and original_node.value.value in self.fillings
        value = updated_node.value
        if (
            not filled
            or len(value.lpar) != 1
            or isinstance(value, cst.Tuple | cst.GeneratorExp | cst.NamedExpr | cst.Yield)
        ):
            return updated_node
        return updated_node.with_changes(value=value.with_changes(lpar=[], rpar=[]))


def _separator(items: Sequence[cst.Arg]) -> cst.Comma:
    """A comma and a space; a comma and a new line where the author gives each item a line of its own."""
    commas = [item.comma for item in items[:-1]]
    after = [comma.whitespace_after if isinstance(comma, cst.Comma) else None for comma in commas]
    lines = [space for space in after if isinstance(space, cst.ParenthesizedWhitespace)]
    if not lines or len(lines) < len(after):
        return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    plain = cst.TrailingWhitespace(newline=lines[0].first_line.newline)
    return cst.Comma(whitespace_after=lines[0].with_changes(first_line=plain, empty_lines=[]))


def _insert_argument(args: list[cst.Arg], edit: e.InsertArgument) -> list[cst.Arg]:
    parsed = cst.ensure_type(cst.parse_expression(f"f({edit.code})"), cst.Call).args[0]
    space = _separator(args)
    if not args:
        return [parsed]
    last = args[-1]
    if isinstance(last.comma, cst.Comma):
        return [*args[:-1], last.with_changes(comma=space), parsed.with_changes(comma=last.comma)]
    behind, between = last.whitespace_after_arg, space.whitespace_after
    if isinstance(behind, cst.ParenthesizedWhitespace) and isinstance(between, cst.ParenthesizedWhitespace):
        # A comment behind the last argument stays on its line.
        space = space.with_changes(whitespace_after=between.with_changes(first_line=behind.first_line))
        behind = behind.with_changes(first_line=between.first_line)
    previous = last.with_changes(comma=space, whitespace_after_arg=cst.SimpleWhitespace(""))
    return [*args[:-1], previous, parsed.with_changes(whitespace_after_arg=behind)]
