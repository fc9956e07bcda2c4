"""A core that is small enough to see through: these tests are about what surrounds the real one."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from crosstrain_migrate.results import Change, FileResult, Finding, Severity


@dataclass(frozen=True)
class Options:
    runtime: str = "crosstrain"
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    follow: bool = True
    strict: bool = False
    todo: bool = False
    advice: bool = False


def migrate_text(path: Path, text: str, options: Options) -> FileResult:
    """Renames `torch_old` to `torch_new`, refuses `refuse_me`, assumes `assume_me`, notes `note_me`, fails on `crash_me`."""
    if "crash_me" in text:
        raise KeyError("crash_me")
    compile(text, str(path), "exec", dont_inherit=True)
    lines = text.split("\n")
    changes = tuple(
        Change("CT101", number, f"torch_new for {options.runtime}")
        for number, line in enumerate(lines, 1)
        if "torch_old" in line
    )
    findings = tuple(
        Finding("CT901", number, line.index(word) + 1, f"{word} is here", "Look at it.", severity, kind)
        for number, line in enumerate(lines, 1)
        for word, severity, kind in (
            ("refuse_me", Severity.REFUSED, ""),
            ("assume_me", Severity.REFUSED if options.strict else Severity.ASSUMED, "rows"),
            ("note_me", Severity.NOTE, ""),
        )
        if word in line
    )
    after = text.replace("torch_old", "torch_new")
    return FileResult(path, text, after, changes, findings, trains="torch" in text)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Puts the small core in the place of the real one."""
    module = ModuleType("crosstrain_migrate.engine")
    module.__dict__.update(Options=Options, migrate_text=migrate_text)
    monkeypatch.setitem(sys.modules, "crosstrain_migrate.engine", module)
    monkeypatch.setattr("crosstrain_migrate.cli.run.may_train", lambda data: b"torch" in data)
    return module


class Page(HTMLParser):
    """The elements of a page, and the text outside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.inside: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = None

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.text.append(data)


@dataclass(frozen=True)
class Ran:
    code: int
    out: bytes
    err: str


def command(
    monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes], home: Path
) -> Callable[..., Ran]:
    """Runs the command in this process, in the current directory, with a state directory of its own."""
    from crosstrain_migrate.cli import app

    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    for name in ("COLUMNS", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path) -> Ran:
        capture.readouterr()
        try:
            app([str(one) for one in arguments])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        sys.stdout.flush()
        out, err = capture.readouterr()
        return Ran(code, out, err.decode())

    return run


@pytest.fixture
def migrate(
    engine: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Ran]:
    """The command with the small core."""
    return command(monkeypatch, capfdbinary, tmp_path_factory.mktemp("home"))
