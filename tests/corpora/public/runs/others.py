"""Texts, sounds, graphs, recommendations, and pictures that are made or taken apart."""

from __future__ import annotations

from tests.corpora.public.runs.run import Run

RUNS: dict[str, Run] = {}
