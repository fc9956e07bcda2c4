"""The members of an Accelerator that start trackers and log to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crosstrain.run import RUN
from crosstrain.tracking.base import GeneralTracker
from crosstrain.tracking.registry import LOGGER_TYPE_TO_CLASS
from crosstrain.utils.dataclasses import ProjectConfiguration


@dataclass
class Trackers:
    """The trackers of one Accelerator: those of its ``log_with`` (``wanted``), and those that were ``started``."""

    wanted: Sequence[str | GeneralTracker]
    project: ProjectConfiguration
    started: list[GeneralTracker] = field(default_factory=list)

    def make(self, one: str | GeneralTracker, name: str, options: dict[str, Any]) -> GeneralTracker | None:
        """The tracker that ``log_with`` has or names; None where it is another process's business."""
        if isinstance(one, GeneralTracker):
            return one if _speaks(one) else None
        registered = LOGGER_TYPE_TO_CLASS[one]
        if not _speaks(registered):
            return None
        kind: Callable[..., GeneralTracker] = registered
        if not registered.requires_logging_directory:
            return kind(name, **options)
        folder = options.pop("logging_dir", None) or self.project.logging_dir
        if folder is None:
            raise ValueError(
                f"the tracker {one!r} writes files: give Accelerator a project_dir or a logging_dir"
            )
        return kind(name, folder, **options)


def _speaks(tracker: GeneralTracker | type[GeneralTracker]) -> bool:
    return RUN.comm.rank == 0 or not tracker.main_process_only


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
        self.trackers = []
        for one in self._trackers.wanted:
            tracker = self._trackers.make(one, project_name, dict((init_kwargs or {}).get(str(one), {})))
            if tracker is not None:
                tracker.start()
                self.trackers.append(tracker)
                if config is not None:
                    tracker.store_init_configuration(config)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """The started tracker of that name, or with ``unwrap`` its library's object.

        On other processes than the main one this is a tracker that does nothing. Raises ValueError for a tracker that
        was not started.
        """
        for tracker in self.trackers:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        if RUN.comm.rank != 0:
            return GeneralTracker(_blank=True)
        started = ", ".join(tracker.name for tracker in self.trackers) or "none"
        raise ValueError(
            f"the tracker {name!r} was not started (started: {started}); call init_trackers first"
        )

    def log(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record ``values`` by name with every started tracker.

        ``log_kwargs`` has options of the libraries by tracker name. Warns where no tracker was started.
        """
        if self._trackers.wanted and not self.trackers and RUN.comm.rank == 0:
            warnings.warn(
                "log: no tracker is started, and nothing is recorded. Call init_trackers(project_name) before it, "
                "and end_training() after the last.",
                stacklevel=2,
            )
        for tracker in self.trackers:
            tracker.log(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def end_training(self) -> None:
        """Close the trackers, wait for a checkpoint that is being written, and leave the process group (collective)."""
        for tracker in self.trackers:
            tracker.finish()
        self.trackers = []
        RUN.end()
