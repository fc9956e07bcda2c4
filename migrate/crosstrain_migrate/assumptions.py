"""What a conversion assumes because nearly every author means it, and how the runtime checks it.

An assumption is a finding of severity "assumed". Its kind is the kind under which the runtime's journal of checks
(`crosstrain.utils.checks`) says whether it held, so that ``migrate --verify`` can call it proven.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from crosstrain_migrate.results import Finding, Severity

# By kind, what the runtime does about it. An assumption without a check is not allowed.
CHECKS = {"mean": "the first backward pass stops if the loss is a sum over rows"}
UNCHECKED = "not checked at run time with --runtime accelerate; run `migrate --verify` once"


def how_checked(kind: str, runtime: str) -> str:
    """What happens at run time if an assumption of this kind does not hold."""
    return CHECKS[kind] if runtime == "crosstrain" else UNCHECKED


def refused_instead(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """``--strict``: turns assumptions into refusals."""
    return tuple(_refused(one) if one.severity is Severity.ASSUMED else one for one in findings)


def _refused(assumption: Finding) -> Finding:
    reason = f"{assumption.reason}: this is an assumption, and --strict refuses assumptions"
    remedy = f"make sure of it, then leave --strict out; {assumption.remedy}"
    return replace(assumption, reason=reason, remedy=remedy, severity=Severity.REFUSED, kind="")
