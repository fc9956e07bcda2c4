"""The Accelerator's `mixed_precision=` argument, spelled with variables that exist where the Accelerator is made."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from crosstrain_migrate.rules.base import Context, Refusal, refuse
from crosstrain_migrate.rules.distribution.requested_options import Precision
from crosstrain_migrate.rules.side_effects import is_pure
from crosstrain_migrate.rules.sources import sets_by_name
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .devices import Devices

RULE = "CT306"
ASKED = (
    "{}.type == 'cuda'",
    "{} == 'cuda'",
    "str({}) == 'cuda'",
    "{}.type != 'cpu'",
    "{} != 'cpu'",
    "str({}) != 'cpu'",
)
CPU = frozenset({"'cpu'", "torch.device('cpu')"})


def ask(context: Context) -> None:
    """Adds `mixed_precision=` (and what goes with it) to the Accelerator's arguments."""
    wanted = context.requested.precision
    if wanted is None:
        return
    terms = _conditions(context, wanted)
    joined = " and ".join(f"({t})" if " or " in t or " if " in t else t for t in terms)
    dtype = f'"{wanted.dtype}"'
    context.options["mixed_precision"] = f'{dtype} if {joined} else "no"' if terms else dtype
    handlers = ["AutocastKwargs(enabled=False)"] if wanted.own_regions else []
    handlers += [f"GradScalerKwargs({wanted.scaling})"] if wanted.scaling else []
    if handlers:
        context.options["kwargs_handlers"] = f"[{', '.join(handlers)}]"
        code = f"from {context.runtime}.utils import {', '.join(h.split('(')[0] for h in handlers)}"
        file = context.home.scope.file
        context.edits.append(e.AddImport(file, RULE, "the loss scale's options", code=code))
    module = context.home.scope.module
    if "torch" not in module.names and any("torch." in t for t in terms):
        context.edits.append(e.AddImport(module.file, RULE, code="import torch"))


def _conditions(context: Context, wanted: Precision) -> list[str]:
    """What must hold for the precision to be lower: the script's own switch, and CUDA, where only CUDA has it."""
    switch = _available(context, wanted)
    terms = [switch] if switch else []
    if not wanted.cuda_only or _asks_cuda(context, switch):
        return terms
    not_cpu = [_negation(context.options["cpu"])] if "cpu" in context.options else []
    return [*terms, *not_cpu, "torch.cuda.is_available()"]


def _negation(test: str) -> str:
    inner = test.removeprefix("not ")
    if inner != test and " " not in inner:
        return inner
    return f"not ({test})" if " " in test else f"not {test}"


def _asks_cuda(context: Context, condition: str | None) -> bool:
    """Whether the script's own switch already is off where CUDA is not."""
    if condition is None or "is_available" in condition:
        return condition is not None
    name = written(ast.parse(condition, mode="eval").body)
    assigned = [
        s.value
        for s in context.facts.each(ast.Assign)
        if any(isinstance(t, ast.Name) and t.id == name for t in s.targets)
    ]
    if len(assigned) != 1:
        return False
    joined = isinstance(assigned[0], ast.BoolOp) and isinstance(assigned[0].op, ast.And)
    terms = assigned[0].values if joined and isinstance(assigned[0], ast.BoolOp) else assigned
    calls = (term for term in terms if isinstance(term, ast.Call))
    return any(ast.unparse(call.func) == "torch.cuda.is_available" for call in calls)


def _available(context: Context, wanted: Precision) -> str | None:
    """The switch, spelled with variables that exist where the Accelerator is made."""
    if wanted.flag is None:
        return None
    try:
        return _spelled(context, wanted.flag, 3)
    except Refusal:
        if wanted.outside is None:
            raise
        return _spelled(context, wanted.outside, 3)


def _spelled(context: Context, text: str, depth: int) -> str:
    asks = _AsksTheDevice(context)
    expression = asks.visit(ast.parse(text, mode="eval").body)
    text = ast.unparse(expression) if asks.replaced else text
    home = context.home.statement
    assert home is not None
    for read in [n for n in walk(expression) if isinstance(n, ast.Name | ast.Attribute)]:
        named = ast.unparse(read)
        scope = _scope_of(context, read)
        if scope is None:
            continue
        stores = [
            n
            for n in walk(scope.node)
            if isinstance(n, ast.Name | ast.Attribute)
            and isinstance(n.ctx, ast.Store)
            and ast.unparse(n) == named
            and context.facts.table.of_node[n] is scope
        ]
        late = [s for s in stores if scope is context.home.scope and s.lineno >= home.lineno]
        if not late:
            continue
        statement = context.facts.table.statement_of(late[0])
        if (
            len(stores) != 1
            or not isinstance(statement, ast.Assign)
            or not is_pure(statement.value)
            or not depth
            or (isinstance(statement.value, ast.Constant) and sets_by_name(context.facts))
        ):
            raise _unknown(context, named)
        inner = _spelled(context, context.source(statement.value), depth - 1)
        if isinstance(read, ast.Name):
            _forget(context, scope, named, statement)
        if read is expression:
            return inner
        text = f"({inner})".join(re.split(rf"(?<![\w.]){re.escape(named)}(?!\w)", text))
    return text


def _scope_of(context: Context, read: ast.Name | ast.Attribute) -> Scope | None:
    """The scope that may set what is read below the place where the Accelerator is made; None: no scope does."""
    if isinstance(read, ast.Attribute):
        return context.home.scope
    scope = context.home.scope.resolve(read.id)
    if scope is None and read.id not in {"bool", "True", "False"}:
        raise _unknown(context, read.id)
    return scope


class _AsksTheDevice(ast.NodeTransformer):
    """`device.type == "cuda"` is `torch.cuda.is_available()` where the script takes a GPU if there is one."""

    def __init__(self, context: Context) -> None:
        self.replaced = False
        self._names: dict[str, str] = {}
        # `Config.device`, and `device = ...` in the body of `Config`
        self._attributes: dict[str, set[str]] = defaultdict(set)
        for definition in Devices(context.facts).definitions():
            test = _chooses_cuda(definition.value)
            in_class = isinstance(context.facts.table.parents.get(definition), ast.ClassDef)
            for target in definition.targets if test is not None else ():
                assert test is not None
                if isinstance(target, ast.Name) and not in_class:
                    self._names[target.id] = ast.unparse(test)
                elif isinstance(target, ast.Name | ast.Attribute):
                    self._attributes[last_name(target)].add(ast.unparse(test))

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        asked = ast.unparse(node)
        for name, test in (*self._names.items(), *self._held(node)):
            if asked in {form.format(name) for form in ASKED}:
                self.replaced = True
                return ast.parse(test, mode="eval").body
        return node

    def _held(self, node: ast.Compare) -> list[tuple[str, str]]:
        """The devices among the attributes that a comparison mentions, each with what decided on it."""
        parts = [part for part in walk(node) if isinstance(part, ast.Attribute)]
        held = [(ast.unparse(part), self._attributes.get(part.attr, ())) for part in parts]
        return [(name, next(iter(tests))) for name, tests in held if len(tests) == 1]


def _chooses_cuda(value: ast.expr) -> ast.expr | None:
    """`test` of `torch.device("cuda" if test else "cpu")` and of `"cuda" if test else "cpu"`."""
    if isinstance(value, ast.Call) and len(value.args) == 1:
        value = value.args[0]
    if not isinstance(value, ast.IfExp):
        return None
    cpu = ast.unparse(value.orelse)
    return value.test if _names_cuda(value.body) and cpu in CPU else None


def _names_cuda(value: ast.expr) -> bool:
    """`"cuda"`, `"cuda:0"`, `torch.device("cuda")`, `torch.device("cuda", args.gpu)`."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "torch.device" and value.args:
        value = value.args[0]
    return isinstance(value, ast.Constant) and str(value.value).partition(":")[0] == "cuda"


def _forget(context: Context, scope: Scope, name: str, statement: ast.stmt) -> None:
    """Removes a variable that only named the switch."""
    names = (n for n in walk(scope.node) if isinstance(n, ast.Name) and n.id == name)
    if not any(isinstance(n.ctx, ast.Load) for n in names):
        context.remove(statement, RULE, "the Accelerator is told at once")


def _unknown(context: Context, name: str) -> Exception:
    home = context.home.statement
    assert home is not None
    return refuse(
        RULE,
        home,
        f"`{name}`, which decides about mixed precision, is set below the place where the Accelerator is made",
        f"set `{name}` before this line",
    )
