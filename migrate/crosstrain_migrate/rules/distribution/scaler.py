"""Removes the script's GradScaler: the accelerator scales, unscales, skips steps and keeps the scale's state."""

from __future__ import annotations

import ast
import copy

from crosstrain_migrate.rules.arguments import default_of
from crosstrain_migrate.rules.base import refuse
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, place_of
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .dispensable import report_lost_comments
from .plain import Stage, nodes_in
from .requested_options import MARK
from .switches import canonical, device_kind, may_be_switch, switch_of

RULE = "CT306"
CUDA_AUTOCAST = frozenset({"torch.cuda.amp.autocast", "torch.cuda.amp.autocast_mode.autocast"})
ANY_AUTOCAST = frozenset({"torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast"})
AUTOCAST = CUDA_AUTOCAST | ANY_AUTOCAST
CUDA_SCALERS = frozenset({"torch.cuda.amp.GradScaler", "torch.cuda.amp.grad_scaler.GradScaler"})
SCALERS = CUDA_SCALERS | {"torch.amp.GradScaler", "torch.amp.grad_scaler.GradScaler", "torch.GradScaler"}
SCALER = MARK.format("scaler")
OWN_SCALE = "the accelerator's loss scale"
SCALING = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")
Holder = tuple[Scope | None, str]  # a variable of a scope, or an attribute by its name


def bound(call: ast.Call, names: tuple[str, ...]) -> dict[str | None, ast.expr]:
    """What a call gives by name, or by position for parameters of these names."""
    given = {k.arg: k.value for k in call.keywords}
    return {**dict(zip(names, call.args, strict=False)), **given}


class Scaler:
    """The script's GradScaler: the variables that hold it, and the edits of each use."""

    def __init__(self, stage: Stage, created: list[ast.Call]) -> None:
        if len(created) > 1:
            reason = "the script has two gradient scalers, the accelerator has one"
            raise refuse(RULE, created[1], reason, "use one scaler for all optimizers")
        self.stage = stage
        self.facts = stage.facts
        self.created = created[0]
        cuda = stage.facts.paths(self.created.func) <= CUDA_SCALERS
        given = bound(self.created, (*SCALING, "enabled") if cuda else ("device", *SCALING, "enabled"))
        device = given.get("device")
        self.device = "cuda" if cuda or device is None else device_kind(device)
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
        self.holders: set[Holder] = set()
        while self._found_more():
            pass

    def _found_more(self) -> bool:
        """Whether another variable, attribute or parameter is found that holds the scaler."""
        before = len(self.holders)
        for node in self.facts.each(ast.Assign, ast.Call):
            if isinstance(node, ast.Call):
                self._into_parameters(node)
            elif self.holds(node.value):
                self.holders.update(filter(None, map(self._holder, node.targets)))
        return len(self.holders) > before

    def _into_parameters(self, call: ast.Call) -> None:
        for function in self.facts.targets(call):
            if isinstance(function, ast.FunctionDef):
                for argument in (*function.args.args, *function.args.kwonlyargs):
                    value = self.facts.passed(call, function, argument.arg)
                    if value is not None and self.holds(value):
                        self.holders.add((self.facts.table.scopes[function], argument.arg))

    def _holder(self, node: ast.expr) -> Holder | None:
        """The variable or attribute that an expression names."""
        if isinstance(node, ast.Name):
            scope = self.facts.table.of_node[node].resolve(node.id)
            return (scope, node.id) if scope is not None else None
        return (None, node.attr) if isinstance(node, ast.Attribute) else None

    def holds(self, node: ast.expr) -> bool:
        if isinstance(node, ast.IfExp):
            return self.holds(node.body) or self.holds(node.orelse)
        return node is self.created or self._holder(node) in self.holders

    # -- uses --------------------------------------------------------------------------------------------------

    def plan(self) -> None:
        self._clips_scaled()
        self._fold_equal_branches()
        for call in self._method_calls():
            if not self.stage.is_settled(call):
                self._method(call)
        self._tests()
        self._definitions()
        self._parameters()
        self._rest()

    def _method_calls(self) -> list[ast.Call]:
        return [c for c in self.facts.calls if isinstance(c.func, ast.Attribute) and self.holds(c.func.value)]

    def _mark_used(self, node: ast.AST) -> None:
        self.used.update(walk(node))

    def _method(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Attribute)
        self._mark_used(call.func)
        statement = self.stage.statement(call)
        alone = isinstance(statement, ast.Expr) and statement.value is call
        match call.func.attr, call.args:
            case "scale", [loss]:
                self._scale(call, loss)
            case "step", [optimizer] if not call.keywords:
                reason = "a prepared optimizer unscales, and skips what overflowed"
                self.stage.replace(call, RULE, reason, "{o}.step()", o=optimizer)
            case "update", [] if alone:
                self.stage.remove(statement, RULE, "the accelerator adjusts the loss scale")
            case "unscale_", [optimizer] if alone:
                self._unscale(call, statement, optimizer)
            case "state_dict", _:
                self._state(call)
            case "load_state_dict", _ if alone:
                self.stage.replace(call.func.value, RULE, OWN_SCALE, SCALER)
                if not self._asked_before(call):
                    test = f"{SCALER} is not None"
                    self.stage.edits.append(e.Guard(statement, RULE, last=statement, test=test))
            case _:
                reason = f"`{ast.unparse(call)}`: the accelerator keeps the loss scale, and other code cannot read or set it like this"
                remedy = "take it out and run migrate again (`accelerator.optimizer_step_was_skipped` tells of skipped steps)"
                raise refuse(RULE, call, reason, remedy)

    def _state(self, call: ast.Call) -> None:
        """`scaler.state_dict()`: the accelerator's scaler is None where nothing is scaled."""
        state = f"{SCALER}.state_dict()"
        if not self._asked_before(call):
            state = f"{state} if {SCALER} is not None else {{}}"
            if not isinstance(self.stage.parent(call), ast.Dict | ast.keyword | ast.Assign):
                state = f"({state})"
        self.stage.replace(call, RULE, OWN_SCALE, state)

    def _asked_before(self, node: ast.AST) -> bool:
        """Whether an `if` around `node` already tests whether there is a scaler."""
        return any(
            isinstance(around, ast.If) and child in around.body and self.tests(around.test)
            for child, around in self.stage.outward(node)
        )

    def _scale(self, call: ast.Call, loss: ast.expr) -> None:
        parent = self.stage.parent(call)
        backward = isinstance(parent, ast.Attribute) and parent.attr == "backward"
        if not backward and not (isinstance(parent, ast.Assign) and self._only_backward(parent)):
            reason = "a scaled loss is used for something other than backward()"
            raise refuse(RULE, call, reason, "scale it where backward is called")
        self.stage.keep_only(call, RULE, "the accelerator scales the loss", loss)

    def _only_backward(self, node: ast.Assign) -> bool:
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return False
        name = node.targets[0].id
        named = (
            n for n in walk(self.facts.table.of_node[node].node) if isinstance(n, ast.Name) and n.id == name
        )
        uses = (self.stage.parent(n) for n in named if isinstance(n.ctx, ast.Load))
        return all(isinstance(use, ast.Attribute) and use.attr == "backward" for use in uses)

    def _unscale(self, call: ast.Call, statement: ast.stmt, optimizer: ast.expr) -> None:
        """Removes `unscale_` where the accelerator clips, which unscales first, unless other code reads the gradients."""
        from crosstrain_migrate.rules.preparing.clipping import CLIPPERS

        function = self.facts.enclosing_function(call)
        later = (c for c in self.facts.calls_to(*CLIPPERS) if c.lineno > call.lineno)
        clips = any(self.facts.enclosing_function(c) is function for c in later)
        grads = (
            n for n in walk(function or self.facts.tree) if isinstance(n, ast.Attribute) and n.attr == "grad"
        )
        if clips and not any(isinstance(n.ctx, ast.Load) for n in grads):
            self.stage.remove(statement, RULE, "clipping by the accelerator unscales first")
            return
        template = MARK.format("unscale_gradients") + "({o})"
        self.stage.replace(call, RULE, "the accelerator unscales", template, o=optimizer)

    def _clips_scaled(self) -> None:
        """Reports clipping without `unscale_`: it clipped the scaled gradients, and the accelerator unscales them first."""
        from crosstrain_migrate.rules.preparing.clipping import CLIPPERS

        called = [
            (last_name(call.func), self.facts.enclosing_function(call)) for call in self._method_calls()
        ]
        if not self.live or any(name == "unscale_" for name, _ in called):
            return
        stepping = {function for name, function in called if name == "step"}
        for clip in self.facts.calls_to(*CLIPPERS):
            if self.facts.enclosing_function(clip) in stepping:
                reason = (
                    "the gradients were clipped while they were scaled (`unscale_` was not called before); now they are "
                    "unscaled first, and the limit is the one that is written here"
                )
                self.stage.note(RULE, clip, reason, "choose the limit for gradients that are not scaled")
                return

    # -- branches that differ in the scaler alone ------------------------------------------------------------

    def _fold_equal_branches(self) -> None:
        """Merges `if use_amp: (scaled) else: (the same, unscaled)`."""
        for node in self.facts.each(ast.If):
            if not node.orelse or self.stage.is_settled(node):
                continue
            scaled = self._about(node.body)
            if scaled == self._about(node.orelse):
                continue
            asked = self.tests(node.test) is not None
            same = self._plain(node.body) == self._plain(node.orelse)
            if same and (asked or may_be_switch(self.stage, node.test)):
                gone, arms = (node.orelse, ("always", "drop")) if scaled else (node.body, ("drop", "always"))
                self.stage.gone.update(gone)
                report_lost_comments(self.stage, gone)
                reason = "with and without mixed precision are one now"
                self.stage.edits.append(e.Fold(node, RULE, reason, arms=arms))
                self._mark_used(node.test)
            elif asked:
                reason = "the branches with and without a scaler differ in more than scaling"
                raise refuse(RULE, node, reason, "make them the same except for scaling")

    def _about(self, body: list[ast.stmt]) -> bool:
        return any(isinstance(n, ast.Attribute) and self.holds(n.value) for n in nodes_in(body))

    def _plain(self, body: list[ast.stmt]) -> list[str]:
        """The statements as they are without autocast and scaler."""
        named = (n for n in nodes_in(body) if isinstance(n, ast.Name | ast.Attribute))
        marks = {place_of(n) for n in named if self.holds(n)}
        regions = {place_of(c) for c in self.facts.calls_to(*AUTOCAST)}
        strip = _Strip(marks, regions)
        return [ast.unparse(s) for statement in body for s in strip.statements(copy.deepcopy(statement))]

    def tests(self, test: ast.expr) -> bool | None:
        """Whether a test asks for the scaler (True) or for there being none (False)."""
        if self.holds(test):
            return True
        match test:
            case ast.UnaryOp(op=ast.Not()):
                inner = self.tests(test.operand)
                return None if inner is None else not inner
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]) if self.holds(left):
                return isinstance(op, ast.IsNot | ast.NotEq)
            case ast.Call(func=ast.Attribute(attr="is_enabled", value=owner)) if self.holds(owner):
                return True
        return None

    def _tests(self) -> None:
        for node in self.facts.each(ast.If):
            asked = self.tests(node.test)
            if asked is None or node.test in self.used:
                continue
            if all(self.stage.is_settled(s) for s in node.body) and not node.orelse:
                self.stage.remove(node, RULE)
                self._mark_used(node.test)
            else:
                self._ask(node.test, asked)
        for test in self.facts.each(ast.Compare):  # `enabled=scaler is not None`
            asked = self.tests(test) if test not in self.used else None
            if asked is not None and not self.stage.is_settled(test):
                self._ask(test, asked)

    def _ask(self, test: ast.expr, asked: bool) -> None:
        template = f"{SCALER} {'is not' if asked else 'is'} None"
        self.stage.replace(test, RULE, "the accelerator's scaler", template)
        self._mark_used(test)

    # -- definitions and parameters --------------------------------------------------------------------------

    def _definitions(self) -> None:
        for node in self.facts.each(ast.Assign):
            if self.stage.is_settled(node):
                continue
            target = node.targets[0]
            is_none = isinstance(node.value, ast.Constant) and node.value.value is None
            if self.holds(node.value):
                if len(node.targets) != 1 or not isinstance(target, ast.Name | ast.Attribute):
                    reason = "the scaler is stored in more than one variable or attribute at once"
                    raise refuse(RULE, node, reason, "give it a name of its own")
                self._mark_used(node.value)
                self.stage.remove(node, RULE, "the accelerator holds the scaler")
            elif is_none and self._holder(target) in self.holders:
                self.stage.remove(node, RULE)
        for choice in self.facts.each(ast.If):
            if (
                not self.stage.is_settled(choice)
                and all(self.stage.is_settled(s) for s in (*choice.body, *choice.orelse))
                and self.tests(choice.test) is None
                and may_be_switch(self.stage, choice.test)
            ):
                self.stage.remove(choice, RULE)

    def _parameters(self) -> None:
        """Removes the parameters that pass the scaler."""
        for scope, name in self.holders:
            function = scope.node if scope is not None else None
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            own = (*function.args.args, *function.args.kwonlyargs)
            for argument in (a for a in own if a.arg == name):
                self._drop_parameter(function, argument)

    def _drop_parameter(self, function: ast.FunctionDef | ast.AsyncFunctionDef, argument: ast.arg) -> None:
        name = argument.arg
        if function in self.facts.interp.escaped:
            reason = f"`{function.name}` gets the scaler from callers that the tool cannot all see"
            raise refuse(RULE, function, reason, "call it directly")
        reason = "nothing in it needs a scaler any more"
        self.stage.edits.append(e.ReplaceParameter(function, RULE, reason, name=name))
        for site in self.stage.single.sources.sites(function):
            value = self.facts.passed(site, function, name)
            if value is not None:
                self._mark_used(value)
                self.stage.edits.append(e.RemoveArgument(site, RULE, argument=value))
            elif default_of(function, argument) is None:
                reason = "this call may pass the scaler through * or **, and the parameter for it is removed"
                raise refuse(RULE, site, reason, "pass it by name")

    def _rest(self) -> None:
        """Refuses a use of the scaler that nothing has replaced."""
        for node in self.facts.each(ast.Name, ast.Attribute):
            if not isinstance(node.ctx, ast.Load) or not self.holds(node):
                continue
            if node not in self.used and not self.stage.is_settled(node):
                reason = f"`{ast.unparse(node)}` (the gradient scaler) is used here for more than scaling, stepping and updating, and the conversion removes it"
                raise refuse(RULE, node, reason, "take this use out and run migrate again")
        if self.created not in self.used and not self.stage.is_settled(self.created):
            raise refuse(RULE, self.created, "no variable holds this scaler", "give it a name")


class _Strip(ast.NodeTransformer):
    """Removes autocast and the scaler from a copied statement; both are recognised by their positions."""

    def __init__(self, scalers: set[tuple[int, int]], regions: set[tuple[int, int]]) -> None:
        self.scalers = scalers
        self.regions = regions

    def statements(self, node: ast.stmt) -> list[ast.stmt]:
        found = self.visit(node)
        return [] if found is None else found if isinstance(found, list) else [found]

    def _of_scaler(self, node: ast.expr) -> str | None:
        """The method of the scaler that a call runs."""
        method = node.func if isinstance(node, ast.Call) else None
        if isinstance(method, ast.Attribute) and place_of(method.value) in self.scalers:
            return method.attr
        return None

    def visit_With(self, node: ast.With) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        node.items = [i for i in node.items if not self._is_region(i.context_expr)]
        return node if node.items else node.body

    def _is_region(self, context: ast.expr) -> bool:
        return any(isinstance(n, ast.Call) and place_of(n) in self.regions for n in walk(context))

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
