"""What the main process alone binds and all processes read."""

import ast

import pytest
from crosstrain_migrate.syntax.checks import check_result
from crosstrain_migrate.syntax.only_main import read_by_all

WRONG = {
    "a name": "if a.is_main_process:\n    w = 1\nprint(w)",
    "in a loop": "if a.is_main_process:\n    w = 1\nfor i in range(3):\n    print(w + i)",
    "on one machine": "if a.is_local_main_process:\n    w = 1\nprint(w)",
    "beside another condition": "if a.is_main_process and x:\n    w = 1\nprint(w)",
    "an import": "if a.is_main_process:\n    import w\nprint(w)",
    "after an early end": "def f():\n    if not a.is_main_process:\n        return\n    w = 1\n\ndef g():\n    if a.is_main_process:\n        v = 1\n    return v",
    "in the branch of the others": "if a.is_main_process:\n    w = 1\nelse:\n    print(w)",
}
RIGHT = {
    "read where it is bound": "if a.is_main_process:\n    w = 1\n    print(w)",
    "read under another guard": "if a.is_main_process:\n    w = 1\nif x and a.is_main_process:\n    print(w)",
    "bound before": "w = None\nif a.is_main_process:\n    w = 1\nprint(w)",
    "bound otherwise": "if a.is_main_process:\n    w = 1\nelse:\n    w = None\nprint(w)",
    "a parameter": "def f(w):\n    if a.is_main_process:\n        w = 1\n    return w",
    "a choice": "if a.is_main_process:\n    w = 1\nx = w if a.is_main_process else 0",
    "and": "if a.is_main_process:\n    w = 1\nx = a.is_main_process and w",
    "after the others have left": "def f():\n    if not a.is_main_process:\n        return\n    w = 1\n    print(w)",
    "not the main process's": "if not a.is_main_process:\n    w = 1\nelse:\n    w = 2\nprint(w)",
    "a global": "def f():\n    global w\n    if a.is_main_process:\n        w = 1\n    return w",
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_wrong(text: str) -> None:
    assert len(read_by_all(ast.parse(text))) == 1


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_right(text: str) -> None:
    assert not read_by_all(ast.parse(text))


def test_a_result_that_does_so_is_not_written() -> None:
    before = "w = 1\nprint(w)"
    after = "if accelerator.is_main_process:\n    w = 1\nprint(w)"
    (problem,) = check_result(f"accelerator = 1\n{before}", f"accelerator = 1\n{after}")
    assert "`w` is read by all processes in line 4" in problem and "main process" in problem
    assert not check_result(after, f"{after}\nprint()")
