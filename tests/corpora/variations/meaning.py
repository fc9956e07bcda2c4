"""What a script does, to the bit: every line that it prints, and the weights after each step of each optimizer."""

import contextlib
import hashlib
import io
import random
import runpy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.core.projects import become
from tests.corpora.variations.script import Project
from tests.support.ranks import run_ranks


@dataclass(frozen=True)
class Record:
    """What one run printed, and a digest of the weights for each step."""

    lines: tuple[str, ...]
    steps: tuple[str, ...]


def recorded(scripts: Sequence[tuple[Project, tuple[str, ...]]]) -> list[Record]:
    """Run scripts with their arguments, each in a process of its own that is forked with torch loaded."""
    return [run_ranks(_run, 1, project, arguments)[0] for project, arguments in scripts]


def _run(project: Project, arguments: tuple[str, ...]) -> Record:
    """This process becomes the script."""
    import numpy as np
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    steps: list[str] = []

    def note(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        digest = hashlib.sha256()
        for group in optimizer.param_groups:
            for one in group["params"]:
                digest.update(one.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
        steps.append(digest.hexdigest())

    register_optimizer_step_post_hook(note)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        project.write(Path(folder))
        become(folder, project.entry.removesuffix(".py"), arguments, launched=False)
        with contextlib.suppress(SystemExit):
            runpy.run_path(project.entry, run_name="__main__")
    return Record(tuple(printed.getvalue().splitlines()), tuple(steps))
