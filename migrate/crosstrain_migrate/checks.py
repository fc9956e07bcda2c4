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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from crosstrain_migrate.names import early_uses, local_names, unbound_names
from crosstrain_migrate.roles.program import parts
from crosstrain_migrate.roles.walks import walk


def check_result(before: str, after: str, allowed_lost: frozenset[str] = frozenset()) -> list[str]:
    """Problems of `after`, a migration of `before`; an empty list when it may be written.

    Both have "\\n" line ends. `allowed_lost` holds the comments (with their "#") whose only subject is gone.
    `before` must parse. The files of a program are checked each on its own.
    """
    old, new = parts(before), parts(after)
    if [part.path for part in old] != [part.path for part in new]:
        return ["the files of the program are not those it had"]
    return [
        f"{part.path}: {problem}" if part.path else problem
        for part, other in zip(old, new, strict=True)
        for problem in _check_file(part.text, other.text, allowed_lost)
    ]


def _check_file(before: str, after: str, allowed_lost: frozenset[str]) -> list[str]:
    if before == after:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are the author's
        old = ast.parse(before)
        try:
            new = ast.parse(after)
            compile(new, "<result>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            # Some texts parse and do not compile (`return` outside a function): those must only parse again.
            if not isinstance(error, SyntaxError) or _compiles(old) or not _parses(after):
                line = f" at line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
                return [f"the result does not parse{line}: {getattr(error, 'msg', error)}"]
        return [
            *_check_names(before, old, after, new),
            *_check_tokens(_Tokens.of(before), _Tokens.of(after), allowed_lost),
            *_check_line_ends(before, after),
        ]


def _compiles(tree: ast.Module) -> bool:
    try:
        compile(tree, "<original>", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


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
    if early := early_uses(new):
        problems += [
            f"`{name}` is used in line {early[scope, name]} ({scope}) before anything binds it"
            for scope, name in sorted(early.keys() - early_uses(old).keys())
        ]
    return problems + _captured(old, new)


def _captured(old: ast.Module, new: ast.Module) -> list[str]:
    """A function's own name whose binding went while a use stayed now means another scope's variable."""
    before, after = local_names(old), local_names(new)
    problems = []
    for scope, names in before.items():
        gone = names - after.get(scope, names)
        used = _read_in(new, scope, after) if gone else frozenset()
        problems += [
            f"`{name}` was {scope}'s own; the result reads another variable of that name"
            for name in sorted(gone & used)
        ]
    return problems


def _read_in(tree: ast.Module, scope: str, own: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The names that a scope reads, in functions inside it too unless they are these functions' `own`."""
    body: list[ast.stmt] = tree.body
    function: ast.AST = tree
    for part in scope.split("."):
        candidates = [
            node for statement in body for node in walk(statement) if _is_scope(node) and node.name == part
        ]
        if not candidates:
            return frozenset()
        function, body = candidates[0], candidates[0].body
    return _reads(function, scope, own)


def _reads(node: ast.AST, scope: str, own: Mapping[str, frozenset[str]]) -> frozenset[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return frozenset({node.id})
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if _is_scope(child):
            inner = f"{scope}.{child.name}"
            found |= _reads(child, inner, own) - own.get(inner, frozenset())
        else:
            found |= _reads(child, scope, own)
    return frozenset(found)


def _is_scope(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """What the tokenizer sees and the parser does not: comments with how often each occurs, and the kinds of
    indentation, each with a line that has it."""

    comments: Counter[str]
    indents: dict[str, int]

    @classmethod
    def of(cls, text: str) -> _Tokens | None:
        """None where Python's tokenizer cannot read a text its parser can."""
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
        return cls(comments, indents)


def _check_tokens(old: _Tokens | None, new: _Tokens | None, allowed_lost: frozenset[str]) -> list[str]:
    if old is None:
        return []
    if new is None:
        return ["the result's comments cannot be read"]
    lost = [comment for comment in (old.comments - new.comments) if comment not in allowed_lost]
    problems = [f"the comment `{comment}` is lost" for comment in lost]
    if len(old.indents) == 1:
        (style,) = old.indents
        problems += [
            f"line {line} is indented with {kind} in a file indented with {style}"
            for kind, line in new.indents.items()
            if kind != style
        ]
    return problems


def _check_line_ends(before: str, after: str) -> list[str]:
    problems = []
    if before and before.endswith("\n") != after.endswith("\n"):
        problems.append("the end of the last line changed")
    if after.count("\r") > before.count("\r"):
        problems.append("a carriage return came in")
    return problems
