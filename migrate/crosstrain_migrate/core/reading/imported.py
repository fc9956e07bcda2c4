"""What a file imports, and whether it was converted before."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from crosstrain_migrate.syntax.program import Links, Region
from crosstrain_migrate.syntax.walks import statements, walk

RUNTIMES = ("accelerate", "crosstrain")


def imported(module: ast.Module) -> list[tuple[str, ast.stmt]]:
    """Every dotted name that an import statement mentions, with the statement."""
    found: list[tuple[str, ast.stmt]] = []
    for node in statements(module):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [(f"{node.module}.{alias.name}", node) for alias in node.names]
    return found


def is_left(module: ast.Module) -> bool:
    """Whether a file has an Accelerator of ours, from a conversion of another script."""
    paths = {path for path, _ in imported(module)}
    return "crosstrain.Accelerator" in paths or (
        "crosstrain" in paths and any(_is_ours(node) for node in walk(module))
    )


def _is_ours(node: ast.AST) -> bool:
    """`crosstrain.Accelerator`, as it is written where a file has an `Accelerator` of its own."""
    match node:
        case ast.Attribute(value=ast.Name(id="crosstrain"), attr="Accelerator"):
            return True
    return False


def uses_accelerate(tree: ast.Module) -> bool:
    """Whether any file of a program imports from Accelerate."""
    return any(
        path.split(".")[0] == "accelerate" and not path.endswith(".PartialState")
        for path, _ in imported(tree)
    )


def is_converted(module: ast.Module) -> bool:
    """Whether a file uses a runtime already; the state that `--todo` asks is no conversion."""
    paths = (path for path, _ in imported(module))
    return any(path.split(".")[0] in RUNTIMES and not path.endswith(".PartialState") for path in paths)


def imports_of(
    modules: Iterable[ast.Module],
    statements: Iterable[ast.Import | ast.ImportFrom],
    module_of: Callable[[ast.AST], ast.Module],
    links: Links,
) -> dict[ast.Module, dict[str, list[str]]]:
    """What each file's names import, written out, in each branch: `F` of `import torch.nn.functional as F`."""
    found: dict[ast.Module, dict[str, list[str]]] = {module: {} for module in modules}
    left: dict[ast.Module, list[ast.Import | ast.ImportFrom]] = {module: [] for module in found}
    for node in statements:
        left[module_of(node)].append(node)

    def names_of(module: ast.Module) -> dict[str, list[str]]:
        """As Python does: a file that another one imports from is read in its midst, once."""
        names = found[module]
        for node in left.pop(module, ()):
            # `from utils import *` may bring what that file has imported: `torch` is torch.
            source = _source_of(node, module, links)
            passed_on = names_of(source) if source in found else {}
            prefix = (
                f"{node.module}."
                if isinstance(node, ast.ImportFrom) and node.module and not node.level
                else ""
            )
            for alias in node.names:
                name, path = alias.asname or alias.name, prefix + alias.name
                if isinstance(node, ast.Import) and not alias.asname:
                    name = path = alias.name.split(".")[0]
                given = passed_on.get(alias.name) or [path]  # none yet of files that import each other
                names.setdefault(name, []).extend(given)
        return names

    for module in found:
        names_of(module)
    return found


def _source_of(node: ast.Import | ast.ImportFrom, module: ast.Module, links: Links) -> ast.Module | None:
    """The file of the project from which a statement imports names."""
    if isinstance(node, ast.Import) or not isinstance(module, Region):
        return None
    return links.region(links.find(module, node.level, node.module or ""))
