"""CT605 and CT904: draws of a training step, in which each process draws for itself.

A coin that decides what trains, or whether anything does, goes under `with accelerator.common_draws():`. A seed that is set
in the step makes the noise of all processes the same.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import asks_rank
from crosstrain_migrate.core.reading.differing import Differing
from crosstrain_migrate.core.reading.draws import RANDOM
from crosstrain_migrate.core.reading.forms import is_function_frame
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .changes import binding

RULE = "CT605"
GROUP = "coins"
SEEDED = "CT904"
_SEEDS = ("torch.manual_seed", "random.seed", "numpy.random.seed", "np.random.seed")
REASON = "a coin that decides what trains is the same on all processes"


class Coins:
    """Plans that coins are thrown for all processes together."""

    def __init__(self, plan: Plan, roles: Roles, accelerators: Accelerators, differing: Differing) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.differing = differing
        calls = [*(one.call for one in roles.backwards), *(one.call for one in roles.optimizers)]
        functions = {self.script.frame(one) for one in calls if not self.script.loops_around(one)}
        steps = [
            call for one in functions if is_function_frame(one) for call in self.script.direct_callers(one)
        ]
        self._trains = [*calls, *steps]

    def run(self) -> None:
        for frame in self.script.reached_frames:
            for node in self.script.within(frame):
                if isinstance(node, ast.If) and self._decides(node):
                    self._share(node)

    def _share(self, node: ast.If) -> None:
        """Throws the coin in common, in the test or in the assignment that the test reads."""
        thrown = self._thrown_above(node)
        names = {written(target) for one in thrown for target in one.targets}
        if (not self._draws(node.test) and not thrown) or not self._is_coin(node.test, names):
            return
        accelerator = self.accelerators.may_be_at(node)
        if accelerator is None or (not thrown and self.script.table.is_whole_else(node)):
            remedy = "draw it in `with accelerator.common_draws():`"
            self.plan.note(RULE, node, "a coin of each process decides here what trains", remedy)
        elif thrown:
            for statement in thrown:
                context = f"{accelerator}.common_draws()"
                self.plan.within(statement, RULE, REASON, context, GROUP)
        else:
            name = self.script.free_name("coin", "common_coin", "coin_of_all")
            code = f"with {accelerator}.common_draws():\n    {name} = {self.script.source(node.test)}"
            self.plan.before(node, RULE, REASON, code, GROUP)
            self.plan.replace(node.test, RULE, REASON, name, GROUP)
        for one in walk(node.test):
            if isinstance(one, ast.Name | ast.Attribute | ast.Call):
                self.differing.make_alike(one, within=node)

    def _decides(self, node: ast.If) -> bool:
        """Whether a test of a step decides what goes backward or steps, or leaves the step out."""
        loops = self.script.loops_around(node)
        if not loops and not is_function_frame(self.script.frame(node)):
            return False
        is_inside = self.script.table.is_inside
        if chosen := [one for one in self._trains if is_inside(one, node)]:
            return any(self.script.loops_around(one) == loops for one in chosen)
        leaves = any(isinstance(one, ast.Continue) for one in walk_all(node.body))
        behind = [one for one in self._trains if self.script.loops_around(one)[:1] == loops[:1]]
        return bool(loops) and leaves and any(place_of(one) > place_of(node) for one in behind)

    def _thrown_above(self, node: ast.If) -> list[ast.Assign]:
        """The assignments in the same step by which the test reads what was drawn."""
        found = []
        for name in (one for one in walk(node.test) if isinstance(one, ast.Name)):
            bound = binding(self.script, name)
            if bound is None or not isinstance(bound[0], ast.Assign) or not self._is_coin(bound[0].value):
                continue
            if not self._draws(bound[0].value):
                continue
            if self.script.loops_around(bound[0]) == self.script.loops_around(node):
                found.append(bound[0])
        return list(dict.fromkeys(found))

    def _is_coin(self, node: ast.expr, thrown: Collection[str] = ()) -> bool:
        """Whether nothing but draws may differ: a choice among a process's own rows is no coin."""
        if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp):
            parts = (one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr))
            return all(self._is_coin(one, thrown) for one in parts)
        if isinstance(node, ast.Call):
            of = [node.func.value] if isinstance(node.func, ast.Attribute) and self._draws(node.func) else []
            given = [*of, *node.args, *(one.value for one in node.keywords)]
            if of or RANDOM.match(self.script.dotted(node.func)):
                return all(self._is_coin(one, thrown) for one in given)
        return written(node) in thrown or not self.differing.level(node)

    def _draws(self, node: ast.AST) -> bool:
        calls = [one for one in walk(node) if isinstance(one, ast.Call)]
        return any(RANDOM.match(self.script.dotted(one.func)) for one in calls)


def note_seeds(plan: Plan, roles: Roles) -> None:
    """Says where a step seeds what it draws, so that all processes draw the same."""
    for loop in (one.loop for one in roles.data if one.loop is not None):
        for call in plan.script.calls_in(plan.script.frame(loop)):
            if not plan.script.table.is_inside(call, loop) or asks_rank(call):
                continue
            if plan.script.dotted(call.func) in _SEEDS or plan.script.last(call.func) == "set_seed":
                remedy = "add `accelerator.process_index` to the seed"
                plan.note(SEEDED, call, "a seed that a step sets gives all processes the same noise", remedy)
