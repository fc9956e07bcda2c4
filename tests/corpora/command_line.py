"""What a script's command line can say: its options with their defaults, and the device that its flags choose.

A script is run until it reads its command line; what its options make of each command line about a device, a rank or a
precision is compared. To see the device, it is run until it first moves a module or a tensor, prepares, or steps on the CPU,
with CUDA said to be there; nothing is put on a device.
"""

import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
from argparse import Action, ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from crosstrain.accelerator import Accelerator
from crosstrain.comm import torch_backend
from crosstrain.state import RUN

_DEVICE = re.compile(r"cuda|cpu|gpu|mps|device|accel", re.I)
_RUN = re.compile(r"rank|backend|world|fp16|bf16|amp|half|precision|dist|nodes?$", re.I)
_DEVICES = {"'cpu'", "'cuda'", "device(type='cpu')"}  # as defaults


class Asked(BaseException):
    """Ends a script where it has said what was asked."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.answer = answer


def _says(answer: Callable[..., Any]) -> Callable[..., NoReturn]:
    def call(*given: Any, **_: Any) -> NoReturn:
        raise Asked(answer(*given))

    return call


def _parser(script: Path) -> ArgumentParser:
    """That of a script, as it is where it would read the command line."""
    asked = _says(lambda parser, *_: parser)
    with patch.multiple(ArgumentParser, parse_args=asked, parse_known_args=asked):
        parser: ArgumentParser = _run(script, [])
        return parser


def _options(parser: ArgumentParser) -> list[Action]:
    return [one for one in parser._actions if one.option_strings and one.dest != "help"]


def _parsed(parser: ArgumentParser, line: list[str]) -> str:
    """What a parser makes of a command line, beside the defaults, as text."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            found, unknown = parser.parse_known_args(line)
    except SystemExit:
        return "refused"
    chosen = {name: repr(value) for name, value in vars(found).items() if value != parser.get_default(name)}
    return f"{dict(sorted(chosen.items()))} {unknown}"


def _device(script: Path, arguments: list[str]) -> str | None:
    """The type of the device that a script uses where CUDA is there; None where nothing says it."""
    cuda = torch.device("cuda")
    with contextlib.ExitStack() as stack:

        def put(owner: Any, **answers: Callable[..., Any]) -> None:
            stack.enter_context(patch.multiple(owner, **answers))

        put(torch.cuda, is_available=lambda: True, device_count=lambda: 1, current_device=lambda: 0)
        put(torch.cuda, set_device=lambda _: None, manual_seed_all=lambda _: None)
        put(torch.accelerator, is_available=lambda: True, current_accelerator=lambda *_, **__: cuda)
        put(torch.distributed, init_process_group=_alone(torch.distributed.init_process_group))
        put(torch_backend, pick_device=lambda cpu, *_: torch.device("cpu") if cpu else cuda)
        put(Accelerator, prepare=_says(lambda accelerator, *_: accelerator.device.type))
        put(torch.optim.SGD, step=_says(lambda *_: "cpu"))
        put(torch.optim.Adam, step=_says(lambda *_: "cpu"))
        for owner in (torch.nn.Module, torch.Tensor):
            put(owner, to=_moved(owner.to), cuda=_says(lambda *_: "cuda"))
        found: str | None = _run(script, arguments)
        return found


def _alone(plain: Callable[..., Any]) -> Callable[..., None]:
    """Makes a group one of a single process."""
    return lambda *_, **__: plain("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def _moved(plain: Callable[..., Any]) -> Callable[..., Any]:
    def to(*given: Any, **named: Any) -> Any:
        for one in (*given[:2], *named.values()):
            if (kind := re.match(r"cuda|cpu", str(one))) and isinstance(one, str | torch.device):
                raise Asked(kind[0])
        return plain(*given, **named)

    return to


def differences(before: Path, after: Path) -> list[str]:
    """What the conversion's command line says otherwise than the original's."""
    parser, converted = _parser(before), _parser(after)
    old = _options(parser)
    there = {tuple(one.option_strings): one for one in _options(converted)}
    found = [f"{x} became {new}" for x in old if not _same(x, new := there.get(tuple(x.option_strings)))]
    choices = _choices(old)
    for chosen in (*choices, *_other_lines(old)):
        was, became = (_parsed(one, chosen) for one in (parser, converted))
        if was != became:
            found.append(f"{' '.join(chosen) or 'no flag'}: parsed as {became}, was {was}")
    for chosen in choices if len(choices) > 1 else ():
        devices = [_device(script, chosen) for script in (before, after)]
        if None in devices or devices[0] != devices[1]:
            found.append(f"{' '.join(chosen) or 'no flag'}: {devices[0]} became {devices[1]}")
    return found


def _choices(found: list[Action]) -> list[list[str]]:
    """Command lines that may choose a device: none, each switch, and `--device cpu`."""
    names = [(one.option_strings[-1], one.nargs == 0) for one in found]
    switches = [name for name, is_switch in names if is_switch and _DEVICE.search(name)]
    return [[], *([one] for one in switches), *([n, "cpu"] for n, _ in names if n == "--device")]


def _other_lines(found: list[Action]) -> list[list[str]]:
    """Command lines that choose a GPU, a rank, a backend, a number of processes or a precision."""
    lines = []
    for one in found:
        name = one.option_strings[-1]
        if _RUN.search(name) and one.nargs == 0:
            lines.append([name])
        elif _RUN.search(name) or _DEVICE.search(name):
            values = ("gloo",) if "backend" in name else ("1", "0", "cuda:0", "fp16")
            lines += [[name, value] for value in values]
    return lines


def _same(old: Action, new: Action | None) -> bool:
    """Defaults are the same, or both name a device; a rank that only a launcher gave is 0 without one."""
    if new is None or _kind(old) != _kind(new):
        return False
    if old.default is None and new.default == 0 and "rank" in old.option_strings[-1]:
        return True
    defaults = {repr(old.default), repr(new.default)}
    return len(defaults) == 1 or defaults <= _DEVICES


def _kind(one: Action) -> tuple[Any, ...]:
    kind = getattr(one.type, "__name__", str(one.type))
    return kind, one.choices and list(one.choices), one.nargs, type(one).__name__


def _run(script: Path, arguments: list[str]) -> Any:
    """Runs a script as `python script.py` does, in a folder of its own, until it answers."""
    here = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(io.StringIO()),
        patch.object(sys, "argv", [str(script), *arguments]),
        patch.dict(os.environ),
    ):
        os.chdir(folder)
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Asked as asked:
            return asked.answer
        except (Exception, SystemExit):
            return None
        finally:
            os.chdir(here)
            RUN.close()
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()
    return None
