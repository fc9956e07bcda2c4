"""Reading and writing: whatever is not migrated stays byte for byte, and IPython's own lines come back."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from crosstrain_migrate.files.notebooks.linked import Cells, link, mask, split, unmask
from crosstrain_migrate.files.reading import decode, read
from crosstrain_migrate.files.sources import Unusable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .notebooks import FLAT, GLOBALS
from .support import NAME, document, migrate, notebook
from .support import read as read_text

COMMANDS = ["%matplotlib inline", "!pip install -q 'some thing' \"else\"", "files = !ls -l"]
COMMANDS += ["answer = %sx ls", "torch.nn?", "len??", "?print", "%%time\nx = 1"]
COMMANDS += ["%%capture out --no-stderr\nprint(1)", "for f in 'ab':\n    !cp {f} there\n    print(f)"]
COMMANDS += ["if True:\n\t%cd ..", "!ls \\\n  -l \\\n  .\nx = 2", "from __future__ import annotations\nx = 1"]
COMMANDS += ['!echo it\'s\n!echo """\nx = (1,\n     2)', "%env A=\\path\\n"]
COMMANDS += ["x = 5 %3\ny = '''\n%not a command\n!nor this\n'''", "print('100%')\n%time f(x)\n!ls ("]


@pytest.mark.parametrize("source", COMMANDS)
def test_commands_parse_and_come_back(source: str) -> None:
    masked = mask(source)
    ast.parse(masked)
    assert masked.count("\n") == source.count("\n")
    assert unmask(masked) == source


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(st.lists(st.text(alphabet="ab \n%!?'\"\\#=()", max_size=40), min_size=1, max_size=4))
def test_any_cells_come_back(sources: list[str]) -> None:
    cells = dict(enumerate(sources, 1))
    linked = link(cells.items())
    assert split(linked) == cells
    where = Cells(linked)
    for number, source in cells.items():
        for line in range(source.count("\n") + 1):
            assert where(where.first(number) + line) == (number, line + 1)


def test_other_programs_in_cells_are_left_out() -> None:
    text = FLAT + "# %%\n%%bash\nloss.backward() && for\n# %%\n%%writefile x.py\nimport (\n"
    assert "bash" not in read_text(text).text
    result = migrate(text)
    assert result.changed
    assert b"loss.backward() && for" in read_text(text).encode(result.after)


TEXT = FLAT.replace("# Train it.", '# Train it: größer, 日本, \\u, "quoted"')


@pytest.mark.parametrize(
    "layout",
    [{}, {"indent": 2}, {"indent": "\t"}, {"indent": None}, {"ensure_ascii": True}, {"sort_keys": True}],
    ids=str,
)
def test_only_changed_values_change(layout: dict[str, Any]) -> None:
    """As Jupyter writes it, as Colab does, and as others do."""
    result = migrate(TEXT)
    fresh = split(result.after)
    expected = document(TEXT)
    for number, cell in enumerate(expected["cells"], 1):
        if number in fresh and fresh[number] != "".join(cell["source"]):
            cell.update(source=fresh[number].splitlines(keepends=True), outputs=[], execution_count=None)
    dumped = json.dumps(expected, **({"indent": 1, "ensure_ascii": False} | layout)) + "\n"
    assert decode(NAME, notebook(TEXT, **layout)).encode(result.after).decode() == dumped


def test_windows_files_marks_and_texts_in_one_string() -> None:
    whole = document(FLAT)
    for cell in whole["cells"]:
        cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")
    data = b"\xef\xbb\xbf" + json.dumps(whole, indent=1).replace("\n", "\r\n").encode()
    source = decode(NAME, data)
    assert source.encode(source.text) == data
    written = source.encode(migrate(FLAT).after)
    assert written.startswith(b"\xef\xbb\xbf{\r\n")
    train = json.loads(written.decode("utf-8-sig"))["cells"][5]["source"]
    assert "accelerator.backward(loss)\r\n" in train
    assert train.count("\n") == train.count("\r\n")


def changed(**values: Any) -> bytes:
    return json.dumps(document(FLAT) | values).encode()


NO_CODE = [{"cell_type": "code", "metadata": {}, "outputs": []}]
BAD: dict[str, tuple[bytes, str]] = {
    "cut short": (notebook(FLAT)[:-20], "it is not JSON (Unterminated string"),
    "not JSON": (b"import torch\n", "it is not JSON (Expecting value)"),
    "not text": (b'{"cells": "\xff"}', "is not UTF-8 text (byte 0xff)"),
    "other JSON": (b'{"a": 1}', "has no cells"),
    "a list": (b"[1]", "has no cells"),
    "cells of no kind": (changed(cells={"a": 1}), "is a notebook without cells"),
    "format 3": (changed(nbformat=3), "is a notebook of format 3"),
    "worksheets": (b'{"nbformat": 2, "worksheets": []}', "is a notebook of format 2"),
    "another language": (changed(metadata={"kernelspec": {"language": "R"}}), "is a notebook for r"),
    "a third": (changed(metadata={"language_info": {"name": "julia"}}), "is a notebook for julia"),
    "a cell without source": (changed(cells=NO_CODE), "has a cell 1 without a source"),
    "a cell that is none": (changed(cells=["x"]), "has a cell 1 that is not a cell"),
    "deep": (b"[" * 100_000, "nested too deeply"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_notebooks_get_one_clear_message(case: str, tmp_path: Path) -> None:
    data, reason = BAD[case]
    path = tmp_path / "bad.ipynb"
    path.write_bytes(data)
    with pytest.raises(Unusable) as caught:
        read(path)
    assert reason in caught.value.error.reason
    assert caught.value.error.remedy


def test_a_cell_that_does_not_parse_is_named() -> None:
    result = migrate(GLOBALS + "# %%\nx = (1,\n# %%\ny = 2\n")
    assert result.error is not None
    assert str(result.error).startswith("train.ipynb: cell 11, line 1: does not parse: '(' was never closed")
