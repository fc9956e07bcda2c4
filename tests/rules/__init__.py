"""Every conversion rule on its own: what it must do, and what it must leave alone."""

import pytest

pytest.register_assert_rewrite("tests.rules.support")
