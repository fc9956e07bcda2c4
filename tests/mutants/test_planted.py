"""The table of planted mistakes fits the code: each can be planted, and what is then wrong is its meaning alone."""

import ast
from collections import Counter

import pytest

from tests.mutants.planted import REPOSITORY, Planted, read_table

TABLE = read_table()


@pytest.mark.parametrize("planted", TABLE, ids=[one.id for one in TABLE])
def test_it_can_be_planted_and_the_file_still_parses(planted: Planted) -> None:
    wrong = planted.applied((REPOSITORY / planted.file).read_text(encoding="utf-8"))
    ast.parse(wrong)
    assert all((REPOSITORY / near.partition("::")[0]).is_file() for near in planted.near), planted.near


def test_a_hundred_mistakes_over_all_rooms() -> None:
    assert len({one.id for one in TABLE}) == len(TABLE) == 100
    packages = Counter(one.file.split("/")[1] for one in TABLE)
    assert packages == {"crosstrain_migrate": 51, "crosstrain": 34, "crosstrain_verify": 15}
