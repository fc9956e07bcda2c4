"""Which public scripts run on a second device, after conversion: ``python -m tests.xla.public`` on XLA's CPU client.

Their data and what they import are stand-ins: those of the shared trial (tests/corpora/trial/README.md).
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.xla.outcomes import Outcome, run
from tests.xla.table import Results, load

ROOT = Path(__file__).parents[2]
MORE = ROOT / "tests" / "corpora" / "trial" / "cases.toml"
OUTPUT = Path("build") / "xla-public.json"
# Of the trial's variables these concern its own comparison, or name the CPU.
_OTHER = ("ACCELERATE_USE_CPU", "TRIAL_OUT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


def converted(case: dict[str, Any], common: Any, mirror: Path, tree: Path, python: str) -> str:
    """Check the case out to ``tree`` and convert it; what the tool says if it cannot."""
    common.checkout(case, mirror, tree)
    command = [python, "-m", "crosstrain_migrate", case["script"], "--write"]
    sources = os.pathsep.join(str(ROOT / name) for name in ("migrate", "runtime", "templates"))
    done = subprocess.run(
        command,
        cwd=tree,
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip())[-200:]


def outcome(case: dict[str, Any], common: Any, mirror: Path, python: str) -> Outcome:
    """Of one run of a case."""
    with tempfile.TemporaryDirectory() as place:
        tree, out = Path(place).resolve() / "tree", Path(place) / "out"
        out.mkdir()
        problem = converted(case, common, mirror, tree, python)
        if problem:
            return Outcome("cannot", f"not converted: {problem}")
        folder = tree / case["cwd"]
        shims = [name for name in case["shim"] if name not in ("cuda", "avail")]
        paths = os.pathsep.join(str(tree / path) for path in case["pythonpath"])
        variables = common.base_env(case, str(out), shims, False, paths)
        variables = {k: v for k, v in variables.items() if k not in _OTHER and os.environ.get(k) != v}
        script = os.path.relpath(tree / case["script"], folder)
        if script.endswith(".ipynb"):
            script = _script_of(folder / script)
        args = tuple(map(str, case["argv_converted"]))
        return run(script, args, folder, variables, _stand_ins)


def _script_of(notebook: Path) -> str:
    """The trial's own way to run a notebook's cells, as a script beside it."""
    code = importlib.import_module("runnb").to_source(str(notebook))
    notebook.with_suffix(".cells.py").write_text(code, encoding="utf-8")
    return notebook.with_suffix(".cells.py").name


def _stand_ins() -> None:
    """In the script's process: put the trial's stand-ins in place."""
    sys.path[1:1] = os.environ["PYTHONPATH"].split(os.pathsep)
    importlib.import_module("trial_shim").install()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.xla.public", description=__doc__)
    parser.add_argument("--trial", type=Path, default=ROOT.parent / "shared" / "trial")
    parser.add_argument("--mirror", type=Path, required=True, help="where `fetch` brought the repositories")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that converts")
    parser.add_argument("--ids", nargs="*", help="cases; none: the table alone [all]")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where results are kept [%(default)s]")
    options = parser.parse_args(arguments)
    sys.path += [str(options.trial), str(options.trial / "fakes")]
    common = importlib.import_module("common")
    load()
    results = Results(options.output)
    for case in [*common.load_cases(), *common.load_cases(path=MORE)]:
        if options.ids is None or case["id"] in options.ids:
            found = outcome(case, common, options.mirror, options.python)
            results.add(case["id"], found, f"{case['repo']}: {case['script']}")
    return results.finish("case", "script")


if __name__ == "__main__":
    sys.exit(main())
