"""The diff is one that git and patch apply, for any file."""

import codecs
import subprocess
from pathlib import Path

import pytest
from crosstrain_migrate.report.diff import hunks, unified
from crosstrain_migrate.results import Change

NUMBERS = [b"%d\n" % n for n in range(100)]
CASES = {
    "plain": (b"a\nb\nc\n", b"a\nB\nc\n"),
    "crlf": (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\n"),
    "mixed": (b"a\r\nb\nc\r\n", b"a\r\nB\nc\r\nd\r\n"),
    "no-final-newline": (b"a\nb", b"a\nB"),
    "line-after-no-final-newline": (b"a\nb", b"a\nb\nc"),
    "no-final-newline-in-the-middle": (b"a\nb", b"b\na"),
    "from-empty": (b"", b"a\n"),
    "to-empty": (b"a\n", b""),
    "latin-1": ("s = 'é'\nx\n".encode("latin-1"), "s = 'é'\ny = 'ü'\n".encode("latin-1")),
    "bom": (codecs.BOM_UTF8 + b"a\n", codecs.BOM_UTF8 + b"b\n"),
    "separators": ("a\u2028b\n\x0c\nc\n".encode(), "a\u2028b\n\x0c\nd\n".encode()),
    "lines-like-headers": (b"-- a\n++ b\n", b"-- b\n++ a\n"),
    "many-hunks": (b"".join(NUMBERS), b"".join(one for n, one in enumerate(NUMBERS) if n % 17)),
}
NAMES = ["a b.py", "a\tb.py", 'a"b.py', "a\\b.py", "é.py", "a\nb.py", "d/e/x", "-x", "a'b.py", "\udcff.py"]
COMMANDS = {"git": ["git", "apply", "-"], "patch": ["patch", "-p1", "--binary", "--quiet"]}


def _apply(command: list[str], root: Path, patch: bytes) -> None:
    done = subprocess.run(command, cwd=root, input=patch, capture_output=True)
    assert done.returncode == 0, done.stderr.decode() + patch.decode("latin-1")


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_applied_it_gives_the_result(tmp_path: Path, command: list[str], before: bytes, after: bytes) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(before)
    _apply(command, tmp_path, unified("train.py", before, after))
    if command[0] == "patch" and not after:
        assert not file.exists() or file.read_bytes() == b""  # patch removes what it empties
    else:
        assert file.read_bytes() == after


@pytest.mark.parametrize("name", NAMES, ids=ascii)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_any_file_name_is_found_again(tmp_path: Path, command: list[str], name: str) -> None:
    if command[0] == "patch" and "\n" in name:
        pytest.skip("patch refuses names with line breaks")
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"a\n")
    _apply(command, tmp_path, unified(name, b"a\n", b"b\n"))
    assert file.read_bytes() == b"b\n"


def test_nothing_changed_is_no_patch() -> None:
    assert unified("train.py", b"a\n", b"a\n") == b""


def test_each_change_is_named_at_the_hunk_it_made() -> None:
    before = b"".join(b"%d\n" % number for number in range(1, 101))
    after = before.replace(b"\n10\n", b"\nten\n").replace(b"\n50\n", b"\n").replace(b"90\n", b"90\nmore\n")
    changes = [Change("CT3", 90, "c"), Change("CT1", 10, "a"), Change("CT2", 50, "b"), Change("CT4", 51, "d")]
    assert [hunk.rules for hunk in hunks(before, after, changes)] == [("CT1",), ("CT2", "CT4"), ("CT3",)]
    assert b"@@ -7,7 +7,7 @@ CT1\n" in unified("x", before, after, changes)
