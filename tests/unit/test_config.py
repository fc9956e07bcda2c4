"""Configuration: the nearest file counts, and a mistake in it is named with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.cli.config import Config, load
from crosstrain_migrate.files.sources import Unusable


def _write(place: Path, text: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    file = place / "pyproject.toml"
    file.write_text(text)
    return file


def test_every_key_is_read(tmp_path: Path) -> None:
    _write(
        tmp_path,
        '[tool.crosstrain.migrate]\nselect = ["CT1", "CT2"]\nextend-select = ["CT7"]\nignore = ["CT203"]\n'
        'exclude = ["old/"]\nruntime = "accelerate"\nfollow = false\nfail-on = ["refused"]\n',
    )
    assert load([tmp_path / "train.py"], None) == Config(
        select=("CT1", "CT2"),
        extend_select=("CT7",),
        ignore=("CT203",),
        exclude=("old/",),
        runtime="accelerate",
        follow=False,
        fail_on=("refused",),
    )


def test_the_nearest_file_counts_up_to_the_repository(tmp_path: Path) -> None:
    _write(tmp_path, '[tool.crosstrain.migrate]\nruntime = "accelerate"\n')
    (tmp_path / "repo" / "src").mkdir(parents=True)
    assert load([tmp_path / "repo" / "src" / "a.py"], None).runtime == "accelerate"
    (tmp_path / "repo" / ".git").mkdir()
    assert load([tmp_path / "repo" / "src" / "a.py"], None) == Config()
    _write(tmp_path / "repo", "[tool.crosstrain.migrate]\nfollow = false\n")
    assert load([tmp_path / "repo" / "src"], None).follow is False


def test_several_paths_take_the_file_above_all_of_them(tmp_path: Path) -> None:
    _write(tmp_path / "a", '[tool.crosstrain.migrate]\nruntime = "accelerate"\n')
    _write(tmp_path, "[tool.crosstrain.migrate]\nfollow = false\n")
    (tmp_path / "b").mkdir()
    assert load([tmp_path / "a", tmp_path / "b"], None) == Config(follow=False)


def test_other_tables_of_the_product_are_not_ours(tmp_path: Path) -> None:
    file = _write(tmp_path, "[tool.crosstrain.launch]\nnum-processes = 2\n[tool.ruff]\nline-length = 90\n")
    assert load([], file) == Config()


def test_another_tools_table_is_left_alone(tmp_path: Path) -> None:
    file = _write(tmp_path, '[tool.migrate]\ndatabase = "x"\n[tool.crossplane]\na = 1\n')
    assert load([], file) == Config()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tool.crosstrain.migrate]\nignroe = ["CT1"]\n', "unknown key `ignroe`.*Did you mean `ignore`"),
        ("[tool.crosstrain.migrate]\nspeed = 9\n", "unknown key `speed`.*Known keys: select"),
        ('[tool.crosstrain.migrate]\nselect = "CT1"\n', "`select`.*not a list of strings"),
        ("[tool.crosstrain.migrate]\nselect = [1]\n", "`select`.*not a list of strings"),
        ('[tool.crosstrain.migrate]\nfollow = "no"\n', "not true or false"),
        (
            '[tool.crosstrain.migrate]\nruntime = "lightning"\n',
            "cannot be 'lightning'.*crosstrain, accelerate",
        ),
        ('[tool.crosstrain.migrate]\nfail-on = ["everything"]\n', "cannot be 'everything'.*edits, refused"),
        (
            "[tool.crosstrain]\nstrict = true\n",
            r"`strict` in \[tool\.crosstrain\].*Write it below \[tool\.crosstrain\.migrate\]",
        ),
        ("[tool.crosstrain.migrat]\nfollow = false\n", r"Did you mean \[tool\.crosstrain\.migrate\]"),
        (
            "[tool.crosstain.migrate]\nfollow = false\n",
            r"\[tool\.crosstain\].*Did you mean \[tool\.crosstrain\.migrate\]",
        ),
        (
            '[tool.migrate]\nselect = ["CT1"]\n',
            r"\[tool\.migrate\].*Did you mean \[tool\.crosstrain\.migrate\]",
        ),
        ("[tool.crosstrain]\nmigrate = 3\n", "is not a table"),
        ("[tool\n", "is not TOML"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = _write(tmp_path, text)
    with pytest.raises(Unusable, match=message) as raised:
        load([], file)
    assert raised.value.error.path == file


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be read"):
        load([], tmp_path / "none.toml")
