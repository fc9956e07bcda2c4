"""Starting the trackers of a run, and telling them what is logged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crosstrain.state import RUN
from crosstrain.tracking.base import GeneralTracker
from crosstrain.tracking.registry import LOGGER_TYPE_TO_CLASS
from crosstrain.utils.dataclasses import ProjectConfiguration


class Trackers:
    """The trackers that an Accelerator was asked for (``wanted``), and those that are started."""

    def __init__(self, wanted: Sequence[str | GeneralTracker], project: ProjectConfiguration) -> None:
        self.started: list[GeneralTracker] = []
        self._wanted = wanted
        self._project = project

    def start(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """See `Accelerator.init_trackers`."""
        self.started = []
        for one in self._wanted:
            tracker = self._make(one, project_name, dict((init_kwargs or {}).get(str(one), {})))
            if tracker is not None:
                tracker.start()
                self.started.append(tracker)
                if config is not None:
                    tracker.store_init_configuration(config)

    def _make(self, one: str | GeneralTracker, name: str, options: dict[str, Any]) -> GeneralTracker | None:
        if isinstance(one, GeneralTracker):
            return one if self._speaks(one) else None
        registered = LOGGER_TYPE_TO_CLASS[one]
        if not self._speaks(registered):
            return None
        kind: Callable[..., GeneralTracker] = registered
        if not registered.requires_logging_directory:
            return kind(name, **options)
        folder = options.pop("logging_dir", None) or self._project.logging_dir
        if folder is None:
            raise ValueError(
                f"the tracker {one!r} writes files: give Accelerator a project_dir or a logging_dir"
            )
        return kind(name, folder, **options)

    def _speaks(self, tracker: GeneralTracker | type[GeneralTracker]) -> bool:
        return RUN.comm.rank == 0 or not tracker.main_process_only

    def get(self, name: str, unwrap: bool = False) -> Any:
        """See `Accelerator.get_tracker`."""
        for tracker in self.started:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        if RUN.comm.rank != 0:
            return GeneralTracker(_blank=True)
        started = ", ".join(tracker.name for tracker in self.started) or "none"
        raise ValueError(
            f"the tracker {name!r} was not started (started: {started}); call init_trackers first"
        )

    def log(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """See `Accelerator.log`."""
        if self._wanted and not self.started and RUN.comm.rank == 0:
            warnings.warn(
                "log: no tracker is started, and nothing is recorded. Call init_trackers(project_name) before it, "
                "and end_training() after the last.",
                stacklevel=3,
            )
        for tracker in self.started:
            tracker.log(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def log_images(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """See `Accelerator.log_images`."""
        for tracker in self.started:
            if hasattr(tracker, "log_images"):
                tracker.log_images(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def finish(self) -> None:
        """See `Accelerator.end_training`."""
        for tracker in self.started:
            tracker.finish()
        self.started = []


class TrackingMembers:
    """The part of an Accelerator that talks to trackers."""

    _trackers: Trackers

    @property
    def trackers(self) -> list[GeneralTracker]:
        """Those that are started."""
        return self._trackers.started

    @trackers.setter
    def trackers(self, started: list[GeneralTracker]) -> None:
        self._trackers.started = started

    def init_trackers(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Start the trackers of ``log_with`` and give them the hyper-parameters.

        ``init_kwargs`` has further options by tracker name. Runs on the main process, except for trackers that
        want every process.
        """
        self._trackers.start(project_name, config, init_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """A started tracker (``unwrap``: the library's object); on other processes one that does nothing."""
        return self._trackers.get(name, unwrap)

    def log(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record ``values`` with every tracker."""
        self._trackers.log(values, step, log_kwargs)

    def log_images(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record images with the trackers that can."""
        self._trackers.log_images(values, step, log_kwargs)

    def end_training(self) -> None:
        """Close the trackers, wait for a checkpoint that is being written, and leave the process group."""
        self._trackers.finish()
        RUN.end()
