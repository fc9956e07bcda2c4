"""The table of planted mistakes fits the code: each can be planted, and what is then wrong is its meaning alone."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.mutants.planted import REPOSITORY, Planted, Stale, chosen, read_table

TABLE = read_table()


@pytest.mark.parametrize("planted", TABLE, ids=[one.id for one in TABLE])
def test_it_can_be_planted_and_the_file_still_parses(planted: Planted) -> None:
    wrong = planted.applied((REPOSITORY / planted.file).read_text(encoding="utf-8"))
    ast.parse(wrong)
    assert all((REPOSITORY / near.partition("::")[0]).is_file() for near in planted.near), planted.near


def test_a_hundred_mistakes_over_all_rooms() -> None:
    assert len({one.id for one in TABLE}) == len(TABLE) == 100
    packages = Counter("/".join(one.file.split("/")[:2]) for one in TABLE)
    assert packages == {
        "migrate/crosstrain_migrate": 51,
        "runtime/crosstrain": 34,
        "runtime/crosstrain_verify": 15,
    }


def test_a_mistake_whose_text_is_gone_is_named() -> None:
    one = Planted("room/name", "a.py", "nothing works", "old", "new", ())
    assert one.applied("an old text") == "an new text"
    for text in ("another text", "old and old"):
        with pytest.raises(Stale, match="room/name"):
            one.applied(text)


def test_ids_and_rooms_choose() -> None:
    one, two, three = (Planted(name, "", "", "", "", ()) for name in ("a/x", "a/y", "b/z"))
    every = [one, two, three]
    assert chosen(every, []) == every
    assert chosen(every, ["a"]) == [one, two]
    assert chosen(every, ["a/y", "b"]) == [two, three]
    with pytest.raises(ValueError, match="called c; the rooms are a, b"):
        chosen(every, ["a", "c"])
