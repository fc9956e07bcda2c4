"""The members of an Accelerator that start trackers and log to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from crosstrain.run import RUN
from crosstrain.tracking.base import GeneralTracker
from crosstrain.tracking.registry import LOGGER_TYPE_TO_CLASS
from crosstrain.utils.dataclasses import ProjectConfiguration


class Trackers:
    """The trackers of one Accelerator: those of its ``log_with`` (``wanted``), and those that were started."""

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

    def finish(self) -> None:
        """See `Accelerator.end_training`."""
        for tracker in self.started:
            tracker.finish()
        self.started = []


class TrackingMembers:
    """Starting, using and closing trackers."""

    _trackers: Trackers

    @property
    def trackers(self) -> list[GeneralTracker]:
        """The trackers that were started; empty before `init_trackers`, and for most trackers on other processes."""
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
        """Start the trackers of ``log_with`` and record the hyper-parameters ``config``.

        ``init_kwargs`` has further options by tracker name. Only the main process starts a tracker, unless the
        tracker's ``main_process_only`` is False. Raises ValueError where a tracker needs a logging directory and the
        Accelerator has none, ImportError where its library is missing.
        """
        self._trackers.start(project_name, config, init_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """The started tracker of that name, or with ``unwrap`` its library's object.

        On other processes than the main one this is a tracker that does nothing. Raises ValueError for a tracker that
        was not started.
        """
        return self._trackers.get(name, unwrap)

    def log(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record ``values`` by name with every started tracker.

        ``log_kwargs`` has options of the libraries by tracker name. Warns where no tracker was started.
        """
        self._trackers.log(values, step, log_kwargs)

    def end_training(self) -> None:
        """Close the trackers, wait for a checkpoint that is being written, and leave the process group (collective)."""
        self._trackers.finish()
        RUN.end()
