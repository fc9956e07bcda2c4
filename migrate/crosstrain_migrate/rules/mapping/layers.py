"""SyncBatchNorm: torch supports it on devices only, and the script now runs on CPUs as well."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.distribution.layers import SYNC_BATCH_NORM
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.rules.distribution.requested_options import MARK
from crosstrain_migrate.syntax import edits as e

from .rank_sources import STATE, add_import

RULE = "CT303"


def plan(stage: Stage) -> None:
    for call in stage.facts.calls_to(*SYNC_BATCH_NORM):
        statement = stage.statement(call)
        if isinstance(statement, ast.Assign) and statement.value is call:
            device = MARK.format("device")
            if stage.requested.in_place:
                device = f"{STATE}().device"
                add_import(stage, call, STATE)
            test = f'{device}.type != "cpu"'
            reason = "torch synchronises batch statistics on devices, not on CPUs"
            stage.edits.append(e.Guard(statement, RULE, reason, last=statement, test=test))
