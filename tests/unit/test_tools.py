"""The comparison with other tools counts what they leave behind."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.tools import Measured, judge, table


def test_what_became_of_each_file_is_counted() -> None:
    kept, gone, broken, again = (Path(name) for name in ("kept.py", "gone.py", "broken.py", "again.py"))
    before = {kept: "x = 1  # one\n", gone: "x = 1  # one\n", broken: "x = 1\n", again: "x = 1\n"}
    after = before | {gone: "x = 2\n", broken: "x =\n", again: "x = 2\n"}
    measured = Measured(seconds=[2.0], processor=[3.0], megabytes=40)
    judge(measured, before, after, after | {again: "x = 3\n"})
    assert (measured.changed, measured.lost_comments, measured.unparsable, measured.changed_again) == (
        3,
        1,
        1,
        1,
    )
    line = table({"migrate": measured}, 1000).splitlines()[-1]
    assert line == "| migrate | 500 | 1.00 | 3.00 | 40 | 3 | 1 | 1 | 1 |"
