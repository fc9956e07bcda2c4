"""CT904: random numbers drawn alike

What:   Noise that a training step draws, and dropout: every process starts with the same random state and draws the
        same numbers for its share of the batch.
Why:    In one process every row of the batch gets noise of its own; here the rows of two processes share theirs.

Noted (loss):
    out = model(x + torch.randn(len(x), 8, device=x.device))
    loss = F.cross_entropy(out, y)
Stays (setup):
    start = torch.randn(8, 3)
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.values import External, Symbol
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values

RULE = "CT904"
DRAWS_IN_PLACE = frozenset({"normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
DROPOUTS = frozenset(
    {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"}
)


def plan(context: Context) -> None:
    calls = [c for c in context.facts.calls if context.trains_at(c)]
    # Shares of different sizes draw noise of different sizes, and processes then decide differently.
    for call in decisions(context)[:1]:
        context.note(
            RULE,
            call,
            "each process draws this decision itself, and they may decide differently: their random states diverge where something is drawn for every row and their shares differ in size",
            f"let process 0 decide: `broadcast_object_list([...])[0]` of {context.runtime}.utils",
        )
    noise = next((c for c in calls if _draws_noise(context, c)), None)
    dropout = next((c for c in calls if noise is None and _drops_out(context, c)), None)
    found = noise or dropout
    if found is None:
        return
    what = f"`{ast.unparse(found)}`" if noise is not None else "dropout"
    context.note(
        RULE,
        found,
        f"{what} draws the same random numbers on every process, because all of them start from the same random state",
        f"after prepare, call `set_seed(seed, device_specific=True)` of {context.runtime}.utils if each process should draw its own",
    )


def decisions(context: Context) -> list[ast.Call]:
    """`if torch.rand(1) < 0.5:` in training: draws that a test reads."""
    return [
        call
        for call in context.facts.calls
        if _draws(context, call)
        and not context.facts.in_module(call)
        and context.trains_at(call)
        and _is_tested(context, call)
    ]


def _is_tested(context: Context, call: ast.Call) -> bool:
    around = context.facts.table.ancestors(call)
    test = next((a for a in around if isinstance(a, ast.stmt | ast.IfExp)), None)
    return isinstance(test, ast.If | ast.While | ast.IfExp) and call in walk(test.test)


def _draws(context: Context, call: ast.Call, library: str = "") -> bool:
    """Whether a call draws random numbers, of any library or of one."""
    return any(
        path.startswith(library)
        and (path.startswith("numpy.random.") or (path.startswith("torch.") and api.last(path) in api.NOISE))
        for path in context.facts.paths(call.func)
    )


def _draws_noise(context: Context, call: ast.Call) -> bool:
    """A tensor of noise: a single number drawn for the whole batch is the same for all rows in one process, too."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in DRAWS_IN_PLACE:
        return not context.facts.paths(call.func)
    if _draws(context, call, "numpy."):
        return bool(batch_values(context.facts, call))
    if not _draws(context, call, "torch."):
        return False
    sizes = [a for a in call.args if not isinstance(a, ast.Starred)]
    return not sizes or any(not (isinstance(a, ast.Constant) and a.value == 1) for a in sizes)


def _drops_out(context: Context, call: ast.Call) -> bool:
    for value in context.facts.of(call.func):
        if isinstance(value, External) and value.path.startswith("torch.nn.") and "Dropout" in value.path:
            return True
        if isinstance(value, External) and value.path.startswith("torch.nn.Sequential"):
            parts = (n for n in walk(value.site) if isinstance(n, ast.Call))
            return any("Dropout" in path for part in parts for path in context.facts.paths(part.func))
        if isinstance(value, Symbol) and value.path.startswith("torch.") and api.last(value.path) in DROPOUTS:
            return True
    return False
