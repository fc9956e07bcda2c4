"""Names that users import from ``accelerate.launchers``."""

from crosstrain.launch.notebook import debug_launcher, notebook_launcher

__all__ = ["debug_launcher", "notebook_launcher"]
