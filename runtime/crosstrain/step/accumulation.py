"""Gradient accumulation: which micro-batches keep gradients local, and which one ends with a step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from torch import nn

from crosstrain.step import model as models
from crosstrain.step.prepared import PreparedObjects
from crosstrain.step.unprepared import watch_steps
from crosstrain.step.window import Gradients


class Accumulation:
    """Counts micro-batches in windows, each of which ends with an optimizer step.

    step: the number of micro-batches so far. window: the number by which `backward` divides the loss.
    """

    def __init__(self, gradients: Gradients, prepared: PreparedObjects) -> None:
        self.step = 0
        self.window = gradients.steps
        self.gradients = gradients
        self._prepared = prepared
        self._inside = False  # inside a micro-batch

    def set_steps(self, steps: int) -> None:
        """Accumulate this many micro-batches from now on; ValueError for less than 1."""
        if steps < 1:
            raise ValueError(f"gradient_accumulation_steps={steps} must be 1 or more")
        self.gradients.steps = self.window = steps
        watch_steps()

    @contextmanager
    def accumulate(self, *accumulated: nn.Module) -> Iterator[None]:
        """See `Accelerator.accumulate`."""
        if self._inside:
            with self._local(accumulated):
                yield
            return
        self._advance()
        self._inside = True
        try:
            with self._local(accumulated):
                yield
        except BaseException:
            self._give_up_window()
            raise
        finally:
            self._inside = False

    def _give_up_window(self) -> None:
        """Drop this window and its gradients, whether or not the script calls `zero_grad`; the next one begins anew."""
        self.step = 0
        self.gradients.sync_gradients = True
        for gate in self._prepared.gates:
            gate.discard()
        for sync in self._prepared.syncs:
            sync.discard()

    def _local(self, accumulated: tuple[nn.Module, ...]) -> AbstractContextManager[object]:
        """A context that keeps gradients of these models (or of all) and of loose parameters local.

        It has no effect in the micro-batch that ends the window.
        """
        stack = ExitStack()
        if not self.gradients.sync_gradients and not self.gradients.sync_each_batch:
            for model in (*(accumulated or self._prepared.models), None):
                stack.enter_context(no_sync(model))
        return stack

    def _advance(self) -> None:
        gradients = self.gradients
        if gradients.sync_gradients or self.step == 0:
            self.window = self._window_size()
        self.step += 1
        loader = gradients.active.current if gradients.sync_with_dataloader else None
        last = loader is not None and loader.end_of_dataloader
        gradients.sync_gradients = last or self.step % gradients.steps == 0
        if last:
            self.step = 0

    def _window_size(self) -> int:
        """The number by which `backward` divides the loss in the window that begins now."""
        gradients = self.gradients
        loader = gradients.active.current
        if not gradients.scale_last_window or loader is None:
            return gradients.steps
        here = loader._crosstrain.progress.current
        if here is None or here.length is None:
            return gradients.steps
        return min(gradients.steps, here.length - here.done + 1)


@contextmanager
def no_sync(model: nn.Module | None) -> Iterator[None]:
    """A context that keeps the gradients of this model local.

    None means those of the parameters that belong to no prepared model.
    """
    with ExitStack() as stack:
        for sync in models.syncs_of(model):
            stack.enter_context(sync.no_sync())
        yield


class AccumulationMembers:
    """The members of an Accelerator that accumulate gradients."""

    _accumulation: Accumulation

    @property
    def step(self) -> int:
        """The number of micro-batches so far; 0 after the last one of a pass."""
        return self._accumulation.step

    @step.setter
    def step(self, value: int) -> None:
        self._accumulation.step = value

    @property
    def sync_gradients(self) -> bool:
        """Whether the present micro-batch ends with an optimizer step; True outside of `accumulate`."""
        return self._accumulation.gradients.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, value: bool) -> None:
        self._accumulation.gradients.sync_gradients = value

    @property
    def gradient_accumulation_steps(self) -> int:
        """The number of micro-batches of one optimizer step. Setting it raises ValueError for less than 1."""
        return self._accumulation.gradients.steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: int) -> None:
        self._accumulation.set_steps(steps)

    def accumulate(self, *accumulated: nn.Module) -> AbstractContextManager[None]:
        """Return a context for one micro-batch, in which gradients of these models (default: all) add up locally.

        The window's last micro-batch averages the gradients over the ranks, and optimizers step in it. A window ends
        after `gradient_accumulation_steps` micro-batches, and at the last batch of the loader that is being iterated.
        If the body raises, the window's gradients are dropped, and the next micro-batch begins a new window. A context
        inside another one, for a second model, is the same micro-batch.
        """
        return self._accumulation.accumulate(*accumulated)

    def no_sync(self, model: nn.Module | None = None) -> AbstractContextManager[None]:
        """Return a context in which backward passes leave gradients local; without effect with one process.

        ``model``: whose gradients; None for those of an optimizer's parameters that belong to no prepared model.
        """
        return no_sync(model)
