"""Comments that keep the tool away, and those that keep nothing away."""

from __future__ import annotations

import pytest
from crosstrain_migrate.results import Severity
from crosstrain_migrate.syntax.suppress import suppressions


@pytest.mark.parametrize(
    ("text", "line", "code", "allowed"),
    [
        pytest.param("x = 1\n", 1, "CT101", True, id="no-comment"),
        pytest.param("x = 1  # migrate: skip\ny = 2\n", 1, "CT101", False, id="end-of-line"),
        pytest.param("x = 1  # migrate: skip\ny = 2\n", 2, "CT101", True, id="next-line-free"),
        pytest.param("# migrate: skip\nx = 1\ny = 2\n", 2, "CT101", False, id="alone-covers-statement-below"),
        pytest.param("# migrate: skip\nx = 1\ny = 2\n", 3, "CT101", True, id="alone-covers-one-statement"),
        pytest.param("x = f(\n    1,\n)  # migrate: skip\n", 1, "CT101", False, id="several-lines"),
        pytest.param("x = f(\n    1,  # migrate: skip\n)\n", 3, "CT101", False, id="inside-a-call"),
        pytest.param("for x in y:  # migrate: skip\n    z = x\n", 2, "CT101", True, id="header-only"),
        pytest.param("x = 1  # migrate: skip CT2\n", 1, "CT101", True, id="other-code"),
        pytest.param("x = 1  # migrate: skip CT2,CT101\n", 1, "CT101", False, id="one-of-the-codes"),
        pytest.param("x = 1  # migrate: skip CT1 -- by hand\n", 1, "CT101", False, id="prefix-and-reason"),
        pytest.param("x = 1  # noqa  # migrate: skip\n", 1, "CT101", False, id="after-another-comment"),
        pytest.param("s = '# migrate: skip'\n", 1, "CT101", True, id="in-a-string"),
        pytest.param("# migrate: off\nx = 1\n# migrate: on\ny = 2\n", 2, "CT101", False, id="block"),
        pytest.param("# migrate: off\nx = 1\n# migrate: on\ny = 2\n", 4, "CT101", True, id="after-block"),
        pytest.param("# migrate: off CT4\nx = 1\n", 2, "CT101", True, id="block-other-code"),
        pytest.param("# migrate: off\nx = 1\ny = 2\n", 3, "CT101", False, id="block-to-the-end"),
        pytest.param("x = 1\n# migrate: skip-file\n", 1, "CT101", False, id="file"),
        pytest.param("x = 1\n# migrate: skip-file CT4\n", 1, "CT101", True, id="file-other-code"),
        pytest.param("x = 1  # Migrate: SKIP ct1\n", 1, "CT101", False, id="any-case"),
    ],
)
def test_allows(text: str, line: int, code: str, allowed: bool) -> None:
    assert suppressions(text).allows(line, code) is allowed


def test_an_unneeded_comment_is_reported_where_it_stands() -> None:
    comments = suppressions("x = 1  # migrate: skip\ny = 2  # migrate: skip\n")
    comments.allows(1, "CT101")
    (finding,) = comments.reports(unused=True)
    assert (finding.line, finding.column, finding.severity) == (2, 8, Severity.NOTE)
    assert "suppresses nothing" in finding.reason


@pytest.mark.parametrize("comment", ["# migrate: skpi", "# migrate: on", "# migrate: skip train loop"])
def test_a_comment_that_is_not_understood_is_reported_and_changes_nothing(comment: str) -> None:
    comments = suppressions(f"x = 1  {comment}\n")
    assert comments.allows(1, "CT101")
    (finding,) = comments.reports(unused=True)
    assert "not understood" in finding.reason
