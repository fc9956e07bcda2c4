"""A migrated script leaves the files that the original left, written by one process, and plain PyTorch loads them."""

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.ranks import run_ranks

from .cases import Case, cases

SAVES = re.compile(r"torch\.save|open\(|savefig|to_csv|np\.save")
SAVING = [c for c in cases() if c.expect == "converted" and SAVES.search(c.before.read_text("utf-8"))]
TORCH = (".pt", ".pth", ".bin", ".ckpt", ".tar")
# A dictionary that is resumed, files of DDP, a state alone.
SHORT = ("resume", "ddp_spawn", "mnist_functions")
BY_STEP = ("wgan_gp",)  # files are named by the number of steps: as many as before when batches are shared
SHARED = '{"split_batches": true, "even_batches": "weighted"}'
LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def run(script: str, folder: str, arguments: tuple[str, ...], launched: bool, config: str = "") -> list[str]:
    """Runs a script as `python script` would, in `folder`; the files in it that this process wrote."""
    os.environ["CROSSTRAIN_CONFIG"] = config or "{}"
    written: list[str] = []

    def note(event: str, given: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(given[1], str) and set(given[1]) & set("wax+"):
            written.append(os.fspath(given[0]))
        elif event == "os.rename":
            written.append(os.fspath(given[1]))

    sys.addaudithook(note)
    save = torch.save

    def noted_save(obj: object, f: Any, *more: Any, **named: Any) -> None:
        if isinstance(f, str | os.PathLike):
            written.append(os.fspath(f))  # its C++ writer raises no event
        save(obj, f, *more, **named)

    torch.save = noted_save
    if not launched:
        for name in LAUNCHED:
            os.environ.pop(name, None)
    os.chdir(folder)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = nowhere
        runpy.run_path(script, run_name="__main__")
    own = [Path(folder, name).resolve() for name in written if isinstance(name, str)]
    return sorted({str(p.relative_to(folder)) for p in own if p.is_relative_to(folder) and p.exists()})


def shape(value: object) -> object:
    """What a saved object is made of, without its numbers."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shape(inner) for inner in value]
    return type(value).__name__


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


GPUS_ONLY = "--multiprocessing-distributed"  # one process for each GPU: none where there is none


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=[pytest.mark.slow] * (c.name not in SHORT)) for c in SAVING]
)
def test_leaves_the_same_files(case: Case, tmp_path: Path) -> None:
    before, after = tmp_path.resolve() / "before", tmp_path.resolve() / "after"
    before.mkdir()
    after.mkdir()
    alone = tuple(argument for argument in case.args if argument != GPUS_ONLY)
    run_ranks(run, 1, str(case.before), str(before), alone, False)
    config = SHARED if case.name in BY_STEP else ""
    by_rank = run_ranks(run, 2, str(case.after), str(after), case.args, True, config)
    assert files(after) == files(before)
    assert by_rank[1] == [], "a second process wrote files"
    for name in files(before):
        if name.endswith(TORCH):
            original = torch.load(before / name, weights_only=True)
            assert shape(torch.load(after / name, weights_only=True)) == shape(original)
