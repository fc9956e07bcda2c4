"""The short set: slow tests of this folder are left out unless they are asked for.

`pytest -m slow`, any other `-m`, or CROSSTRAIN_TEST_ALL=1 ask for them.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr or os.environ.get("CROSSTRAIN_TEST_ALL"):
        return
    here = Path(__file__).parent
    for item in items:
        if item.get_closest_marker("slow") and item.path.is_relative_to(here):
            item.add_marker(pytest.mark.skip(reason="slow; CROSSTRAIN_TEST_ALL=1 runs it"))
