"""Functions that a command line names, so that no call of the script runs them."""

from __future__ import annotations

import ast

from .code import Code
from .values import Class, External, Function, Instance, Member, Symbol, Value

# Libraries whose decorators register a function, with the decorators that do.
_DECORATORS = {"click": {"command", "group"}, "typer": {"command", "callback"}, "hydra": {"main"}}


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
