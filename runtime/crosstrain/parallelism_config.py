"""Names that users import from `accelerate.parallelism_config`."""

from crosstrain.utils.dataclasses import ParallelismConfig

__all__ = ["ParallelismConfig"]
