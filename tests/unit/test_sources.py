"""Reading: the same bytes come back, and what cannot be read says so with a place and a remedy."""

import ast
import codecs
import os
import subprocess
from pathlib import Path

import pytest
from crosstrain_migrate.files import reading, sources
from crosstrain_migrate.files.discovery import Found, discover
from crosstrain_migrate.results import InputError
from crosstrain_migrate.syntax import problems


def _read(place: Path, data: bytes) -> sources.Source:
    file = place / "train.py"
    file.write_bytes(data)
    return reading.read(file)


def _problem(path: Path) -> InputError:
    with pytest.raises(sources.Unusable) as raised:
        reading.read(path)
    return raised.value.error


TEXTS = {
    "plain": (b"x = 1\n", "x = 1\n"),
    "empty": (b"", ""),
    "no-final-newline": (b"x = 1", "x = 1"),
    "crlf": (b"x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n"),
    "crlf-no-final-newline": (b"x = 1\r\ny = 2", "x = 1\ny = 2"),
    "cr": (b"x = 1\ry = 2\r", "x = 1\ny = 2\n"),
    "mixed": (b"x = 1\r\ny = 2\nz = 3\r", "x = 1\ny = 2\nz = 3\n"),
    "bom": (codecs.BOM_UTF8 + b"x = 1\r\n", "x = 1\n"),
    "form-feed": (b"x = 1\n\x0c\ny = 2\n", "x = 1\n\x0c\ny = 2\n"),
    "only-python-line-ends": ("s = 'a\u2028b\x0bc\x85d'\n".encode(), "s = 'a\u2028b\x0bc\x85d'\n"),
}
ENCODED = {
    "latin-1": "# -*- coding: latin-1 -*-\ns = 'é'\n",
    "cp1252": "#!/usr/bin/python\n# coding: cp1252\ns = '€'\n",
    "euc-jp": "# vim: set fileencoding=euc-jp :\ns = 'あ'\n",
}
TEXTS |= {name: (text.encode(name), text) for name, text in ENCODED.items()}


@pytest.mark.parametrize(("data", "text"), TEXTS.values(), ids=TEXTS)
def test_text_is_what_python_reads_and_goes_back_the_same(tmp_path: Path, data: bytes, text: str) -> None:
    source = _read(tmp_path, data)
    assert source.text == text
    assert source.encode(source.text) == data


EDITED = {
    "crlf": (b"a\r\nb\r\n", "new\na\nb\n", b"new\r\na\r\nb\r\n"),
    "bom-stays-first": (codecs.BOM_UTF8 + b"a\nb\n", "new\na\nb\n", codecs.BOM_UTF8 + b"new\na\nb\n"),
    "mixed-lines-keep-theirs": (b"a\r\nb\nc\r\nd", "a\nB\nnew\nc\nd", b"a\r\nB\nnew\nc\r\nd"),
    "new-in-a-mixed-file": (b"a\r\nb\nc\r\n", "new\na\nb\nc\n", b"new\r\na\r\nb\nc\r\n"),
}


@pytest.mark.parametrize(("data", "text", "expected"), EDITED.values(), ids=EDITED)
def test_lines_keep_their_ends(tmp_path: Path, data: bytes, text: str, expected: bytes) -> None:
    assert _read(tmp_path, data).encode(text) == expected


def test_a_character_that_the_encoding_lacks_is_refused_with_its_line(tmp_path: Path) -> None:
    source = _read(tmp_path, b"# coding: latin-1\nx = 1\n")
    with pytest.raises(sources.Unusable) as raised:
        source.encode(source.text + "s = '\u20ac'\n")
    assert raised.value.error.line == 3
    assert "UTF-8" in raised.value.error.remedy


NO_TEXT = {
    "binary": (b"x = 1\n\0\n", 2, None, "not text"),
    "latin-1-without-cookie": (b"x = 1\ns = '\xe9'\n", 2, 6, "not utf-8"),
    "far-down": (b"# a\n# b\n# c\ns = 'ab\xe9'\n", 4, 8, "not utf-8"),
    "unknown-encoding": (b"# coding: klingon\n", 1, 11, "klingon"),
    "bom-and-another-cookie": (codecs.BOM_UTF8 + b"# coding: latin-1\n", 1, 11, "latin-1"),
    "not-a-text-encoding": (b"# coding: hex\n41\n", 1, 11, "hex"),
}


@pytest.mark.parametrize(("data", "line", "column", "reason"), NO_TEXT.values(), ids=NO_TEXT)
def test_bad_text_says_where(tmp_path: Path, data: bytes, line: int, column: int | None, reason: str) -> None:
    (tmp_path / "train.py").write_bytes(data)
    problem = _problem(tmp_path / "train.py")
    assert (problem.line, problem.column) == (line, column)
    assert reason in problem.reason
    assert problem.remedy.endswith((".", "-*-"))


def test_what_is_no_file_to_read_is_told_apart(tmp_path: Path) -> None:
    names = ("no.py", "link.py", "fifo.py", "loop.py", "big.py")
    missing, link, fifo, loop, big = (tmp_path / name for name in names)
    link.symlink_to("gone.py")
    loop.symlink_to("loop.py")
    os.mkfifo(fifo)
    with big.open("wb") as stream:
        stream.truncate(sources.MAX_BYTES + 1)
    assert [_problem(path).reason for path in (missing, link, fifo)] == [
        "does not exist",
        "is a link to gone.py, which does not exist",
        "is not a regular file",
    ]
    assert _problem(loop).reason
    assert "10.5 MB" in _problem(big).reason


def _syntax(text: str) -> InputError:
    with pytest.raises((SyntaxError, RecursionError, MemoryError)) as raised:
        ast.parse(text)
    return problems.syntax_problem(Path("train.py"), text, raised.value)


OTHER_SYNTAX = {
    "print": ("print 'hello'\n", "is Python 2"),
    "except-comma": ("try:\n    pass\nexcept IOError, error:\n    pass\n", "is Python 2"),
    "octal": ("mode = 0777\n", "is Python 2"),
    "async": ("x = x.cuda(async=True)\n", "keyword since Python 3.7"),
    "raise-comma": ("raise ValueError, 'no'\n", "is Python 2"),
    "not-equal": ("if a <> b:\n    pass\n", "is Python 2"),
    "text": ("x = f'{a}:\\n\\t\"' + +\n", "does not parse"),
    "broken": ("def f(:\n    pass\n", "does not parse"),
    "magic": ("%matplotlib inline\n", "notebook commands"),
}


@pytest.mark.parametrize(("text", "says"), OTHER_SYNTAX.values(), ids=OTHER_SYNTAX)
def test_syntax_errors_say_what_kind_of_file_it_is(text: str, says: str) -> None:
    problem = _syntax(text)
    assert says in problem.reason
    assert problem.line is not None


@pytest.mark.parametrize("text", ["type Batch = tuple[int, int]\n", "template = t'{x}'\n"])
def test_newer_syntax_names_the_python_to_use(text: str) -> None:
    try:
        ast.parse(text)
    except SyntaxError:
        problem = _syntax(text)
        assert "uses syntax of Python 3.1" in problem.reason
        assert "Run migrate with Python 3.1" in problem.remedy


def test_nesting_that_the_parser_cannot_follow_is_an_input_error() -> None:
    assert str(_syntax("(" * 5000 + ")" * 5000)).startswith("train.py")


# --- discovery ---


def _tree(root: Path, *files: str) -> None:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("import torch\n")


def _found(*paths: Path, exclude: tuple[str, ...] = ()) -> list[str]:
    found = list(discover(paths, exclude))
    return [str(one.path.relative_to(paths[0])) for one in found if isinstance(one, Found)]


def test_directories_are_walked_in_order_without_other_peoples_code(tmp_path: Path) -> None:
    _tree(tmp_path, "b.py", "a/c.py", ".venv/x.py", "my-env/lib/x.py")
    _tree(tmp_path, "a/__pycache__/x.py", "a/notes.txt", "build/x.py")
    (tmp_path / "my-env" / "pyvenv.cfg").touch()
    assert _found(tmp_path) == ["a/c.py", "b.py"]


def test_a_file_named_twice_is_done_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _tree(tmp_path, "a.py")
    (tmp_path / "link.py").symlink_to("a.py")
    monkeypatch.chdir(tmp_path)
    found = list(discover([Path("a.py"), Path("./a.py"), Path("link.py"), Path()]))
    assert found == [Found(Path("a.py"), named=True)]


def test_links_are_not_followed_out_of_the_directory(tmp_path: Path) -> None:
    _tree(tmp_path, "outside/x.py", "inside/a.py")
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "inside" / "link.py").symlink_to(tmp_path / "outside" / "x.py")
    assert _found(tmp_path / "inside") == ["a.py"]


def test_a_directory_without_python_says_so(tmp_path: Path) -> None:
    (problem,) = discover([tmp_path])
    assert isinstance(problem, InputError)
    assert problem.reason == "holds no Python files and no notebooks"


def test_a_named_file_is_never_left_out(tmp_path: Path) -> None:
    _tree(tmp_path, ".venv/x.py", "script")
    paths = [tmp_path / ".venv" / "x.py", tmp_path / "script"]
    assert [one.path for one in discover(paths) if isinstance(one, Found)] == paths


def test_exclude_patterns_are_those_of_gitignore(tmp_path: Path) -> None:
    _tree(tmp_path, "a.py", "third_party/b.py", "x/third_party/c.py", "gen/d_pb2.py")
    assert _found(tmp_path, exclude=("/third_party", "*_pb2.py")) == ["a.py", "x/third_party/c.py"]


def test_ignore_files_mean_what_git_means(tmp_path: Path) -> None:
    files = [
        "keep.py", "out.py", "sub/out.py", "sub/kept.py", "sub/deep/x.py", "sub/deep/y.py",
        "logs/a.py", "logs/b/c.py", "rooted.py", "sub/rooted.py", "data/one.py", "data/two.py", "excluded.py",
    ]  # fmt: skip
    _tree(tmp_path, *files)
    (tmp_path / ".gitignore").write_text(
        "out.py\nlogs/\n/rooted.py\ndata/*\n!data/two.py\nsub/**/x.py\n# note\n\n"
    )
    (tmp_path / "sub" / ".gitignore").write_text("!out.py\nkept.py\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git" / "info" / "exclude").write_text("excluded.py\n")
    listing = ["git", "-C", tmp_path, "ls-files", "--others", "--exclude-standard", "--", "*.py"]
    expected = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    assert sorted(_found(tmp_path)) == sorted(expected)
    # From a directory inside, the files above it still hold.
    assert sorted(_found(tmp_path / "sub")) == sorted(
        name.removeprefix("sub/") for name in expected if name.startswith("sub/")
    )
    assert _found(tmp_path / "logs") == ["a.py", "b/c.py"], "naming an ignored directory means it"
