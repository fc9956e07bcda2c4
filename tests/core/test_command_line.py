"""What a command line can say stays true: every option of an original, its default, and the device that its flags choose."""

from pathlib import Path

import pytest

from tests.corpora.command_line import differences
from tests.golden.cases import Case, cases

WITH_OPTIONS = [one for one in cases() if one.expect == "converted" and "add_argument" in one.source.text]


@pytest.mark.parametrize("case", WITH_OPTIONS, ids=lambda case: case.name)
def test_the_golden_scripts_are_told_the_same(case: Case, tmp_path: Path) -> None:
    after = tmp_path / "script.py"
    done = case.migrate().after
    assert done is not None
    after.write_text(done, encoding="utf-8")
    assert differences(case.before, after) == []
