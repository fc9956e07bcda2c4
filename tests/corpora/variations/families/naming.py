"""Names and imports."""

from __future__ import annotations

from random import Random

import libcst as cst

from tests.corpora.variations.registry import variation
from tests.corpora.variations.script import Script
from tests.golden.renaming import Renaming


@variation
def names_changed(script: Script, rng: Random) -> cst.Module | None:
    """every variable, function and class has another name"""
    if script.dynamic or len(script.project.files) > 1 or "import *" in script.text:
        return None
    return cst.parse_module(Renaming(script.text).apply(script.text))
