"""Every transformation there is."""

from __future__ import annotations

import importlib
import pkgutil

from tests.corpora.variations import families
from tests.corpora.variations.registry import REGISTERED, Variation

for module in pkgutil.iter_modules(families.__path__):
    importlib.import_module(f"{families.__name__}.{module.name}")

VARIATIONS: dict[str, Variation] = dict(
    sorted(REGISTERED.items(), key=lambda item: (item[1].family, item[0]))
)
