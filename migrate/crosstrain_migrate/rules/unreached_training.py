"""CT905: training that no call leads to

What:   A training loop in the script's own file that nothing at its top level comes to, as far as calls can be followed.
Why:    A script that trains is never left without a word: it may be run by a name that is looked up.
Before: `getattr(jobs, sys.argv[1])()`
After:  (untouched; the finding names the loop)
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.frameworks import HIDDEN, TRAINERS
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.program import modules_of
from crosstrain_migrate.syntax.walks import walk

from .base import finding
from .gate import built_on, entry_for, framework_of, imports, uses

RULE = "CT905"
# Calls by which code is found by its name, so that nobody can say what runs.
BY_NAME = frozenset({"getattr", "globals", "locals", "vars", "eval", "exec"})


def unseen_training(facts: Facts) -> list[Finding]:
    """Training of which nothing is converted, and why: no script that trains is left without a word."""
    return _others(facts) or _own_gradients(facts) or _hidden(facts) or _not_reached(facts)


def written_for_accelerate(facts: Facts) -> list[Finding]:
    """A script that somebody has written for Accelerate, or migrated to it."""
    calls = facts.calls_to("accelerate.Accelerator", "accelerate.accelerator.Accelerator")
    return [built_on(calls[0], "Accelerate", Severity.NOTE)] if calls else []


def _own_gradients(facts: Facts) -> list[Finding]:
    """Gradients by `torch.autograd.grad`, and an optimizer that is stepped."""
    calls = facts.calls_to("torch.autograd.grad")
    if not calls or not facts.optimizers or not facts.method_calls("step"):
        return []
    reason = "the gradients this script trains with come from `torch.autograd.grad`: they are not averaged over processes"
    remedy = "call backward on the loss, or train it on one process"
    return [finding("CT202", calls[0], reason, remedy, Severity.REFUSED)]


def _others(facts: Facts) -> list[Finding]:
    """Frameworks and trainers that a script calls outside of the classes it gives them."""
    if not any(_library(path) for path in imports(facts.tree)):
        return []
    found: dict[str, Finding] = {}
    for path, call in uses(facts):
        library = _library(path)
        if library is not None and not any(isinstance(a, ast.ClassDef) for a in facts.table.ancestors(call)):
            found.setdefault(library, built_on(call, library, Severity.NOTE))
    return list(found.values())


def _library(path: str) -> str | None:
    return framework_of(path) or entry_for(path, TRAINERS)


def _hidden(facts: Facts) -> list[Finding]:
    """Training by a call that goes backward inside a library."""
    packages = {path.split(".")[0] for path in imports(facts.tree)}
    for path, call in uses(facts) if packages & {name.split(".")[0] for name in HIDDEN} else ():
        if (what := HIDDEN.get(path)) is not None:
            reason = f"this script trains through {what}, which goes backward inside its call"
            remedy = "call loss.backward() and optimizer.step() in the loop: the Accelerator scales the loss"
            return [finding("CT202", call, reason, remedy, Severity.REFUSED)]
    return []


def _not_reached(facts: Facts) -> list[Finding]:
    """A loop in the script's own file that no call leads to; where names are looked up, it may still be run."""
    own = modules_of(facts.tree)[-1]
    calls = [call for call, _ in facts.backward_calls if facts.table.of_node[call].file is own]
    if not calls:
        return []
    function = facts.enclosing_function(calls[0])
    name = f"`{function.name}`" if isinstance(function, ast.FunctionDef) else "this function"
    by_name = next((c for c in facts.calls if any(_looks_up(facts, part) for part in walk(c.func))), None)
    if by_name is None:
        reason = f"nothing that this script runs reaches the training in {name}: it is left as it is"
        return [finding(RULE, calls[0], reason, "call it from the top level of the script", Severity.NOTE)]
    looked_up = f"`{ast.unparse(by_name)}` in line {by_name.lineno}"
    reason = (
        f"no call leads to the training in {name}; the script looks up by name what it runs ({looked_up})"
    )
    return [finding(RULE, calls[0], reason, f"call {name} by its own name", Severity.REFUSED)]


def _looks_up(facts: Facts, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    return name in BY_NAME or "importlib.import_module" in facts.paths(node.func)
