"""Models are prepared where the author has wrapped them, where the training itself is another library's.

An optimizer from a factory that cannot be read, a scaler that goes backward inside its call: the prepared model averages
the gradients of any backward pass, so the wrapper's place is all that is needed.
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
