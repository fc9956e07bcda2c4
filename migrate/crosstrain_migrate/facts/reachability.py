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
from .values import Class, External, Function, Instance, Member, Method, Symbol, Value

Definition = ast.FunctionDef | ast.AsyncFunctionDef
# What may call any function by a name that is made at run time.
_BY_NAME = ("builtins.globals", "builtins.locals", "builtins.vars", "builtins.eval", "builtins.exec")
# Libraries whose decorators register a function with a command line, and these decorators.
_DECORATORS = {"click": {"command", "group"}, "typer": {"command", "callback"}, "hydra": {"main"}}
_PLAIN_DECORATORS = words("staticmethod classmethod no_grad inference_mode enable_grad wraps")


def reached(facts: Code, entries: set[ast.AST]) -> frozenset[ast.AST]:
    """The functions that running the script may come to: all of them where it looks up names at run time.

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
    hidden = _UnseenCalls(facts)
    work: list[ast.AST | None] = [None, *facts.interp.escaped, *entries]
    work += [f for f in functions if hidden.may_be_called(f)]
    found: set[ast.AST | None] = set()
    while work:
        current = work.pop()
        if current not in found:
            found.add(current)
            work.extend(follows[current])
    return frozenset(f for f in found if f is not None)


class _UnseenCalls:
    """What may be called where no call is seen."""

    def __init__(self, facts: Code) -> None:
        self._facts = facts
        self._asked = _attributes_of_unknown(facts)
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


def _attributes_of_unknown(facts: Code) -> frozenset[str]:
    """The names of the attributes that unknown objects are asked for."""
    owners = ((node.attr, facts.of(node.value)) for node in facts.each(ast.Attribute))
    return frozenset(name for name, values in owners if not any(isinstance(v, Instance) for v in values))


def _commands(facts: Code) -> frozenset[str]:
    """The words of a notebook's commands, which are string statements here: `%time train(net)`."""
    values = (node.value for node in facts.each(ast.Expr))
    texts = (v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str))
    commands = [text for text in texts if text.lstrip().startswith(("%", "!"))]
    return frozenset(word for text in commands for word in re.findall(r"\w+", text))


# -- command lines --------------------------------------------------------------------------------------------


def entries(facts: Code) -> set[ast.AST]:
    """The functions that `fire.Fire()`, or a decorator such as `@click.command()`, offers to the command line."""
    functions = facts.each(ast.FunctionDef)
    found: set[ast.AST] = {f for f in functions if any(_registers(facts, d) for d in f.decorator_list)}
    for call in facts.calls_to("fire.Fire"):
        given = [*call.args, *(k.value for k in call.keywords if k.arg == "component")]
        offered = [facts.table.of_node[call].file] if not given else _classes(facts, given)
        found |= {one for body in offered for one in body.body if isinstance(one, ast.FunctionDef)}
    return found


def _registers(facts: Code, decorator: ast.expr) -> bool:
    made = decorator.func if isinstance(decorator, ast.Call) else decorator
    if any(_is_registry(value) for value in facts.of(made)):
        return True
    if not isinstance(made, ast.Attribute) or made.attr not in _DECORATORS["click"]:
        return False
    groups = (v.node for v in facts.of(made.value) if isinstance(v, Function))  # `@cli.command()`
    return any(_registers(facts, one) for group in groups for one in getattr(group, "decorator_list", ()))


def _is_registry(value: Value) -> bool:
    """`click.command`, or the method `command` of what such a library made."""
    if isinstance(value, Symbol):
        library, _, name = value.path.partition(".")
        return name in _DECORATORS.get(library, ())
    if isinstance(value, Member) and isinstance(value.receiver, External):
        return value.name in _DECORATORS.get(value.receiver.path.split(".")[0], ())
    return False


def _classes(facts: Code, given: list[ast.expr]) -> list[ast.ClassDef]:
    """The classes among the arguments, and those of objects among them: their methods become commands."""
    values = {value for node in given for value in facts.of(node) if isinstance(value, Class | Instance)}
    return [value.node if isinstance(value, Class) else value.cls for value in values]
