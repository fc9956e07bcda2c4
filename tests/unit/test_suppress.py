"""Comments that keep the tool away, and those that keep nothing away."""

import pytest
from crosstrain_migrate.results import Severity
from crosstrain_migrate.syntax.suppress import suppressions

LINES = [("x = 1  # migrate: skip\ny = 2\n", 1, False), ("x = 1  # migrate: skip\ny = 2\n", 2, True)]
LINES += [("# migrate: skip\nx = 1\ny = 2\n", 2, False), ("# migrate: skip\nx = 1\ny = 2\n", 3, True)]
LINES += [("x = f(\n    1,\n)  # migrate: skip\n", 1, False)]
LINES += [("x = f(\n    1,  # migrate: skip\n)\n", 3, False)]
LINES += [("for x in y:  # migrate: skip\n    z = x\n", 2, True), ("x = 1  # migrate: skip CT2\n", 1, True)]
LINES += [("x = 1  # migrate: skip CT2,CT101\n", 1, False)]
LINES += [("x = 1  # migrate: skip CT1 -- by hand\n", 1, False)]
LINES += [("x = 1  # noqa  # migrate: skip\n", 1, False), ("s = '# migrate: skip'\n", 1, True)]
LINES += [("# migrate: off\nx = 1\n# migrate: on\ny = 2\n", 2, False)]
LINES += [("# migrate: off\nx = 1\n# migrate: on\ny = 2\n", 4, True)]
LINES += [("# migrate: off CT4\nx = 1\n", 2, True), ("# migrate: off\nx = 1\ny = 2\n", 3, False)]
LINES += [("x = 1\n# migrate: skip-file\n", 1, False), ("x = 1\n# migrate: skip-file CT4\n", 1, True)]
LINES += [("x = 1  # Migrate: SKIP ct1\n", 1, False)]


@pytest.mark.parametrize(("text", "line", "allowed"), LINES)
def test_allows(text: str, line: int, allowed: bool) -> None:
    assert suppressions(text).allows(line, "CT101") is allowed


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
