"""Prepares models where the author wraps them, for scripts whose training loop the tool cannot see.

The optimizer may come from a factory in another library, or a scaler may run backward inside its call. The prepared model
averages the gradients of any backward pass, so nothing but the wrapper has to change.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.rules.distribution.replicas import is_wrapped, wrapped_model

from .rank_sources import ACCELERATOR, WRAPPERS, add_import

RULE = "CT302"


def plan(stage: Stage) -> None:
    for call in stage.facts.calls_to(*WRAPPERS):
        model = wrapped_model(call, RULE, "the prepared model would average its gradients without that")
        stage.replace(call, RULE, "prepare does it", f"{ACCELERATOR}().prepare({{m}})", m=model)
        add_import(stage, call, ACCELERATOR)
    for node in stage.facts.each(ast.Attribute):
        if node.attr == "module" and is_wrapped(stage, node.value):
            stage.replace(node, RULE, "the prepared model is the model itself", "{m}", m=node.value)
