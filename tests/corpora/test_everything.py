"""The short form of `python -m tests.corpora.everything`: the same files of every kind on every run."""

import random
from pathlib import Path

import pytest

from tests.corpora.everything import default_roots, examine, files

LARGEST = 60_000  # bytes
# Code that plays every trick of the language, among what the tests need anyway.
TRICKY = ("typing_extensions.py", "dataclasses.py", "ast.py", "enum.py", "torch/nn/modules/module.py")


def _sample(count: int) -> list[str]:
    found = sorted(files(default_roots()))
    small = [name for name in found if Path(name).stat().st_size < LARGEST and "/test" not in name]
    tricky = [name for name in found if name.endswith(TRICKY) and "/test" not in name]
    return [*tricky, *random.Random(11).sample(small, count)]


@pytest.mark.timeout(1200)
def test_files_of_every_kind() -> None:
    verdicts = [examine((name, True)) for name in _sample(80)]
    assert {verdict.path: verdict.wrong for verdict in verdicts if verdict.wrong} == {}
    assert sum(verdict.state == "untouched" for verdict in verdicts) > 60
