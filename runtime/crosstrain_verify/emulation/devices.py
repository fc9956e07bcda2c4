"""Emulates CUDA on a machine without it: whatever names a CUDA device gets the CPU.

Functions and methods are replaced. A torch function mode would not do: it belongs to one thread, and constructors such as
`torch.Generator` never ask it. Both scripts of a comparison run under the same replacement, so what the CPU does
differently from a GPU is the same on both sides.

`torch.cuda.is_available()` returns what the caller of `install` says. Copying a tensor to a device that is the CPU copies
nothing, which a script can notice only if it changes a batch in place.
"""

from __future__ import annotations

import contextlib
import copyreg
import functools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._device import _device_constructors

from crosstrain_verify.emulation.eager_compile import scripted_as
from crosstrain_verify.emulation.emulated import SYNC_BATCH_NORM, asked
from crosstrain_verify.emulation.streams import Event, Stream

_CONSTRUCTORS = _device_constructors()  # torch's own set, for `with torch.device(...)`
FACTORIES = [
    *(name for name, value in vars(torch).items() if callable(value) and value in _CONSTRUCTORS),
    *(name for name in vars(torch) if name.endswith("_like")),
    "normal",
    "set_default_device",
]
METHODS = ["to", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"]
TENSOR_TYPES = ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]
# Functions of torch.cuda: how much memory is used, and what a device alone would do.
MEMORY = [
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
]
SILENT = [
    "_sleep",
    "empty_cache",
    "init",
    "ipc_collect",
    "manual_seed",
    "manual_seed_all",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_per_process_memory_fraction",
    "set_stream",
    "synchronize",
]


def host(device: Any) -> Any:
    """The CPU in place of a CUDA device in any spelling; anything else as it is."""
    if isinstance(device, str) and (device == "cuda" or device.startswith("cuda:")):
        return "cpu"
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("cpu")
    return device


def install(*, available: bool, count: int = 1) -> None:
    """Replace everything that leads to a CUDA device, for the rest of this process.

    available: what `torch.cuda.is_available()` returns. count: how many devices there are if it is true.
    """
    _replace_types()
    for name in FACTORIES:
        _wrap(torch, name, _on_host)
    for name in METHODS:
        _wrap(torch.Tensor, name, _on_host)
    _replace_tensor_methods()
    _replace_module(count if available else 0)
    # Otherwise torch itself switches CUDA's autocast and loss scaling off, as it does without a GPU.
    if available:
        _replace_precision()
        _replace_accelerate()
    _replace_loading()
    _replace_distribution()


def _wrap(owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    real = getattr(owner, name)
    setattr(owner, name, scripted_as(wrapper(real), real))


def _on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with the CPU in place of every argument that names a CUDA device, also by its ordinal."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            device = kwargs["device"]
            # An ordinal means a CUDA device; True is no ordinal.
            kwargs["device"] = "cpu" if type(device) is int else host(device)
        return function(*(host(arg) if type(arg) in _DEVICE_LIKE else arg for arg in args), **kwargs)

    return call


_real_device = torch.device
_DEVICE_LIKE = (str, _real_device)


def _stand_in(real: Any, make: Callable[..., Any]) -> Any:
    """A class whose instances are those of `real`; calling it calls `make`."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, real)

        def __subclasscheck__(cls, other: type) -> bool:
            return other is cls or issubclass(other, real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return make(*args, **kwargs)

    return Meta(real.__name__, (), {"__doc__": real.__doc__, "__module__": "torch"})


def _replace_types() -> None:
    """Replace `torch.device` and `torch.Generator`, which cannot be subclassed."""

    def device(*args: Any, **kwargs: Any) -> torch.device:
        kind = args[0] if args else kwargs.get("type", kwargs.get("device"))
        if type(kind) is int or (isinstance(kind, str) and kind.partition(":")[0] == "cuda"):
            return _real_device("cpu")
        return _real_device(*args, **kwargs)

    real_generator = torch.Generator

    def generator(device: Any = "cpu") -> torch.Generator:
        return real_generator(host(device))

    torch.device = _stand_in(_real_device, device)  # type: ignore[misc]
    # Pickle stores the type of a device by its name, under which it no longer finds that type.
    copyreg.pickle(_real_device, lambda one: (torch.device, (str(one),)))
    torch.Generator = _stand_in(real_generator, generator)  # type: ignore[misc]


def _replace_tensor_methods() -> None:
    tensor: Any = torch.Tensor
    real_type, real_to = tensor.type, tensor.to

    def unchanged(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self

    def change_type(self: Any, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.")
        return real_type(self, dtype, non_blocking, **kwargs) if dtype is not None else real_type(self)

    @functools.wraps(real_to)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:  # an ordinal
            args = ("cpu", *args[1:])
        return real_to(self, *args, **kwargs)

    tensor.cuda = tensor.pin_memory = unchanged
    tensor.type, tensor.to = change_type, to
    tensor.record_stream = lambda self, stream: None
    torch.nn.Module.cuda = lambda self, device=None: self  # type: ignore[method-assign]
    real_module_to: Callable[..., Any] = torch.nn.Module.to

    @functools.wraps(real_module_to)
    def module_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]) is int:
            args = ("cpu", *args[1:])
        return real_module_to(self, *map(host, args), **{k: host(v) for k, v in kwargs.items()})

    torch.nn.Module.to = module_to  # type: ignore[method-assign]
    real_default: Callable[[Any], None] = torch.set_default_tensor_type

    def set_default(kind: Any) -> None:
        real_default(kind.replace("torch.cuda.", "torch.") if isinstance(kind, str) else kind)

    torch.set_default_tensor_type = set_default


def _replace_module(count: int) -> None:
    """Replace the functions of `torch.cuda`: there is nothing to wait for or to measure, and all devices are the CPU."""
    cuda: Any = torch.cuda
    available = count > 0
    current = [0]
    for name in TENSOR_TYPES:
        setattr(cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    for name in MEMORY:
        setattr(cuda, name, lambda *args, **kwargs: 0)
    for name in SILENT:
        setattr(cuda, name, lambda *args, **kwargs: None)
    cuda.Event, cuda.Stream = Event, Stream
    cuda.stream = lambda stream: stream if stream is not None else Stream()
    cuda.current_stream = cuda.default_stream = lambda device=None: Stream()
    cuda.device = cuda.device_of = _no_change
    cuda.is_available = lambda: available
    cuda.device_count = lambda: count
    cuda.current_device = lambda: current[0]
    cuda.set_device = lambda device: current.__setitem__(0, _ordinal(device))
    cuda.is_initialized = lambda: available
    cuda.is_bf16_supported = lambda *args, **kwargs: True
    cuda.is_current_stream_capturing = lambda: False
    cuda.get_device_name = lambda device=None: "CPU"
    cuda.get_device_capability = lambda device=None: (8, 0)
    cuda.get_arch_list = list
    cuda.mem_get_info = lambda device=None: (1 << 34, 1 << 34)
    cuda.memory_stats = lambda device=None: {}
    cuda.memory_summary = lambda *args, **kwargs: ""
    cuda.utilization = lambda device=None: 0
    cuda.get_device_properties = lambda device=None: SimpleNamespace(
        name="CPU", gcnArchName="", major=8, minor=0, total_memory=1 << 34, multi_processor_count=1
    )
    cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()] if available else []
    cuda.set_rng_state = cuda.set_rng_state_all = lambda *args, **kwargs: None
    cuda.nvtx = SimpleNamespace(
        range=_no_change, mark=lambda *args: None, range_push=lambda *args: 0, range_pop=lambda: 0
    )


def _ordinal(device: Any) -> int:
    """The ordinal in the name of a device; 0 if there is none."""
    if isinstance(device, str) and device.rpartition(":")[2].isdigit():
        return int(device.rpartition(":")[2])
    return device if isinstance(device, int) else 0


@contextlib.contextmanager
def _no_change(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _replace_accelerate() -> None:
    """Make the Accelerator of huggingface/accelerate see a GPU while it decides about loss scaling."""
    library: Any = sys.modules.get("accelerate.accelerator")
    if library is None:
        return
    real: Any = library.Accelerator.device.fget
    gpu = SimpleNamespace(type="cuda")
    making = library.Accelerator.__init__.__code__
    library.Accelerator.device = property(
        lambda self: gpu if sys._getframe(1).f_code is making else real(self)
    )


def _replace_precision() -> None:
    """Replace autocast and loss scaling for CUDA by those for the CPU, in the dtype that CUDA would use."""
    real_autocast: Callable[..., None] = torch.autocast.__init__
    real_scaler: Callable[..., None] = torch.amp.GradScaler.__init__

    @functools.wraps(real_autocast)
    def autocast(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        real_autocast(self, device_type, dtype, *args, **kwargs)

    @functools.wraps(real_scaler)
    def scaler(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        real_scaler(self, "cpu" if device == "cuda" else device, *args, **kwargs)

    torch.autocast.__init__ = autocast  # type: ignore[method-assign]
    torch.amp.GradScaler.__init__ = scaler  # type: ignore[method-assign]
    for module in (torch.amp, torch.amp.autocast_mode):
        for name in ("custom_fwd", "custom_bwd"):
            real: Any = getattr(module, name)
            setattr(module, name, _for_host(real))
    real_enabled: Any = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda device_type="cuda": real_enabled(
        "cpu" if device_type == "cuda" else device_type
    )
    torch.get_autocast_gpu_dtype = lambda: torch.get_autocast_dtype("cuda")


def _for_host(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """`custom_fwd(device_type="cuda")` for the CPU."""

    @functools.wraps(decorator)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device_type") == "cuda":
            kwargs["device_type"] = "cpu"
        return decorator(*args, **kwargs)

    return call


def _replace_loading() -> None:
    real_load = torch.load

    @functools.wraps(real_load)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {source: host(target) for source, target in map_location.items()}
        # A file that was written on a device names that device for every tensor.
        return real_load(f, "cpu" if map_location is None else host(map_location), *args, **kwargs)

    torch.load = load


def _replace_distribution() -> None:
    """Replace NCCL by gloo, and remove the devices from DistributedDataParallel and SyncBatchNorm."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    parallel: Any = torch.nn.parallel
    real_init: Any = dist.init_process_group
    real_wrapper: Any = parallel.DistributedDataParallel.__init__

    @functools.wraps(real_init)
    def init(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("device_id", None)
        asked = "gloo" if backend and "nccl" in str(backend) else backend
        # Looked up now, because the runtime may have replaced it.
        distributed_c10d.init_process_group(asked, *args, **kwargs)

    @functools.wraps(real_wrapper)
    def wrap(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        for name in ("device_ids", "output_device"):
            kwargs.pop(name, None)
        # The devices are the first optional arguments.
        real_wrapper(self, module, *([None, None, *args[2:]] if len(args) > 2 else []), **kwargs)

    def normalise(self: Any, values: torch.Tensor) -> torch.Tensor:
        asked.add(SYNC_BATCH_NORM)
        return _BatchNorm.forward(self, values)

    normalisation: Any = torch.nn.SyncBatchNorm
    normalisation.forward = normalise
    groups: Any = dist
    real_group: Any = groups.new_group

    @functools.wraps(real_group)
    def new_group(ranks: Any = None, timeout: Any = None, backend: Any = None, **kwargs: Any) -> Any:
        kwargs.pop("device_id", None)
        return real_group(ranks, timeout, "gloo" if "nccl" in str(backend) else backend, **kwargs)

    groups.new_group = new_group
    dist.init_process_group = init
    # The attribute torch.nn.parallel.data_parallel is the function of that name, not the module.
    module: Any = sys.modules["torch.nn.parallel.data_parallel"]
    module._get_available_device_type = lambda: None
    parallel.DistributedDataParallel.__init__ = wrap
    parallel.DistributedDataParallel._passing_sync_batchnorm_handle = lambda self, module: None
