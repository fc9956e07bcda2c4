"""What a user must install where a package is missing.

The commands name each requirement instead of `crosstrain[extra]`, so that they work however Crosstrain itself was
installed: from a wheel, a commit or a registry.
"""

from __future__ import annotations

from importlib.util import find_spec

# The extras of pyproject.toml. torch_xla works with the torch of its own version only.
EXTRAS: dict[str, tuple[str, ...]] = {
    "torch": ("torch>=2.9", "numpy>=1.26", "safetensors>=0.5", "tqdm>=4.66"),
    "tpu": ("torch==2.9.1", "torch_xla==2.9.0", "numpy>=1.26", "safetensors>=0.5", "tqdm>=4.66"),
}


def install(extra: str) -> str:
    """The command that installs an extra's requirements."""
    return "pip install " + " ".join(f"'{one}'" for one in EXTRAS[extra])


def missing() -> str:
    """The first package that training needs and that is not installed, with the remedy; "" if there is none."""
    names = [name for name in ("torch", "numpy") if find_spec(name) is None]
    return f"{names[0]} is not installed: {install('torch')}" if names else ""
