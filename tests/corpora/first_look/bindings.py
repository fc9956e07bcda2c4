"""What names are bound to in a unit's own code, and what is seen through."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .reach import Unit

THROUGH = frozenset(
    {
        *(
            "enumerate",
            "tqdm",
            "trange",
            "track",
            "progress_bar",
            "islice",
            "iter",
            "reversed",
            "cycle",
            "list",
        ),
        *(
            "Bar",
            "tqdm_notebook",
            "log_every",
            "prefetch",
            "infinite",
            "cycle_loader",
            "chain",
            "next",
            "metric_logger",
        ),
    }
)
PREPARES = frozenset({"prepare", "prepare_data_loader", "skip_first_batches"})


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name; of a subscript the name of what is indexed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return last_name(node.value) if isinstance(node, ast.Subscript | ast.Starred) else ""


def names(value: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Name | ast.Attribute) and last_name(node) == name for node in ast.walk(value)
    )


def renews(value: ast.expr, name: str) -> bool:
    """`loader = tqdm(loader)`: what the name stood for before is what counts."""
    return wraps(value) and names(value, name)


def prepares(value: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and last_name(node.func) in PREPARES for node in ast.walk(value))


def wraps(value: ast.expr) -> bool:
    """A bar, an `enumerate`, a conditional one: what is seen through."""
    if isinstance(value, ast.IfExp):
        return wraps(value.body) or wraps(value.orelse)
    return isinstance(value, ast.Call) and last_name(value.func) in THROUGH | {"zip"} and bool(value.args)


def bindings(unit: Unit, name: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of what binds a plain name in a unit's own code; a loop's or a with's target too."""
    for node in unit.nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs = [(target, value) for target in targets]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pairs = [(target, value)]
            case ast.NamedExpr(target=target, value=value):
                pairs = [(target, value)]
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                pairs = [(target, value)]
            case ast.For(target=target, iter=value):
                pairs = [(target, value)]
            case _:
                continue
        for target, value in pairs:
            plain = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            if any(isinstance(one, ast.Name) and one.id == name for one in plain):
                yield target, value


def attribute_bindings(unit: Unit, name: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in unit.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                plain = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                if any(isinstance(one, ast.Attribute) and one.attr == name for one in plain):
                    yield target, node.value


def returned(unit: Unit, place: int | None) -> Iterator[tuple[ast.expr, Unit]]:
    for node in unit.nodes:
        value = node.value if isinstance(node, ast.Return | ast.Yield) else None
        if value is None:
            continue
        if isinstance(value, ast.Tuple) and place is not None and place < len(value.elts):
            yield value.elts[place], unit
        else:
            yield value, unit
