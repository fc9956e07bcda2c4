"""A script or module with its arguments, which is found and run as `__main__` exactly as `python` would."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import sys
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# The files whose frames are above a script's own and are left out of its traceback.
_HIDDEN: set[Path] = set()


Compile = Callable[[bytes | str, str], types.CodeType]  # (source, file name) -> code


def compile_source(source: bytes | str, filename: str) -> types.CodeType:
    """Compile a script's source as `python` does."""
    code: types.CodeType = compile(source, filename, "exec", dont_inherit=True)
    return code


class TargetNotFoundError(Exception):
    """The script or module that the user named does not exist; the message says where it was searched."""


@dataclass(frozen=True)
class Target:
    """What to run: the path of a script, or the dotted name of a module (`-m`), and its arguments."""

    name: str
    is_module: bool
    arguments: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise TargetNotFoundError unless the target exists. None of the user's modules is imported."""
        if self.is_module:
            _check_module(self.name)
        elif not Path(self.name).exists():
            raise TargetNotFoundError(f"no script {self.name!r} in {Path.cwd()}")
        elif Path(self.name).is_dir():
            raise TargetNotFoundError(
                f"{self.name!r} is a directory: name the script in it, or use -m for a package"
            )

    def run(self, compiled: Compile = compile_source) -> None:
        """Run the target as `__main__` in its own module, with its own `sys.argv` and `sys.path[0]`.

        compiled: compiles the source of a script. `sys.path[0]` must be the runner's entry, which is replaced. The module
        stays in `sys.modules`, because exit handlers, pickling and spawned data loader workers look for it there.
        """
        if self.is_module:
            sys.path[0] = str(Path.cwd())
            spec = _main_spec(self.name)
            filename = spec.origin or self.name
            code = _module_code(spec)
        else:
            spec = None
            filename = self.name
            sys.path[0] = str(Path(filename).resolve().parent)
            code = compiled(Path(filename).read_bytes(), filename)
        sys.argv[:] = [filename, *self.arguments]
        module = types.ModuleType("__main__")
        module.__dict__.update(
            __file__=filename,
            __builtins__=builtins,
            __spec__=spec,
            __package__=spec.parent if spec else None,
            __loader__=spec.loader if spec else None,
        )
        sys.modules["__main__"] = module
        exec(code, module.__dict__)


def hide_from_tracebacks(file: str) -> None:
    """Leave the frames of a file out of a script's traceback, if they are above the script's own. file: a `__file__`."""
    _HIDDEN.add(Path(file).resolve())


hide_from_tracebacks(__file__)


def clean_traceback(error: BaseException) -> str:
    """The traceback as `python script.py` would print it, without the frames that started the script."""
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename).resolve() in _HIDDEN:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _check_module(name: str) -> None:
    """Raise TargetNotFoundError unless the dotted name is found. Its packages are searched, and not imported."""
    locations: list[str] | None = [str(Path.cwd()), *sys.path]
    parts = name.split(".")
    for depth in range(len(parts)):
        found = ".".join(parts[: depth + 1])
        spec = importlib.machinery.PathFinder.find_spec(found, locations)
        if spec is None:
            raise TargetNotFoundError(f"no module {found!r} in {Path.cwd()} or on the module path")
        locations = list(spec.submodule_search_locations or [])


def _main_spec(name: str) -> importlib.machinery.ModuleSpec:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name += ".__main__"
        spec = importlib.util.find_spec(name)
    if spec is None:
        raise TargetNotFoundError(f"no module {name!r}")
    return spec


def _module_code(spec: importlib.machinery.ModuleSpec) -> types.CodeType:
    get_code = getattr(spec.loader, "get_code", None)
    code = get_code(spec.name) if get_code else None
    if not isinstance(code, types.CodeType):
        raise TargetNotFoundError(f"module {spec.name!r} has no Python code that could be run")
    return code
