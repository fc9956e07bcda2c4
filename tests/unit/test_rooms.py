"""Which room of a package may import which, and that no import leads back: late and type-only imports count."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parents[2]


class Package(NamedTuple):
    """A package's folder, the rooms in it, and the other packages that it may import.

    rooms: for each room the rooms that it may import besides itself, "*" for every one. A room is a module or a folder by
    its dotted name inside the package, without the modules that the table names themselves; "x.__init__" is a folder's own file.
    """

    folder: Path
    rooms: Mapping[str, str]
    others: frozenset[str] = frozenset()


RUNTIME = {
    "version": "",
    "config": "",
    "requirements": "",
    "compat.lazy": "requirements",
    "compat.not_supported": "",
    "comm.types": "",
    "utils": "comm.types config",
    "comm": "comm.types config requirements utils",
    "data": "comm comm.types utils",
    "step.window": "data utils",
    "run": "comm comm.types config step.window utils",
    "state": "comm comm.types config data run step.window utils",
    "step": "comm comm.types data run state step.window utils utils.operations",
    "utils.random": "comm run state",  # seeds, which a checkpoint sets anew
    "checkpoint": "comm comm.types data run state step step.window utils utils.random version",
    "tracking": "config run state utils",
    "options": "comm compat.not_supported config data utils",
    "compat": "comm comm.types compat.not_supported data run state utils",
    "utils.memory": "comm",
    "utils.operations": "comm comm.types run state utils",
    "other_objects": "comm comm.types data run state step step.window utils",
    "parts": (
        "checkpoint comm comm.types compat data options other_objects run state step step.window tracking "
        "utils"
    ),
    "accelerator": (
        "checkpoint comm comm.types compat compat.not_supported data options parts run state step step.window tracking utils "
        "utils.memory utils.operations"
    ),
    "command_line": "version",
    "launch": "comm comm.types command_line config requirements utils",
    "cli": "checkpoint command_line launch requirements version",
    # What scripts import, under Accelerate's names: nothing else here imports these.
    "__init__": "*",
    "parallelism_config": "utils",
    "launch.selftest": "__init__ utils.__init__",  # a script of our own
    "launchers": "launch",
    "local_sgd": "accelerator run state step",
    "utils.other": "checkpoint state step",
    "logging": "config run state",
    "utils.__init__": "*",
    "utils.imports": "comm",
    "utils.modeling": "checkpoint compat.not_supported step",
    "utils.padding": "run state utils",
    "utils.progress": "config",
    "utils.xla_report": "comm run state",
}
VERIFY = {
    "records": "",
    "report": "records",
    "emulation": "",
    "tracing": "emulation records",
    "running": "emulation records report tracing",
    "judging": "records report running",
    "render": "records report running",
    "engine": "emulation judging records report running",
    "observing": "emulation engine judging records render report running",
    "__init__": "engine report running",
    "command": "engine render report running",
    "__main__": "",
}
TOOL = {
    "__init__": "",  # the version
    "results": "",
    "choices": "",
    "assumptions": "results",
    "syntax": "results",
    "core.reading.frameworks": "",
    "files.may_train": "core.reading.frameworks",
    "files.sources": "results",
    "files.notebooks": "files.sources results syntax",
    "outcome": "choices files.sources results",
    "files": "__init__ files.may_train files.notebooks files.sources outcome results syntax",
    "core": "assumptions core.reading.frameworks files.notebooks results syntax",
    "rules": "assumptions core files.notebooks results syntax",
    "engine": "assumptions core files.may_train files.notebooks results rules syntax",
    "report": "__init__ choices outcome results rules syntax",
    "verify": "files.notebooks files.sources outcome results syntax",
    "observe": "files.sources results verify",
    "cli": (
        "__init__ choices core engine files files.may_train files.sources observe outcome report results "
        "rules syntax verify"
    ),
    "__main__": "cli",
}

PACKAGES = {
    "crosstrain": Package(HERE / "runtime/crosstrain", RUNTIME),
    "crosstrain_verify": Package(HERE / "runtime/crosstrain_verify", VERIFY, frozenset({"crosstrain"})),
    "crosstrain_migrate": Package(HERE / "migrate/crosstrain_migrate", TOOL, frozenset({"crosstrain"})),
}


def modules(folder: Path) -> dict[str, Path]:
    """A package's modules by dotted name; a package's own file ends in ".__init__"."""
    return {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts): path
        for path in sorted(folder.rglob("*.py"))
    }


def imported(module: str, path: Path) -> set[str]:
    """Dotted names that a module's import statements name, wherever they stand in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(module.split(".")[: -node.level]) if node.level else ""
            base = ".".join(part for part in (base, node.module) if part)
            names.update(f"{base}.{alias.name}" for alias in node.names)
    return names


def graph() -> dict[str, set[str]]:
    """Module -> the modules of these packages that it imports; `from a.b import c` runs a.b.c, or a.b with a name c."""
    known = {name: path for package in PACKAGES.values() for name, path in modules(package.folder).items()}
    ways = ("{0}", "{0}.__init__", "{1}", "{1}.__init__")

    def meant(name: str) -> str:
        asked = (way.format(name, name.rpartition(".")[0]) for way in ways)
        return next((one for one in asked if one in known), "")

    return {m: {meant(name) for name in imported(m, path)} - {m, ""} for m, path in known.items()}


def room(module: str, rooms: Mapping[str, str]) -> str:
    """The longest entry of the table that this module, named without its package, is or lies in; "" for none."""
    while module and module not in rooms:
        module = module.rpartition(".")[0]
    return module


def trespasses(name: str, edges: Mapping[str, set[str]]) -> list[str]:
    """The imports of a package that its table does not allow."""
    package, found = PACKAGES[name], []
    for module in (one for one in edges if one.partition(".")[0] == name):
        here = room(module.partition(".")[2], package.rooms)
        allowed = {here, *package.rooms.get(here, "").split()}
        if not here:
            found.append(f"{module} is in no room")
        for target in sorted(edges[module]):
            other, _, there = target.partition(".")
            legal = "*" in allowed or room(there, package.rooms) in allowed
            if not (legal if other == name else other in package.others):
                found.append(f"{module} imports {target}")
    return found


@pytest.fixture(scope="module")
def ours() -> dict[str, set[str]]:
    return graph()


@pytest.mark.parametrize("name", PACKAGES)
def test_rooms_import_what_their_table_allows(name: str, ours: dict[str, set[str]]) -> None:
    assert trespasses(name, ours) == []


def test_no_import_leads_back(ours: dict[str, set[str]]) -> None:
    TopologicalSorter(ours).prepare()  # names a circle where there is one
