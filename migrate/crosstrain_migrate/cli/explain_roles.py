"""`migrate --explain-roles`: what each value of a script is in training, where, and how that is known."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

from crosstrain_migrate.facts.facts import Facts, understand
from crosstrain_migrate.facts.values import External, FromBatch
from crosstrain_migrate.files.project import Unit, units
from crosstrain_migrate.files.reading import read
from crosstrain_migrate.files.sources import Unusable
from crosstrain_migrate.outcome import display_name
from crosstrain_migrate.results import RoleFact
from crosstrain_migrate.syntax.problems import UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.program import parse, parts

KINDS = {
    "mean": "a mean over the rows of the batch",
    "sum": "a sum over the rows of the batch",
    "mixture": "a sum over rows and other terms added",
}
NO_ROLES = "nothing here trains, as far as the tool can see"


def explain_roles(paths: Iterable[Path]) -> str:
    """One line a role: file, line, name, role, evidence. Raises `Unusable` for a file that cannot be read or parsed."""
    blocks = [_of_unit(unit) for unit in units(read(path) for path in paths)]
    return "\n".join(blocks)


def _of_unit(unit: Unit) -> str:
    whole = unit.whole
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and the like are the author's
            facts = understand(parse(whole.text))
    except UNPARSABLE as error:
        raise Unusable(syntax_problem(whole.path, whole.text, error)) from error
    rows = [(_place(unit, r.line), r.name, r.role, _evidence(unit, r.evidence)) for r in all_roles(facts)]
    if not rows:
        return f"{display_name(whole.path)}: {NO_ROLES}\n"
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (
        "  ".join([*(t.ljust(w) for t, w in zip(row, widths, strict=False)), row[3]]).rstrip() for row in rows
    )
    return "".join(f"{line}\n" for line in lines)


def _evidence(unit: Unit, text: str) -> str:
    """Lines of a program are spoken of in their files."""
    if len(unit.files) == 1:
        return text
    return re.sub(r"\bline (\d+)", lambda m: _place(unit, int(m[1])), text)


def _place(unit: Unit, line: int) -> str:
    """`folder/model.py:12`, for a line of the program that the script and its imports make together."""
    own = parts(unit.whole.text)
    number = next((n for n, part in enumerate(own) if part.first <= line <= part.last), len(own) - 1)
    return f"{display_name(unit.files[number].path)}:{line - own[number].first + 1}"


def all_roles(facts: Facts) -> list[RoleFact]:
    """The roles that rules ask for, and what they were concluded from."""
    found = [*facts.roles, *_losses(facts), *_loss_functions(facts), *_batches(facts), *_devices(facts)]
    return sorted(dict.fromkeys(found), key=lambda role: (role.line, role.name, role.role))


def _losses(facts: Facts) -> Iterator[RoleFact]:
    for call, loss in facts.backward_calls:
        kinds = {v.kind for v in facts.of(loss) if isinstance(v, FromBatch)}
        kind = KINDS.get("".join(kinds), "computed from its rows in a way the tool cannot see into")
        yield RoleFact(ast.unparse(loss), "loss", call.lineno, f"this line goes backward through it; {kind}")


def _loss_functions(facts: Facts) -> Iterator[RoleFact]:
    for origin in facts.loss_origins:
        if isinstance(origin, ast.Call):
            evidence = "it turns rows into what backward is called on"
            yield RoleFact(ast.unparse(origin.func), "loss function", origin.lineno, evidence)


def _batches(facts: Facts) -> Iterator[RoleFact]:
    for loop, over in facts.loops.items():
        which = "training" if over & set(facts.train_loaders) else "evaluation"
        name = ast.unparse(loop.target)
        yield RoleFact(name, f"{which} batch", loop.lineno, f"this loop goes over `{ast.unparse(loop.iter)}`")


def _devices(facts: Facts) -> Iterator[RoleFact]:
    for node in ast.walk(facts.tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(v, External) and v.path == "torch.device" for v in facts.of(node.value)
        ):
            name = ast.unparse(node.targets[0])
            yield RoleFact(name, "device", node.lineno, f"it is assigned `{ast.unparse(node.value)}`")
