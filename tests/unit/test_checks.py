"""The last gate lets every sound migration through, and nothing that would break the author's script."""

from __future__ import annotations

import ast
import random
import sysconfig
import warnings
from pathlib import Path
from textwrap import dedent

import pytest
from crosstrain_migrate.files import reading, sources
from crosstrain_migrate.syntax.checks import check_result


def _check(before: str, after: str) -> list[str]:
    return check_result(dedent(before), dedent(after))


SOUND = {
    "another-attribute": ("import a\na.b()\n", "import a\na.c()\n"),
    "the-authors-own-unbound-name": ("print(undefined)\n", "x = 1\nprint(undefined, undefined)\n"),
    "star-import": ("from m import *\nf()\n", "from m import *\ng()\n"),
    "new-parameter": (
        "def f(device):\n    x.to(device)\nx = 1\n",
        "def f(acc):\n    x.to(acc.device)\nx = 1\n",
    ),
    "bound-before-use": (
        "def main():\n    f()\nmain()\n",
        "import a\ndef main():\n    acc = a.Accelerator()\n    acc.f()\nmain()\n",
    ),
    "bound-by-an-earlier-turn": (
        "for b in l:\n    if n: print(m)\n    m = 1\n",
        "for b in l:\n    if n: print(m, 1)\n    m = 1\n",
    ),
    "bound-in-every-branch": (
        "x = 1\n",
        "try:\n    import acc\nexcept ImportError:\n    acc = None\nacc\nx = 1\n",
    ),
    "function-called-after-its-global": ("x = 1\n", "def f():\n    return acc\nacc = 1\nf()\nx = 1\n"),
    "comprehension-and-walrus": ("x = [1]\n", "x = [i for i in range(3) if (j := i) and j]\nj\n"),
    "parses-but-never-compiled": ("return 1\n", "return 2\n"),
    "invalid-escape-is-the-authors": ("x = '\\d'\n", "x = '\\d\\d'\n"),
    "from-nothing": ("", "import a\n"),
    "tabs-stay": ("if 1:\n\tx = 1\n", "if 1:\n\tx = 2\n"),
    "comments-in-other-statements": (
        "def f():\n    return 1  # a\n# b\nx = 1\n",
        "x = 1  # a\ndef f():\n    # b\n    return 1\n",
    ),
    "statements-of-one-line": ("x = 1; y = 2  # a", "y = 2  # a\nx = 1"),
    "bound-in-a-with-or-a-try": (
        "x = 1\n",
        "def f(c):\n    try:\n        acc = c()\n    except OSError:\n        raise\n    with c:\n        b = acc\n    return b\nx = 1\n",
    ),
    "new-and-bound-by-an-earlier-turn": (
        "x = 1\n",
        "def f(l):\n    for b in l:\n        if b:\n            print(acc)\n        acc = b\nx = 1\n",
    ),
    "left-by-an-exception": (
        "x = 1\n",
        "def f(c):\n    try:\n        acc = c\n        del acc\n    except OSError:\n        print(acc)\nx = 1\n",
    ),
    "bound-before-a-closure-or-a-generator-runs": (
        "x = 1\n",
        "def f():\n    def g():\n        return acc\n    lazy = (acc for _ in g)\n    acc = 1\n    return g(), lazy\nx = 1\n",
    ),
    "class-scope": ("class A:\n    x = 1\n    y = x\n", "class A:\n    x = 2\n    y = x\n"),
    "match-binds": (
        "def f(x):\n    match x:\n        case [a, *b]: return a, b\n",
        "def f(x):\n    match x:\n        case {'k': a, **b}: return a, b\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), SOUND.values(), ids=SOUND)
def test_sound_results_pass(before: str, after: str) -> None:
    assert _check(before, after) == []


UNSOUND = {
    "syntax": ("x = 1\n", "x = (1\n", "does not parse"),
    "does-not-compile": ("def f():\n    return 1\n", "return 1\n", "does not parse"),
    "binding-gone": ("device = 1\nf = device\n", "f = device\n", "`device` (line 1) is bound nowhere"),
    "never-bound": ("import a\n", "import a\nacc.print(a)\n", "`acc`"),
    "never-bound-in-function": ("def f():\n    pass\n", "def f():\n    acc.print()\n", "`acc`"),
    "used-too-early": ("a = 1\n", "acc.f()\nacc = 1\na = 1\n", "before anything binds it"),
    "used-too-early-in-function": (
        "def f():\n    a = 1\n",
        "def f():\n    acc.f()\n    acc = 1\n    a = 1\n",
        "(f) before anything binds it",
    ),
    "function-called-before-its-global": (
        "def f():\n    pass\nf()\n",
        "def f():\n    acc.print()\nf()\nacc = 1\n",
        "`acc` is used in line 3",
    ),
    "through-another-function": (
        "def g():\n    pass\ndef f():\n    g()\nf()\n",
        "def g():\n    print(acc)\ndef f():\n    g()\nf()\nacc = 1\n",
        "`acc` is used in line 5",
    ),
    "deleted": ("x = 1\n", "def f():\n    acc = 1\n    del acc\n    return acc\nf()\nx = 1\n", "`acc`"),
    "augmented": ("x = 1\n", "def f():\n    acc += 1\nf()\nacc = 1\nx = 1\n", "`acc`"),
    "in-a-comprehension": (
        "x = 1\n",
        "def f():\n    y = [a for a in acc]\n    acc = [y]\nf()\nx = 1\n",
        "`acc`",
    ),
    "bound-only-in-the-branch-before": (
        "x = 1\n",
        "if x:\n    acc = 1\nelse:\n    acc.f()\nx = 1\n",
        "`acc`",
    ),
    "bound-only-in-the-other-branch": ("x = 1\n", "if x:\n    acc.f()\nelse:\n    acc = 1\nx = 1\n", "`acc`"),
    "another-variable-of-that-name": (
        "device = 1\ndef f(device):\n    return device\n",
        "device = 1\ndef f(acc):\n    return device\n",
        "`device` was f's own",
    ),
    "another-variable-in-a-method": (
        "class T:\n    def f(self):\n        d = 1\n        return d\nd = 2\n",
        "class T:\n    def f(self):\n        return d\nd = 2\n",
        "`d` was T.f's own",
    ),
    "another-variable-in-a-nested-function": (
        "d = 2\ndef f():\n    d = 1\n    def g():\n        return d\n    return g\n",
        "d = 2\ndef f():\n    def g():\n        return d\n    return g\n",
        "`d` was f's own",
    ),
    "quoted-annotation": (
        "import torch\ndef f(d: 'torch.device'): ...\n",
        "def f(d: 'torch.device'): ...\n",
        "`torch`",
    ),
    "exported-name": ("__all__ = ['f']\ndef f(): ...\n", "__all__ = ['f']\ndef g(): ...\n", "`f`"),
    "comment": ("x = 1  # keep\n", "x = 1\n", "the comment `# keep` is lost"),
    "one-of-two-equal-comments": ("# a\n# a\nx = 1\n", "# a\nx = 1\n", "`# a` is lost"),
    "comment-into-a-string": ("x = 1  # a\ny = 2\n", "x = 1\ny = '''\n# a\n'''\n", "`# a` is lost"),
    "continued-line": ("x = 1; \\\ny = 2  # a\nz = 3\n", "x = 1; \\\ny = 2\nz = 3\n", "`# a` is lost"),
    "comment-of-a-decorator": (
        "@a  # b\n@c\ndef f():\n    return 1\n",
        "@a\n@c\ndef f():\n    return 1\n",
        "`# b` is lost",
    ),
    "one-of-two-equal-statements": (
        "x = 1  # a\nx = 1  # a\ny = 2\n",
        "x = 1  # a\ny = 2\n",
        "`# a` is lost",
    ),
    "final-newline-gone": ("x = 1\n", "x = 1", "end of the last line"),
    "final-newline-new": ("x = 1", "x = 1\n", "end of the last line"),
    "line-end": ("x = 1\n", "x = 1\r\n", "carriage return"),
    "spaces-in-a-file-of-tabs": ("if 1:\n\tx = 1\n", "if 1:\n    x = 1\n", "indented with spaces"),
    "tabs": ("if 1:\n    x = 1\n", "if 1:\n    x = 1\nif 2:\n\ty = 1\n", "indented with tabs"),
}


@pytest.mark.parametrize(("before", "after", "problem"), UNSOUND.values(), ids=UNSOUND)
def test_unsound_results_do_not(before: str, after: str, problem: str) -> None:
    problems = _check(before, after)
    assert any(problem in one for one in problems), problems


def test_a_nested_function_keeps_a_variable_of_its_own() -> None:
    nested = "    def g():\n        d = 1\n        return d\n    return g\n"
    assert _check(f"def f():\n    d = 2\n    print(d)\n{nested}", f"def f():\n    print(2)\n{nested}") == []


def _stdlib(count: int) -> list[Path]:
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py"))
    files = [file for file in files if "site-packages" not in file.parts and file.stat().st_size < 60_000]
    return random.Random(5).sample(files, count)


@pytest.mark.parametrize("file", _stdlib(60), ids=lambda file: file.name)
def test_no_false_alarm_on_real_code(file: Path) -> None:
    """A harmless statement at the end changes nothing that any check looks at."""
    try:
        text = reading.read(file).text
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (sources.Unusable, SyntaxError):
        pytest.skip("test data of the standard library")
    end = "\n" if text.endswith("\n") else ""
    after = text if not end and text else text + "harmless_name = 1\n"
    assert check_result(text, after) == []
