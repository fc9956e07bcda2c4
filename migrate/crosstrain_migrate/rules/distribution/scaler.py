"""The script's GradScaler goes: the accelerator scales the loss, unscales, skips and keeps the scale's state."""

from __future__ import annotations

import ast
import copy

from crosstrain_migrate.rules.arguments import default_of, passed
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .dispensable import lose_comments
from .plain import Stage
from .requested_options import MARK
from .switches import canonical, device_kind, may_be_switch, switch_of

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
SCALING = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


class Scaler:
    """The script's GradScaler: where it is held, and what becomes of each use."""

    def __init__(self, stage: Stage, created: list[ast.Call]) -> None:
        if len(created) > 1:
            reason = "the script has two gradient scalers, the accelerator has one"
            raise refuse(RULE, created[1], reason, "use one scaler for all optimizers")
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
        self.device = "cuda" if not new or device is None else device_kind(device)
        self.switch = switch_of(stage, given.get("enabled"), self.created)
        off = isinstance(self.switch, ast.Constant) and not self.switch.value
        self.live = not off and self.device != "cpu"
        self.flag = canonical(stage, self.switch) if self.switch is not None else None
        self.scaling = ", ".join(f"{n}={stage.source(given[n])}" for n in SCALING if n in given)
        unknown = set(given) - {"device", "enabled", *SCALING}
        if unknown:
            reason = f"GradScaler with {', '.join(map(str, unknown))}"
            raise refuse(RULE, self.created, reason, "leave that argument out")
        self.used: set[ast.AST] = set()
        self._spread()

    def _spread(self) -> None:
        """The variables, attributes and parameters that hold the scaler."""
        while True:
            before = (len(self.names), len(self.attributes))
            for node in self.facts.nodes:
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
        for function in self.facts.targets(call):
            if not isinstance(function, ast.FunctionDef):
                continue
            for argument in (*function.args.args, *function.args.kwonlyargs):
                value = passed(self.facts, call, function, argument.arg)
                if value is not None and self.holds(value):
                    self.names.add((self.facts.table.scopes[function], argument.arg))

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
        self._clips_scaled()
        self._twins()
        for call in self.facts.calls:
            if (
                isinstance(call.func, ast.Attribute)
                and self.holds(call.func.value)
                and not self.stage.is_settled(call)
            ):
                self._method(call)
        self._tests()
        self._definitions()
        self._parameters()
        self._rest()

    def _take(self, node: ast.AST) -> None:
        self.used.update(walk(node))

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
            if self._asked_before(call):
                template = f"{scaler}.state_dict()"
            elif isinstance(self.stage.parent(call), ast.Dict | ast.keyword | ast.Assign):
                template = template[1:-1]
            self.stage.edits.append(e.Replace(call, RULE, "the accelerator's loss scale", template=template))
        elif name == "load_state_dict" and alone:
            assert isinstance(statement, ast.stmt)
            scaler = MARK.format("scaler")
            self.stage.edits.append(
                e.Replace(call.func.value, RULE, "the accelerator's loss scale", template=scaler)
            )
            if not self._asked_before(call):
                guard = e.Guard(statement, RULE, last=statement, test=f"{scaler} is not None")
                self.stage.edits.append(guard)
        else:
            reason = f"`{ast.unparse(call)}`: the loss scale is the accelerator's own, and nobody else may read or set it like this"
            remedy = "take it out and run migrate again (`accelerator.optimizer_step_was_skipped` tells of skipped steps)"
            raise refuse(RULE, call, reason, remedy)

    def _asked_before(self, node: ast.AST) -> bool:
        """Whether `node` stands in an `if` that asks for the scaler: the accelerator is asked there, too."""
        child = node
        for around in self.facts.table.ancestors(node):
            if isinstance(around, ast.If) and child in around.body and self.tests(around.test):
                return True
            child = around
        return False

    def _scale(self, call: ast.Call) -> None:
        loss = call.args[0]
        parent = self.stage.parent(call)
        backward = isinstance(parent, ast.Attribute) and parent.attr == "backward"
        if not backward and not (isinstance(parent, ast.Assign) and self._only_backward(parent)):
            reason = "a scaled loss is used for something else than backward"
            raise refuse(RULE, call, reason, "scale it where backward is called")
        simple = isinstance(loss, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        self.stage.replace(
            call, RULE, "the accelerator scales the loss", "{x}" if simple else "({x})", x=loss
        )

    def _only_backward(self, node: ast.Assign) -> bool:
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return False
        name = node.targets[0].id
        scope = self.facts.table.of_node[node]
        for other in walk(scope.node):
            if isinstance(other, ast.Name) and other.id == name and isinstance(other.ctx, ast.Load):
                parent = self.stage.parent(other)
                if not (isinstance(parent, ast.Attribute) and parent.attr == "backward"):
                    return False
        return True

    def _unscale(self, call: ast.Call, statement: ast.stmt) -> None:
        """Clipping by the accelerator unscales first; other code that reads gradients needs them unscaled all the same."""
        from crosstrain_migrate.rules.preparing.clipping import CLIPPERS

        function = self.facts.enclosing_function(call)
        clips = [
            c
            for c in self.facts.calls_to(*CLIPPERS)
            if self.facts.enclosing_function(c) is function and c.lineno > call.lineno
        ]
        reads = [
            n
            for n in walk(function or self.facts.tree)
            if isinstance(n, ast.Attribute) and n.attr == "grad" and isinstance(n.ctx, ast.Load)
        ]
        if clips and not reads:
            self.stage.remove(statement, RULE, "clipping by the accelerator unscales first")
            return
        template = MARK.format("unscale_gradients") + "({o})"
        self.stage.replace(call, RULE, "the accelerator unscales", template, o=call.args[0])

    def _clips_scaled(self) -> None:
        """Clipping without `unscale_` before it held the scaled gradients below the threshold; ours unscales first."""
        from crosstrain_migrate.rules.preparing.clipping import CLIPPERS

        asked: dict[str, set[ast.AST | None]] = {"step": set(), "unscale_": set()}
        for call in self.facts.calls:
            if isinstance(call.func, ast.Attribute) and self.holds(call.func.value):
                asked.get(call.func.attr, set()).add(self.facts.enclosing_function(call))
        if not self.live or asked["unscale_"]:
            return
        for clip in self.facts.calls_to(*CLIPPERS):
            if self.facts.enclosing_function(clip) in asked["step"]:
                reason = (
                    "the gradients were clipped while they were scaled (`unscale_` was not called before); now they are "
                    "unscaled first, and the limit is the one that is written here"
                )
                self.stage.note(RULE, clip, reason, "choose the limit for gradients that are not scaled")
                return

    # -- branches that differ in the scaler alone ------------------------------------------------------------

    def _twins(self) -> None:
        """`if use_amp: (scaled) else: (the same, plain)`: one of them is enough."""
        for node in self.facts.each(ast.If):
            if not node.orelse or self.stage.is_settled(node):
                continue
            scaled, plain = self._about(node.body), self._about(node.orelse)
            if scaled == plain:
                continue
            positive = scaled
            same = self._plain(node.body) == self._plain(node.orelse)
            if same and (self.tests(node.test) is not None or may_be_switch(self.stage, node.test)):
                gone = node.orelse if positive else node.body
                arms = ("always", "drop") if positive else ("drop", "always")
                self.stage.gone.update(gone)
                lose_comments(self.stage, gone)
                self.stage.edits.append(
                    e.Fold(node, RULE, "with and without mixed precision are one now", arms=arms)
                )
                self._take(node.test)
            elif self.tests(node.test) is not None:
                reason = "the branches with and without a scaler do different things"
                raise refuse(RULE, node, reason, "make them differ in scaling alone")

    def _about(self, body: list[ast.stmt]) -> bool:
        return any(isinstance(n, ast.Attribute) and self.holds(n.value) for s in body for n in walk(s))

    def _plain(self, body: list[ast.stmt]) -> list[str]:
        """The statements as they are without autocast and scaler."""
        marks = {
            (n.lineno, n.col_offset)
            for s in body
            for n in walk(s)
            if isinstance(n, ast.Name | ast.Attribute) and self.holds(n)
        }
        regions = {(c.lineno, c.col_offset) for c in self.facts.calls_to(*AUTOCAST)}
        found: list[str] = []
        for statement in body:
            stripped = _Strip(marks, regions).statements(copy.deepcopy(statement))
            found.extend(ast.unparse(result) for result in stripped)
        return found

    def tests(self, test: ast.expr) -> bool | None:
        """Whether a test asks for the scaler (True) or for there being none (False)."""
        if self.holds(test):
            return True
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.tests(test.operand)
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
        for node in self.facts.nodes:
            asked = self.tests(node.test) if isinstance(node, ast.If) else None
            if not isinstance(node, ast.If) or asked is None or node.test in self.used:
                continue
            if all(self.stage.is_settled(s) for s in node.body) and not node.orelse:
                self.stage.remove(node, RULE)
                self._take(node.test)
            else:
                self._ask(node.test, asked)
        for node in self.facts.nodes:  # `enabled=scaler is not None`
            asked = self.tests(node) if isinstance(node, ast.Compare) and node not in self.used else None
            if isinstance(node, ast.Compare) and asked is not None and not self.stage.is_settled(node):
                self._ask(node, asked)

    def _ask(self, test: ast.expr, asked: bool) -> None:
        template = f"{MARK.format('scaler')} {'is not' if asked else 'is'} None"
        self.stage.edits.append(e.Replace(test, RULE, "the accelerator's scaler", template=template))
        self._take(test)

    # -- definitions and parameters --------------------------------------------------------------------------

    def _definitions(self) -> None:
        for node in self.facts.each(ast.Assign):
            if self.stage.is_settled(node):
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
        for choice in self.facts.each(ast.If):
            if (
                not self.stage.is_settled(choice)
                and all(self.stage.is_settled(s) for s in (*choice.body, *choice.orelse))
                and self.tests(choice.test) is None
                and may_be_switch(self.stage, choice.test)
            ):
                self.stage.remove(choice, RULE)

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
                reason = f"`{function.name}` gets the scaler from callers that cannot all be seen"
                raise refuse(RULE, function, reason, "call it directly")
            self.stage.edits.append(
                e.ReplaceParameter(function, RULE, "nothing in it needs a scaler any more", name=name)
            )
            for site in self.stage.alone.sources.sites(function):
                value = passed(self.facts, site, function, name)
                if value is None:
                    if default_of(function, argument) is None:
                        reason = (
                            "this call may pass the scaler among other things, and the parameter for it goes"
                        )
                        raise refuse(RULE, site, reason, "pass it by name")
                    continue
                self._take(value)
                self.stage.edits.append(e.RemoveArgument(site, RULE, argument=value))

    def _rest(self) -> None:
        """Every use must have been dealt with."""
        for node in self.facts.each(ast.Name, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                continue
            if node in self.used or self.stage.is_settled(node) or not self.holds(node):
                continue
            reason = f"`{ast.unparse(node)}` (the gradient scaler) is used here for more than scaling, stepping and updating, and it goes"
            raise refuse(RULE, node, reason, "take this use out and run migrate again")
        if self.created not in self.used and not self.stage.is_settled(self.created):
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
                for n in walk(i.context_expr)
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
