"""What every rule is given, and what it may give back."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ParamSpec

from crosstrain_migrate.assumptions import CONTRADICTED, how_checked
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.losses import Loop
from crosstrain_migrate.facts.values import Value
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.places import Places
from crosstrain_migrate.syntax.scopes import Scope

from .access import STATE, Access

Allows = Callable[[str, ast.AST], bool]
P = ParamSpec("P")


def everywhere(rule: str, node: ast.AST) -> bool:
    """No selection and no comment keeps a rule away."""
    return True


class Refusal(Exception):
    """The core conversion cannot be made safely. Carries the finding that says where and why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.reason)
        self.finding = finding


def refuse(rule: str, node: ast.AST, reason: str, remedy: str) -> Refusal:
    return Refusal(finding(rule, node, reason, remedy, Severity.REFUSED))


class Reasons:
    """Why a script is not converted: what each rule that refuses says, once."""

    def __init__(self) -> None:
        self.found: dict[Finding, None] = {}

    def agrees(self, rule: Callable[P, None], *given: P.args, **named: P.kwargs) -> bool:
        """Asks a rule. False, and its reason is kept, where it refuses."""
        try:
            rule(*given, **named)
        except Refusal as refusal:
            self.found[refusal.finding] = None
            return False
        return True

    def all_agree(self, context: Context, *rules: Callable[[Context], None]) -> bool:
        """Asks each rule, also where one before it refuses."""
        agreed = [self.agrees(rule, context) for rule in rules]
        return all(agreed)


def finding(rule: str, node: ast.AST, reason: str, remedy: str, severity: Severity) -> Finding:
    return Finding(
        rule, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, reason, remedy, severity
    )


@dataclass
class Subject:
    """What is prepared, and where."""

    scope: Scope
    models: list[Value]
    optimizers: list[Value]
    train_loaders: list[Value]
    eval_loaders: list[Value] = field(default_factory=list)  # those proven to evaluate right when sharded
    schedulers: list[Value] = field(default_factory=list)
    # Training loaders that are prepared where they are made.
    unnamed: list[Value] = field(default_factory=list)
    # Where training goes in stages, each in a function of its own: what is prepared there, and not in `scope`.
    stages: dict[Value, Scope] = field(default_factory=dict)
    # Loaders whose batches the script works on, and then moves.
    on_the_cpu: set[Value] = field(default_factory=set)

    @property
    def scopes(self) -> list[Scope]:
        """Every scope that prepares something, the one that holds the loaders first."""
        return list(dict.fromkeys([self.scope, *self.stages.values()]))

    @property
    def named(self) -> list[Value]:
        """The models and the training loaders that variables hold."""
        return [*self.models, *(v for v in self.train_loaders if v not in self.unnamed)]

    @property
    def loaders(self) -> set[Value]:
        return {*self.train_loaders, *self.eval_loaders}

    @property
    def placing(self) -> set[Value]:
        """The loaders that surely place their batches: one that is only taken for a DataLoader may be none."""
        placed = self.loaders - self.on_the_cpu
        return {v for v in placed if getattr(v, "path", "") != api.ASSUMED_LOADER}


@dataclass
class Context(Access):
    """The state of one file's planning."""

    text: str = field(kw_only=True)
    subject: Subject = field(kw_only=True)
    # A rule whose edits nothing else relies on asks before it plans one: may it act at this node?
    allows: Allows = everywhere
    findings: list[Finding] = field(default_factory=list)
    # Functions that the main process runs before the others.
    main_process_first: set[ast.AST] = field(default_factory=set)
    # Calls in other files that print, or write, on every process.
    unguarded_output: list[ast.Call] = field(default_factory=list)
    # Nodes whose new code communicates, and statements above which new code does.
    collective: set[ast.AST] = field(default_factory=set)
    below_collective: set[ast.stmt] = field(default_factory=set)
    # What is computed from rows that were gathered before it.
    gathered: set[ast.AST] = field(default_factory=set)
    averaged: set[ast.AST] = field(default_factory=set)  # of these: a mean of numbers, the same of equal ones
    device_definitions: list[ast.Assign] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")

    @cached_property
    def _places(self) -> Places:
        return Places(self.text)

    def source(self, node: ast.AST) -> str:
        """The text of a node."""
        return self._places.source(node)

    # -- findings ----------------------------------------------------------------------------------------------

    def note(
        self, rule: str, node: ast.AST, reason: str, remedy: str, severity: Severity = Severity.NOTE
    ) -> None:
        """Report a finding at a node, unless the script never reaches it."""
        if self.facts.is_reached(node):
            self.findings.append(finding(rule, node, reason, remedy, severity))

    def note_unguarded(self, rule: str, call: ast.Call, reason: str, remedy: str) -> None:
        """Notes a call that every process makes; those of other files have one note together (`printing`)."""
        if self.facts.table.of_node[call].file is self.home.scope.file:
            self.note(rule, call, reason, remedy)
        else:
            self.unguarded_output.append(call)

    def assume(self, kind: str, rule: str, node: ast.AST, claim: str, about: ast.AST | None = None) -> None:
        """Record what the conversion takes for granted at a node; `kind` is a key of `assumptions.CHECKS`.

        about: the value the claim is about, where the node is not that value: an observed run may have seen it.
        """
        checked = how_checked(kind, self.runtime)
        made = replace(finding(rule, node, claim, checked, Severity.ASSUMED), kind=kind)
        observation = self.facts.interp.observation
        seen = observation.verdict(kind, about or node) if observation is not None else None
        if seen is not None and seen.holds:
            made = replace(made, severity=Severity.OBSERVED, remedy=seen.said)
        elif seen is not None:
            reason = f"{claim}: that is what the code around it says"
            remedy = f"find out which of the two is meant: {seen.said}"
            made = replace(made, status=CONTRADICTED, reason=reason, remedy=remedy)
        self.findings.append(made)

    def observed(self, kind: str, rule: str, node: ast.AST, claim: str) -> None:
        """Record what only a run has shown."""
        observation = self.facts.interp.observation
        if observation is not None:
            made = finding(rule, node, claim, f"seen in {observation.run}", Severity.OBSERVED)
            self.findings.append(replace(made, kind=kind))

    # -- edits -------------------------------------------------------------------------------------------------

    def replace(self, node: ast.expr, rule: str, reason: str, template: str, **holes: ast.expr) -> None:
        self.edits.append(e.Replace(node, rule, reason, template=template, holes=holes))

    def remove(self, node: ast.stmt, rule: str, reason: str = "") -> None:
        self.edits.append(e.RemoveStatement(node, rule, reason))

    # -- training ----------------------------------------------------------------------------------------------

    def trains_at(self, node: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether the code runs once a batch of training: in such a loop, or in what one calls."""
        facts = self.facts
        loop = facts.batch_loop_around(node)
        if loop is not None:
            over = facts.loops.get(loop, set()) if isinstance(loop, Loop) else set()
            return not over or bool(over & set(self.subject.train_loaders))
        function = facts.enclosing_function(node)
        if function is None or function in seen:
            return False
        return any(self.trains_at(site, seen | {function}) for site in facts.callers.get(function, ()))


class WithoutAccelerator(Context):
    """For rules that make their edits without an accelerator: the state of the processes takes its place."""

    def accelerator(self, node: ast.AST) -> str:
        return f"{STATE}()"

    def at_hand(self, node: ast.AST) -> bool:
        return True

    def reachable(self, node: ast.AST) -> bool:
        return True
