"""Writing: whole files, all or none, through failures, Ctrl-C and a real SIGKILL; and back again."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crosstrain_migrate.files import transaction
from crosstrain_migrate.files.sources import Unusable
from crosstrain_migrate.files.transaction import Replacement


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "crosstrain" / "migrate"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = tmp_path / "repo"
    repo.mkdir()
    for name in "abc":
        (repo / f"{name}.py").write_bytes(f"old {name}\n".encode())
    return repo


def _replacements(repo: Path) -> list[Replacement]:
    old = {file: file.read_bytes() for file in sorted(repo.glob("*.py"))}
    return [Replacement(file, file, data, data.replace(b"old", b"new")) for file, data in old.items()]


def _before_renames(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> None:
    """Calls `act` with the name of what is about to be renamed to."""
    rename = Path.replace

    def replace(self: Path, target: Path) -> Path:
        act(Path(target).name)
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", replace)


def _texts(repo: Path) -> str:
    """Of all files: a temporary one that stays shows."""
    return "".join(file.read_text() for file in sorted(repo.iterdir()))


OLD, NEW = "old a\nold b\nold c\n", "new a\nnew b\nnew c\n"


def test_all_files_are_written_with_their_modes_and_nothing_else_stays(repo: Path) -> None:
    (repo / "a.py").chmod(0o755)
    (repo / "b.py").chmod(0o600)
    transaction.write(_replacements(repo))
    assert _texts(repo) == NEW
    assert [(repo / name).stat().st_mode & 0o777 for name in ("a.py", "b.py")] == [0o755, 0o600]


def test_a_link_stays_a_link_and_its_target_is_rewritten(repo: Path) -> None:
    link = repo.parent / "link.py"
    link.symlink_to("repo/a.py")
    transaction.write([Replacement(link, Path(os.path.realpath(link)), b"old a\n", b"new a\n")])
    assert link.is_symlink()
    assert (repo / "a.py").read_text() == "new a\n"


def test_a_file_changed_since_it_was_read_stops_the_whole_write(repo: Path) -> None:
    replacements = _replacements(repo)
    (repo / "b.py").write_text("edited meanwhile\n")
    with pytest.raises(Unusable, match=r"b\.py: changed on disk"):
        transaction.write(replacements)
    assert _texts(repo) == "old a\nedited meanwhile\nold c\n"


def test_a_change_before_renaming_takes_all_back(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replacements = _replacements(repo)

    def edit_next(name: str) -> None:
        if name == "a.py":
            (repo / "b.py").write_text("edited meanwhile\n")

    _before_renames(monkeypatch, edit_next)
    with pytest.raises(Unusable, match="changed on disk"):
        transaction.write(replacements)
    assert _texts(repo) == "old a\nedited meanwhile\nold c\n"


def test_a_read_only_file_is_not_written_even_by_root(repo: Path) -> None:
    (repo / "c.py").chmod(0o444)
    with pytest.raises(Unusable, match=r"c\.py: is read-only.*chmod u\+w"):
        transaction.write(_replacements(repo))
    assert _texts(repo) == OLD


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("at", ["a.py", "b.py", "c.py", "sync"])
def test_a_failure_at_any_rename_or_text_puts_everything_back(
    repo: Path, state: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, at: str
) -> None:
    replacements = _replacements(repo)

    def failing(name: str) -> None:
        if name == at:
            raise error

    def sync(file: int) -> None:  # of the text of b.py: a full disk, say
        if Path(f"/proc/self/fd/{file}").readlink().name.startswith((".b.py", "b.py")):
            raise error

    _before_renames(monkeypatch, failing)
    if at == "sync":
        monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else Unusable):
        transaction.write(replacements)
    assert _texts(repo) == OLD
    assert not list(state.iterdir())


def test_no_place_for_state_says_what_to_set(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/state")
    with pytest.raises(Unusable, match="Set XDG_STATE_HOME"):
        transaction.write(_replacements(repo))
    assert _texts(repo) == OLD


_KILLED = """
import os, signal, sys
from pathlib import Path
from crosstrain_migrate.files import transaction
from crosstrain_migrate.files.transaction import Replacement
repo, at = Path(sys.argv[1]), int(sys.argv[2])
rename, turns = Path.replace, iter(range(100))
def replace(self, target):
    if next(turns) == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)
Path.replace = replace
"""
WRITE = """
files = sorted(repo.glob("*.py"))
transaction.write([Replacement(f, f, f.read_bytes(), f.read_bytes().replace(b"old", b"new")) for f in files])
"""


def _kill(repo: Path, at: int, act: str = WRITE) -> None:
    killed = subprocess.run([sys.executable, "-c", f"{_KILLED}\n{act}", repo, str(at)])
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.parametrize("at", range(6))
def test_after_a_kill_every_file_is_whole_and_the_next_run_puts_all_back(repo: Path, at: int) -> None:
    """Renames in order: journal (staging), journal (renaming), a, b, c, journal (done)."""
    _kill(repo, at)
    done = max(at - 2, 0)
    texts = "".join((repo / f"{name}.py").read_text() for name in "abc")
    assert texts == "".join(f"{'new' if n < done else 'old'} {name}\n" for n, name in enumerate("abc"))
    restored = transaction.recover()
    assert _texts(repo) == OLD
    assert [file.name for one in restored for file in one.files] == [f"{name}.py" for name in "abc"[:done]]
    assert transaction.recover() == []


def test_recovery_leaves_a_file_alone_that_was_edited_since(repo: Path) -> None:
    _kill(repo, 4)
    (repo / "a.py").write_text("mine\n")
    (restored,) = transaction.recover()
    assert _texts(repo) == "mine\nold b\nold c\n"
    assert [file.name for file in restored.left_alone] == ["a.py"]


def test_recovery_does_not_touch_a_write_still_going_on(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def look(name: str) -> None:
        other = "from crosstrain_migrate.files import transaction; print(transaction.recover())"
        if name == "c.py":
            seen.append(subprocess.check_output([sys.executable, "-c", other]))

    _before_renames(monkeypatch, look)
    transaction.write(_replacements(repo))
    assert seen == [b"[]\n"]
    assert _texts(repo) == NEW


# --- undo ---


def test_undo_brings_the_last_write_back_and_then_the_one_before(repo: Path) -> None:
    transaction.write(_replacements(repo))
    file = repo / "a.py"
    transaction.write([Replacement(file, file, b"new a\n", b"newest a\n")])
    assert transaction.undo([repo]) == (file,)
    assert _texts(repo) == NEW
    assert len(transaction.undo([repo])) == 3
    assert _texts(repo) == OLD
    with pytest.raises(Unusable, match="holds no file that migrate wrote"):
        transaction.undo([repo])


def test_undo_concerns_one_directory_and_overwrites_no_later_work(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_bytes(b"old\n")
    transaction.write(_replacements(repo))
    transaction.write([Replacement(other, other, b"old\n", b"new\n")])
    (repo / "b.py").write_text("mine\n")
    with pytest.raises(Unusable, match=r"b\.py: was edited after the write"):
        transaction.undo([repo])
    assert _texts(repo) == "new a\nmine\nnew c\n"
    (repo / "b.py").write_text("new b\n")
    transaction.undo([repo])
    assert (_texts(repo), other.read_text()) == (OLD, "new\n")


def test_a_killed_undo_is_taken_back_and_can_be_asked_again(repo: Path) -> None:
    transaction.write(_replacements(repo))
    _kill(repo, 3, "transaction.undo([repo])")
    transaction.recover()
    assert _texts(repo) == NEW
    transaction.undo([repo])
    assert _texts(repo) == OLD


def test_only_the_last_writes_are_kept(repo: Path, state: Path) -> None:
    file = repo / "a.py"
    for number in range(25):
        transaction.write([Replacement(file, file, file.read_bytes(), f"text {number}\n".encode())])
    assert len(list(state.iterdir())) == 20


def test_another_run_that_has_just_ended_is_no_failure(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs at once: what one of them lists, the other one has deleted before it is looked at."""
    (state / "1-gone").mkdir(parents=True)
    listed = transaction._journals()
    (state / "1-gone").rmdir()
    monkeypatch.setattr(transaction, "_journals", lambda: listed)
    assert transaction.recover() == []
