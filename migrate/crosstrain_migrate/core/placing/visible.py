"""CT105: one GPU that a script makes visible is that of a process that nobody launched.

`os.environ["CUDA_VISIBLE_DEVICES"] = "0"` would leave one GPU to all launched processes, where NCCL stops. Several GPUs, which
they share, none, and a GPU for each rank, `= str(args.local_rank)`, stay the author's.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

from .accelerator import Accelerators
from .first import VISIBLE

RULE = "CT105"
REASON = "launched processes have a GPU each"
_TOO_LATE = f"launched processes have their GPUs by then: `{VISIBLE}` chooses under plain `python` alone"
_LAUNCHED = "LOCAL_RANK"
_RANK = re.compile("rank", re.I)


def plan_visible(plan: Plan, accelerators: Accelerators) -> None:
    """Plans that only a process that nobody launched makes one GPU visible."""
    script, late = plan.script, accelerators.choices_behind()
    if VISIBLE not in script.text or _LAUNCHED in script.text or is_linked(script.text):
        return
    for statement in script.table.each(ast.Assign):
        test = _test(script, statement)
        if test and script.is_reached(statement) and not {statement, *script.around(statement)} & {*late}:
            guard = e.Guard(statement, RULE, REASON, transaction="visible", last=statement, test=test)
            plan.add(guard)


def note_late_choices(plan: Plan, accelerators: Accelerators) -> None:
    """Names the choices of visible GPUs to which all ways lead over the accelerator."""
    for late in accelerators.choices_behind():
        plan.note(RULE, late, _TOO_LATE, "use `crosstrain launch --gpu-ids`")


def _test(script: Script, statement: ast.Assign) -> str:
    """When the statement is still right; empty where it is in any case, or says something else."""
    target, value = statement.targets[0], statement.value
    if len(statement.targets) != 1 or not isinstance(target, ast.Subscript):
        return ""
    if getattr(target.slice, "value", None) != VISIBLE or not written(target.value).endswith("environ"):
        return ""
    is_alone = f'"{_LAUNCHED}" not in {written(target.value)}'
    if isinstance(value, ast.Constant):
        return is_alone if isinstance(value.value, str) and value.value.strip().isdigit() else ""
    if _RANK.search(ast.unparse(value)):
        return ""
    if _is_plain(value):
        return f'{is_alone} or "," in {ast.unparse(value)}'
    listed = _joined(value)
    may_count = listed is not None and _is_plain(listed) and not _is_drawn_from(script, listed)
    return f"{is_alone} or len({ast.unparse(listed)}) != 1" if listed is not None and may_count else ""


def _joined(value: ast.expr) -> ast.expr | None:
    """The list of GPUs whose text is made: `",".join(str(i) for i in gpus)`, `",".join(map(str, gpus))`."""
    given = value.args if isinstance(value, ast.Call) else []
    if not given or not is_method(value, "join") or not isinstance(value.func.value, ast.Constant):
        return None
    if str(value.func.value.value).strip() != ",":
        return None
    items = given[0]
    if isinstance(items, ast.GeneratorExp | ast.ListComp):
        each = items.generators
        return each[0].iter if len(each) == 1 and not each[0].ifs else None
    if isinstance(items, ast.Call) and last_name(items.func) == "map" and len(items.args) == 2:
        return items.args[1]
    return items


def _is_drawn_from(script: Script, listed: ast.expr) -> bool:
    """Whether a name is bound to what has no length: `gpus = map(str, numbers)`."""
    return any(
        isinstance(one, ast.GeneratorExp)
        or (isinstance(one, ast.Call) and last_name(one.func) in ("map", "filter"))
        for one in script.values(script.frame(listed), written(listed))
    )


def _is_plain(value: ast.expr) -> bool:
    """Whether an expression may be written twice: an option, its text, or a part of it, `gpus[:-1]`."""
    plain = ast.Name | ast.Attribute | ast.Subscript | ast.Slice | ast.Constant | ast.expr_context
    plain |= ast.UnaryOp | ast.unaryop
    return all(
        isinstance(n, plain)
        or (isinstance(n, ast.Call) and last_name(n.func) in ("str", "strip") and not n.keywords)
        for n in walk(value)
    )
