"""The last gate lets every sound migration through, and nothing that would break the author's script."""

import pytest
from crosstrain_migrate.syntax.checks import check_result

NESTED = "    def g():\n        d = 1\n        return d\n    return g\n"
TURN, F, G = "for b in l:\n if n:", "def f():\n", " def g():\n  return d\n return g\n"
SOUND = {
    "the-authors-own-unbound-name": ("print(undefined)\n", "x = 1\nprint(undefined, undefined)\n"),
    "star-import": ("from m import *\nf()\n", "from m import *\ng()\n"),
    "new-parameter": ("def f(d):\n    x.to(d)\nx = 1\n", "def f(acc):\n    x.to(acc)\nx = 1\n"),
    "bound-by-an-earlier-turn": (f"{TURN} print(m)\n m = 1\n", f"{TURN} print(m, 1)\n m = 1\n"),
    "parses-but-never-compiled": ("return 1\n", "return 2\n"),
    "comments-in-other-statements": (
        "def f():\n return 1  # a\n# b\nx = 1\n",
        "x = 1  # a\ndef f():\n # b\n return 1\n",
    ),
    "statements-of-one-line": ("x = 1; y = 2  # a", "y = 2  # a\nx = 1"),
    "class-scope": ("class A:\n    x = 1\n    y = x\n", "class A:\n    x = 2\n    y = x\n"),
    "a-nested-function-keeps-its-own": (
        f"{F}    d = 2\n    print(d)\n{NESTED}",
        f"{F}    print(2)\n{NESTED}",
    ),
}
# What is bound in time, put in front of a script.
BOUND = {
    "in-every-branch": "try:\n    import acc\nexcept ImportError:\n    acc = None\nacc\n",
    "before-the-call-of-a-function": "def f():\n    return acc\nacc = 1\nf()\n",
    "comprehension-and-walrus": "x = [i for i in range(3) if (j := i) and j]\nj\n",
    "in-a-match": "def f(x):\n    match x:\n        case {'k': a, **b}: return a, b\n",
    "in-a-try": "def f(c):\n    try:\n        acc = c()\n    except OSError:\n        raise\n    return acc\n",
    "in-a-with": "def f(c):\n    acc = c()\n    with c:\n        b = acc\n    return b\n",
    "by-an-earlier-turn": "def f(l):\n    for b in l:\n        if b: print(acc)\n        acc = b\n",
    "left-by-an-exception": "def f(c):\n try:\n  acc = c\n  del acc\n except OSError:\n  print(acc)\n",
    "before-a-closure-runs": "def f():\n def g():\n  return acc\n acc = 1\n return g()\n",
    "before-a-generator-runs": "def f(g):\n lazy = (acc for _ in g)\n acc = 1\n return lazy\n",
}
SOUND |= {f"bound-{name}": ("x = 1\n", f"{text}x = 1\n") for name, text in BOUND.items()}


@pytest.mark.parametrize(("before", "after"), SOUND.values(), ids=SOUND)
def test_sound_results_pass(before: str, after: str) -> None:
    assert check_result(before, after) == []


UNSOUND = {
    "syntax": ("x = 1\n", "x = (1\n", "does not parse"),
    "does-not-compile": ("def f():\n    return 1\n", "return 1\n", "does not parse"),
    "binding-gone": ("device = 1\nf = device\n", "f = device\n", "`device` (line 1) is bound nowhere"),
    "never-bound-in-function": ("def f():\n    pass\n", "def f():\n    acc.print()\n", "`acc`"),
    "another-variable-of-that-name": (
        "d = 1\ndef f(d):\n d\n",
        "d = 1\ndef f(acc):\n d\n",
        "`d` was f's own",
    ),
    "another-variable-in-a-method": (
        "class T:\n def f(self):\n  d = 1\n  return d\nd = 2\n",
        "class T:\n def f(self):\n  return d\nd = 2\n",
        "`d` was T.f's own",
    ),
    "another-variable-in-a-nested-function": (f"{F} d = 1\n{G}d = 2\n", f"{F}{G}d = 2\n", "`d` was f's own"),
    "quoted": ("import torch\ndef f(d: 'torch.T'): ...\n", "def f(d: 'torch.T'): ...\n", "`torch`"),
    "exported-name": ("__all__ = ['f']\ndef f(): ...\n", "__all__ = ['f']\ndef g(): ...\n", "`f`"),
    "comment": ("x = 1  # keep\n", "x = 1\n", "the comment `# keep` is lost"),
    "one-of-two-equal-comments": ("# a\n# a\nx = 1\n", "# a\nx = 1\n", "`# a` is lost"),
    "comment-into-a-string": ("x = 1  # a\ny = 2\n", "x = 1\ny = '''\n# a\n'''\n", "`# a` is lost"),
    "continued-line": ("x = 1; \\\ny = 2  # a\nz = 3\n", "x = 1; \\\ny = 2\nz = 3\n", "`# a` is lost"),
    "comment-of-a-decorator": ("@a  # b\n@c\ndef f():\n    pass\n", "@a\n@c\ndef f():\n    pass\n", "`# b`"),
    "one-of-two-equal-statements": ("x = 1  # a\nx = 1  # a\ny = 2\n", "x = 1  # a\ny = 2\n", "`# a`"),
    "final-newline-gone": ("x = 1\n", "x = 1", "end of the last line"),
    "final-newline-new": ("x = 1", "x = 1\n", "end of the last line"),
    "line-end": ("x = 1\n", "x = 1\r\n", "carriage return"),
    "spaces-in-a-file-of-tabs": ("if 1:\n\tx = 1\n", "if 1:\n    x = 1\n", "indented with spaces"),
    "tabs": ("if 1:\n    x = 1\n", "if 1:\n    x = 1\nif 2:\n\ty = 1\n", "indented with tabs"),
}
# `acc` is read before it is bound, or is bound nowhere, in front of a script.
EARLY = {
    "bound-nowhere": "acc.print()\n",
    "too-early": "acc.f()\nacc = 1\n",
    "too-early-in-a-function": "def f():\n    acc.f()\n    acc = 1\n",
    "before-the-global": "def f():\n    acc.print()\nf()\nacc = 1\n",
    "through-another-function": "def g():\n    print(acc)\ndef f():\n    g()\nf()\nacc = 1\n",
    "deleted": "def f():\n    acc = 1\n    del acc\n    return acc\nf()\n",
    "augmented": "def f():\n    acc += 1\nf()\nacc = 1\n",
    "in-a-comprehension": "def f():\n    y = [a for a in acc]\n    acc = [y]\nf()\n",
    "only-in-the-branch-before": "x = 1\nif x:\n    acc = 1\nelse:\n    acc.f()\n",
    "only-in-the-other-branch": "x = 1\nif x:\n    acc.f()\nelse:\n    acc = 1\n",
}
UNSOUND |= {name: ("x = 1\n", f"{text}x = 1\n", "`acc`") for name, text in EARLY.items()}


@pytest.mark.parametrize(("before", "after", "problem"), UNSOUND.values(), ids=UNSOUND)
def test_unsound_results_do_not(before: str, after: str, problem: str) -> None:
    problems = check_result(before, after)
    assert any(problem in one for one in problems), problems
