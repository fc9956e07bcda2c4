"""The part of an Accelerator that talks to trackers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from crosstrain.state import RUN, AcceleratorState
from crosstrain.tracking.trackers import LOGGER_TYPE_TO_CLASS, GeneralTracker
from crosstrain.utils.dataclasses import ProjectConfiguration


class Tracking:
    """The part of an Accelerator that talks to trackers."""

    state: AcceleratorState
    project_configuration: ProjectConfiguration
    log_with: list[str | GeneralTracker]
    trackers: list[GeneralTracker]

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
        self.trackers = []
        for one in self.log_with:
            tracker = self._make(one, project_name, dict((init_kwargs or {}).get(str(one), {})))
            if tracker is not None:
                tracker.start()
                self.trackers.append(tracker)
                if config is not None:
                    tracker.store_init_configuration(config)

    def _make(self, one: str | GeneralTracker, name: str, options: dict[str, Any]) -> GeneralTracker | None:
        if isinstance(one, GeneralTracker):
            return one if self._speaks(one) else None
        kind: Callable[..., GeneralTracker] = LOGGER_TYPE_TO_CLASS[one]
        if not self.state.is_main_process:
            return None
        if not LOGGER_TYPE_TO_CLASS[one].requires_logging_directory:
            return kind(name, **options)
        folder = options.pop("logging_dir", None) or self.project_configuration.logging_dir
        if folder is None:
            raise ValueError(
                f"the tracker {one!r} writes files: give Accelerator a project_dir or a logging_dir"
            )
        return kind(name, folder, **options)

    def _speaks(self, tracker: GeneralTracker) -> bool:
        return self.state.is_main_process or not tracker.main_process_only

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """A started tracker (``unwrap``: the library's object); on other processes one that does nothing."""
        for tracker in self.trackers:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        if not self.state.is_main_process:
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
        """Record ``values`` with every tracker."""
        if self.log_with and not self.trackers and self.state.is_main_process:
            warnings.warn(
                "log: no tracker is started, and nothing is recorded. Call init_trackers(project_name) before it, "
                "and end_training() after the last.",
                stacklevel=2,
            )
        for tracker in self.trackers:
            tracker.log(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def log_images(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Record images with the trackers that can."""
        for tracker in self.trackers:
            if hasattr(tracker, "log_images"):
                tracker.log_images(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    def end_training(self) -> None:
        """Close the trackers and leave the process group."""
        for tracker in self.trackers:
            tracker.finish()
        self.trackers = []
        RUN.end()
