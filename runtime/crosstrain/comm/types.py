"""Types with Accelerate's names for random streams and for kinds of runs, and the host's device."""

from __future__ import annotations

from enum import Enum

import torch

HOST = torch.device("cpu")  # the device that every process has


class Words(str, Enum):
    """An enum whose members are their values."""

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def list(cls) -> list[str]:
        return [member.value for member in cls]


class RNGType(Words):
    """Random streams that loaders may copy from process 0 at every pass."""

    TORCH = "torch"
    CUDA = "cuda"
    XLA = "xla"
    GENERATOR = "generator"


class DistributedType(str, Enum):
    """How a run is distributed, with Accelerate's names."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_XPU = "MULTI_XPU"
    MULTI_HPU = "MULTI_HPU"
    MULTI_NEURON = "MULTI_NEURON"
    FSDP = "FSDP"
    DEEPSPEED = "DEEPSPEED"
    MEGATRON_LM = "MEGATRON_LM"
    XLA = "XLA"
    TPU = "XLA"  # noqa: PIE796 - the documented older name of the same thing

    def __str__(self) -> str:
        return f"DistributedType.{self.name}"
