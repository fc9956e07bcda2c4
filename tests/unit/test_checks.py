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
from crosstrain_migrate.syntax.early import early_uses
from crosstrain_migrate.syntax.names import unbound_names


def _check(before: str, after: str) -> list[str]:
    return check_result(dedent(before), dedent(after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("import a\na.b()\n", "import a\na.c()\n", id="another-attribute"),
        pytest.param(
            "print(undefined)\n", "x = 1\nprint(undefined, undefined)\n", id="the-authors-own-unbound-name"
        ),
        pytest.param("from m import *\nf()\n", "from m import *\ng()\n", id="star-import"),
        pytest.param(
            "def f(device):\n    x.to(device)\nx = 1\n",
            "def f(acc):\n    x.to(acc.device)\nx = 1\n",
            id="new-parameter",
        ),
        pytest.param(
            "def main():\n    f()\nmain()\n",
            "import a\ndef main():\n    acc = a.Accelerator()\n    acc.f()\nmain()\n",
            id="bound-before-use",
        ),
        pytest.param(
            "for b in l:\n    if n: print(m)\n    m = 1\n",
            "for b in l:\n    if n: print(m, 1)\n    m = 1\n",
            id="bound-by-an-earlier-turn",
        ),
        pytest.param(
            "x = 1\n",
            "try:\n    import acc\nexcept ImportError:\n    acc = None\nacc\nx = 1\n",
            id="bound-in-every-branch",
        ),
        pytest.param(
            "x = 1\n",
            "def f():\n    return acc\nacc = 1\nf()\nx = 1\n",
            id="function-called-after-its-global",
        ),
        pytest.param(
            "x = [1]\n", "x = [i for i in range(3) if (j := i) and j]\nj\n", id="comprehension-and-walrus"
        ),
        pytest.param("return 1\n", "return 2\n", id="parses-but-never-compiled"),
        pytest.param("x = '\\d'\n", "x = '\\d\\d'\n", id="invalid-escape-is-the-authors"),
        pytest.param("", "import a\n", id="from-nothing"),
        pytest.param("if 1:\n\tx = 1\n", "if 1:\n\tx = 2\n", id="tabs-stay"),
        pytest.param(
            "def f():\n    return 1  # a\n# b\nx = 1\n",
            "x = 1  # a\ndef f():\n    # b\n    return 1\n",
            id="comments-in-other-statements",
        ),
        pytest.param("x = 1; y = 2  # a", "y = 2  # a\nx = 1", id="statements-of-one-line"),
        pytest.param(
            "class A:\n    x = 1\n    y = x\n", "class A:\n    x = 2\n    y = x\n", id="class-scope"
        ),
        pytest.param(
            "def f(x):\n    match x:\n        case [a, *b]: return a, b\n",
            "def f(x):\n    match x:\n        case {'k': a, **b}: return a, b\n",
            id="match-binds",
        ),
    ],
)
def test_sound_results_pass(before: str, after: str) -> None:
    assert _check(before, after) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        pytest.param("x = 1\n", "x = (1\n", "does not parse", id="syntax"),
        pytest.param("def f():\n    return 1\n", "return 1\n", "does not parse", id="does-not-compile"),
        pytest.param(
            "device = 1\nf = device\n",
            "f = device\n",
            "`device` (line 1) is bound nowhere",
            id="binding-gone",
        ),
        pytest.param("import a\n", "import a\nacc.print(a)\n", "`acc`", id="never-bound"),
        pytest.param(
            "def f():\n    pass\n", "def f():\n    acc.print()\n", "`acc`", id="never-bound-in-function"
        ),
        pytest.param("a = 1\n", "acc.f()\nacc = 1\na = 1\n", "before anything binds it", id="used-too-early"),
        pytest.param(
            "def f():\n    a = 1\n",
            "def f():\n    acc.f()\n    acc = 1\n    a = 1\n",
            "(f) before anything binds it",
            id="used-too-early-in-function",
        ),
        pytest.param(
            "def f():\n    pass\nf()\n",
            "def f():\n    acc.print()\nf()\nacc = 1\n",
            "`acc` is used in line 3",
            id="function-called-before-its-global",
        ),
        pytest.param(
            "def g():\n    pass\ndef f():\n    g()\nf()\n",
            "def g():\n    print(acc)\ndef f():\n    g()\nf()\nacc = 1\n",
            "`acc` is used in line 5",
            id="through-another-function",
        ),
        pytest.param(
            "x = 1\n",
            "if x:\n    acc.f()\nelse:\n    acc = 1\nx = 1\n",
            "`acc`",
            id="bound-only-in-the-other-branch",
        ),
        pytest.param(
            "device = 1\ndef f(device):\n    return device\n",
            "device = 1\ndef f(acc):\n    return device\n",
            "`device` was f's own",
            id="another-variable-of-that-name",
        ),
        pytest.param(
            "class T:\n    def f(self):\n        d = 1\n        return d\nd = 2\n",
            "class T:\n    def f(self):\n        return d\nd = 2\n",
            "`d` was T.f's own",
            id="another-variable-in-a-method",
        ),
        pytest.param(
            "d = 2\ndef f():\n    d = 1\n    def g():\n        return d\n    return g\n",
            "d = 2\ndef f():\n    def g():\n        return d\n    return g\n",
            "`d` was f's own",
            id="another-variable-in-a-nested-function",
        ),
        pytest.param(
            "import torch\ndef f(d: 'torch.device'): ...\n",
            "def f(d: 'torch.device'): ...\n",
            "`torch`",
            id="quoted-annotation",
        ),
        pytest.param(
            "__all__ = ['f']\ndef f(): ...\n", "__all__ = ['f']\ndef g(): ...\n", "`f`", id="exported-name"
        ),
        pytest.param("x = 1  # keep\n", "x = 1\n", "the comment `# keep` is lost", id="comment"),
        pytest.param("# a\n# a\nx = 1\n", "# a\nx = 1\n", "`# a` is lost", id="one-of-two-equal-comments"),
        pytest.param(
            "x = 1  # a\ny = 2\n", "x = 1\ny = '''\n# a\n'''\n", "`# a` is lost", id="comment-into-a-string"
        ),
        pytest.param(
            "x = 1; \\\ny = 2  # a\nz = 3\n",
            "x = 1; \\\ny = 2\nz = 3\n",
            "`# a` is lost",
            id="continued-line",
        ),
        pytest.param(
            "@a  # b\n@c\ndef f():\n    return 1\n",
            "@a\n@c\ndef f():\n    return 1\n",
            "`# b` is lost",
            id="comment-of-a-decorator",
        ),
        pytest.param(
            "x = 1  # a\nx = 1  # a\ny = 2\n",
            "x = 1  # a\ny = 2\n",
            "`# a` is lost",
            id="one-of-two-equal-statements",
        ),
        pytest.param("x = 1\n", "x = 1", "end of the last line", id="final-newline-gone"),
        pytest.param("x = 1", "x = 1\n", "end of the last line", id="final-newline-new"),
        pytest.param("x = 1\n", "x = 1\r\n", "carriage return", id="line-end"),
        pytest.param(
            "if 1:\n\tx = 1\n", "if 1:\n    x = 1\n", "indented with spaces", id="spaces-in-a-file-of-tabs"
        ),
        pytest.param(
            "if 1:\n    x = 1\n", "if 1:\n    x = 1\nif 2:\n\ty = 1\n", "indented with tabs", id="tabs"
        ),
    ],
)
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


def test_flow_is_exact_where_python_is() -> None:
    """What the analysis says of each function is what happens when it runs."""
    source = dedent(
        """
        def ok_loop(items):
            for item in items:
                if item > 1:
                    total = total + item
                else:
                    total = item
            return total

        def ok_try():
            try:
                value = int("1")
            except ValueError:
                raise
            else:
                other = value
            finally:
                done = True
            return other, done

        def ok_with():
            import contextlib
            with contextlib.suppress(ZeroDivisionError):
                value = 1
                1 / 0
            return value

        def ok_early_return(flag=True):
            if flag:
                value = 1
            else:
                return 0
            return value

        def ok_while():
            while True:
                value = 1
                break
            return value

        def ok_closure():
            def inner():
                return later
            later = 1
            return inner()

        def ok_generator():
            lazy = (later for _ in range(2))
            later = 1
            return list(lazy)

        def bad_delete():
            value = 1
            del value
            return value

        def bad_order():
            second = first
            first = 1
            return second

        def bad_except():
            try:
                1 / 0
            except ZeroDivisionError as problem:
                problem = problem
                del problem
            return missing
            missing = 1

        def bad_augmented():
            count += 1
            return count

        def bad_comprehension():
            values = [one for one in things]
            things = [1]
            return values
        """
    )
    namespace: dict[str, object] = {}
    exec(source, namespace)
    early = {scope for scope, _ in early_uses(ast.parse(source))}
    for name, function in list(namespace.items()):
        if not callable(function):
            continue
        try:
            function([1, 2]) if name == "ok_loop" else function()
        except UnboundLocalError:
            assert name in early, name
        else:
            assert name not in early, name
    assert unbound_names(source, ast.parse(source)) == {}
