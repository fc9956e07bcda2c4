"""Parts of a batch that a script leaves on the CPU, where the prepared loader puts them on the device."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.rules.placement.devices import is_cpu
from crosstrain_migrate.syntax.walks import walk


def stays_on_host(facts: Facts, operand: ast.expr) -> bool:
    """Whether a variable of the loop is collected as the loader gave it, and is not moved to a device later."""
    bound = facts.bindings(operand)
    if not bound or not all(isinstance(facts.table.statement_of(d), ast.For) for d in bound):
        return False
    holder = _holder(facts.table.statement_of(operand))
    return holder is None or not _is_moved(facts, holder)


def _holder(statement: ast.stmt) -> ast.Name | None:
    """`kept` of `kept.append(x)`, `kept += [x]` and `kept = torch.cat((kept, x))`."""
    held: ast.AST | None = None
    match statement:
        case ast.Expr(ast.Call(ast.Attribute(held))) | ast.AugAssign(held) | ast.Assign([held, *_]):
            pass
    return held if isinstance(held, ast.Name) else None


def _is_moved(facts: Facts, holder: ast.Name) -> bool:
    """Whether the script moves what `holder` has collected, or what it makes of it: `torch.cat(kept).cuda()`."""
    scope = facts.table.of_node[holder].resolve(holder.id)
    moves = (*facts.method_calls("cuda"), *facts.method_calls("to"))
    return any(
        isinstance(call.func, ast.Attribute)
        and not (call.args and (is_cpu(call.args[0]) or _is_type(facts, call.args[0])))
        and _is_made_of(facts, call.func.value, holder.id, scope, frozenset())
        for call in moves
    )


def _is_type(facts: Facts, argument: ast.expr) -> bool:
    """`x.to(torch.float32)`: it changes the type, and leaves x where it is."""
    return isinstance(argument, ast.Attribute) and any(p.startswith("torch.") for p in facts.paths(argument))


def _is_made_of(facts: Facts, node: ast.AST, name: str, scope: object, seen: frozenset[ast.AST]) -> bool:
    for part in walk(node):
        if not isinstance(part, ast.Name) or part in seen:
            continue
        if part.id == name and facts.table.of_node[part].resolve(name) is scope:
            return True
        for definition in facts.bindings(part):
            statement = facts.table.statement_of(definition)
            if isinstance(statement, ast.Assign) and _is_made_of(
                facts, statement.value, name, scope, seen | {part}
            ):
                return True
    return False
