"""`migrate` on notebooks: every mode and every report."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.conftest import Ran, command

from .notebooks import FLAT, with_module
from .support import KERNEL, cells, notebook

# The place where the objects are prepared is kept away, and without it there is no conversion.
REFUSED = FLAT.replace("# Train it.\n", "# migrate: off\n")

Run = Callable[..., Ran]


@pytest.fixture
def migrate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Run:
    """Runs the command in this process, in a directory of its own that holds train.ipynb."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("train.ipynb").write_bytes(notebook(FLAT))
    run = command(monkeypatch, capfdbinary, tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    return run


def test_preview_shows_the_cells_and_changes_nothing(migrate: Run) -> None:
    ran = migrate("train.ipynb")
    assert ran.code == 0
    assert "@@ train.ipynb, cell 6, " in ran.out.decode()
    assert "-        loss.backward()\n" in ran.out.decode()
    assert "accelerator.backward(loss)\n" in ran.out.decode()
    assert "cell 4" not in ran.out.decode()
    assert Path("train.ipynb").read_bytes() == notebook(FLAT)


def test_check_write_and_undo(migrate: Run) -> None:
    assert migrate("train.ipynb", "--check").code == 1
    wrote = migrate(".", "--write")
    assert wrote.code == 0
    assert "changed train.ipynb (CT101" in wrote.err
    written = json.loads(Path("train.ipynb").read_bytes())
    old, new = (json.loads(notebook(FLAT))["cells"], written["cells"])
    assert new[5]["outputs"] == []
    assert new[5]["execution_count"] is None
    assert [n for n, (a, b) in enumerate(zip(old, new, strict=True), 1) if a != b] == [2, 6]
    assert {**written, "cells": old} == json.loads(notebook(FLAT))
    again = migrate("train.ipynb", "--check")
    assert again.code == 0
    assert again.err.endswith("uses an Accelerator already\n0 files would be changed, 1 untouched\n")
    assert migrate("--undo").code == 0
    assert Path("train.ipynb").read_bytes() == notebook(FLAT)


def test_a_refusal_names_cell_line_and_column(migrate: Run) -> None:
    Path("train.ipynb").write_bytes(notebook(REFUSED))
    ran = migrate("train.ipynb", "--write")
    assert ran.code == 1
    assert re.search(r"^train\.ipynb\n  cell 6:2:\d+  refused  CT003", ran.err, re.MULTILINE), ran.err
    assert "refused  CT003  `# migrate: off` (cell 6, line 1) keeps CT201" in ran.err
    assert Path("train.ipynb").read_bytes() == notebook(REFUSED)
    Path("train.ipynb").write_bytes(notebook(FLAT + "# %%\n# migrate: skip-file\n"))
    assert migrate("train.ipynb", "--check").code == 0


def test_bad_notebooks_end_with_2_and_the_others_go_on(migrate: Run) -> None:
    Path("bad.ipynb").write_text("{'torch': loss.backward()}")
    Path("r.ipynb").write_bytes(notebook(FLAT).replace(json.dumps(KERNEL["language"]).encode(), b'"R"'))
    ran = migrate(".", "--check")
    assert ran.code == 2
    assert "error: bad.ipynb:1:2: is not a notebook: it is not JSON" in ran.err
    assert "error: r.ipynb: is a notebook for r, not for Python" in ran.err
    assert "would change train.ipynb" in ran.err


def test_standard_input(migrate: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(notebook(FLAT))))
    ran = migrate("-")
    assert ran.code == 0
    assert json.loads(ran.out)["cells"][0] == json.loads(notebook(FLAT))["cells"][0]
    assert "notebook_launcher(training" in ran.out.decode()


def test_json_counts_lines_in_cells(migrate: Run) -> None:
    (file,) = json.loads(migrate("train.ipynb", "--output-format", "json").out)["files"]
    (launch,) = [c for c in file["changes"] if c["rule"] == "CT801"]
    assert (launch["cell"], launch["line"]) == (6, 2)
    model = next(r for r in file["roles"] if r["role"] == "module")
    assert (model["cell"], model["line"]) == (5, 1)
    assert model["evidence"] == "cell 5, line 3 gives its parameters to an optimizer"
    assert file["diff"].startswith("@@ train.ipynb, cell 2, ")
    assert "launch --split-batches" not in json.dumps(file["facts"])


def test_readers_of_files_get_the_line_of_the_json(migrate: Run) -> None:
    Path("train.ipynb").write_bytes(notebook(REFUSED))
    out = migrate("train.ipynb", "--output-format", "github").out.decode()
    found = re.search(r"^::error file=train.ipynb,line=(\d+),.*::cell 6, line 2: ", out, re.MULTILINE)
    assert found is not None, out
    log = json.loads(migrate("train.ipynb", "--output-format", "sarif").out)
    (result,) = [r for r in log["runs"][0]["results"] if r["level"] == "error"]
    assert result["message"]["text"].startswith("cell 6, line 2: ")
    line = result["locations"][0]["physicalLocation"]["region"]["startLine"]
    assert line == int(found[1])
    assert "for epoch in range(3)" in Path("train.ipynb").read_text().split("\n")[line - 1]


def test_a_notebook_and_a_script_that_share_a_module_change_together(migrate: Run) -> None:
    text, module = with_module()
    Path("train.ipynb").write_bytes(notebook(text))
    Path("steps.py").write_text(module)
    code = "\n".join(source for kind, source in cells(text) if kind == "code")
    Path("train.py").write_text(re.sub("^[%!].*\n?", "", code, flags=re.MULTILINE))
    ran = migrate(".", "--write")
    assert ran.code == 0, ran.err
    assert "3 files changed" in ran.err
    assert migrate(".", "--check").code == 0
    assert "accelerator.backward(loss)" in Path("steps.py").read_text()
    assert migrate("--undo").code == 0
    assert Path("steps.py").read_text() == module
