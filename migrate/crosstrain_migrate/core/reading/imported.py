"""What a file imports, and whether it was converted before."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.walks import statements

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
    return any(path == "crosstrain.Accelerator" for path, _ in imported(module))


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
