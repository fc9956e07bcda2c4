"""What the fork server imports once for all ranks of all tests."""

import crosstrain.accelerator  # noqa: F401
import pytest  # noqa: F401
import torch
import torch._dynamo

torch.set_num_threads(1)
