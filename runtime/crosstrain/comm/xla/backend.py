"""TPUs and other devices that XLA supports: one process for each host, and all chips in one SPMD program.

Tensors on the device are global: the batch of a process is spread over its chips, a mean over rows is the mean over all
rows, and XLA itself adds the sums between chips to the compiled step. So nothing here averages gradients or gathers rows.
There is still one process for each host; objects, barriers and CPU tensors are exchanged between them by gloo.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import wraps
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from crosstrain.comm.protocol import Comm, Pending
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.comm.types import DistributedType
from crosstrain.comm.xla.api import internals, runtime, spmd, torch_xla
from crosstrain.comm.xla.api import model as xla_model
from crosstrain.comm.xla.gaps import fill_gaps
from crosstrain.comm.xla.group_of_one import start_group_of_one
from crosstrain.comm.xla.move import MOVED, move
from crosstrain.comm.xla.place import Dtypes, Spread, SpreadPlacer
from crosstrain.comm.xla.watch import CompilationWatch

T = TypeVar("T")

# Several processes, each with its own SPMD program, whose gradients gloo averages on the hosts. This serves to test several
# hosts where XLA has no collectives between processes. It is far too slow for anything else.
APART = "CROSSTRAIN_XLA_APART"
_DOWNCAST = {torch.float32: torch.bfloat16, torch.float64: torch.float32}


def _use_spmd() -> None:
    """Use one program over all chips. This must be set before the first tensor is put on an XLA device."""
    locked = internals._xla_get_spmd_config_is_locked()
    if locked and not runtime.is_spmd():
        raise RuntimeError(
            "a tensor was put on an XLA device before Accelerator() (or PartialState()) existed, so this process "
            "can no longer run one program over all chips. Construct the Accelerator first, and take the device "
            "from it."
        )
    if not locked:
        runtime.use_spmd()


def _check_autograd(device: torch.device) -> None:
    """Raise RuntimeError if a backward pass ran already: autograd counts the devices only at its first one."""
    try:
        start = torch.zeros((), device=device, requires_grad=True)
        torch.autograd.grad(start.clone(), start)
    except RuntimeError as error:
        raise RuntimeError(
            "a backward pass ran on the CPU before Accelerator() (or PartialState()) existed, and this process can "
            "no longer train on XLA. Construct the Accelerator before anything is trained; in a notebook, restart "
            "the kernel."
        ) from error


def _check_processes(world: int) -> bool:
    """Whether each process has its own program. RuntimeError if the processes would train separate copies."""
    joined = runtime.process_count()
    if joined == world:
        return False
    if joined == 1 and os.environ.get(APART) == "1":
        return True
    raise RuntimeError(
        f"{world} processes were started, but XLA on {os.environ.get('PJRT_DEVICE', 'this device')} joins "
        f"{joined}: gradients would not be averaged, and each process would train a copy of its own. Start one "
        f"process for each TPU host (`crosstrain launch --tpu`); one process drives all chips of its host."
    )


class XlaComm(Comm):
    """torch_xla in SPMD mode. ``replicas`` counts chips; ``world`` counts processes, and so hosts.

    apart: each process has its own program.
    """

    def __init__(self, hosts: TorchComm, *, apart: bool) -> None:
        self._hosts = hosts
        self.device: torch.device = torch_xla.device()
        _check_autograd(self.device)
        self.rank, self.world = hosts.rank, hosts.world
        self.local_rank, self.local_world = hosts.local_rank, hosts.local_world
        chips = runtime.global_runtime_device_count()
        self.replicas = chips * hosts.world if apart else chips
        self.distributed_type = DistributedType.XLA
        self.backend: str | None = "xla"
        self.averages = apart
        self.fixed_shapes = True
        self.landing = torch.device("cpu")
        mesh = spmd.Mesh(np.arange(chips), (chips,), ("data",))
        local = self.replicas // self.world
        self._spread = Spread(self.device, mesh, local, shared=self.world > 1 and not apart)
        self._dtypes: Dtypes = {}
        self.watch = CompilationWatch()
        self._stepped = False
        fill_gaps()
        self._seeding = _SeedsXla(self)
        self.seed(hosts.broadcast_object(torch.initial_seed()))

    @classmethod
    def start(
        cls,
        *,
        init_method: str | None = None,
        timeout: timedelta | None = None,
        group_of_one: bool | None = None,
    ) -> XlaComm:
        """Join the hosts' group and XLA's program. group_of_one: as of `TorchComm.start`, and not without being asked for.

        Raises RuntimeError if torch_xla is missing, XLA was used too early, or the processes would train separate copies.
        """
        _use_spmd()
        # gloo cannot exchange the device's tensors: a single host's group is another one.
        hosts = TorchComm.start(
            cpu=True, backend="gloo", init_method=init_method, timeout=timeout, group_of_one=False
        )
        try:
            comm = cls(hosts, apart=_check_processes(hosts.world))
        except BaseException:
            hosts.close()
            raise
        if group_of_one:
            comm.start_group_of_one()
        return comm

    # -- tensors ----------------------------------------------------------------------------------

    def _here(self, tensor: Tensor) -> bool:
        """Whether every process has the whole tensor, because one program computes it."""
        return tensor.device.type == self.device.type and not self.averages

    def all_gather(self, tensor: Tensor) -> Tensor:
        source = tensor.detach()
        if not self._here(source):
            return self._hosts.all_gather(source.cpu()).to(source.device)
        if self.world == 1:
            return source.unsqueeze(0)
        if source.dim() == 0:
            return source.expand(self.world)
        if source.shape[0] % self.world:
            raise ValueError(
                f"a tensor of {source.shape[0]} rows is not made of equal parts of {self.world} hosts"
            )
        return source.view(self.world, -1, *source.shape[1:])

    def all_gather_several(self, tensors: list[Tensor]) -> list[Tensor]:
        return [self.all_gather(tensor) for tensor in tensors]

    def all_reduce(self, tensor: Tensor, op: str) -> Tensor:
        if self._here(tensor):
            return tensor.detach().clone()
        return self._hosts.all_reduce(tensor.detach().cpu(), op).to(tensor.device)

    def broadcast(self, tensor: Tensor, src: int = 0) -> Tensor:
        if self.world == 1 or self._here(tensor):
            return tensor
        if tensor.device.type == "cpu":
            return self._hosts.broadcast(tensor, src)
        with torch.no_grad():
            return tensor.copy_(self._hosts.broadcast(tensor.detach().cpu(), src))

    def scatter(self, tensors: list[Tensor] | None, out: Tensor) -> Tensor:
        parts = None if tensors is None else [part.cpu() for part in tensors]
        return out.copy_(self._hosts.scatter(parts, torch.empty_like(out, device="cpu")))

    def flush(self, *, leaving: bool = False) -> None:
        self._hosts.flush(leaving=leaving)

    def start_average(self, tensor: Tensor) -> Pending:
        """Only called if each process has its own program; on one mesh the compiled step averages."""
        host = tensor.detach().cpu()
        return _CopyBack(self._hosts.start_average(host), host, tensor)

    # -- processes --------------------------------------------------------------------------------

    def all_gather_object(self, obj: object) -> list[Any]:
        return self._hosts.all_gather_object(obj)

    def broadcast_object(self, obj: T, src: int = 0) -> T:
        return self._hosts.broadcast_object(obj, src)

    def barrier(self) -> None:
        self._hosts.barrier()

    def agree(self, operation: str, told: str = "") -> None:
        self._hosts.agree(operation, told)

    def refuse(self, problem: str) -> NoReturn:
        self._hosts.refuse(problem)

    def wait_for(self, operation: str, work: Callable[[], T]) -> T:
        return self._hosts.wait_for(operation, work)

    @property
    def debug(self) -> bool:
        return self._hosts.debug

    @debug.setter
    def debug(self, value: bool) -> None:
        self._hosts.debug = value

    @property
    def gradient_group(self) -> Any:
        return self._hosts.gradient_group

    @property
    def is_scripts_own(self) -> bool:
        return self._hosts.is_scripts_own

    @property
    def in_group(self) -> bool:
        return self._hosts.in_group

    def on_host(self) -> None:
        return None  # XLA cannot leave SPMD mode

    def start_group_of_one(self) -> None:
        if self.world == 1:
            start_group_of_one()

    def close(self) -> None:
        self._seeding.stop()
        self._hosts.close()

    # -- what is prepared -------------------------------------------------------------------------

    def placer(self, non_blocking: bool, source: str) -> Callable[[Any], Any]:
        return SpreadPlacer(self.device, self._spread, self._dtypes, self.watch, source)

    def move(self, model: nn.Module) -> None:
        move(model, self.device, self._dtypes, MOVED)

    def shard(self, params: Iterable[nn.Parameter]) -> None:
        for param in params:
            self._spread.parameter(param)

    def adopt(self, optimizer: torch.optim.Optimizer) -> None:
        MOVED.remap(optimizer)
        held = [param for group in optimizer.param_groups for param in group["params"]]
        astray = sum(param.device != self.device for param in held)
        if astray:
            raise ValueError(
                f"{astray} of the {len(held)} parameters of the {type(optimizer).__name__} are not on "
                f"{self.device}: they would never be trained. Pass their model to `prepare` before the optimizer, "
                f"or together with it; make parameters of no model on accelerator.device."
            )

    def settle_precision(self, name: str, downcast: bool) -> None:
        if name == "fp16":
            raise ValueError(
                "mixed_precision='fp16' is not for XLA: TPUs compute in bfloat16, which needs no loss scale. Use "
                "mixed_precision='bf16'."
            )
        if name == "bf16" and downcast:
            self._dtypes.update(_DOWNCAST)

    def to_host(self, data: T) -> T:
        from crosstrain.utils.nested import leaves, map_tensors

        identity = internals._xla_get_tensor_id
        there = {
            identity(leaf): leaf.detach() for leaf in leaves(data) if leaf.device.type == self.device.type
        }
        if not there:
            return data
        copies = dict(zip(there, xla_model._maybe_convert_to_cpu(list(there.values())), strict=True))
        # Names of one tensor (tied weights) must stay names of one tensor.
        return cast(
            "T",
            map_tensors(
                lambda leaf: copies[identity(leaf)] if leaf.device.type == self.device.type else leaf, data
            ),
        )

    # -- random numbers ---------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        torch_xla.manual_seed(seed % 2**31)

    def seed_own(self, seed: int) -> None:
        # In one program over all hosts every device has rows of its own, and so masks of its own; its seed is common.
        if self.averages:
            self.seed(seed)

    def random_state(self) -> Any:
        return xla_model.get_rng_state()

    def set_random_state(self, state: Any) -> None:
        xla_model.set_rng_state(int(state))

    # -- steps ------------------------------------------------------------------------------------

    def step_done(self) -> None:
        self._execute(stepped=True)
        self._stepped = True

    def batch_done(self) -> None:
        # After a step only sums for the log are pending; they become part of the next step's graph.
        if not self._stepped:
            self._execute(stepped=False)
        self._stepped = False

    def _execute(self, *, stepped: bool) -> None:
        torch_xla.sync()
        self.watch.executed(stepped)


class _CopyBack:
    """Waits for a collective on the host and copies its result to the tensor."""

    def __init__(self, work: Pending, host: Tensor, tensor: Tensor) -> None:
        self._work, self._host, self._tensor = work, host, tensor

    def wait(self) -> None:
        self._work.wait()
        with torch.no_grad():
            self._tensor.copy_(self._host)


class _SeedsXla:
    """Makes `torch.manual_seed` seed XLA, too, as it seeds the devices that torch knows, until `stop` is called."""

    def __init__(self, comm: XlaComm) -> None:
        self._plain = torch.manual_seed

        @wraps(self._plain)
        def manual_seed(seed: Any) -> torch.Generator:
            generator = self._plain(seed)
            comm.seed(int(seed))
            return generator

        self._set(manual_seed)

    def stop(self) -> None:
        self._set(self._plain)

    @staticmethod
    def _set(function: Callable[[Any], torch.Generator]) -> None:
        for module in (torch, torch.random):
            vars(module)["manual_seed"] = function
