"""Waiting for a file that another process writes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from crosstrain.comm import write_once

RUN = timedelta(minutes=30)


class Store:
    """A connection to a store, which remembers how long it may take to open another one."""

    def __init__(self) -> None:
        self.timeout = RUN
        self.waited: list[timedelta] = []
        self.connecting: list[timedelta] = []
        self.others: list[Store] = []
        self.said: list[str] = []

    def check(self, keys: list[str]) -> bool:
        return False

    def set_timeout(self, limit: timedelta) -> None:
        self.timeout = limit

    def clone(self) -> Store:
        self.connecting.append(self.timeout)
        self.others.append(Store())
        return self.others[-1]

    def wait(self, keys: list[str], limit: timedelta) -> None:
        self.waited.append(limit)

    def get(self, key: str) -> str:
        return "null"

    def set(self, key: str, value: str) -> None:
        self.said.append(value)


def test_a_store_that_has_just_ended_is_not_tried_for_the_runs_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store: Any = Store()
    monkeypatch.setattr(write_once, "_store", lambda: store)
    assert write_once._outcome(store, "key") == (False, None)
    assert store.connecting == [write_once.CONNECT]
    assert store.timeout == store.others[0].timeout == RUN
    assert store.others[0].waited == [RUN]


def test_a_write_that_is_interrupted_is_not_announced_as_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that wait for the file would read one that is not there."""
    store: Any = Store()
    monkeypatch.setattr(write_once, "_store", lambda: store)

    def write() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_once._write(write_once._Call("a.pt", "begun", "done"), write)
    assert json.loads(store.said[-1])[0] == "KeyboardInterrupt"
