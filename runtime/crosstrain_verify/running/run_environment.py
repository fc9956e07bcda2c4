"""What a job changes around its script, and puts back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crosstrain.launch.target import Compile, compile_source, hide_from_tracebacks

hide_from_tracebacks(__file__)

OBSERVED = 0.8  # share of an observed run's time after which it is ended


class RunEnvironment:
    """What a job changes around its script: devices, loader workers, where it writes, whether its steps count."""

    def __init__(self, job: Mapping[str, Any], tracer: Any, rank: int, port: int) -> None:
        from crosstrain_verify.emulation.confine import Confined
        from crosstrain_verify.emulation.launcher import Launcher

        self._job = job
        self._tracer = tracer
        self._confined = Confined(Path(job["out"]).parent)
        self.written = self._confined.written
        self.launcher = Launcher(rank, job["world"], port)
        self.redrew: Callable[[], bool] = lambda: False
        self.keeping: Any = None
        self.replay: Any = None
        self.observation: Any = None
        self.compiled: Compile = compile_source  # compiles the script, or each cell of a notebook

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Install everything, the hooks last, so that they record what the script would compute without them."""
        from crosstrain_verify.emulation import (
            devices,
            double_precision,
            eager_compile,
            fast_clock,
            fetching,
            frozen_weights,
            row_by_row,
            single_process,
            synthetic,
        )
        from crosstrain_verify.emulation.draws import SharedDraws, share_statistics
        from crosstrain_verify.tracing.replay import Keeping, Replay
        from crosstrain_verify.tracing.script_lines import is_script

        job = self._job
        eager_compile.install()
        single_process.install(dict(job["leave_out"]))
        if job["devices"] != "real":
            count = job["world"] if job["per_rank"] else 1
            devices.install(available=job["devices"] == "present", count=count)
        self.launcher.install()
        if job["double"]:
            double_precision.install()
        if job["fast_clock"]:
            fast_clock.install(is_script)
        shared = None
        if job["shares"] > 1:
            watch, whole = self._tracer.watch, job["whole"]
            shared = SharedDraws(
                job["shares"],
                lambda: None if watch.last in whole else watch.rows,
                lambda: watch.opening not in {None, *whole},
                lambda: self._tracer.inside_backward,
            )
            self.redrew = lambda: shared.redrew
            shared.watch_seeds()
            share_statistics(shared.shares)
            fetching.install(shared, lambda: None if watch.source is None else watch.source not in whole)
        if job["row_by_row"]:
            row_by_row.install()
        if job["frozen"]:
            frozen_weights.install()
            if job["cut_short"]:
                self._tracer.go_on_to_evaluation(job["cut_short"])
        self._tracer.install(several=job["world"] > 1)
        self._tracer.watch.whole_batches = job["per_rank"]
        if job["keep"]:
            self.keeping = Keeping(job["keep"])
            self.keeping.install(self._tracer.watch)
        if job["replay"]:
            self.replay = Replay(Path(job["replay"]))
            self.replay.install(self._tracer.watch)
        if job["observed"]:
            self._observe()
        if job["confined"]:
            self._confined.install()
        if job["data"] == "synthetic":
            synthetic.install(Path(job["script"]).parent)
        with shared or contextlib.nullcontext():
            yield

    def recorded(self) -> dict[str, Any]:
        """What the environment has recorded, as fields of a trace."""
        return {
            "written": dict(self.written),
            "redrew": self.redrew(),
            "mixed": self.replay is not None and self.replay.mixed,
            "joined": self.launcher.joined,
            "wrapped": self.launcher.wrapped,
            "spawned": self.launcher.spawned,
            "observations": None if self.observation is None else self.observation.observations(),
        }

    def _observe(self) -> None:
        from crosstrain_verify.tracing.observation import Observation

        job = self._job
        # The rest of the time is for the script's end and for writing the trace.
        seconds = OBSERVED * job["timeout"]
        script, cwd = Path(job["script"]), Path(job["cwd"])
        folder = cwd if cwd in script.parents else script.parent
        doubled = job["observed"] == "doubled"
        self.observation = Observation(folder, self._tracer, doubled=doubled, seconds=seconds)
        self.observation.install(few=job["few"])
        self.compiled = self.observation.compiled
