"""`crosstrain env`: facts about this machine for a bug report, without secrets."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

from crosstrain.comm.visible_devices import names
from crosstrain.launch.options import usable_cores

PACKAGES = ("crosstrain", "torch", "torch_xla", "numpy", "safetensors", "accelerate")
# Only variables that influence a launch.
VARIABLES = (
    "ACCELERATE_MIXED_PRECISION",
    "ACCELERATE_USE_CPU",
    "CROSSTRAIN_COMMON_DRAWS",
    "CROSSTRAIN_CONFIG",
    "CUDA_VISIBLE_DEVICES",
    "GLOO_SOCKET_IFNAME",
    "MASTER_ADDR",
    "NCCL_SOCKET_IFNAME",
    "OMP_NUM_THREADS",
    "PJRT_DEVICE",
    "RANK",
    "WORLD_SIZE",
)


def describe() -> list[tuple[str, str]]:
    """(name, value) in the order in which they are shown; works even if torch is missing or broken."""
    rows = [("platform", platform.platform()), ("python", f"{platform.python_version()} ({sys.executable})")]
    rows += [(name, version) for name in PACKAGES if (version := _version(name))]
    rows += [("cores", str(usable_cores())), ("memory", _memory())]
    rows += _accelerators()
    rows += [(name, os.environ[name]) for name in VARIABLES if name in os.environ]
    return rows


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _memory() -> str:
    path = Path("/proc/meminfo")
    if not path.exists():
        return "unknown"
    kilobytes = int(path.read_text(encoding="ascii").split("MemTotal:")[1].split()[0])
    return f"{kilobytes / 2**20:.1f} GiB"


def _accelerators() -> list[tuple[str, str]]:
    try:
        import torch
    except ImportError as error:  # a broken installation is a reason for a report
        return [("accelerators", f"unknown: import torch failed: {error}")]
    rows = names()
    distributed = torch.distributed
    if distributed.is_available():
        backends = [
            name for name in ("gloo", "nccl", "xccl", "mpi") if distributed.is_backend_available(name)
        ]
        rows.append(("backends", ", ".join(backends)))
    return rows
