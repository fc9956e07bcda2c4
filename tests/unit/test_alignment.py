"""Lines that stood under a bracket stand under it again."""

import pytest
from crosstrain_migrate.syntax.alignment import aligned

MOVED = {
    "under the call's bracket": (
        "print(a,\n      b)\n",
        "accelerator.print(a,\n      b)\n",
        "accelerator.print(a,\n                  b)\n",
    ),
    "brackets in brackets": (
        "save({'a': f(1,\n             2),\n      'b': 3},\n     path)\n",
        "o.save({'a': f(1,\n             2),\n      'b': 3},\n     path)\n",
        "o.save({'a': f(1,\n               2),\n        'b': 3},\n       path)\n",
    ),
    "in a block that is indented further": (
        "show(a,\n     b)\n",
        "if main:\n    call.show(a,\n         b)\n",
        "if main:\n    call.show(a,\n              b)\n",
    ),
    "further left": ("f(model.cuda(),\n  b)\n", "g.f(model,\n  b)\n", "g.f(model,\n    b)\n"),
}
LEFT = {
    "a hanging one": ("print(\n    a,\n)\n", "accelerator.print(\n    a,\n)\n"),
    "one that was not aligned": ("print(a,\n  b)\n", "accelerator.print(a,\n  b)\n"),
    "the lines of a string": ('print("""a\n      b""", c)\n', 'accelerator.print("""a\n      b""", c)\n'),
    "tabs": ("print(a,\n\t  b)\n", "accelerator.print(a,\n\t  b)\n"),
    "lines that did not change": ("x = f(a,\n      b)\ny = 1\n", "x = f(a,\n      b)\ny = 2\n"),
}


@pytest.mark.parametrize(("before", "edited", "after"), MOVED.values(), ids=MOVED)
def test_moved(before: str, edited: str, after: str) -> None:
    assert aligned(before, edited) == after


@pytest.mark.parametrize(("before", "edited"), LEFT.values(), ids=LEFT)
def test_left(before: str, edited: str) -> None:
    assert aligned(before, edited) == edited
