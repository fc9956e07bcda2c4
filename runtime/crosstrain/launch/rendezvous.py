"""Rendezvous handlers for torch's agent: for one machine, and for several over a network that may fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    rendezvous_handler_registry,
)

from crosstrain.launch import loopback
from crosstrain.utils.bounded import within

T = TypeVar("T")

LOCAL_BACKEND = "crosstrain-local"
BOUNDED_BACKEND = "crosstrain-c10d"
PATIENCE = "patience"  # seconds without an answer, in the parameters of BOUNDED_BACKEND
JOIN_SECONDS = 600  # how long machines wait for each other by default


def register() -> None:
    """Register both handlers with torch."""
    rendezvous_handler_registry.register(LOCAL_BACKEND, LocalRendezvous)
    rendezvous_handler_registry.register(BOUNDED_BACKEND, BoundedRendezvous)


class LocalRendezvous(RendezvousHandler):
    """The rendezvous of a single machine: a new store on a loopback port for every start and restart."""

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._parameters = parameters
        self._closed = False

    def get_backend(self) -> str:
        return LOCAL_BACKEND

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        listener, port = loopback.listen(int(self._parameters.config["port"]))
        store = loopback.serve(listener)
        return RendezvousInfo(store, 0, 1, RendezvousStoreInfo(loopback.ADDRESS, port))

    def is_closed(self) -> bool:
        return self._closed

    def set_closed(self) -> None:
        self._closed = True

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._parameters.run_id

    def shutdown(self) -> bool:
        self._closed = True
        return True


class BoundedRendezvous(RendezvousHandler):
    """torch's c10d rendezvous with a limit for each request.

    If the link is cut, a request to the store of machine 0 lasts until the kernel gives up after a quarter of an hour. Until
    then the agent would not even notice that its ranks have failed. So each request runs in its own thread, which is
    abandoned if there is no answer.
    """

    def __init__(self, parameters: RendezvousParameters) -> None:
        self._patience = float(parameters.config[PATIENCE])
        torchs = RendezvousParameters(
            backend="c10d",
            endpoint=parameters.endpoint,
            run_id=parameters.run_id,
            min_nodes=parameters.min_nodes,
            max_nodes=parameters.max_nodes,
            local_addr=parameters.local_addr,
            **{name: value for name, value in parameters.config.items() if name != PATIENCE},
        )
        self._inner = rendezvous_handler_registry.create_handler(torchs)
        self._lost = False

    def get_backend(self) -> str:
        return BOUNDED_BACKEND

    @property
    def use_agent_store(self) -> bool:
        return self._inner.use_agent_store

    def next_rendezvous(self) -> RendezvousInfo:
        # Joining has its own limit, which it checks between its requests.
        return self._answer(self._inner.next_rendezvous, 2 * self._patience)

    def is_closed(self) -> bool:
        return self._answer(self._inner.is_closed, self._patience)

    def set_closed(self) -> None:
        self._answer(self._inner.set_closed, self._patience)

    def num_nodes_waiting(self) -> int:
        return self._answer(self._inner.num_nodes_waiting, self._patience)

    def get_run_id(self) -> str:
        return self._inner.get_run_id()

    def shutdown(self) -> bool:
        return not self._lost and self._answer(self._inner.shutdown, self._patience)

    def _answer(self, question: Callable[[], T], seconds: float) -> T:
        try:
            return within(seconds, question)
        except TimeoutError:
            self._lost = True
            raise RendezvousTimeoutError(f"machine 0 has not answered for {seconds:.0f} s") from None
