"""What the fork server imports once for all ranks of all tests."""

import crosstrain.accelerator  # noqa: F401
import torch

torch.set_num_threads(1)
