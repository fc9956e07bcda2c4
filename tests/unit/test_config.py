"""Configuration: the nearest file counts, and a mistake in it is named with what was probably meant."""

from pathlib import Path

import pytest
from crosstrain_migrate.cli.config import Config, load
from crosstrain_migrate.files.sources import Unusable

TABLE = "[tool.crosstrain.migrate]\n"
NAME = r"\[tool\.crosstrain\.migrate\]"


def _write(place: Path, text: str) -> Path:
    """text: keys of migrate's table, or whole tables."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "pyproject.toml"
    file.write_text(text if text.startswith("[") else TABLE + text)
    return file


def test_every_key_is_read(tmp_path: Path) -> None:
    _write(
        tmp_path,
        'select = ["CT1", "CT2"]\nextend-select = ["CT7"]\nignore = ["CT203"]\nexclude = ["old/"]\n'
        'runtime = "accelerate"\nfollow = false\nfail-on = ["refused"]\n',
    )
    lists = {"select": ("CT1", "CT2"), "extend_select": ("CT7",), "ignore": ("CT203",), "exclude": ("old/",)}
    expected = Config(**lists, runtime="accelerate", follow=False, fail_on=("refused",))  # type: ignore[arg-type]
    assert load([tmp_path / "train.py"], None) == expected


def test_the_nearest_file_counts_up_to_the_repository(tmp_path: Path) -> None:
    _write(tmp_path, 'runtime = "accelerate"\n')
    (tmp_path / "repo" / "src").mkdir(parents=True)
    assert load([tmp_path / "repo" / "src" / "a.py"], None).runtime == "accelerate"
    (tmp_path / "repo" / ".git").mkdir()
    assert load([tmp_path / "repo" / "src" / "a.py"], None) == Config()
    _write(tmp_path / "repo", "follow = false\n")
    assert load([tmp_path / "repo" / "src"], None).follow is False


def test_several_paths_take_the_file_above_all_of_them(tmp_path: Path) -> None:
    _write(tmp_path / "a", 'runtime = "accelerate"\n')
    _write(tmp_path, "follow = false\n")
    (tmp_path / "b").mkdir()
    assert load([tmp_path / "a", tmp_path / "b"], None) == Config(follow=False)


def test_other_tables_are_not_ours(tmp_path: Path) -> None:
    text = "[tool.crosstrain.launch]\nnum-processes = 2\n[tool.ruff]\nline-length = 90\n"
    assert load([], _write(tmp_path, text)) == Config()
    text = '[tool.migrate]\ndatabase = "x"\n[tool.crossplane]\na = 1\n'
    assert load([], _write(tmp_path, text)) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ignroe = ["CT1"]\n', "unknown key `ignroe`.*Did you mean `ignore`"),
        ("speed = 9\n", "unknown key `speed`.*Known keys: select"),
        ('select = "CT1"\n', "`select`.*not a list of strings"),
        ("select = [1]\n", "`select`.*not a list of strings"),
        ('follow = "no"\n', "not true or false"),
        ('runtime = "lightning"\n', "cannot be 'lightning'.*crosstrain, accelerate"),
        ('fail-on = ["everything"]\n', "cannot be 'everything'.*edits, refused"),
        ("[tool.crosstrain]\nstrict = true\n", rf"`strict` in \[tool\.crosstrain\].*Write it below {NAME}"),
        ("[tool.crosstrain.migrat]\nfollow = false\n", f"Did you mean {NAME}"),
        ("[tool.crosstain.migrate]\nfollow = false\n", rf"\[tool\.crosstain\].*Did you mean {NAME}"),
        ('[tool.migrate]\nselect = ["CT1"]\n', rf"\[tool\.migrate\].*mean {NAME}"),
        ("[tool.crosstrain]\nmigrate = 3\n", "is not a table"),
        ("[tool\n", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = _write(tmp_path, text)
    with pytest.raises(Unusable, match=message) as raised:
        load([], file)
    assert raised.value.error.path == file
    file.unlink()
    with pytest.raises(Unusable, match="cannot be read"):
        load([], file)
