"""Cases of the shared trial as jobs that can be run anywhere: their trees, their stand-ins and what they are given.

    python -m tests.corpora.trial.staged --mirror MIRROR --ids a b c

writes originals and conversions to build/public-scripts, which is no part of the project: `make gpu-check` runs what is there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.forked import Job

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).parent
FOLDER = ROOT / "build" / "public-scripts"
TEN = "cnn-text d2l-lenet hunkim-cnn ndb-gan ncf ogb-mol rasbt-ae rasbt-mlp swav-linear znx-gan"
# Of the trial's variables these concern its own comparison, or name the CPU or a place.
_OTHER = "ACCELERATE_USE_CPU TRIAL_OUT CUDA_VISIBLE_DEVICES OMP_NUM_THREADS PYTHONPATH HOME TRIAL_SHIM"
_NO_GPU = ("cuda", "avail")  # shims that answer for a GPU where there is none


class Trial:
    """The shared trial's folder."""

    def __init__(self, folder: Path, mirror: Path) -> None:
        sys.path += [str(folder), str(folder / "fakes")]
        self._common: Any = importlib.import_module("common")
        self.folder, self._mirror = folder, mirror

    def cases(self, ids: Sequence[str] | None) -> list[dict[str, Any]]:
        """The shared trial's cases and those beside this file."""
        found = [*self._common.load_cases(), *self._common.load_cases(path=HERE / "cases.toml")]
        return [case for case in found if ids is None or case["id"] in ids]

    def stage(self, case: dict[str, Any], folder: Path) -> str:
        """Write a case's trees before and after to ``folder``, and what its runs are given; what is wrong, or nothing."""
        shutil.rmtree(folder, ignore_errors=True)
        self._common.checkout(case, self._mirror, folder / "before")
        shutil.copytree(folder / "before", folder / "after")
        shutil.copytree(self.folder / "fakes", folder / "fakes")
        own = case["dir"] / "fakes" / case["id"]
        if own.is_dir():
            shutil.copytree(own, folder / "fakes", dirs_exist_ok=True)
        command = [sys.executable, "-m", "crosstrain_migrate", case["script"], "--write"]
        done = subprocess.run(command, cwd=folder / "after", capture_output=True, text=True, check=False)
        given = self._common.base_env(case, "", [], False)
        facts = {
            "script": os.path.relpath(case["script"], case["cwd"]),
            "where": case["cwd"],
            "args": {"before": list(map(str, case["argv"])), "after": list(map(str, case["argv_converted"]))},
            "variables": {
                k: v for k, v in given.items() if k not in _OTHER.split() and os.environ.get(k) != v
            },
            "shims": case["shim"],
            "paths": case["pythonpath"],
            "of": f"{case['repo']}: {case['script']}",
        }
        for tree in ("before", "after"):
            _write_cells(folder / tree / case["script"])
        (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
        return "" if done.returncode == 0 else (done.stderr.strip() or done.stdout.strip())[-200:]


def job(folder: Path, tree: str, *, no_gpu: bool = False, **more: Any) -> Job:
    """The run of a staged case. tree: "before" or "after"; no_gpu: an original must be told that there is a GPU."""
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    shims = [name for name in facts["shims"] if no_gpu or name not in _NO_GPU]
    variables = facts["variables"] | {"TRIAL_SHIM": ",".join(shims)} | more.pop("variables", {})
    script = str(Path(facts["script"]).with_suffix(".py"))
    paths = [str(folder / "fakes")]
    inner = [os.path.relpath(path, facts["where"]) for path in facts["paths"]]
    more["prelude"] = partial(stand_ins, paths, inner, more.pop("prelude", None))
    args = tuple(facts["args"][tree])
    return Job(folder.name, folder / tree, script, args, variables, where=facts["where"], **more)


def stand_ins(paths: list[str], inner: list[str], then: Any) -> None:
    """In the script's process: put the trial's stand-ins in place."""
    sys.path[1:1] = [*paths, *(str(Path(path).resolve()) for path in inner)]
    importlib.import_module("trial_shim").install()
    if then is not None:
        then()


def _write_cells(script: Path) -> None:
    """The trial's own way to run a notebook's cells, as a script beside it."""
    if script.suffix == ".ipynb":
        code = importlib.import_module("runnb").to_source(str(script))
        script.with_suffix(".py").write_text(code, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trial", type=Path, default=ROOT.parent / "shared" / "trial")
    parser.add_argument("--mirror", type=Path, required=True, help="where `fetch` brought the repositories")
    parser.add_argument("--ids", nargs="+", default=TEN.split(), help="cases [ten that are small]")
    options = parser.parse_args()
    trial = Trial(options.trial.resolve(), options.mirror)
    problems = 0
    for case in trial.cases(options.ids):
        problem = trial.stage(case, FOLDER / case["id"])
        problems += bool(problem)
        print(f"{case['id']}: {problem or 'converted'}", flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
