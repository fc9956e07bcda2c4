"""Edits are made in the text: what no edit concerns stays as it stands, and no comment is lost."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable

import pytest
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.comments import comments
from crosstrain_migrate.syntax.places import Places
from crosstrain_migrate.syntax.rewrite import rewrite

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
        [e.RemoveStatement(node, "CT303"), e.InsertBefore(node, "CT303", code="inserted = 1")],
        [e.InsertBefore(node, "CT303", code="inserted = 1")],
        [e.InsertAfter(node, "CT303", code="with inserted:\n    inserted = 1")],
        [e.Guard(node, "CT303", test="accelerator.is_main_process", last=node)],
        [e.Within(node, "CT303", context="accelerator.main_process_first()")],
    ]
    if isinstance(node, ast.Expr | ast.Return) and node.value is not None:
        found.append([e.Replace(node.value, "CT303", template="new({old})", holes={"old": node.value})])
    return found


TREE = ast.parse(AWKWARD)


@pytest.mark.parametrize(
    "node", statements(TREE), ids=lambda node: f"line {node.lineno} {type(node).__name__}"
)
def test_an_edit_changes_what_it_names_and_nothing_else(node: ast.stmt) -> None:
    old = AWKWARD.split("\n")
    first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
    for edits in edits_at(node):
        after = rewrite(AWKWARD, edits)
        assert after != AWKWARD
        ast.parse(after)
        assert Counter(comments(after)) == Counter(comments(AWKWARD))
        above = next(
            (n for n, line in enumerate(old[: first - 1][::-1]) if line.strip() and "#" not in line), 0
        )
        kept = first - 2 - above  # the line above may be the header of a block that is opened
        assert after.split("\n")[:kept] == old[:kept]
        below = [line for line in old[(node.end_lineno or 0) + 1 :] if "#" not in line]
        assert not below or [line for line in after.split("\n") if "#" not in line][-len(below) :] == below


def node_in(text: str, kind: type[ast.AST], number: int = 0) -> ast.AST:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, kind)][number]


Made = Callable[[ast.AST], e.Edit]


def append(node: ast.AST) -> e.Edit:
    return e.InsertArgument(node, "CT303", position=-1, code="new=1")


def first(node: ast.AST) -> e.Edit:
    return e.InsertArgument(node, "CT303", position=0, code="new")


def remove(number: int) -> Made:
    def made(node: ast.AST) -> e.Edit:
        assert isinstance(node, ast.Call)
        values = [*node.args, *(keyword.value for keyword in node.keywords)]
        return e.RemoveArgument(node, "CT303", argument=values[number])

    return made


def wrap(template: str) -> Made:
    def made(node: ast.AST) -> e.Edit:
        assert isinstance(node, ast.expr)
        return e.Replace(node, "CT303", template=template, holes={"it": node})

    return made


@pytest.mark.parametrize(
    ("text", "kind", "edit", "expected"),
    [
        ("f()", ast.Call, append, "f(new=1)"),
        ("f(a)", ast.Call, append, "f(a, new=1)"),
        ("f((a))", ast.Call, first, "f(new, (a))"),
        ("f(\n    a,\n    b,  # why\n)", ast.Call, append, "f(\n    a,\n    b,\n    new=1,  # why\n)"),
        ("f(\n    a,\n    b  # why\n)", ast.Call, append, "f(\n    a,\n    b,  # why\n    new=1\n)"),
        ("sum(r for r in rows)", ast.Call, append, "sum((r for r in rows), new=1)"),
        ("f(a, b)", ast.Call, remove(0), "f(b)"),
        ("f(a, k=(b))", ast.Call, remove(1), "f(a)"),
        ("f(\n    a,  # one\n    b,\n)", ast.Call, remove(1), "f(\n    a,  # one\n)"),
        ("f(\n    a,  # one\n    b,  # two\n)", ast.Call, remove(1), "# two\nf(\n    a,  # one\n)"),
        ("x = (a +  # why\n     b)", ast.BinOp, wrap("g({it})"), "x = g(a +  # why\n     b)"),
        ("x = (a, b)", ast.Tuple, wrap("g({it})"), "x = g((a, b))"),
        ("(a - b).backward()", ast.BinOp, wrap("({it}).sum()"), "(a - b).sum().backward()"),
        ("return_(\n    # why\n    (a)\n)", ast.Name, wrap("g({it})"), "g(return_)(\n    # why\n    (a)\n)"),
        ("if(a):\n    pass", ast.Name, wrap("g({it})"), "if g(a):\n    pass"),
        ('f"{a} {b!r}"', ast.Name, wrap('g({it}, "x")'), "f\"{g(a, 'x')} {b!r}\""),
    ],
)
def test_expressions_and_arguments(text: str, kind: type[ast.AST], edit: Made, expected: str) -> None:
    assert rewrite(text, [edit(node_in(text, kind))]) == expected


def test_an_edit_holds_others() -> None:
    text = "loss = step(model(x.cuda()), y)\n"
    step, model, moved = (node_in(text, ast.Call, number) for number in range(3))
    assert (
        isinstance(model, ast.Call) and isinstance(moved, ast.Call) and isinstance(moved.func, ast.Attribute)
    )
    edits = [
        append(step),
        e.Replace(model, "CT303", template="wrap({it})", holes={"it": model}),
        e.Replace(moved, "CT303", template="{it}", holes={"it": moved.func.value}),
    ]
    assert rewrite(text, edits) == "loss = step(wrap(model(x)), y, new=1)\n"


def test_a_guard_holds_several_statements_and_their_comments() -> None:
    text = 'def f():\n  # why\n  a = 1\n\n  # more\n  b(\n    c)\n  d = """\n  text"""\n  return a\n'
    body = ast.parse(text).body[0].body  # type: ignore[attr-defined]
    guard = e.Guard(body[0], "CT303", test="main", last=body[2])
    assert rewrite(text, [guard]) == (
        "def f():\n  # why\n  if main:\n    a = 1\n\n    # more\n    b(\n      c)\n"
        '    d = """\n  text"""\n  return a\n'
    )


@pytest.mark.parametrize(
    ("test", "expected"),
    [("x", "x and main"), ("x or y", "(x or y) and main"), ("(x or y)", "(x or y) and main")],
)
def test_a_guard_over_all_of_an_if_joins_its_test(test: str, expected: str) -> None:
    text = f"if {test}:\n    save()\n"
    save = node_in(text, ast.Expr)
    assert rewrite(text, [e.Guard(save, "CT303", test="main")]) == f"if {expected}:\n    save()\n"


def test_neighbours_share_a_with() -> None:
    text = "a = get(1)\n\nb = get(2)  # why\n"
    edits = [e.Within(node, "CT303", context="first()") for node in ast.parse(text).body]
    assert rewrite(text, edits) == "with first():\n    a = get(1)\n\n    b = get(2)  # why\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1; b = 2; c = 3  # why\n", "a = 1; c = 3  # why\n"),
        ("if x: b = 2\n", "if x:\n    pass\n"),
        ("if x:\n    # why\n    b = 2\n", "if x:\n    pass\n    # why\n"),
    ],
)
def test_what_goes_leaves_a_whole_text(text: str, expected: str) -> None:
    (gone,) = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Assign) and n.value.value == 2)  # type: ignore[attr-defined]
    assert rewrite(text, [e.RemoveStatement(gone, "CT303")]) == expected


def test_a_node_that_is_not_there_is_an_error() -> None:
    elsewhere = node_in("\n\n\nf(a)", ast.Call)
    with pytest.raises(e.EditNotApplied):
        rewrite("f(a)\n\n\n\n", [append(elsewhere)])
    text = "if x:\n    pass\nelif y:\n    pass\n"
    with pytest.raises(e.EditNotApplied):  # nothing can stand between them
        rewrite(text, [e.InsertBefore(node_in(text, ast.If, 1), "CT303", code="z = 1")])


IMPORTS = [
    ("import torch\n", "import torch\nfrom crosstrain import A, B\n"),
    ("# top\nx = 1\n", "# top\nfrom crosstrain import A, B\nx = 1\n"),
    ('"""Doc."""\n\nx = 1\n', '"""Doc."""\nfrom crosstrain import A, B\n\nx = 1\n'),
    ("from crosstrain import B  # why\n", "from crosstrain import A, B  # why\n"),
    ("from crosstrain import A, B\n", "from crosstrain import A, B\n"),
    (
        "import os\n\n# torch\nimport torch\nfrom torch import nn\n",
        "import os\n\n# torch\nimport torch\nfrom crosstrain import A, B\nfrom torch import nn\n",
    ),
    (
        "import os\n\n# torch\nfrom torch import nn\n",
        "import os\n\n# torch\nfrom crosstrain import A, B\nfrom torch import nn\n",
    ),
]


@pytest.mark.parametrize(("text", "expected"), IMPORTS)
def test_imports_stand_where_a_sorter_would_put_them(text: str, expected: str) -> None:
    tree = ast.parse(text)
    edits = [e.AddImport(tree, "CT101", code=f"from crosstrain import {name}") for name in "BA"]
    assert rewrite(text, edits) == expected


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n    # deep\n    # deep\n",
        "x = 1\n    # deep\n\n  # less\n# not at all\n    # deep",
        "if x: y = 1\n    # deep\n    # deep\n",
        "x = 1 \\\n\n\t# deep\n\t# deep\n",
        "if x:\n    y = 1\n    # of the block\n  # of no block\n  # of no block\n",
        "if x:\n    y = 1\nelif z: y = 2\n  # of no block\n  # of no block\n",
        'x = """\n  # text\n  # text """\n',
        "x = 1\n\n    \n   ",
        "def f():\n    return 1\n   \n\n    \n\n   \n",
        "x = 1   \n",
        "x = 1\n\n\n",
        "x = 1",
    ],
)
def test_comments_and_blank_lines_below_the_last_statement_stay(text: str) -> None:
    last = ast.parse(text).body[-1]
    assert rewrite(text, [e.InsertBefore(last, "CT303", code="first = 0")]) == "first = 0\n" + text


def test_comments_below_the_last_statement_stay_without_it() -> None:
    text = "x = 1\ny = 2  # why\n    # deep\n    # deeper\n"
    after = rewrite(text, [e.RemoveStatement(ast.parse(text).body[-1], "CT303")])
    assert after == "x = 1\n# why\n    # deep\n    # deeper\n"
