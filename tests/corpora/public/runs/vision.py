"""Classifiers of pictures."""

from __future__ import annotations

from tests.corpora.public.runs.run import Run

RUNS: dict[str, Run] = {
    "hunkim-softmax": Run(),
    "hunkim-cnn": Run(),
}
