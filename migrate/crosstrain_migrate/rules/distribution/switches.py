"""The switch of mixed precision: which option or variable turns an autocast region or a scaler on."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.walks import walk

from .plain import Stage


def resolve(stage: Stage, node: ast.expr, depth: int = 6) -> ast.expr:
    """The expression that all callers pass for a parameter, if they agree; else the parameter."""
    if not isinstance(node, ast.Name) or not depth:
        return node
    reaching = stage.facts.bindings(node)
    definition = next(iter(reaching), None)
    if len(reaching) != 1 or not isinstance(definition, ast.arg):
        return node
    function = stage.facts.table.of_node[definition].node
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return node
    given = [stage.facts.passed(s, function, definition.arg) for s in stage.single.sources.sites(function)]
    known = [g for g in given if g is not None]
    if not known or len(known) != len(given):
        return node
    found = [resolve(stage, g, depth - 1) for g in known]
    return found[0] if len({canonical(stage, f) for f in found}) == 1 else node


def canonical(stage: Stage, node: ast.expr) -> str:
    """A text that is the same for the same option, whatever the namespace is called there."""
    if isinstance(node, ast.Attribute) and stage.single.sources.is_namespace(node.value):
        return f"args.{node.attr}"
    return ast.unparse(node)


def switch_of(stage: Stage, enabled: ast.expr | None, call: ast.Call) -> ast.expr | None:
    """The switch of an autocast or a scaler: `enabled=`, the `x if flag else y` or the `if flag:` around it."""
    if enabled is not None and not (isinstance(enabled, ast.Constant) and enabled.value is True):
        return resolve(stage, enabled)
    for child, around in stage.outward(call):
        if isinstance(around, ast.IfExp) and child is around.body:
            return resolve(stage, around.test)
        if isinstance(around, ast.If) and child in around.body and may_be_switch(stage, around.test):
            return resolve(stage, around.test)
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.For | ast.While):
            break
    return None


def may_be_switch(stage: Stage, test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute | ast.BoolOp) and not any(
        isinstance(n, ast.Call) and not ast.unparse(n.func).endswith("is_available") for n in walk(test)
    )


def device_kind(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return "cuda" if node.value == "cuda" else "cpu"
    return "any"


def from_outside(stage: Stage, switch: ast.expr | None) -> str | None:
    """A class's switch as the code that makes the class spells it: `config.use_amp` of `Trainer(config)` for
    `self.config.use_amp`."""
    if switch is None:
        return None
    attributes = (n for n in walk(switch) if isinstance(n, ast.Attribute))
    held = next((n for n in attributes if isinstance(n.value, ast.Name) and n.value.id == "self"), None)
    cls = next((a for a in stage.facts.table.ancestors(switch) if isinstance(a, ast.ClassDef)), None)
    init = stage.facts.interp.method(cls, "__init__") if cls is not None and held is not None else None
    if not isinstance(init, ast.FunctionDef) or held is None:
        return None
    text = ast.unparse(held)
    stored = (n for n in walk(init) if isinstance(n, ast.Assign))
    kept = [n.value for n in stored if any(ast.unparse(t) == text for t in n.targets)]
    sites = stage.single.sources.sites(init)
    if len(kept) != 1 or not isinstance(kept[0], ast.Name) or len(sites) != 1:
        return None
    given = stage.facts.passed(sites[0], init, kept[0].id)
    return stage.source(switch).replace(text, stage.source(given)) if isinstance(given, ast.Name) else None
