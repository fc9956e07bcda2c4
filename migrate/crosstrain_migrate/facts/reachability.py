"""Which functions running the script may come to: what nothing calls says nothing about the training.

In doubt, a function is reached: one that is used as a value, registered by a decorator or named by a command line, or a
method that an unknown object may be asked for.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from crosstrain_migrate.syntax.nodes import last_name

from .code import Code
from .torch_api import words
from .values import Class, Function, Instance, Method

Definition = ast.FunctionDef | ast.AsyncFunctionDef
# What may call any function by a name that is made at run time.
_BY_NAME = ("builtins.globals", "builtins.locals", "builtins.vars", "builtins.eval", "builtins.exec")
_PLAIN_DECORATORS = words("staticmethod classmethod no_grad inference_mode enable_grad wraps")


def reached(facts: Code, entries: set[ast.AST]) -> frozenset[ast.AST]:
    """The functions that running the script may come to: all of them where names are looked up as it runs.

    entries: those that a command line names.
    """
    functions = facts.each(ast.FunctionDef, ast.AsyncFunctionDef)
    if facts.calls_to(*_BY_NAME):
        return frozenset(functions)
    follows: dict[ast.AST | None, set[ast.AST]] = defaultdict(set)
    for function in functions:
        around = facts.enclosing_function(function)
        if around is not None:
            follows[around].add(function)
    for called, sites in facts.callers.items():
        for site in sites:
            follows[facts.enclosing_function(site)].add(called)
    hidden = _Hidden(facts)
    work: list[ast.AST | None] = [None, *facts.interp.escaped, *entries]
    work += [f for f in functions if hidden.may_be_called(f)]
    found: set[ast.AST | None] = set()
    while work:
        current = work.pop()
        if current not in found:
            found.add(current)
            work.extend(follows[current])
    return frozenset(f for f in found if f is not None)


class _Hidden:
    """What may be called where no call is seen."""

    def __init__(self, facts: Code) -> None:
        self._facts = facts
        self._asked = _asked_of_unknown(facts)
        self._commands = _commands(facts)
        self._made: set[ast.ClassDef] = set()  # the classes that objects are made of, and their base classes
        work = [v.cls for v in facts.all_values if isinstance(v, Instance) and v.site is not v.cls]
        while work:
            cls = work.pop()
            if cls not in self._made:
                self._made.add(cls)
                work.extend(v.node for v in facts.interp.bases(cls) if isinstance(v, Class))

    def may_be_called(self, function: Definition) -> bool:
        if function.name in self._commands or not all(map(self._is_plain, function.decorator_list)):
            return True
        cls = self._facts.table.parents.get(function)
        if not isinstance(cls, ast.ClassDef) or cls not in self._made:
            return False
        if function.name.startswith("__") or function.name in self._asked:
            return True
        return any(not isinstance(base, Class) for base in self._facts.interp.bases(cls))

    def _is_plain(self, decorator: ast.expr) -> bool:
        """Whether a decorator gives the function to nobody else."""
        made = decorator.func if isinstance(decorator, ast.Call) else decorator
        if any(isinstance(v, Function | Method) for v in self._facts.of(made)):
            return False
        return last_name(made) in _PLAIN_DECORATORS


def _asked_of_unknown(facts: Code) -> frozenset[str]:
    """The names of the attributes that unknown objects are asked for."""
    owners = ((node.attr, facts.of(node.value)) for node in facts.each(ast.Attribute))
    return frozenset(name for name, values in owners if not any(isinstance(v, Instance) for v in values))


def _commands(facts: Code) -> frozenset[str]:
    """The words of a notebook's commands, which are string statements here: `%time train(net)`."""
    values = (node.value for node in facts.each(ast.Expr))
    texts = (v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))
    commands = [text for text in texts if text.lstrip().startswith(("%", "!"))]
    return frozenset(word for text in commands for word in re.findall(r"\w+", text))
