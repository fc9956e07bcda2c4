"""Earlier results: the same answer, sooner; never another one."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.files import cache as module
from crosstrain_migrate.files.cache import Cache, cache_directory
from crosstrain_migrate.results import Options

from tests.unit.conftest import Ran

ROOT = Path(__file__).parents[2]
Migrate = Callable[..., Ran]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "crosstrain" / "migrate"


PLAIN = migrate_text(Path("a.py"), "x = 1\n", Options())


def kept(about: str, text: str) -> bool:
    return Cache(about).get(Path("a.py"), text) is not None


@pytest.mark.parametrize("name", ["mnist_functions", "apex_amp", "already_migrated", "dict_transformer"])
def test_a_result_comes_back_as_it_was(name: str) -> None:
    text = (ROOT / "golden" / name / "before.py").read_text("utf-8")
    result = migrate_text(Path("a.py"), text, Options())
    Cache("x").put(result)
    assert Cache("x").get(Path("a.py"), text) == result
    elsewhere = Cache("x").get(Path("b.py"), text)
    assert elsewhere is not None
    assert elsewhere.path == Path("b.py")


def test_text_options_and_tool_are_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    Cache("x").put(PLAIN)
    assert kept("x", "x = 1\n") and not kept("x", "x = 2\n") and not kept("y", "x = 1\n")
    monkeypatch.setattr(module, "_tool", lambda: ("another",))
    assert not kept("x", "x = 1\n")
    assert migrate_text(Path("a.py"), "x = (\n", Options()).error is not None
    Cache("x").put(migrate_text(Path("a.py"), "x = (\n", Options()))
    assert not kept("x", "x = (\n"), "errors are not kept"


def test_an_edited_tool_is_another_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one with another libcst, also where its files have the times and sizes of the version before."""
    (tmp_path / "rule.py").write_text("a = 1\n")
    monkeypatch.setattr(module, "__file__", str(tmp_path / "files" / "cache.py"))
    before = module._tool()
    (tmp_path / "rule.py").write_text("a = 22\n")
    assert module._tool() != before
    origin = tmp_path / "libcst" / "__init__.py"
    origin.parent.mkdir()
    origin.touch()
    (tmp_path / "libcst-1.8.0.dist-info").mkdir()
    monkeypatch.setattr(module, "find_spec", lambda name: SimpleNamespace(origin=str(origin)))
    before = module._tool()
    assert module._tool() == before
    (tmp_path / "libcst-1.8.0.dist-info").rename(tmp_path / "libcst-1.9.0.dist-info")
    assert module._tool() != before


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"after": null}', b"\xff"])
def test_a_damaged_entry_is_no_entry(home: Path, damage: bytes) -> None:
    Cache("x").put(PLAIN)
    (entry,) = home.glob("??/*.json")
    entry.write_bytes(damage)
    assert not kept("x", "x = 1\n")


def test_an_unwritable_directory_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    Cache("x").put(PLAIN)
    assert not kept("x", "x = 1\n")
    Cache("x").remove_old()


def test_what_nobody_asks_for_goes_after_a_month(home: Path) -> None:
    for text in ("x = 1\n", "x = 2\n"):
        Cache("x").put(migrate_text(Path("a.py"), text, Options()))
    old = time.time() - 40 * 24 * 3600
    for entry in home.glob("??/*.json"):
        os.utime(entry, (old, old))
    assert kept("x", "x = 1\n")
    Cache("x").remove_old()
    assert kept("x", "x = 1\n") and not kept("x", "x = 2\n")


def test_relative_directories_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert cache_directory().is_absolute()


def test_the_command_asks_once(
    migrate: Migrate, engine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("torch_old\n")
    asked: list[str] = []
    inner = engine.migrate_text

    def migrate_text(path: Path, text: str, options: object) -> object:
        asked.append(text)
        return inner(path, text, options)

    engine.__dict__["migrate_text"] = migrate_text
    first = migrate("a.py")
    assert migrate("a.py") == first
    assert len(asked) == 1
    assert migrate("a.py", "--no-cache") == first
    assert migrate("a.py", "--runtime", "accelerate", "--check").code == 1
    assert len(asked) == 3
    (tmp_path / "a.py").write_text("torch_old\n\n")
    assert migrate("a.py").code == 0
    assert len(asked) == 4
