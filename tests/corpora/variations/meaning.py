"""What a script does, to the bit: every line that it prints, and the weights after each step of each optimizer."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import pickle
import random
import runpy
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.corpora.variations.script import Project

PRELOAD = ["torch", "torch.distributed", "torch.utils.data", "tests.support.preload"]
TIMEOUT = 120.0


@dataclass(frozen=True)
class Record:
    """What one run printed, and a digest of the weights for each step."""

    lines: tuple[str, ...]
    steps: tuple[str, ...]
    error: str = ""


def recorded(scripts: Sequence[tuple[Project, tuple[str, ...]]]) -> list[Record]:
    """Run scripts with their arguments, each in a process of its own that is forked with torch loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_all, args=(send, [(dict(p.files), p.entry, a) for p, a in scripts]))
    process.start()
    send.close()
    found = []
    try:
        for _ in scripts:
            if not receive.poll(TIMEOUT):
                raise TimeoutError(f"script {len(found)} did not end")
            found.append(pickle.loads(receive.recv_bytes()))
    finally:
        process.kill()
        process.join()
    return found


def _all(send: Connection, scripts: list[tuple[dict[str, str], str, tuple[str, ...]]]) -> None:
    import sklearn.datasets  # noqa: F401  # what the scripts import takes a second
    import torch._dynamo  # noqa: F401

    for files, entry, arguments in scripts:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            with os.fdopen(write, "wb") as out:
                pickle.dump(_run(files, entry, arguments), out)
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as source:
            data = source.read()
        os.waitpid(child, 0)
        send.send_bytes(data or pickle.dumps(Record((), (), "the process died")))


def _run(files: dict[str, str], entry: str, arguments: tuple[str, ...]) -> Record:
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
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8", newline="")
        os.chdir(folder)
        os.environ.pop("RANK", None)
        sys.path.insert(0, folder)
        sys.argv = [entry, *arguments]
        sys.stdout, sys.stderr = printed, _ = io.StringIO(), io.StringIO()
        error = ""
        try:
            runpy.run_path(entry, run_name="__main__")
        except SystemExit as ended:
            error = str(ended.code or "")
        except BaseException:
            error = traceback.format_exc()
    return Record(tuple(printed.getvalue().splitlines()), tuple(steps), error)
