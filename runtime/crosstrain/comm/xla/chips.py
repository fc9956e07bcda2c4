"""Whether a run uses XLA. This is decided without importing torch_xla, which takes seconds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

PCI = Path("/sys/bus/pci/devices")
GOOGLE = "0x1ae0"
# PCI device numbers of TPU v2/v3 to v7; other numbers of the vendor are network cards.
CHIPS = frozenset({"0x0027", "0x005e", "0x0063", "0x006f", "0x0056", "0x0062", "0x0076"})


@lru_cache(maxsize=1)
def tpu_chips(pci: Path = PCI) -> int:
    """TPU chips that this machine has."""
    return sum(
        _read(device / "vendor") == GOOGLE and _read(device / "device") in CHIPS for device in _entries(pci)
    )


def xla_wanted(environ: Mapping[str, str]) -> bool:
    """Whether PJRT_DEVICE is set, or there is a TPU that torch_xla drives. environ: the environment's variables."""
    if environ.get("PJRT_DEVICE"):
        return True
    if not tpu_chips() or find_spec("torch_tpu") is not None:
        return False
    return find_spec("torch_xla") is not None


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
