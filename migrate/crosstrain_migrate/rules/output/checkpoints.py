"""CT501: model weights are saved once, whole
CT502: checkpoints are saved once, whole
CT503: a file is read after it has been written

What:   `torch.save(model.state_dict(), "x.pt")` becomes `accelerator.save_model(model, "x.pt")`, any other torch.save
        `accelerator.save`; a file that is read back later is waited for.
Why:    One process writes, whole, and without a wrapper's prefix.

Example CT501 (end):
    torch.save(model.state_dict(), "model.pt")
Becomes (end):
    accelerator.save_model(model, "model.pt")
Example CT502 (after_epoch):
    torch.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
Becomes (after_epoch):
    accelerator.save({"model": model.state_dict(), "epoch": epoch}, "checkpoint.pt")
Example CT503 (end):
    torch.save(model.state_dict(), "model.pt")
    model.load_state_dict(torch.load("model.pt"))
Becomes (end):
    accelerator.save_model(model, "model.pt")
    accelerator.wait_for_everyone()
    model.load_state_dict(torch.load("model.pt"))
Stays CT501 (end):
    size = sum(p.numel() for p in model.parameters())
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.values import External, Instance
from crosstrain_migrate.rules.base import Context, Refusal
from crosstrain_migrate.rules.placement.construction import only_definition
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

MODEL, ANYTHING, LOAD = "CT501", "CT502", "CT503"
SUFFIXES = (".pt", ".pth", ".bin")


def plan(context: Context) -> None:
    saves = [
        c
        for c in context.facts.calls_to("torch.save")
        if context.reachable(c) and not _into_memory(context, c)
    ]
    for call in saves:
        try:
            _save(context, call)
        except Refusal:
            context.note(ANYTHING, call, "every process writes this file", "save it through the accelerator")
    if saves:
        _wait_before_loads(context, saves)


def _into_memory(context: Context, call: ast.Call) -> bool:
    """A buffer is every process's own: each must fill it."""
    target = given(call, "f", 1)
    return target is not None and any(
        isinstance(v, External) and v.path == "io.BytesIO" for v in context.facts.of(target)
    )


def _save(context: Context, call: ast.Call) -> None:
    if len(call.args) == 2 and not call.keywords:
        model = _state_dict_of(context, call.args[0])
        if model is not None and context.runtime == "crosstrain" and _has_suffix(context, call.args[1]):
            if not context.allows(MODEL, call):
                return
            accelerator = context.accelerator(call)
            template = accelerator + ".save_model({model}, {path})"
            context.replace(
                call, MODEL, "one file, from the main process", template, model=model, path=call.args[1]
            )
            return
    if not context.allows(ANYTHING, call):
        return
    accelerator = context.accelerator(call)
    if context.runtime == "accelerate":
        _unwrap_inside(context, call, accelerator)
    context.replace(call.func, ANYTHING, "written once, whole, by the main process", f"{accelerator}.save")


def _state_dict_of(context: Context, node: ast.expr) -> ast.expr | None:
    """`model` of `model.state_dict()`, when it is one of the prepared modules."""
    if (
        not isinstance(node, ast.Call)
        or node.args
        or node.keywords
        or not isinstance(node.func, ast.Attribute)
    ):
        return None
    if node.func.attr != "state_dict":
        return None
    values = context.facts.of(node.func.value)
    return node.func.value if any(v in context.subject.models for v in values) else None


def _has_suffix(context: Context, path: ast.expr, seen: frozenset[ast.expr] = frozenset()) -> bool:
    """Whether a path expression surely ends in a checkpoint suffix."""
    if path in seen:
        return False  # a name that is assigned from itself
    seen |= {path}
    if isinstance(path, ast.Constant) and isinstance(path.value, str):
        return path.value.endswith(SUFFIXES)
    if isinstance(path, ast.Name):
        definition = only_definition(context.facts, path)
        return (
            definition is not None
            and not isinstance(definition, ast.Name)
            and _has_suffix(context, definition, seen)
        )
    if isinstance(path, ast.JoinedStr) and path.values:
        return _has_suffix(context, path.values[-1], seen)
    if isinstance(path, ast.BinOp):
        return _has_suffix(context, path.left if isinstance(path.op, ast.Mod) else path.right, seen)
    if isinstance(path, ast.Call) and isinstance(path.func, ast.Attribute):
        if path.func.attr == "join" and path.args:
            return _has_suffix(context, path.args[-1], seen)
        if path.func.attr == "format":
            return _has_suffix(context, path.func.value, seen)
    return False


def _unwrap_inside(context: Context, call: ast.Call, accelerator: str) -> None:
    """Accelerate's prepared model carries a wrapper: its state is taken from the model inside."""
    for node in walk(call.args[0]) if call.args else ():
        if isinstance(node, ast.Call) and _state_dict_of(context, node) is not None:
            assert isinstance(node.func, ast.Attribute)
            context.replace(
                node.func.value, ANYTHING, "", accelerator + ".unwrap_model({m})", m=node.func.value
            )


def _wait_before_loads(context: Context, saves: list[ast.Call]) -> None:
    for call in context.facts.calls_to("torch.load"):
        if not context.reachable(call) or not may_follow_a_save(context, call, saves, frozenset()):
            continue
        wait_before(context, call, LOAD, saves)


def wait_before(context: Context, call: ast.Call, rule: str, saves: list[ast.Call]) -> None:
    """All processes meet before `call` reads a file that one of them wrote in one of `saves`."""
    if not context.allows(rule, call):
        return
    statement = _before_tests(context, call, saves)
    if _have_met(context, call, statement, saves):
        return
    code = f"{context.accelerator(call)}.wait_for_everyone()"
    context.edits.append(
        e.InsertBefore(statement, rule, "the main process may still be writing the file", code=code)
    )
    context.collective.add(statement)


def _have_met(context: Context, call: ast.Call, statement: ast.stmt, saves: list[ast.Call]) -> bool:
    """Whether all processes meet here already, or above, behind everything that is saved above `call`."""
    suite = suite_of(context.facts, statement)
    met = [
        x.node.lineno
        for x in context.edits
        if isinstance(x, e.InsertBefore) and x.node in suite and "wait_for" in x.code
    ]
    saved = [c.lineno for c in _saving_above(context, call, saves)]
    return any(max(saved, default=0) < line <= statement.lineno for line in met)


def _before_tests(context: Context, call: ast.Call, saves: list[ast.Call]) -> ast.stmt:
    """Out of the `if os.path.exists(path)` around it: the test, too, must see the file. What saves stays before it."""
    table = context.facts.table
    current = table.statement_of(call)
    saving = _saving_above(context, call, saves)
    for around in table.ancestors(current):
        if not isinstance(around, ast.If | ast.Try | ast.With) or any(
            around in table.ancestors(s) for s in saving
        ):
            break
        if "__name__" in ast.unparse(around).split("\n", 1)[0]:
            break
        current = around
    return current


def may_follow_a_save(
    context: Context, node: ast.AST, saves: list[ast.Call], seen: frozenset[ast.AST]
) -> bool:
    """Whether a save may have run earlier in the same run: above `node` in its function, or above a call of that."""
    facts = context.facts
    scope = facts.table.of_node[node]
    if _saving_above(context, node, saves):
        return True
    if scope.node in seen:
        return False
    return any(
        may_follow_a_save(context, site, saves, seen | {scope.node})
        for site in facts.callers.get(scope.node, ())
    )


def _saving_above(context: Context, node: ast.AST, saves: list[ast.Call]) -> list[ast.Call]:
    """Calls that save, themselves or in what they run, above `node` in its function."""
    table = context.facts.table
    scope, line = table.of_node[node], line_of(node)
    above = (c for c in context.facts.calls if table.of_node[c] is scope and c.lineno < line)
    return [
        call
        for call in above
        if not _instead(context, call, node)
        and (
            call in saves or any(_saves_inside(context, t, saves, frozenset()) for t in called(context, call))
        )
    ]


def _instead(context: Context, call: ast.Call, node: ast.AST) -> bool:
    """Whether `call` stands in one branch of an `if`, and `node` in the other: one run takes one of them."""
    table = context.facts.table
    around = set(table.ancestors(node))
    child: ast.AST = call
    for ancestor in table.ancestors(call):
        if ancestor in around:
            if not isinstance(ancestor, ast.If) or child is ancestor.test:
                return False
            others = ancestor.orelse if child in ancestor.body else ancestor.body
            again = any(isinstance(a, ast.For | ast.While) for a in table.ancestors(ancestor))
            return not again and any(s in around or s is node for s in others)
        child = ancestor
    return False


def _saves_inside(
    context: Context, function: ast.AST, saves: list[ast.Call], seen: frozenset[ast.AST]
) -> bool:
    if function in seen:
        return False
    for node in walk(function):
        if isinstance(node, ast.Call):
            if node in saves:
                return True
            if any(_saves_inside(context, t, saves, seen | {function}) for t in called(context, node)):
                return True
    return False


def called(context: Context, call: ast.Call) -> list[ast.AST]:
    """What a call runs of the script's own: a function, a constructor, or an object's `__call__`."""
    methods = [
        context.facts.interp.method(v.cls, "__call__")
        for v in context.facts.of(call.func)
        if isinstance(v, Instance)
    ]
    return [*context.facts.targets(call), *(m for m in methods if m is not None)]
