"""Variations: each transformation keeps what a script computes, and a seed draws the same cases again."""

from itertools import islice
from random import Random

import pytest

from tests.corpora.variations.drawing import as_it_is, golden
from tests.corpora.variations.meaning import recorded
from tests.corpora.variations.registry import VARIATIONS
from tests.corpora.variations.script import Project
from tests.golden.cases import Case

EACH = 2  # scripts that every transformation is tried on
# Short runs in different styles: flat, functions, a class, tabs, two networks.
FIRST = (
    *("flat_script", "mnist_functions", "regression_mse", "trainer_class", "schedulers"),
    *("main_argparse", "imagenet_style", "unseeded_split", "sum_loss", "two_backwards"),
)
FAMILIES = sorted({one.family for one in VARIATIONS.values()})


def _bases() -> list[Case]:
    """Plain scripts, those whose runs are short first."""
    plain = [base for base in golden() if not base.distributed]
    return sorted(plain, key=lambda base: FIRST.index(base.name) if base.name in FIRST else len(FIRST))


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_transformation_keeps_what_a_script_computes(family: str) -> None:
    """To the bit: every printed line, and the weights after every step."""
    tried: list[tuple[str, Case, Project]] = []
    for name, one in VARIATIONS.items():
        if one.family != family:
            continue
        made = ((base, one.apply(as_it_is(base), Random(1))) for base in _bases())
        applied = list(islice(((name, base, project) for base, project in made if project), EACH))
        assert applied, f"{name} applies to no script"
        tried += applied
    originals = [base for base in golden() if base.name in {base.name for _, base, _ in tried}]
    records = recorded([(as_it_is(base), base.args) for base in originals])
    expected = dict(zip([base.name for base in originals], records, strict=True))
    assert all(record.steps and record.lines for record in records)
    found = recorded([(project, base.args) for _, base, project in tried])
    pairs = zip(tried, found, strict=True)
    assert [(name, base.name) for (name, base, _), record in pairs if record != expected[base.name]] == []
