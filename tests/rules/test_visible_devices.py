"""CT105: a script that hides GPUs from its processes."""

from __future__ import annotations

import os

import pytest
from crosstrain_migrate.results import Severity

from tests.support.ranks import run_ranks

from .support import SLOTS, check_invariants, comments, migrate, script

IMPORTS = "import argparse\nimport os"
GPU = 'parser = argparse.ArgumentParser()\nparser.add_argument("--gpu", default="0")\nargs = parser.parse_args([])\n'


@pytest.mark.parametrize(
    ("hides", "stays"),
    [
        ('os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu  # which one', ""),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"', ""),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = "%d" % int(args.gpu)', ""),
        ('os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(g) for g in [0, 1])', ""),
        ('os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(args.gpu))', ""),
        ('if args.gpu:\n    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu', ""),
        ('if args.gpu:\n    print(1)\n    os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu', "print(1)"),
    ],
)
def test_it_goes_and_the_launchers_option_is_named(hides: str, stays: str) -> None:
    text = script({**SLOTS, "imports": IMPORTS, "options": GPU + hides})
    result = migrate(text)
    check_invariants(text, result)
    assert "VISIBLE" not in result.after
    assert stays in result.after
    assert comments(text) == comments(result.after)
    said = [f for f in result.findings if f.rule == "CT105"]
    assert [f.severity for f in said] == [Severity.NOTE]
    assert "--gpu-ids" in said[0].remedy


@pytest.mark.parametrize("none", ["", "-1"])
def test_a_script_that_asks_for_the_processor_keeps_it(none: str) -> None:
    hides = f'os.environ["CUDA_VISIBLE_DEVICES"] = "{none}"'
    result = migrate(script({**SLOTS, "imports": IMPORTS, "options": hides}))
    assert result.changed
    assert hides in result.after
    assert "CT105" not in {f.rule for f in result.findings}


def test_a_script_that_reads_it_again_is_told_to_take_it_out() -> None:
    hides = 'os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"\ncount = len(os.environ["CUDA_VISIBLE_DEVICES"].split(","))'
    result = migrate(script({**SLOTS, "imports": IMPORTS, "options": hides, "end": "print(count)"}))
    assert hides in result.after
    assert [f.remedy.startswith("take it out") for f in result.findings if f.rule == "CT105"] == [True]


def _visible(text: str) -> str | None:
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    exec(compile(text, "train.py", "exec"), {"__name__": "__main__"})
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_both_processes_see_what_the_launcher_gives_them() -> None:
    hides = GPU + 'os.environ["CUDA_VISIBLE_DEVICES"] = args.gpu'
    after = migrate(script({**SLOTS, "imports": IMPORTS, "options": hides})).after
    assert run_ranks(_visible, 2, after, timeout=60) == [None, None]
