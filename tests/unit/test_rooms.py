"""A room of a package imports those above it, and no import leads back: late and type-only imports count."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[2]
# The rooms of each package: one imports itself and those of the lines above. A room is a module or a folder by its dotted
# name inside the package, without what the table names itself; "x.__init__" is a folder's own file.
RUNTIME = """
    comm.types compat.not_supported config requirements version
    command_line compat.lazy utils utils.progress
    comm parallelism_config
    data launch options utils.imports utils.memory
    launchers step.window
    run
    compat logging state utils.operations utils.padding utils.random utils.xla_report
    step tracking
    checkpoint other_objects
    cli parts utils.modeling utils.other
    accelerator utils.__init__
    __init__ local_sgd
    launch.selftest
"""
VERIFY = """
    emulation records
    report tracing
    running
    judging render
    engine
    __init__ command observing
    __main__
"""
TOOL = """
    __init__ choices core.reading.frameworks results
    assumptions files.may_train files.sources syntax
    files.notebooks outcome
    core files verify
    observe rules
    engine report
    cli
    __main__
"""
# Package -> its folder, its rooms, and the other packages that it may import.
PACKAGES = {
    "crosstrain": ("runtime", RUNTIME, set[str]()),
    "crosstrain_verify": ("runtime", VERIFY, {"crosstrain"}),
    "crosstrain_migrate": ("migrate", TOOL, {"crosstrain"}),
}


def modules() -> dict[str, Path]:
    """The modules by dotted name; a package's own file ends in ".__init__"."""
    return {
        ".".join(path.relative_to(HERE / root).with_suffix("").parts): path
        for name, (root, _, _) in PACKAGES.items()
        for path in sorted((HERE / root / name).rglob("*.py"))
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


@pytest.fixture(scope="module")
def ours() -> dict[str, set[str]]:
    """Module -> the modules of these packages that it imports; `from a.b import c` runs a.b.c, or a.b with a name c."""
    known = modules()
    ways = ("{0}", "{0}.__init__", "{1}", "{1}.__init__")

    def meant(name: str) -> str:
        asked = (way.format(name, name.rpartition(".")[0]) for way in ways)
        return next((one for one in asked if one in known), "")

    return {m: {meant(name) for name in imported(m, path)} - {m, ""} for m, path in known.items()}


@pytest.mark.parametrize("name", PACKAGES)
def test_rooms_import_those_above_them(name: str, ours: dict[str, set[str]]) -> None:
    _, table, others = PACKAGES[name]
    above = {room: number for number, line in enumerate(table.splitlines()) for room in line.split()}

    def room(module: str) -> str:
        """The longest entry of the table that this module, named without its package, is or lies in."""
        while module not in above:
            assert module, "a module is in no room"
            module = module.rpartition(".")[0]
        return module

    found = []
    for module in (one for one in ours if one.partition(".")[0] == name):
        here = room(module.partition(".")[2])
        for target in sorted(ours[module]):
            other, _, there = target.partition(".")
            legal = (
                other in others if other != name else here == room(there) or above[room(there)] < above[here]
            )
            if not legal:
                found.append(f"{module} imports {target}")
    assert found == []


def test_no_import_leads_back(ours: dict[str, set[str]]) -> None:
    TopologicalSorter(ours).prepare()  # names a circle where there is one
