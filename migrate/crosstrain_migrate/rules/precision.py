"""CT306: mixed precision by hand (autocast and GradScaler, every spelling) becomes `mixed_precision=`.

What:   `Accelerator(mixed_precision=...)` follows the script's own switch; autocast regions become
        `with accelerator.autocast():`; the scaler goes: `backward`, clipping and `step` scale and unscale by themselves,
        and its state in checkpoints is the accelerator's.
Why:    One loss scale for all processes, and every optimizer skips the same steps.
Before: `scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`
After:  `accelerator.backward(loss); optimizer.step()`
Leaves: the author's own autocast regions where the model also runs outside them, or where they differ: then prepared
        models add none (AutocastKwargs(enabled=False)) and every number stays what it was.
Refuses: several scalers, a scale that the script reads or sets, a scaler given to code that cannot be seen into.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from crosstrain_migrate import edits as e
from crosstrain_migrate.results import Severity
from crosstrain_migrate.roles import torch_api as api
from crosstrain_migrate.roles.scopes import Scope
from crosstrain_migrate.roles.values import Class, Function, Method

from .alone import default_of, passed
from .base import Context, refuse
from .branches import lose_comments
from .plain import Stage
from .wish import MARK, Precision

RULE = "CT306"
CUDA_AUTOCAST = frozenset({"torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast"})
ANY_AUTOCAST = frozenset({"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"})
AUTOCAST = CUDA_AUTOCAST | ANY_AUTOCAST
SCALERS = frozenset(
    {
        "torch.cuda.amp.GradScaler",
        "torch.cuda.amp.grad_scaler.GradScaler",
        "torch.amp.GradScaler",
        "torch.amp.grad_scaler.GradScaler",
        "torch.GradScaler",
    }
)
DTYPES = {
    "torch.float16": "fp16",
    "torch.half": "fp16",
    "torch.bfloat16": "bf16",
}
CALLED_BY_TORCH = frozenset({"torch.utils.data.Dataset", "torch.autograd.Function"})
SCALING = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


@dataclass(frozen=True)
class Region:
    """One autocast call. flag: the canonical text of its switch; dtype None: not one the Accelerator can be told."""

    call: ast.Call
    dtype: str | None
    device: str  # "cuda", "any" (the script's device) or "cpu"
    flag: str | None
    switch: ast.expr | None
    plain: bool  # it is a `with` item, in code that can be given the accelerator


def plan(stage: Stage) -> None:
    regions = [_region(stage, c) for c in stage.facts.calls_to(*AUTOCAST)]
    created = stage.facts.calls_to(*SCALERS)
    if (not regions and not created) or stage.wish.precision is not None or stage.wish.settled:
        return
    scaler = _Scaler(stage, created) if created else None
    _agree(stage, regions, scaler)
    if scaler is not None:
        scaler.plan()


# -- switches ------------------------------------------------------------------------------------------------


def resolve(stage: Stage, node: ast.expr, depth: int = 6) -> ast.expr:
    """What a parameter is given, where that is one expression."""
    if not isinstance(node, ast.Name) or not depth:
        return node
    reaching = stage.facts.interp.reaching.get(node, frozenset())
    definition = next(iter(reaching), None)
    if len(reaching) != 1 or not isinstance(definition, ast.arg):
        return node
    function = stage.facts.table.of_node[definition].node
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return node
    given = [passed(stage.facts, s, function, definition.arg) for s in stage.alone.sites(function)]
    known = [g for g in given if g is not None]
    if not known or len(known) != len(given):
        return node
    found = [resolve(stage, g, depth - 1) for g in known]
    return found[0] if len({canonical(stage, f) for f in found}) == 1 else node


def canonical(stage: Stage, node: ast.expr) -> str:
    """A text that is the same for the same option, however the namespace is called where it is read."""
    if isinstance(node, ast.Attribute) and stage.alone.is_namespace(node.value):
        return f"args.{node.attr}"
    return ast.unparse(node)


def _switch_of(stage: Stage, enabled: ast.expr | None, call: ast.Call) -> ast.expr | None:
    """The switch of an autocast or a scaler: `enabled=`, the `x if flag else y` or the `if flag:` around it."""
    if enabled is not None and not (isinstance(enabled, ast.Constant) and enabled.value is True):
        return resolve(stage, enabled)
    for around in stage.facts.table.ancestors(call):
        if isinstance(around, ast.IfExp) and stage.facts.interp.inside(call, around.body):
            return resolve(stage, around.test)
        if (
            isinstance(around, ast.If)
            and _may_be_switch(stage, around.test)
            and any(stage.facts.interp.inside(call, s) for s in around.body)
        ):
            return resolve(stage, around.test)
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.For | ast.While):
            break
    return None


def _may_be_switch(stage: Stage, test: ast.expr) -> bool:
    return isinstance(test, ast.Name | ast.Attribute | ast.BoolOp) and not any(
        isinstance(n, ast.Call) and not ast.unparse(n.func).endswith("is_available") for n in ast.walk(test)
    )


# -- regions -------------------------------------------------------------------------------------------------


def _region(stage: Stage, call: ast.Call) -> Region:
    given = {k.arg: k.value for k in call.keywords}
    cuda = bool(stage.facts.paths(call.func) & CUDA_AUTOCAST)
    names = (
        ("enabled", "dtype", "cache_enabled")
        if cuda
        else ("device_type", "dtype", "enabled", "cache_enabled")
    )
    given.update({n: a for n, a in zip(names, call.args, strict=False) if n not in given})
    device = "cuda" if cuda else _device_kind(given.get("device_type"))
    switch = _switch_of(stage, given.get("enabled"), call)
    dtype = given.get("dtype")
    kind: str | None = None
    if dtype is None:
        kind = "fp16" if device == "cuda" else None
    else:
        paths = stage.facts.paths(dtype)
        kind = DTYPES.get(next(iter(paths))) if len(paths) == len(stage.facts.of(dtype)) == 1 else None
    if "cache_enabled" in given or (isinstance(switch, ast.Constant)):
        kind = None
    flag = canonical(stage, switch) if switch is not None else None
    return Region(call, kind, device, flag, switch, _is_plain(stage, call))


def _device_kind(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant):
        return "cuda" if node.value == "cuda" else "cpu"
    return "any"


def _is_plain(stage: Stage, call: ast.Call) -> bool:
    item: ast.AST = call
    parent = stage.parent(call)
    if isinstance(parent, ast.IfExp) and ast.unparse(parent.orelse).endswith("nullcontext()"):
        item, parent = parent, stage.parent(parent)
    if not isinstance(parent, ast.withitem) or parent.optional_vars is not None:
        return False
    for around in stage.facts.table.ancestors(item):
        if isinstance(around, ast.ClassDef) and (
            stage.facts.interp.inherits(around, api.MODULE_BASES)
            or stage.facts.interp.inherits(around, CALLED_BY_TORCH)
        ):
            return False
    return True


def _agree(stage: Stage, regions: list[Region], scaler: _Scaler | None) -> None:
    """Either one precision for the whole script, or the author's regions as they are."""
    first = regions[0] if regions else None
    whole = (
        first is not None
        and first.dtype is not None
        and all(
            r.plain and r.dtype == first.dtype and r.device == first.device and r.flag == first.flag
            for r in regions
        )
    )
    whole = whole and first is not None and first.device != "cpu"
    if first is not None and scaler is not None:
        scaled = scaler.live
        whole = whole and (first.dtype == "fp16") == scaled
        if scaled:
            whole = (
                whole
                and scaler.flag == first.flag
                and (scaler.device == first.device or first.device == "cuda")
            )
    elif first is not None and first.dtype == "fp16":
        whole = False  # without a scaler, as the author wants it
    outside = _outside(stage, regions) if whole else None
    if whole and outside is None:
        assert first is not None and first.dtype is not None
        _whole(stage, regions, first, scaler)
        return
    stage.wish.settled.update({"torch.cuda.amp", "torch.amp", "torch.autocast"})
    if regions:
        why = (
            "the model also runs outside them"
            if outside is not None
            else "they differ, or stand where no accelerator is"
        )
        stage.note(
            RULE,
            outside or regions[0].call,
            f"the script's autocast regions stay as they are, because {why}: prepared models add none of their own",
            "put every forward pass into one kind of region to have `mixed_precision=` do it",
            Severity.NOTE,
        )
    if scaler is not None and scaler.live:
        if stage.runtime == "accelerate":
            raise refuse(
                RULE,
                outside or scaler.created,
                "the model runs inside and outside autocast, and Accelerate has one precision for all its forward passes",
                "put every forward pass into an autocast region, or migrate with --runtime crosstrain",
            )
        stage.wish.precision = Precision(
            "fp16", _text(stage, scaler.switch), scaler.device == "cuda", True, scaler.scaling
        )


def _whole(stage: Stage, regions: list[Region], first: Region, scaler: _Scaler | None) -> None:
    assert first.dtype is not None
    for region in regions:
        node: ast.expr = region.call
        parent = stage.parent(node)
        if isinstance(parent, ast.IfExp):
            node = parent
        stage.gone.update(ast.walk(node))
        stage.edits.append(
            e.Replace(
                node,
                RULE,
                "the precision the accelerator was made with",
                template=MARK.format("autocast") + "()",
            )
        )
    live = scaler is not None and scaler.live
    scaling = scaler.scaling if scaler is not None and live else ""
    switch = scaler.switch if scaler is not None and live else first.switch
    stage.wish.precision = Precision(
        first.dtype, _text(stage, switch), first.device == "cuda", False, scaling
    )


def _text(stage: Stage, switch: ast.expr | None) -> str | None:
    return stage.source(switch) if switch is not None else None


def _outside(stage: Stage, regions: list[Region]) -> ast.Call | None:
    """A forward pass of a trained model that no region is around, while the switch is on."""
    calls = {r.call for r in regions}
    models = set(stage.facts.models)
    flag = regions[0].flag
    for call in stage.facts.calls:
        if stage.facts.of(call.func) & models and not _covered(stage, call, calls, flag, frozenset()):
            return call
    return None


def _covered(
    stage: Stage, node: ast.AST, regions: set[ast.Call], flag: str | None, seen: frozenset[ast.AST]
) -> bool:
    child = node
    for around in stage.facts.table.ancestors(node):
        if (
            isinstance(around, ast.With | ast.AsyncWith)
            and child in around.body
            and any(n in regions for item in around.items for n in ast.walk(item.context_expr))
        ):
            return True
        if (
            isinstance(around, ast.If)
            and flag is not None
            and child in around.orelse
            and canonical(stage, resolve(stage, around.test)) == flag
        ):
            return True
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            if around in seen:
                return True
            sites = stage.facts.callers.get(around, [])
            return bool(sites) and all(_covered(stage, s, regions, flag, seen | {around}) for s in sites)
        child = around
    return False


# -- the scaler ----------------------------------------------------------------------------------------------


class _Scaler:
    """The script's GradScaler: where it is held, and what becomes of each use."""

    def __init__(self, stage: Stage, created: list[ast.Call]) -> None:
        if len(created) > 1:
            raise refuse(
                RULE,
                created[1],
                "the script has two gradient scalers, the accelerator has one",
                "use one scaler for all optimizers",
            )
        self.stage = stage
        self.facts = stage.facts
        self.created = created[0]
        self.names: set[tuple[Scope, str]] = set()
        self.attributes: set[str] = set()
        given = {k.arg: k.value for k in self.created.keywords}
        new = not stage.facts.paths(self.created.func) <= {
            "torch.cuda.amp.GradScaler",
            "torch.cuda.amp.grad_scaler.GradScaler",
        }
        names = ("device", *SCALING, "enabled") if new else (*SCALING, "enabled")
        given.update({n: a for n, a in zip(names, self.created.args, strict=False) if n not in given})
        device = given.get("device")
        self.device = "cuda" if not new or device is None else _device_kind(device)
        self.switch = _switch_of(stage, given.get("enabled"), self.created)
        off = isinstance(self.switch, ast.Constant) and not self.switch.value
        self.live = not off and self.device != "cpu"
        self.flag = canonical(stage, self.switch) if self.switch is not None else None
        self.scaling = ", ".join(f"{n}={stage.source(given[n])}" for n in SCALING if n in given)
        unknown = set(given) - {"device", "enabled", *SCALING}
        if unknown:
            raise refuse(
                RULE,
                self.created,
                f"GradScaler with {', '.join(map(str, unknown))}",
                "leave that argument out",
            )
        self.used: set[ast.AST] = set()
        self._spread()

    def _spread(self) -> None:
        """The variables, attributes and parameters that hold the scaler."""
        while True:
            before = (len(self.names), len(self.attributes))
            for node in ast.walk(self.facts.tree):
                if isinstance(node, ast.Assign) and self.holds(node.value):
                    for target in node.targets:
                        self._hold(target)
                elif isinstance(node, ast.Call):
                    self._into_parameters(node)
            if before == (len(self.names), len(self.attributes)):
                return

    def _hold(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            scope = self.facts.table.of_node[target].resolve(target.id)
            if scope is not None:
                self.names.add((scope, target.id))
        elif isinstance(target, ast.Attribute):
            self.attributes.add(target.attr)

    def _into_parameters(self, call: ast.Call) -> None:
        for function in self._targets(call):
            for argument in (*function.args.args, *function.args.kwonlyargs):
                value = passed(self.facts, call, function, argument.arg)
                if value is not None and self.holds(value):
                    self.names.add((self.facts.table.scopes[function], argument.arg))

    def _targets(self, call: ast.Call) -> list[ast.FunctionDef]:
        found: list[ast.FunctionDef] = []
        for value in self.facts.of(call.func):
            node: ast.AST | None = None
            if isinstance(value, Function):
                node = value.node
            elif isinstance(value, Method):
                node = value.function.node
            elif isinstance(value, Class):
                node = self.facts.interp.method(value.node, "__init__")
            if isinstance(node, ast.FunctionDef):
                found.append(node)
        return found

    def holds(self, node: ast.expr) -> bool:
        if node is self.created:
            return True
        if isinstance(node, ast.IfExp):
            return self.holds(node.body) or self.holds(node.orelse)
        if isinstance(node, ast.Name):
            scope = self.facts.table.of_node[node].resolve(node.id)
            return scope is not None and (scope, node.id) in self.names
        return isinstance(node, ast.Attribute) and node.attr in self.attributes

    # -- uses --------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        self._twins()
        for call in self.facts.calls:
            if (
                isinstance(call.func, ast.Attribute)
                and self.holds(call.func.value)
                and not self.stage.is_gone(call)
            ):
                self._method(call)
        self._tests()
        self._definitions()
        self._parameters()
        self._rest()

    def _take(self, node: ast.AST) -> None:
        self.used.update(ast.walk(node))

    def _method(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        name = call.func.attr
        self._take(call.func)
        statement = self.stage.statement(call)
        alone = isinstance(statement, ast.Expr) and statement.value is call
        if name == "scale" and len(call.args) == 1:
            self._scale(call)
        elif name == "step" and len(call.args) == 1 and not call.keywords:
            self.stage.replace(
                call,
                RULE,
                "a prepared optimizer unscales, and skips what overflowed",
                "{o}.step()",
                o=call.args[0],
            )
        elif name == "update" and alone and not call.args:
            self.stage.remove(statement, RULE, "the accelerator adjusts the loss scale")
        elif name == "unscale_" and alone and len(call.args) == 1:
            self._unscale(call, statement)
        elif name == "state_dict":
            scaler = MARK.format("scaler")
            template = f"({scaler}.state_dict() if {scaler} is not None else {{{{}}}})".replace("{{}}", "{}")
            if isinstance(self.stage.parent(call), ast.Dict | ast.keyword | ast.Assign):
                template = template[1:-1]
            self.stage.edits.append(e.Replace(call, RULE, "the accelerator's loss scale", template=template))
        elif name == "load_state_dict" and alone:
            assert isinstance(statement, ast.stmt)
            scaler = MARK.format("scaler")
            self.stage.edits.append(
                e.Replace(call.func.value, RULE, "the accelerator's loss scale", template=scaler)
            )
            self.stage.edits.append(e.Guard(statement, RULE, last=statement, test=f"{scaler} is not None"))
        else:
            raise refuse(
                RULE,
                call,
                f"`{ast.unparse(call)}`: the loss scale belongs to the accelerator, which has no counterpart for this",
                "take it out and run migrate again (`accelerator.optimizer_step_was_skipped` tells of skipped steps)",
            )

    def _scale(self, call: ast.Call) -> None:
        loss = call.args[0]
        parent = self.stage.parent(call)
        backward = isinstance(parent, ast.Attribute) and parent.attr == "backward"
        if not backward and not (isinstance(parent, ast.Assign) and self._only_backward(parent)):
            raise refuse(
                RULE,
                call,
                "a scaled loss is used for something else than backward",
                "scale it where backward is called",
            )
        simple = isinstance(loss, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        self.stage.replace(
            call, RULE, "the accelerator scales the loss", "{x}" if simple else "({x})", x=loss
        )

    def _only_backward(self, node: ast.Assign) -> bool:
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return False
        name = node.targets[0].id
        scope = self.facts.table.of_node[node]
        for other in ast.walk(scope.node):
            if isinstance(other, ast.Name) and other.id == name and isinstance(other.ctx, ast.Load):
                parent = self.stage.parent(other)
                if not (isinstance(parent, ast.Attribute) and parent.attr == "backward"):
                    return False
        return True

    def _unscale(self, call: ast.Call, statement: ast.stmt) -> None:
        """Clipping by the accelerator unscales first; other code that reads gradients needs them unscaled all the same."""
        from .clipping import CLIPPERS

        function = self.facts.enclosing_function(call)
        clips = [
            c
            for c in self.facts.calls_to(*CLIPPERS)
            if self.facts.enclosing_function(c) is function and c.lineno > call.lineno
        ]
        reads = [
            n
            for n in ast.walk(function or self.facts.tree)
            if isinstance(n, ast.Attribute) and n.attr == "grad" and isinstance(n.ctx, ast.Load)
        ]
        if clips and not reads:
            self.stage.remove(statement, RULE, "clipping by the accelerator unscales first")
            return
        template = MARK.format("unscale_gradients") + "({o})"
        self.stage.replace(call, RULE, "the accelerator unscales", template, o=call.args[0])

    # -- branches that differ in the scaler alone ------------------------------------------------------------

    def _twins(self) -> None:
        """`if use_amp: (scaled) else: (the same, plain)`: one of them is enough."""
        for node in ast.walk(self.facts.tree):
            if not isinstance(node, ast.If) or not node.orelse or self.stage.is_gone(node):
                continue
            scaled, plain = self._about(node.body), self._about(node.orelse)
            if scaled == plain:
                continue
            positive = scaled
            same = self._plain(node.body) == self._plain(node.orelse)
            if same and (self._tests_scaler(node.test) is not None or _may_be_switch(self.stage, node.test)):
                gone = node.orelse if positive else node.body
                arms = ("always", "drop") if positive else ("drop", "always")
                self.stage.gone.update(gone)
                lose_comments(self.stage, gone)
                self.stage.edits.append(
                    e.Fold(node, RULE, "with and without mixed precision are one now", arms=arms)
                )
                self._take(node.test)
            elif self._tests_scaler(node.test) is not None:
                raise refuse(
                    RULE,
                    node,
                    "the branches with and without a scaler do different things",
                    "make them differ in scaling alone",
                )

    def _about(self, body: list[ast.stmt]) -> bool:
        return any(isinstance(n, ast.Attribute) and self.holds(n.value) for s in body for n in ast.walk(s))

    def _plain(self, body: list[ast.stmt]) -> list[str]:
        """The statements as they are without autocast and scaler."""
        marks = {
            (n.lineno, n.col_offset)
            for s in body
            for n in ast.walk(s)
            if isinstance(n, ast.Name | ast.Attribute) and self.holds(n)
        }
        regions = {(c.lineno, c.col_offset) for c in self.facts.calls_to(*AUTOCAST)}
        found: list[str] = []
        for statement in body:
            stripped = _Strip(marks, regions).statements(copy.deepcopy(statement))
            found.extend(ast.unparse(result) for result in stripped)
        return found

    def _tests_scaler(self, test: ast.expr) -> bool | None:
        """Whether a test asks for the scaler (True) or for there being none (False)."""
        if self.holds(test):
            return True
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._tests_scaler(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and self.holds(test.left):
            right = test.comparators[0]
            if isinstance(right, ast.Constant) and right.value is None:
                return isinstance(test.ops[0], ast.IsNot | ast.NotEq)
        if (
            isinstance(test, ast.Call)
            and isinstance(test.func, ast.Attribute)
            and test.func.attr == "is_enabled"
            and self.holds(test.func.value)
        ):
            return True
        return None

    def _tests(self) -> None:
        for node in ast.walk(self.facts.tree):
            if (
                not isinstance(node, ast.If)
                or self._tests_scaler(node.test) is None
                or node.test in self.used
            ):
                continue
            if all(self.stage.is_gone(s) for s in node.body) and not node.orelse:
                self.stage.remove(node, RULE)
            else:
                verb = "is not" if self._tests_scaler(node.test) else "is"
                template = f"{MARK.format('scaler')} {verb} None"
                self.stage.edits.append(
                    e.Replace(node.test, RULE, "the accelerator's scaler", template=template)
                )
            self._take(node.test)

    # -- definitions and parameters --------------------------------------------------------------------------

    def _definitions(self) -> None:
        for node in ast.walk(self.facts.tree):
            if not isinstance(node, ast.Assign) or self.stage.is_gone(node):
                continue
            targets = node.targets
            if self.holds(node.value):
                if len(targets) != 1 or not isinstance(targets[0], ast.Name | ast.Attribute):
                    raise refuse(
                        RULE, node, "the scaler is held by more than a variable", "give it a name of its own"
                    )
                self._take(node.value)
                self.stage.remove(node, RULE, "the accelerator holds the scaler")
            elif (
                isinstance(node.value, ast.Constant)
                and node.value.value is None
                and self._is_holder(targets[0])
            ):
                self.stage.remove(node, RULE)
        for node in ast.walk(self.facts.tree):
            if (
                isinstance(node, ast.If)
                and not self.stage.is_gone(node)
                and all(self.stage.is_gone(s) for s in (*node.body, *node.orelse))
                and self._tests_scaler(node.test) is None
                and _may_be_switch(self.stage, node.test)
            ):
                self.stage.remove(node, RULE)

    def _is_holder(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Name):
            scope = self.facts.table.of_node[target].resolve(target.id)
            return scope is not None and (scope, target.id) in self.names
        return isinstance(target, ast.Attribute) and target.attr in self.attributes

    def _parameters(self) -> None:
        """Functions no longer get the scaler."""
        for scope, name in self.names:
            function = scope.node
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            argument = next(
                (a for a in (*function.args.args, *function.args.kwonlyargs) if a.arg == name), None
            )
            if argument is None:
                continue
            if function in self.facts.interp.escaped:
                raise refuse(
                    RULE,
                    function,
                    f"`{function.name}` gets the scaler from callers that cannot all be seen",
                    "call it directly",
                )
            self.stage.edits.append(
                e.ReplaceParameter(function, RULE, "nothing in it needs a scaler any more", name=name)
            )
            for site in self.stage.alone.sites(function):
                value = passed(self.facts, site, function, name)
                if value is None:
                    if default_of(function, argument) is None:
                        raise refuse(
                            RULE,
                            site,
                            "what this call passes as the scaler cannot be told",
                            "pass it by name",
                        )
                    continue
                self._take(value)
                self.stage.edits.append(e.RemoveArgument(site, RULE, argument=value))

    def _rest(self) -> None:
        """Every use must have been dealt with."""
        for node in ast.walk(self.facts.tree):
            if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            if node in self.used or self.stage.is_gone(node) or not self.holds(node):
                continue
            raise refuse(
                RULE,
                node,
                f"`{ast.unparse(node)}` (the gradient scaler) is used in a way that has no counterpart",
                "take this use out and run migrate again",
            )
        if self.created not in self.used and not self.stage.is_gone(self.created):
            raise refuse(RULE, self.created, "this scaler is held by no variable", "give it a name")


class _Strip(ast.NodeTransformer):
    """Takes autocast and scaler out of a copied statement; both are known by where they stand."""

    def __init__(self, scalers: set[tuple[int, int]], regions: set[tuple[int, int]]) -> None:
        self.scalers = scalers
        self.regions = regions

    def statements(self, node: ast.stmt) -> list[ast.stmt]:
        found = self.visit(node)
        return [] if found is None else found if isinstance(found, list) else [found]

    def _of_scaler(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if (owner.lineno, owner.col_offset) in self.scalers:
                return node.func.attr
        return None

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        node.items = [
            i
            for i in node.items
            if not any(
                (n.lineno, n.col_offset) in self.regions
                for n in ast.walk(i.context_expr)
                if isinstance(n, ast.Call)
            )
        ]
        return node if node.items else node.body

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if self._of_scaler(node.value) in {"update", "unscale_"}:
            return None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = self._of_scaler(node)
        if name == "scale" and node.args:
            return node.args[0]
        if name == "step" and node.args:
            return ast.copy_location(ast.Call(ast.Attribute(node.args[0], "step", ast.Load()), [], []), node)
        return node


# -- the Accelerator's argument ------------------------------------------------------------------------------


def ask(context: Context) -> None:
    """Adds `mixed_precision=` (and what goes with it) to the Accelerator's arguments."""
    wanted = context.wish.precision
    if wanted is None:
        return
    condition = _available(context, wanted)
    terms = [condition] if condition else []
    if wanted.cuda_only and not _asks_cuda(context, condition):
        if "cpu" in context.options:
            cpu = context.options["cpu"]
            terms.append(
                cpu[4:]
                if cpu.startswith("not ") and " " not in cpu[4:]
                else f"not ({cpu})"
                if " " in cpu
                else f"not {cpu}"
            )
        terms.append("torch.cuda.is_available()")
    dtype = f'"{wanted.dtype}"'
    joined = " and ".join(f"({t})" if " or " in t or " if " in t else t for t in terms)
    context.options["mixed_precision"] = f'{dtype} if {joined} else "no"' if terms else dtype
    handlers = []
    if wanted.own_regions:
        handlers.append("AutocastKwargs(enabled=False)")
    if wanted.scaling:
        handlers.append(f"GradScalerKwargs({wanted.scaling})")
    if handlers:
        context.options["kwargs_handlers"] = f"[{', '.join(handlers)}]"
        names = ", ".join(h.split("(")[0] for h in handlers)
        context.edits.append(
            e.AddImport(
                context.facts.tree,
                RULE,
                "the loss scale's options",
                code=f"from {context.runtime}.utils import {names}",
            )
        )
    if "torch" not in context.facts.table.root.names and any("torch." in t for t in terms):
        context.edits.append(e.AddImport(context.facts.tree, RULE, code="import torch"))


def _asks_cuda(context: Context, condition: str | None) -> bool:
    """Whether the script's own switch already is off where CUDA is not."""
    if condition is None or "is_available" in condition:
        return condition is not None
    expression = ast.parse(condition, mode="eval").body
    named = (
        {n.id for n in ast.walk(expression) if isinstance(n, ast.Name)}
        if isinstance(expression, ast.Name)
        else set()
    )
    found = [
        s.value
        for s in ast.walk(context.facts.tree)
        if isinstance(s, ast.Assign) and any(isinstance(t, ast.Name) and t.id in named for t in s.targets)
    ]
    return len(found) == 1 and any(
        isinstance(p, ast.Call) and ast.unparse(p.func) == "torch.cuda.is_available"
        for p in (
            found[0].values
            if isinstance(found[0], ast.BoolOp) and isinstance(found[0].op, ast.And)
            else [found[0]]
        )
    )


def _available(context: Context, wanted: Precision) -> str | None:
    """The switch, in words that are known where the Accelerator is made."""
    if wanted.flag is None:
        return None
    return _spelled(context, wanted.flag, 3)


def _spelled(context: Context, text: str, depth: int) -> str:
    from .device import is_pure

    expression = ast.parse(text, mode="eval").body
    home = context.home.statement
    assert home is not None
    for name in [n for n in ast.walk(expression) if isinstance(n, ast.Name)]:
        scope = context.home.scope.resolve(name.id)
        if scope is None and name.id in {"bool", "True", "False"}:
            continue
        if scope is None:
            raise _unknown(context, name.id)
        stores = [
            n
            for n in ast.walk(scope.node)
            if isinstance(n, ast.Name)
            and n.id == name.id
            and isinstance(n.ctx, ast.Store)
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
        ):
            raise _unknown(context, name.id)
        inner = _spelled(context, context.source(statement.value), depth - 1)
        _forget(context, scope, name.id, statement)
        if isinstance(expression, ast.Name):
            return inner
        text = text.replace(name.id, f"({inner})")
    return text


def _forget(context: Context, scope: Scope, name: str, statement: ast.stmt) -> None:
    """A variable that only named the switch goes."""
    loads = [
        n
        for n in ast.walk(scope.node)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    ]
    if not loads:
        context.remove(statement, RULE, "the Accelerator is told at once")


def _unknown(context: Context, name: str) -> Exception:
    home = context.home.statement
    assert home is not None
    return refuse(
        RULE,
        home,
        f"`{name}`, which decides about mixed precision, is not known yet where the Accelerator is made",
        f"set `{name}` before this line",
    )
