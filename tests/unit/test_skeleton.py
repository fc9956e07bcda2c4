"""LibCST is shown only what an edit concerns; the result is the one it gives for the whole text."""

import ast

import pytest
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.places import Places
from crosstrain_migrate.syntax.rewrite import rewrite
from crosstrain_migrate.syntax.skeleton import Skeleton, skeleton

AWKWARD = '''\
#!/usr/bin/env python
"""A script in every style."""
from __future__ import annotations
import os, sys  # two
import torch

ÄRGER = "größer als gedacht"; FIRST = "one of several on a line";   SECOND = (1,
    2)  # a tuple

@decorated
@ decorated.twice(with_arguments="many of them",
                  more="of them")
async def function(argument, *others, key="a long default value", **rest):
    """Docstring of several
    lines."""
    # before
    if argument: return argument; raise ValueError("one line")
    elif others:
        result = [value for value in others if value]  # why
        # at the end of the elif

        # after a blank line
    else:
        result = """
text that is not indented
"""
        with open("ä ö ü", encoding="utf-8") as file, other(file) as second:
           pass; second.read("at an indentation of its own")

    # below the if
    try:
        await function(argument, "with a long argument", key=None)
    except (ValueError, TypeError) as error:  # those two
        print(f"{error!r:>{len(others)}} is what was raised"); del error
    finally:
        # all that is left to do
        print("finally, and for a long time")

    return result   # the end


class Empty(
    object,
):
  """Two spaces."""

  attribute: dict[str, int] = {}  # annotated, and long enough

  @property
  def value(self):
    return {
      "ä": 1,
      # inside brackets
      "b": 2,
    }

  # at the end of the class
if __name__ == "__main__": function("without a block, but rather long")
while True:
    for index in range(10_000_000): print(index, "in one line")
    else:
        break
    match index:
        case 1 | 2:
            print("one or two, or something like it")
        case _:
            # nothing to do here
            raise SystemExit("no such case has been foreseen")
    lambda: 0
# at the end of the file'''


def statements(tree: ast.Module) -> list[ast.stmt]:
    lines = Places(AWKWARD)
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not lines.is_elif(node)]


def edits_at(node: ast.stmt) -> list[list[e.Edit]]:
    found: list[list[e.Edit]] = [
        [e.RemoveStatement(node, "CT303")],
        [e.InsertBefore(node, "CT303", code="inserted = 1")],
        [e.InsertAfter(node, "CT303", code="inserted = 1")],
        [e.Guard(node, "CT303", test="accelerator.is_main_process")],
    ]
    if isinstance(node, ast.Expr | ast.Return) and node.value is not None:
        found.append([e.Replace(node.value, "CT303", template="new({old})", holes={"old": node.value})])
    return found


TREE = ast.parse(AWKWARD)


@pytest.mark.parametrize("node", statements(TREE), ids=lambda node: f"{node.lineno} {type(node).__name__}")
def test_an_edit_does_the_same_to_the_skeleton(node: ast.stmt, monkeypatch: pytest.MonkeyPatch) -> None:
    for edits in edits_at(node):
        with monkeypatch.context() as patch:
            whole = lambda text, _, first: Skeleton(Places(text, first))  # noqa: E731
            patch.setattr("crosstrain_migrate.syntax.rewrite.skeleton", whole)
            expected = rewrite(AWKWARD, edits)
        assert rewrite(AWKWARD, edits) == expected
        assert expected != AWKWARD


def test_a_statement_that_is_lost_or_moved_is_not_put_back_by_force() -> None:
    shape = skeleton(AWKWARD, [], 1)
    assert shape.restored(shape.text.replace("__crosstrain_kept_0__", "", 1)) is None
    assert shape.restored("\n".join("  " + line for line in shape.text.split("\n"))) is None


ENDINGS = ["x = 1\n    # deep\n    # deep\n", "x = 1\n    # deep\n\n  # less\n# not at all\n    # deep"]
ENDINGS += ["if x: y = 1\n    # deep\n    # deep\n", "x = 1 \\\n\n\t# deep\n\t# deep\n"]
ENDINGS += ["if x:\n    y = 1\n    # of the block\n  # of no block\n  # of no block\n"]
ENDINGS += ["if x:\n    y = 1\nelif z: y = 2\n  # of no block\n  # of no block\n"]
ENDINGS += ['x = """\n  # text\n  # text """\n', "x = 1\n\n    \n   "]
ENDINGS += ["def f():\n    return 1\n   \n\n    \n\n   \n", "x = 1   \n", "x = 1\n\n\n", "x = 1"]


@pytest.mark.parametrize("text", ENDINGS)
def test_comments_and_blank_lines_below_the_last_statement_stay(text: str) -> None:
    last = ast.parse(text).body[-1]
    assert rewrite(text, [e.InsertBefore(last, "CT303", code="first = 0")]) == "first = 0\n" + text


def test_comments_below_the_last_statement_stay_without_it() -> None:
    text = "x = 1\ny = 2  # why\n    # deep\n    # deeper\n"
    after = rewrite(text, [e.RemoveStatement(ast.parse(text).body[-1], "CT303")])
    assert after == "x = 1\n# why\n    # deep\n    # deeper\n"
