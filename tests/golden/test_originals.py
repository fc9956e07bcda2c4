"""The originals of the golden corpus are what they claim: plain scripts as ordinary people write them.

Nothing is run here: the verify engine runs every case before and after its migration.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import tokenize
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
CASES = sorted(path.parent for path in GOLDEN.glob("*/run.toml"))

THIRD_PARTY = {"torch", "torchmetrics", "numpy", "sklearn", "tqdm", "yaml"}
TWO_PROCESSES = {"identical", "equal", "agree", "different", "within noise", "none"}
EXPECT = {"converted", "nothing", "refused"}


def root(case: Path) -> Path:
    """The folder that the case's own imports start from."""
    return case if (case / "before.py").exists() else case / "before"


def sources(case: Path) -> dict[Path, str]:
    """Every file of Python that the case has, as text: of a notebook, the code of its cells."""
    single = case / "before.py"
    files = [single] if single.exists() else sorted((case / "before").rglob("*"))
    texts = {path: path.read_text(encoding="utf-8") for path in files if path.suffix == ".py"}
    return texts | {path: cells(path) for path in files if path.suffix == ".ipynb"}


def cells(notebook: Path) -> str:
    """The code of a notebook, without the lines that only IPython understands."""
    read = json.loads(notebook.read_text(encoding="utf-8"))
    code = [line for cell in read["cells"] if cell["cell_type"] == "code" for line in [*cell["source"], "\n"]]
    return "".join(line if line.endswith("\n") else line + "\n" for line in code if line[0] not in "%!")


def settings(case: Path) -> dict[str, Any]:
    return tomllib.loads((case / "run.toml").read_text(encoding="utf-8"))


def comments(text: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def local_modules(case: Path) -> set[str]:
    folder = root(case)
    return {p.stem for p in folder.glob("*.py")} | {p.parent.name for p in folder.glob("*/__init__.py")}


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Name bound in the module -> top-level package it comes from ("." for a relative import).

    What stands in a `try` is optional (apex, say) and left out.
    """
    optional = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Try) for inner in ast.walk(node)}
    names = {}
    for node in ast.walk(tree):
        if id(node) in optional:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = "." if node.level else (node.module or "").split(".")[0]
    return names


def used_names(tree: ast.Module) -> set[str]:
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        ):
            used.update(ast.literal_eval(node.value))
    return used


def by_name(cases: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


case_by_name = by_name(CASES)
plain_case_by_name = by_name([case for case in CASES if settings(case)["expect"] != "nothing"])


def test_every_folder_is_a_case() -> None:
    folders = sorted(path for path in GOLDEN.iterdir() if path.is_dir())
    assert folders == CASES, "a folder of golden/ has no run.toml"
    assert len(CASES) >= 8


@case_by_name
def test_run_toml_says_how_the_case_is_run(case: Path) -> None:
    run = settings(case)
    assert set(run) == {"description", "args", "two_processes", "expect"}
    assert run["description"] and "\n" not in run["description"]
    assert all(isinstance(arg, str) for arg in run["args"])
    assert run["two_processes"] in TWO_PROCESSES
    assert run["expect"] in EXPECT
    assert (run["two_processes"] == "none") == (run["expect"] == "refused")


@case_by_name
def test_arguments_are_options_of_the_script(case: Path) -> None:
    literals = {
        node.value
        for text in sources(case).values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    options = {arg for arg in settings(case)["args"] if arg.startswith("-")}
    assert options <= literals


@case_by_name
def test_sources_compile_without_a_warning(case: Path, recwarn: pytest.WarningsRecorder) -> None:
    texts = sources(case)
    assert texts, "the case has no source"
    for path, text in texts.items():
        compile(text, str(path), "exec")
    assert not [str(warning.message) for warning in recwarn]


@case_by_name
def test_imports_are_available_and_used(case: Path) -> None:
    allowed = THIRD_PARTY | set(sys.stdlib_module_names) | local_modules(case) | {"."}
    if settings(case)["expect"] == "nothing":
        allowed.add("crosstrain")
    for path, text in sources(case).items():
        tree = ast.parse(text)
        names = imported_names(tree)
        assert set(names.values()) <= allowed, path
        unused = set(names) - used_names(tree) - {"print_function", "annotations", "*"}
        assert not unused, f"{path} imports {sorted(unused)} for nothing"


@plain_case_by_name
def test_originals_know_nothing_of_the_tool(case: Path) -> None:
    for path, text in sources(case).items():
        tools = ("crosstrain", "accelerate", "accelerator", "migrate")
        found = [word for word in tools if word in text.lower()]
        assert not found, path


@case_by_name
def test_an_author_left_words(case: Path) -> None:
    """Comments or docstrings exist to be lost: a corpus without them proves nothing about keeping them."""
    words = [word for text in sources(case).values() for word in comments(text) + docstrings(text)]
    assert words, "no comment and no docstring in the whole case"


def docstrings(text: str) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [doc for doc in map(ast.get_docstring, nodes) if doc]


def test_comment_reader_reads_comments() -> None:
    assert comments("# one\nx = '# no'  # two\n") == ["# one", "# two"]
