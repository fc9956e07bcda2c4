"""The public scripts that are known."""

import json
from pathlib import Path


def test_every_public_script_is_listed_once() -> None:
    listed = Path(__file__).parent / "public" / "scripts.json"
    scripts = json.loads(listed.read_text("utf-8"))["scripts"]
    assert len({script["id"] for script in scripts}) == len(scripts) == 102
    assert sum(script.get("new", False) for script in scripts) == 47
