"""What a launch on several processes changes: the size of the batch, and how schedulers count. For the reports."""

from __future__ import annotations

import ast

from .arguments import given
from .facts import Facts
from .values import Member, Value


def launch_facts(facts: Facts, runtime: str) -> dict[str, str]:
    """Heading -> sentence, in the words of the script."""
    found = {}
    sizes = [f"`{facts.name_of(loader)}` ({_batch_size(loader)})" for loader in facts.train_loaders]
    if sizes:
        own = runtime == "crosstrain"
        switch = "`crosstrain launch --split-batches`" if own else "`Accelerator(split_batches=True)`"
        found["Batch size"] = (
            f"{', '.join(sizes)}: each of N processes takes a batch of its own, so one step sees N times as many rows and "
            f"an epoch has 1/N as many steps; the learning rate stays. {switch} shares one batch instead."
        )
    steps = [f"`{facts.name_of(one)}` steps {_rhythm(facts, one)}" for one in facts.schedulers]
    if steps:
        found["Schedulers"] = f"{', '.join(steps)}."
    return found


def _batch_size(loader: Value) -> str:
    site = getattr(loader, "site", None)
    if not isinstance(site, ast.Call):
        return "its size is not in this file"
    size = given(site, "batch_size", 1)
    if size is not None and not isinstance(size, ast.Starred):
        return f"batch_size={ast.unparse(size)}"
    hidden = any(one.arg in {None, "batch_sampler"} for one in site.keywords)
    return "its size comes from elsewhere" if hidden else "batch_size=1"


def _rhythm(facts: Facts, scheduler: Value) -> str:
    calls = [call for call in facts.method_calls("step") if Member(scheduler, "step") in facts.of(call.func)]
    if any(facts.in_batch_loop(call, set(facts.train_loaders)) for call in calls):
        return "once a batch, counted over the batches of all processes"
    return "once an epoch, whatever the number of processes" if calls else "nowhere in this file"
