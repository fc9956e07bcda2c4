"""The proof proves itself: every mistake that is made on purpose is found, and called by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_verify import verify

from tests.golden.cases import GOLDEN, load
from tests.verify.mutations import LAUNCH, MUTATIONS, ONE

NAMES = [
    pytest.param(name, marks=() if mutation.short else pytest.mark.slow)
    for name, mutation in MUTATIONS.items()
]


@pytest.mark.parametrize("name", NAMES)
def test_mistake_is_found_and_named(name: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]
    case = load(GOLDEN / mutation.case)
    broken = tmp_path / "after.py"
    broken.write_text(mutation.apply(case.after.read_text(encoding="utf-8")), encoding="utf-8")
    report = verify(
        case.before,
        broken,
        args=case.args if mutation.args is None else mutation.args,
        processes=(1,) if mutation.run == ONE else (2,),
        default_launch=mutation.run == LAUNCH,
        devices="present" if mutation.cuda else None,
        timeout=300,
    )
    run = next(run for run in report.runs if run.name == mutation.run)
    assert not report.ok
    assert run.cause is not None, run
    assert run.cause.rule == mutation.rule, run


def test_there_are_at_least_25_mistakes_of_many_kinds() -> None:
    assert len(MUTATIONS) >= 25
    assert len({mutation.rule for mutation in MUTATIONS.values()}) >= 15
    assert sum(mutation.short for mutation in MUTATIONS.values()) >= 8
