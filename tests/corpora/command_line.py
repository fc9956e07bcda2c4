"""What a script's command line can say: its options with their defaults, and the device that its flags choose.

A script is run until it reads its command line; what its options make of each command line about a device, a rank or a
precision is compared. To see the device, it is run until it first moves a module or a tensor, with CUDA said to be there;
nothing is put on a device. A script that stops before has the last device that it made, the accelerator's, or the CPU where
its optimizer had parameters there. A group of processes has one.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import torch

_DEVICE = re.compile(r"cuda|cpu|gpu|mps|device|accel", re.I)
_RUN = re.compile(r"rank|backend|world|fp16|bf16|amp|half|precision|dist|nodes?$", re.I)
_DEVICES = {"'cpu'", "'cuda'", "device(type='cpu')"}  # as defaults
_LAUNCHED = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
_LAUNCHED |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@dataclass(frozen=True)
class Option:
    """One option: its spellings, its default as text, whether it takes no value, and which ones it takes."""

    names: tuple[str, ...]
    default: str
    is_switch: bool
    values: str = ""


class Asked(BaseException):
    """Ends a script where it has said what was asked."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.answer = answer


def _asked_of_parser(script: Path, answer: Callable[..., NoReturn]) -> Any:
    """What a script's parser is asked where it would read the command line; None where it has none."""
    parser = argparse.ArgumentParser
    with patch.object(parser, "parse_args", answer), patch.object(parser, "parse_known_args", answer):
        return _run(script, [])


def parsed(script: Path, lines: list[list[str]]) -> list[str]:
    """What a script's parser makes of each command line, beside the defaults, as text."""
    plain = argparse.ArgumentParser.parse_known_args

    def parse(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        raise Asked([_made_of(parser, plain, line) for line in lines])

    found: list[str] = _asked_of_parser(script, parse) or []
    return found


def _made_of(parser: argparse.ArgumentParser, plain: Callable[..., Any], line: list[str]) -> str:
    with patch.object(argparse.ArgumentParser, "parse_known_args", plain):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                found, unknown = parser.parse_known_args(line)
        except SystemExit:
            return "refused"
    chosen = {name: repr(value) for name, value in vars(found).items() if value != parser.get_default(name)}
    return f"{dict(sorted(chosen.items()))} {unknown}"


def device(script: Path, arguments: list[str]) -> str | None:
    """The type of the device that a script uses where CUDA is there; None where nothing says it."""
    found = _device(script, arguments)
    if found is None:
        with patch.dict(os.environ, _LAUNCHED):
            found = _device(script, arguments)
    return found


def _device(script: Path, arguments: list[str]) -> str | None:
    last: list[str] = []
    with contextlib.ExitStack() as stack:
        _pretend_cuda(stack)
        for owner in (torch.nn.Module, torch.Tensor):
            stack.enter_context(patch.object(owner, "to", _moved(owner.to)))
            stack.enter_context(patch.object(owner, "cuda", _moved_to_cuda))
        stack.enter_context(patch.object(torch.nn.DataParallel, "__init__", _moved_to_cuda))
        backend = sys.modules.get("crosstrain.comm.torch_backend")
        if backend is None:
            from crosstrain.comm import torch_backend as backend
        from crosstrain.accelerator import Accelerator

        def chosen(accelerator: Any, *given: Any, **named: Any) -> None:
            plain(accelerator, *given, **named)
            last[:] = [accelerator.device.type]

        def optimizes(optimizer: Any, *given: Any, **named: Any) -> None:
            makes(optimizer, *given, **named)
            last[:] = last or ["cpu"]

        plain, makes = Accelerator.__init__, torch.optim.Optimizer.__init__
        stack.enter_context(patch.object(Accelerator, "__init__", chosen))
        stack.enter_context(patch.object(torch.optim.Optimizer, "__init__", optimizes))
        stack.enter_context(patch.object(backend, "pick_device", _picked))
        stack.enter_context(patch("crosstrain.accelerator.Accelerator.prepare", _prepared))
        stack.enter_context(patch.object(torch, "device", _recording(script.parent, last)))
        found: str | None = _run(script, arguments)
        return found or next(iter(last), None)


def _pretend_cuda(stack: contextlib.ExitStack) -> None:
    """Says that CUDA is there, and makes each group one of a single process."""
    for name, answer in (("is_available", True), ("device_count", 1), ("current_device", 0)):
        stack.enter_context(patch.object(torch.cuda, name, lambda *_, given=answer: given))
    for name in ("set_device", "manual_seed", "manual_seed_all", "empty_cache", "get_device_name"):
        stack.enter_context(patch.object(torch.cuda, name, lambda *_: None))
    stack.enter_context(patch.object(torch.accelerator, "is_available", lambda: True))
    cuda = torch.device("cuda")
    stack.enter_context(patch.object(torch.accelerator, "current_accelerator", lambda *_, **__: cuda))
    plain = torch.distributed.init_process_group

    def alone(*_: Any, **__: Any) -> None:
        if not torch.distributed.is_initialized():
            plain("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)

    stack.enter_context(patch.object(torch.distributed, "init_process_group", alone))
    stack.enter_context(patch.object(torch.multiprocessing, "spawn", _in_this_process))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _in_this_process(function: Callable[..., Any], args: tuple[Any, ...] = (), *_: Any, **__: Any) -> None:
    function(0, *args)


def _recording(folder: Path, last: list[str]) -> type:
    """`torch.device`, which keeps what the files of a folder make."""

    class OfInstances(type):
        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, real)

        def __call__(cls, *given: Any, **named: Any) -> torch.device:
            made = real(*given, **named)
            if Path(sys._getframe(1).f_code.co_filename).is_relative_to(folder):
                last[:] = [made.type]
            return made

    real = torch.device
    return OfInstances("device", (), {})


def differences(before: Path, after: Path) -> list[str]:
    """What the conversion's command line says otherwise than the original's."""
    old: list[Option] = _asked_of_parser(before, _of_parser)
    there = {option.names: option for option in _asked_of_parser(after, _of_parser)}
    found = [
        f"{option.names[-1]}: {option} became {there.get(option.names)}"
        for option in old
        if not _same(option, there)
    ]
    needed: list[str] = _asked_of_parser(before, _needs_of_parser) or []
    lines = [[*needed, *chosen] for chosen in (*_choices(old), *_other_lines(old))]
    for line, was, became in zip(lines, parsed(before, lines), parsed(after, lines), strict=True):
        if was != became:
            found.append(f"{' '.join(line) or 'no flag'}: parsed as {became}, was {was}")
    for chosen in _choices(old) if len(_choices(old)) > 1 else ():
        was, became = (device(script, [*needed, *chosen]) for script in (before, after))
        if None not in (was, became) and was != became:
            found.append(f"{' '.join(chosen) or 'no flag'}: {was} became {became}")
    return found


def _choices(found: list[Option]) -> list[list[str]]:
    """Command lines that may choose a device: none, each switch, two together, `--use_cuda 0`, and `--device cpu`."""
    about = [(one, one.names[-1]) for one in found if _DEVICE.search(one.names[-1])]
    switches = [name for one, name in about if one.is_switch]
    pairs = [[a, b] for n, a in enumerate(switches) for b in switches[n + 1 :]]
    off = [[name, "0"] for one, name in about if not one.is_switch and one.default in ("1", "True")]
    named = [[name, "cpu"] for one, name in about if not one.is_switch and name.lstrip("-") == "device"]
    return [[], *([one] for one in switches), *pairs, *off, *named]


def _other_lines(found: list[Option]) -> list[list[str]]:
    """Command lines that choose a GPU, a rank, a backend, a number of processes or a precision."""
    lines = []
    for one in found:
        name = one.names[-1]
        if _RUN.search(name) and one.is_switch:
            lines.append([name])
        elif _RUN.search(name) or _DEVICE.search(name):
            values = ("gloo",) if "backend" in name else ("1", "0", "cuda:0", "fp16")
            lines += [[name, value] for value in values]
    return lines


def _same(old: Option, there: dict[tuple[str, ...], Option]) -> bool:
    """Defaults are the same, or both name a device; a rank that only a launcher gave is 0 without one."""
    new = there.get(old.names)
    if new is None or replace(new, default=old.default) != old:
        return False
    if old.default == "None" and new.default == "0" and "rank" in old.names[-1]:
        return True
    return new.default == old.default or {new.default, old.default} <= _DEVICES


def _run(script: Path, arguments: list[str]) -> Any:
    """Runs a script as `python script.py` does, in a folder of its own, until it answers."""
    path, argv, here, variables = list(sys.path), list(sys.argv), Path.cwd(), dict(os.environ)
    loaded = set(sys.modules)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        sys.path[0:0] = [str(script.parent)]
        sys.argv = [str(script), *arguments]
        os.chdir(folder)
        try:
            runpy.run_path(str(script), run_name="__main__")
        except Asked as asked:
            return asked.answer
        except (Exception, SystemExit):
            return None
        finally:
            _forget(script.parent, loaded)
            sys.path[:], sys.argv[:] = path, argv
            os.chdir(here)
            for name in os.environ.keys() - variables.keys():
                del os.environ[name]
            os.environ.update(variables)
    return None


def _forget(folder: Path, loaded: set[str]) -> None:
    """Drops the script's own modules and the run that it has started."""
    for name in set(sys.modules) - loaded:
        module = sys.modules[name]
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(folder):
            del sys.modules[name]
    state = sys.modules.get("crosstrain.state")
    if state is not None:
        state.RUN.close()


def _of_parser(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
    actions = [one for one in parser._actions if one.option_strings and one.dest != "help"]
    raise Asked([Option(tuple(a.option_strings), repr(a.default), a.nargs == 0, _values(a)) for a in actions])


def _values(action: argparse.Action) -> str:
    kind = getattr(action.type, "__name__", str(action.type))
    choices = list(action.choices) if action.choices else None
    return f"{kind}, {choices}, {action.nargs}, {type(action).__name__}"


def _needs_of_parser(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
    found = []
    for one in parser._actions:
        if one.required and one.nargs not in ("*", "?"):
            value = (
                str(next(iter(one.choices))) if one.choices else "1" if one.type in (int, float) else "data"
            )
            found += [*one.option_strings[-1:], value]
    raise Asked(found)


def _moved(plain: Callable[..., Any]) -> Callable[..., Any]:
    def to(*given: Any, **named: Any) -> Any:
        for one in (*given[:2], *named.values()):
            if isinstance(one, torch.device):
                raise Asked(one.type)
            if isinstance(one, str) and re.match(r"(cuda|cpu|mps)\b", one):
                raise Asked(one.partition(":")[0])
        return plain(*given, **named)

    return to


def _moved_to_cuda(moved: Any, *_: Any, **__: Any) -> NoReturn:
    raise Asked("cuda")


def _picked(cpu: bool, place: Any, index: int | None = None) -> torch.device:
    return torch.device("cpu") if cpu else torch.device("cuda", 0)


def _prepared(accelerator: Any, *_: Any, **__: Any) -> NoReturn:
    raise Asked(accelerator.device.type)
