"""The loop of a loader that was not prepared is told from everything that only looks like one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

from tests.runtime.loaders import ACTIVE, prepare
from tests.support.ranks import run_ranks


def plain(n: int = 3, **kw: Any) -> DataLoader[Any]:
    return DataLoader(range(n), **kw)


def prepared(n: int = 4, loader: DataLoader[Any] | None = None) -> DataLoader[Any]:
    return prepare(loader or plain(n))  # type: ignore[no-any-return]


def _evaluate(loader: Any) -> list[bool]:
    """In a function of its own, as scripts do: the loop is further up the stack than the question."""

    def ask() -> bool:
        return ACTIVE.foreign

    return [ask() for _ in loader]


def _inside() -> list[bool]:
    return [found for _ in prepared() for found in _evaluate(plain())]


def _wrapped() -> list[bool]:
    found = []
    for _ in prepared():
        for _, _ in enumerate(tqdm(plain(), disable=False)):
            found.append(ACTIVE.foreign)
    return found


def _in_prepared_again() -> list[bool]:
    found = []
    outer, inner = prepared(), prepared()
    for _ in outer:
        for _ in plain():
            before = ACTIVE.foreign
            in_it = [ACTIVE.foreign for _ in inner]
            found.append(before and not any(in_it) and ACTIVE.foreign)
    return found


LOOPS = [_inside, _wrapped, _in_prepared_again]


def _all(ask: Callable[[], list[bool]]) -> bool:
    found = ask()
    return bool(found) and all(found)


@pytest.mark.parametrize("ask", LOOPS, ids=lambda ask: ask.__name__)
def test_the_loop_of_an_unprepared_loader_is_noticed(ask: Callable[[], list[bool]]) -> None:
    assert run_ranks(_all, 2, ask) == [True, True]


def _broken_off() -> list[bool]:
    found, loader = [], plain(num_workers=1, persistent_workers=True)
    for _ in prepared():
        for _ in loader:  # its iterator lives on
            break
        walk = iter(plain())
        for _ in walk:
            break
        found.append(ACTIVE.foreign)
    return found


def _cycle(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def _cycled() -> list[bool]:
    found, walk = [], _cycle(plain(2))
    for _ in prepared():
        next(walk)
        found.append(ACTIVE.foreign)
    return found


def _zipped() -> list[bool]:
    found = [ACTIVE.foreign for _ in zip(prepared(), plain(9), strict=False)]
    return found + [ACTIVE.foreign for _ in zip(plain(9), prepared(), strict=False)]


def _around_it() -> list[bool]:
    inner = prepared()
    return [ACTIVE.foreign for _ in plain() for _ in inner]


NEIGHBOURS = [_broken_off, _cycled, _zipped, _around_it]


def _none(ask: Callable[[], list[bool]]) -> bool:
    found = ask()
    return bool(found) and not any(found)


@pytest.mark.parametrize("ask", NEIGHBOURS, ids=lambda ask: ask.__name__)
def test_what_is_no_such_loop_is_not_taken_for_one(ask: Callable[[], list[bool]]) -> None:
    assert run_ranks(_none, 2, ask) == [True, True]


def test_one_process_is_left_alone() -> None:
    assert run_ranks(_none, 1, _inside) == [True]
