"""Models that the script has wrapped in DistributedDataParallel, which averages their gradients itself."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from crosstrain.step.gradients import PlainBackward
from crosstrain.step.model_sync import ModelSync


class WrappedSync(ModelSync):
    """The `ModelSync` of a DistributedDataParallel, which it tells when gradients are to stay local.

    The wrapper averages gradients, with what was local before, in each backward pass, and sends buffers in its forward
    pass, so that nothing remains to be done before and after a step.
    """

    def __init__(self, wrapper: DistributedDataParallel, plain_backward: PlainBackward | None) -> None:
        # Weak: the registry that maps models to this object must not keep them alive.
        self._wrapper = weakref.ref(wrapper)
        self._managed = False
        self._handles: list[Any] = []
        if plain_backward is None:
            return
        for param in filter(lambda param: param.requires_grad, wrapper.parameters()):
            watched: Any = param  # torch leaves this method untyped
            handle = watched.register_post_accumulate_grad_hook(partial(self._arrive, plain_backward))
            self._handles.append(handle)

    @property
    def wrapper(self) -> DistributedDataParallel:
        wrapper = self._wrapper()
        assert wrapper is not None, "a model that no longer exists is being trained"
        return wrapper

    @property
    def replica(self) -> nn.Module:
        return self.wrapper

    @property
    def may_differ(self) -> bool:
        wrapper = self.wrapper
        return not wrapper.require_backward_grad_sync or wrapper._join_config.enable

    def _arrive(self, plain_backward: PlainBackward, _param: Tensor) -> None:
        if not self._managed:
            plain_backward(False, False)

    def parameters(self) -> list[nn.Parameter]:
        return list(self.wrapper.parameters())

    def expect(self) -> None:
        self._managed = True
        self.averagings += 1  # counts every backward pass, which is enough to see that the pass trains

    def finish(self) -> None:
        self._managed = False

    def abandon(self) -> None:
        self._managed = False

    def no_sync(self) -> AbstractContextManager[None]:
        return self.wrapper.no_sync()

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
