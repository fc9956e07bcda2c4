"""Which room of a package may import which, and that no import leads back: late and type-only imports count."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).resolve().parents[2]
EVERY = frozenset({"*"})  # may import every room of its package


class Package(NamedTuple):
    """A package's folder, the rooms in it, and the other packages that it may import.

    rooms: for each room the rooms that it may import besides itself. A room is a module or a folder by its dotted name
    inside the package, without the modules that the table names themselves; "x.__init__" is a folder's own file.
    """

    folder: Path
    rooms: Mapping[str, Iterable[str]]
    others: frozenset[str] = frozenset()


STEP = {"comm.types", "comm", "utils", "data", "step.window", "run", "state"}
RUNTIME = {
    "version": (),
    "config": (),
    "requirements": (),
    "compat.lazy": {"requirements"},
    "compat.not_supported": (),
    "comm.types": (),
    "utils": {"config", "comm.types"},
    "comm": {"config", "comm.types", "requirements", "utils"},
    "data": {"comm.types", "comm", "utils"},
    "step.window": {"data", "utils"},
    "run": {"config", "comm.types", "comm", "utils", "step.window"},
    "state": {"config", "comm.types", "comm", "utils", "step.window", "run"},
    "step": {*STEP, "utils.operations"},
    "utils.random": {"comm", "run", "state"},  # seeds, which a checkpoint sets anew
    "checkpoint": {*STEP, "step", "utils.random", "version"},
    "tracking": {"config", "run", "state", "utils"},
    "options": {"config", "comm", "data", "utils"},
    "compat": {"comm.types", "comm", "data", "run", "state", "utils", "compat.not_supported"},
    "utils.memory": {"comm"},
    "utils.operations": {"comm.types", "comm", "run", "state", "utils"},
    "other_objects": {*STEP, "step"},
    "parts": {*STEP, "other_objects", "step", "checkpoint", "tracking", "compat", "options"},
    "accelerator": {
        *STEP,
        "parts",
        "step",
        "checkpoint",
        "tracking",
        "compat",
        "options",
        "utils.memory",
        "utils.operations",
    },
    "command_line": {"version"},
    "launch": {"command_line", "config", "comm.types", "comm", "requirements", "utils"},
    "cli": {"command_line", "launch", "checkpoint", "requirements", "version"},
    # What scripts import, under Accelerate's names: nothing else here imports these.
    "__init__": EVERY,
    "big_modeling": {"utils.modeling", "compat.not_supported"},
    "data_loader": {"data", "run", "state"},
    "parallelism_config": {"utils"},
    "launch.selftest": {"__init__", "utils.__init__"},  # a script of our own
    "launchers": {"launch"},
    "local_sgd": {"accelerator", "run", "state", "step"},
    "logging": {"config", "run", "state"},
    "utils.__init__": EVERY,
    "utils.environment": {"config"},
    "utils.imports": {"comm"},
    "utils.modeling": {"step", "checkpoint", "compat.not_supported"},
    "utils.other": {"run", "state", "step", "checkpoint"},
    "utils.padding": {"run", "state", "utils"},
    "utils.progress": {"config"},
    "utils.xla_report": {"comm", "run", "state"},
}
VERIFY = {
    "records": (),
    "report": {"records"},
    "emulation": (),
    "tracing": {"records", "emulation"},
    "running": {"records", "report", "emulation", "tracing"},
    "judging": {"records", "report", "running"},
    "render": {"records", "report", "running"},
    "engine": {"records", "report", "emulation", "running", "judging"},
    "observing": {"records", "report", "emulation", "running", "judging", "engine", "render"},
    "__init__": {"report", "running", "engine"},
    "command": {"report", "running", "engine", "render"},
    "__main__": (),
}
TOOL = {
    "__init__": (),  # the version
    "results": (),
    "choices": (),
    "assumptions": {"results"},
    "syntax": {"results"},
    "core.reading.frameworks": (),
    "files.may_train": {"core.reading.frameworks"},
    "files.sources": {"results"},
    "files.notebooks": {"results", "syntax", "files.sources"},
    "outcome": {"choices", "results", "files.sources"},
    "files": {
        "__init__",
        "results",
        "outcome",
        "syntax",
        "files.may_train",
        "files.sources",
        "files.notebooks",
    },
    "core": {"results", "assumptions", "syntax", "core.reading.frameworks", "files.notebooks"},
    "rules": {"results", "assumptions", "syntax", "core", "files.notebooks"},
    "engine": {
        "core",
        "results",
        "assumptions",
        "syntax",
        "files.may_train",
        "files.notebooks",
        "rules",
    },
    "report": {"__init__", "results", "choices", "outcome", "syntax", "rules"},
    "verify": {"results", "outcome", "syntax", "files.sources", "files.notebooks"},
    "observe": {"results", "files.sources", "verify"},
    "cli": {
        "__init__",
        "results",
        "choices",
        "outcome",
        "syntax",
        "files.may_train",
        "files.sources",
        "files",
        "core",
        "rules",
        "engine",
        "report",
        "verify",
        "observe",
    },
    "__main__": {"cli"},
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


def graph(packages: Iterable[Package]) -> dict[str, set[str]]:
    """Module -> the modules of these packages that it imports."""
    known: dict[str, Path] = {}
    for package in packages:
        known |= modules(package.folder)
    return {
        module: {found for name in imported(module, path) if (found := _module(name, known))} - {module}
        for module, path in known.items()
    }


def _module(name: str, known: Mapping[str, Path]) -> str | None:
    """The module that ``from a.b import c`` runs: a.b.c, or a.b with a name c in it; None: not one of these."""
    for candidate in (name, name.rpartition(".")[0]):
        for module in (candidate, f"{candidate}.__init__"):
            if module in known:
                return module
    return None


def room(module: str, rooms: Mapping[str, Iterable[str]]) -> str:
    """The longest entry of the table that this module, named without its package, is or lies in; "" for none."""
    parents = [module]
    while "." in parents[-1]:
        parents.append(parents[-1].rpartition(".")[0])
    return next((name for name in parents if name in rooms), "")


def trespasses(name: str, packages: Mapping[str, Package], edges: Mapping[str, set[str]]) -> list[str]:
    """The imports of a package that its table does not allow."""
    package = packages[name]
    found = []
    for module, targets in edges.items():
        own, _, inside = module.partition(".")
        if own != name:
            continue
        here = room(inside, package.rooms)
        if not here:
            found.append(f"{module} is in no room")
            continue
        for target in sorted(targets):
            other, _, there = target.partition(".")
            allowed = package.rooms[here]
            if other != name:
                legal = other in package.others
            else:
                legal = "*" in allowed or room(there, package.rooms) in {here, *allowed}
            if not legal:
                found.append(f"{module} imports {target}")
    return found


def circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """One circle, in order; empty where there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


@pytest.fixture(scope="module")
def ours() -> dict[str, set[str]]:
    return graph(PACKAGES.values())


@pytest.mark.parametrize("name", PACKAGES)
def test_rooms_import_what_their_table_allows(name: str, ours: dict[str, set[str]]) -> None:
    assert trespasses(name, PACKAGES, ours) == []


def test_no_import_leads_back(ours: dict[str, set[str]]) -> None:
    assert circle(ours) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_rooms_lie_above_each_other(name: str) -> None:
    rooms = PACKAGES[name].rooms
    assert circle({here: set(allowed) - {"*"} for here, allowed in rooms.items()}) == []
    unknown = {other for allowed in rooms.values() for other in allowed} - {"*", *rooms}
    assert unknown == set()


@pytest.mark.parametrize("name", PACKAGES)
def test_every_folder_says_who_may_import_it(name: str) -> None:
    folder = PACKAGES[name].folder
    silent = [
        str(path.relative_to(folder))
        for path in sorted(folder.rglob("__init__.py"))
        if not ast.get_docstring(ast.parse(path.read_text("utf-8")))
    ]
    assert silent == []
