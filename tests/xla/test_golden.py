"""Golden cases on XLA: the migrated script on four devices prints the numbers of the original on the CPU."""

import contextlib
import io
import json
import math
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.golden.cases import GOLDEN, load
from tests.xla.support import on_xla

NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+")
SPLIT = {"CROSSTRAIN_CONFIG": json.dumps({"split_batches": True, "even_batches": "weighted"})}
NAMES = "autoencoder main_argparse mnist_functions regression_mse schedulers siamese sum_loss"
CASES = NAMES.split()
SHORTER = {"mnist_functions": ("--epochs", "1", "--batch-size", "200", "--test-batch-size", "100")}


def output(script: Path, args: tuple[str, ...], folder: Path) -> str:
    """What the script prints when it runs in ``folder``."""
    os.chdir(folder)
    sys.argv[:] = [str(script), *args]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(script), run_name="__main__")
    return printed.getvalue()


@pytest.mark.parametrize("name", CASES)
def test_trains_as_on_the_cpu(name: str, tmp_path: Path) -> None:
    case = load(GOLDEN / name)
    args = SHORTER.get(name, case.args)
    plain = on_xla(output, case.before, args, tmp_path)
    migrated = on_xla(output, case.after, args, tmp_path, env=SPLIT)
    lines = list(zip(plain.splitlines(), migrated.splitlines(), strict=True))
    assert lines
    for wanted, found in lines:
        assert NUMBER.sub("#", found) == NUMBER.sub("#", wanted)
        for a, b in zip(NUMBER.findall(wanted), NUMBER.findall(found), strict=True):
            # The last printed digit may round the other way.
            unit = 10.0 ** -len(a.partition(".")[2]) if "." in a and "e" not in a else 0.0
            near = math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=1.5 * unit)
            assert near, f"{wanted!r} is now {found!r}"
