"""The last gate: a result that fails any check here is not written.

Every check compares with the original, so that whatever the author's own text does (unbound names, odd tabs)
is never held against the migration.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections import Counter
from itertools import product

from .bindings import functions, own_names
from .early import early_uses
from .names import unbound_names
from .nodes import Function
from .only_main import read_by_all
from .problems import UNPARSABLE
from .program import parts, tree_of
from .walks import children


def check_result(before: str, after: str) -> list[str]:
    """Problems of `after`, a migration of `before`; an empty list when it may be written.

    Both have "\\n" line ends, and `before` must parse. The files of a program are checked each on its own.
    """
    old, new = parts(before), parts(after)
    if [part.path for part in old] != [part.path for part in new]:
        return ["the files of the program are not those it had"]
    return [
        f"{part.path}: {problem}" if part.path else problem
        for part, other in zip(old, new, strict=True)
        for problem in _check_file(part.text, other.text)
    ]


def _check_file(before: str, after: str) -> list[str]:
    if before == after:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are the author's
        old = tree_of(before)
        try:
            new = tree_of(after)
        except UNPARSABLE as error:
            return [_no_python(error)]
        # Some texts parse and do not compile (`return` outside a function): those must only parse again.
        if (problem := _uncompiled(new)) is not None and _uncompiled(old) is None:
            return [_no_python(problem)]
        return [
            *_check_names(before, old, after, new),
            *_check_tokens(before, old, after, new),
            *_check_line_ends(before, after),
        ]


def _uncompiled(tree: ast.Module) -> Exception | None:
    try:
        compile(tree, "<text>", "exec", dont_inherit=True)
    except UNPARSABLE as error:
        return error
    return None


def _no_python(error: Exception) -> str:
    line = f" at line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    return f"the result does not parse{line}: {getattr(error, 'msg', error)}"


def _check_names(before: str, old: ast.Module, after: str, new: ast.Module) -> list[str]:
    problems: list[str] = []
    try:
        if missing := unbound_names(after, new):
            allowed = unbound_names(before, old)
            problems += [
                f"`{name}` (line {missing[name]}) is bound nowhere"
                for name in sorted(missing.keys() - allowed.keys())
            ]
    except SyntaxError:
        pass  # the original does not compile, so there is no symbol table to compare with
    own, others = _by_scope(before, old), _by_scope(after, new)
    same = {scope for scope, (_, text) in own.items() if scope in others and others[scope][1] == text}
    if early := early_uses(new, same):
        problems += [
            f"`{name}` is used in line {early[scope, name]} ({scope}) before anything binds it"
            for scope, name in sorted(early.keys() - early_uses(old, same).keys())
        ]
    if alone := read_by_all(new):
        problems += [
            f"`{name}` is read by all processes in line {alone[scope, name]} ({scope}), and only the main process binds it"
            for scope, name in sorted(alone.keys() - read_by_all(old).keys())
        ]
    for scope in sorted(own.keys() & others.keys() - same):
        problems += _captured(scope, own[scope][0], others[scope][0])
    return problems


def _by_scope(text: str, tree: ast.Module) -> dict[str, tuple[list[Function], list[str]]]:
    """Each scope's functions (those that redefine one another share it), and their lines."""
    lines = text.split("\n")
    found: dict[str, tuple[list[Function], list[str]]] = {}
    for scope, function in functions(tree):
        same, texts = found.setdefault(scope, ([], []))
        same.append(function)
        texts += lines[function.lineno - 1 : function.end_lineno]
    return found


def _captured(scope: str, old: list[Function], new: list[Function]) -> list[str]:
    """A function's own name whose binding went while a use stayed now means another scope's variable."""
    pairs = zip(old, new, strict=True) if len(old) == len(new) else product(old, new)
    lost: set[str] = set()
    for one, other in pairs:
        gone = own_names(one) - own_names(other)
        lost |= gone & _reads(other) if gone else gone
    return [
        f"`{name}` was {scope}'s own; the result reads another variable of that name" for name in sorted(lost)
    ]


def _reads(node: ast.AST) -> frozenset[str]:
    """The names that a scope reads, in functions inside it too unless they are these functions' own."""
    if isinstance(node, ast.Name):
        return frozenset({node.id}) if isinstance(node.ctx, ast.Load) else frozenset()
    found: set[str] = set()
    for child in children(node):
        inner = _reads(child)
        found |= inner - own_names(child) if isinstance(child, Function) else inner
    return frozenset(found)


def _comments_and_indents(text: str) -> tuple[Counter[str], dict[str, int]] | None:
    """What the tokenizer sees and the parser does not: how often each comment occurs, and the kinds of indentation, each
    with a line that has it. None where Python's tokenizer cannot read a text its parser can."""
    comments: Counter[str] = Counter()
    indents: dict[str, int] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                comments[token.string.rstrip()] += 1
            elif token.type == tokenize.INDENT:
                blank = token.string.replace("\f", "")
                kind = "both" if " " in blank and "\t" in blank else "tabs" if "\t" in blank else "spaces"
                indents.setdefault(kind, token.start[0])
    except (tokenize.TokenError, SyntaxError):
        return None
    return comments, indents


def _check_tokens(before: str, old: ast.Module, after: str, new: ast.Module) -> list[str]:
    if "\t" not in before and "\t" not in after:
        # Python's tokenizer takes longer than its parser: it reads what changed, and all of it only to name a problem.
        if keeps_comment_lines(before, after):
            return []
        gone, come = Counter(_pieces(before, old)), Counter(_pieces(after, new))
        kept = gone & come
        if not _compared("".join((gone - kept).elements()), "".join((come - kept).elements())):
            return []
    return _compared(before, after)


def keeps_comment_lines(before: str, after: str) -> bool:
    """Whether `after` has, unchanged, every line of `before` that may hold a comment."""
    old, new = (Counter(line for line in text.split("\n") if "#" in line) for text in (before, after))
    return old <= new


def _pieces(text: str, tree: ast.Module) -> list[str]:
    """A text cut where statements of the module begin lines: each piece has its tokens whatever stands around it."""
    lines = [f"{line}\n" for line in text.split("\n")]
    pieces, begun, end = [], 0, 0
    for statement in tree.body:
        first = min(node.lineno for node in (statement, *getattr(statement, "decorator_list", ()))) - 1
        if first >= end and not (first and lines[first - 1].endswith("\\\n")):
            pieces.append("".join(lines[begun:first]))
            begun = first
        end = statement.end_lineno or end
    return [*pieces, "".join(lines[begun:])]


def _compared(before: str, after: str) -> list[str]:
    old, new = _comments_and_indents(before), _comments_and_indents(after)
    if old is None:
        return []
    if new is None:
        return ["the result's comments cannot be read"]
    (comments, indents), (new_comments, new_indents) = old, new
    problems = [f"the comment `{comment}` is lost" for comment in comments - new_comments]
    if len(indents) == 1:
        (style,) = indents
        others = ((kind, line) for kind, line in new_indents.items() if kind != style)
        problems += [
            f"line {n} is indented with {kind} in a file indented with {style}" for kind, n in others
        ]
    return problems


def _check_line_ends(before: str, after: str) -> list[str]:
    problems = []
    if before and before.endswith("\n") != after.endswith("\n"):
        problems.append("the end of the last line changed")
    if after.count("\r") > before.count("\r"):
        problems.append("a carriage return was added")
    return problems
