"""Lines that the conversion made too long."""

import ast
from collections import Counter

import pytest
from crosstrain_migrate.syntax import layout
from crosstrain_migrate.syntax.layout import wrapped

from tests.golden.cases import cases
from tests.rules.support import comments

NAME = "accelerator.reduce(loss, reduction='mean').item()"


def lines(code: str, before: str = "") -> list[str]:
    after = wrapped(before, code)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(code))
    assert wrapped(before, after) == after
    return after.split("\n")


@pytest.mark.parametrize(
    "code",
    [
        f"total += {NAME}",  # short enough
        *(f"x = g({NAME}, {NAME})  # {about}" for about in ("noqa: E501", "type: ignore", "migrate: skip")),
        f"save({{'a': {NAME}, 'b': {NAME}}},\n     path)",  # the author has broken it
        f"print({NAME}); best = min(best, {NAME}, 1000)",
        f'x = """\n{"(a, b), " * 20}\n"""',
        f"x = '{'y' * 120}'.strip()",  # nothing in brackets
    ],
)
def test_what_stays(code: str) -> None:
    assert lines(code) == code.split("\n")


SHOWN = f'f"epoch {{epoch}} step {{step}} of {{steps}}: {{{NAME}:.3f}}"'
BROKEN = {
    "the contents of a call get a line": (
        f"if x:\n    accelerator.print({SHOWN})  # every step",
        f"if x:\n    accelerator.print(\n        {SHOWN}\n    )  # every step",
    ),
    "what commas separate fills lines": (
        f'print("%d %d %.4f %.4f" % (epoch, step, {NAME}, {NAME}), file=log)',
        f'print(\n    "%d %d %.4f %.4f" % (\n        epoch, step, {NAME},\n        {NAME}\n    ),\n    file=log\n)',
    ),
    "a line inside brackets keeps its own indentation": (
        f"print('a %d %f %f' % (\n\t\tepoch, {NAME}, {NAME}))",
        f"print('a %d %f %f' % (\n\t\tepoch, {NAME},\n\t\t{NAME}))",
    ),
}


@pytest.mark.parametrize(("code", "broken"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken(code: str, broken: str) -> None:
    assert "\n".join(lines(code)) == broken


@pytest.mark.parametrize("unit", ["  ", "\t"])
def test_the_authors_indentation(unit: str) -> None:
    found = lines(f"def f():\n{unit}return g(first_argument_of_the_call, {NAME}, {NAME})")
    assert found[2].startswith(unit * 2 + "first") and found[-1] == unit + ")"


def test_the_authors_own_long_lines_stay() -> None:
    long = f"x = g({NAME}, {NAME}, {NAME})"
    assert lines(long, before=long) == [long]
    moved = f"if accelerator.is_main_process:\n    {long}"
    assert lines(moved, before=long) == moved.split("\n")
    quiet = f'print("{"-" * 88}", f(1, 2, 3))'
    assert lines(f"accelerator.{quiet}", before=quiet) == [f"accelerator.{quiet}"]
    arguments = ", ".join(f"argument_{number} = number_{number}" for number in range(6))
    shorter = f"model = Model({arguments})"
    assert lines(shorter, f"{shorter}.to(device)") == [shorter]


def test_as_wide_as_the_author_writes() -> None:
    line = f"x = g({NAME}, {NAME})"
    assert 100 < len(line) <= 120
    assert len(lines(line)) > 1
    assert lines(line, before="#" * 120) == [line]


def test_a_line_that_goes_on_behind_a_backslash_gets_no_brackets_of_its_own() -> None:
    code = f"total = criterion(model(inputs), targets) + beta * criterion({NAME}, {NAME}) + \\\n    gamma"
    assert lines(code)[0] != "total = ("
    assert lines(code.replace("\\\n    ", ""))[0] == "total = ("


def test_windows_line_ends() -> None:
    found = wrapped("", f"x = g({NAME}, {NAME})\r\n").split("\n")
    assert len(found) > 3 and all(line.endswith("\r") for line in found[:-1])


@pytest.mark.parametrize("width", [20, 40, 60])
def test_the_corpus_in_narrow_columns(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is broken means what it meant, comments included."""
    for name in ("NARROW", "WIDE", "UNBROKEN"):
        monkeypatch.setattr(layout, name, width)
    broken: Counter[str] = Counter()
    for case in cases():
        text = case.before.read_text().replace("\r\n", "\n")
        after = wrapped("", text)
        broken[case.name] += after != text
        assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(text)), case.name
        assert comments(after) == comments(text), case.name
    assert broken.total() > 50
