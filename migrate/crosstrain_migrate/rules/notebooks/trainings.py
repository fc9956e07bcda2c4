"""What a notebook's writers know of each training, and of the kernel's own accelerator."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from .statement_forms import HOLDER, base_of, is_evaluation, prepared_by


@dataclass
class Training:
    """The statements of one cell that become the body of a function, and what it needs and returns."""

    body: list[ast.stmt]
    earlier: list[ast.stmt]  # what runs before it, definitions left out
    construct: ast.stmt | None  # what makes the Accelerator, unless a function does
    roles: dict[str, set[str]]  # of the notebook's variables
    ready: dict[str, ast.Assign] = field(default_factory=dict)  # names that cells above prepare, and where
    devices: list[ast.Assign] = field(default_factory=list)  # `device = accelerator.device`, above
    results: list[str] = field(default_factory=list)  # values that later cells read
    models: list[str] = field(default_factory=list)  # trained, and used by later cells
    states: list[str] = field(default_factory=list)  # optimizers and schedulers that later cells use


@dataclass(frozen=True)
class KernelAccelerator:
    """The Accelerator of the kernel: the lines that make it, unless it is made already, and what it prepares."""

    construct: list[str]
    prepared: list[str]

    @property
    def prepare(self) -> list[str]:
        names = ", ".join(self.prepared)
        return [f"{names} = {HOLDER}.prepare({names})"] if names else []


def is_loader(name: str, roles: dict[str, set[str]]) -> bool:
    """Whether a variable, or the item of a list or dict, holds a loader."""
    if "[" in name:  # no variable of its own: models and optimizers in lists are held by variables as well
        return not roles.get(base_of(name), set()) & {"module", "optimizer"}
    return any("loader" in role for role in roles.get(name, ()))


def is_plain_prepare(statement: ast.stmt) -> bool:
    """Whether it is `a, b = accelerator.prepare(a, b)`, with the same names on both sides."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    if is_evaluation(statement):
        return False
    given = [ast.unparse(n) for n in statement.value.args if isinstance(n, ast.Name | ast.Subscript)]
    plain = len(given) == len(statement.value.args) and not statement.value.keywords
    return plain and given == prepared_by(statement)
