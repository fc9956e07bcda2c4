"""A warning where a model is in training mode in the loop of an evaluation that is divided among the processes."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from inspect import unwrap
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from crosstrain.data.evaluation_loader import EvaluationLoader
from crosstrain.utils import checks

if TYPE_CHECKING:
    from crosstrain.data.loader import Pass
    from crosstrain.step.prepared import PreparedObjects


class TrainingModeWatch:
    """Looks at the first forward of each model in such a loop; nothing is left behind when it has ended, so that a model whose
    forward the loop never calls can be pickled as a whole.

    It hooks the prepared models that are in training mode when the loop begins; where none is prepared, it looks at the
    first module with parameters that is called.
    """

    def __init__(self, prepared: PreparedObjects) -> None:
        self._prepared = prepared
        self._hooks: dict[int, list[RemovableHandle]] = {}  # by the identity of a pass that has not ended

    def begins(self, run: Pass) -> None:
        """A pass over a prepared loader begins."""
        loader = run.loader
        if not isinstance(loader, EvaluationLoader):
            return
        current, place = weakref.ref(run), checks.here()
        models = [one for one in self._prepared.models if one.training and not _is_script(one)]
        ways: list[Callable[..., RemovableHandle]] = [one.register_forward_pre_hook for one in models]
        if not self._prepared.models:
            ways = [register_module_forward_pre_hook]
        self._hooks[id(run)] = [_once(register, current, place) for register in ways]

    def takes_last(self, run: Pass) -> None:
        """Nothing is compared at the last batch."""

    def ends(self, run: Pass) -> None:
        """A pass ends, however it does: what still waits for a forward goes."""
        for hook in self._hooks.pop(id(run), ()):
            hook.remove()


def _once(
    register: Callable[..., RemovableHandle], current: weakref.ref[Pass], place: checks.Place
) -> RemovableHandle:
    """Register a hook that looks at one model's forward and removes itself."""

    def look(module: nn.Module, _given: Any) -> None:
        if next(module.parameters(), None) is None:
            return
        handle.remove()
        run = current()
        if not module.training or run is None or run not in run.loader._crosstrain.progress.runs:
            return
        first = getattr(run.loader, "start", 0) == 0  # the process with the first batch speaks
        if first and (torch.is_grad_enabled() or differs_by_mode(module)) and checks.first_use("mode"):
            warnings.warn(
                f"{checks.here()}: the {type(module).__name__} is in training mode in the evaluation at {place}: call "
                f"model.eval() before the loop. Each process has batches of its own there, and not as many as the others: "
                f"batch statistics and dropout differ from those of one process, and a backward pass would wait for "
                f"processes that have no batch left.",
                stacklevel=3,
            )

    handle = register(look)
    return handle


def differs_by_mode(model: nn.Module) -> bool:
    """Whether a part of a model may compute something else in training mode: dropout, batch statistics, or its own code asks."""
    return any(map(_differs, model.modules()))


def _differs(part: nn.Module) -> bool:
    if type(part).__module__.startswith("torch.nn."):
        drops = getattr(part, "p" if isinstance(part, _DropoutNd) else "dropout", 0)
        return (
            bool(drops)
            or isinstance(part, (_BatchNorm, nn.RReLU))
            or getattr(part, "track_running_stats", False)
        )
    own = [kind for kind in type(part).__mro__ if not kind.__module__.startswith("torch.")]
    codes = (getattr(unwrap(f), "__code__", None) for kind in own for f in vars(kind).values() if callable(f))
    return any(code is not None and "training" in code.co_names for code in codes)


def _is_script(model: nn.Module) -> bool:
    return isinstance(model, torch.jit.ScriptModule)  # takes no hooks
