"""How the public scripts run small: their arguments, and the files that they read, made by seeded code.

An entry makes only data and configuration; of the script itself nothing is changed but numbers that make it large.
"""

from __future__ import annotations

from tests.corpora.public.runs import distributed, notebooks, others, vision
from tests.corpora.public.runs.run import Run as Run

RUNS: dict[str, Run] = {**vision.RUNS, **others.RUNS, **distributed.RUNS, **notebooks.RUNS}
