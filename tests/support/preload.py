"""What the fork server imports once for all ranks of all tests."""

import crosstrain  # noqa: F401
import torch

torch.set_num_threads(1)
