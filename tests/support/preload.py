"""What the fork server imports once for all ranks of all tests."""

import crosstrain.accelerator  # noqa: F401
import pytest  # noqa: F401
import torch
import torch._dynamo  # noqa: F401  (constructing the first optimizer would import it: two seconds a rank)

torch.set_num_threads(1)
