"""What the fork server imports once for all ranks of all tests."""

import torch

import crosstrain  # noqa: F401

torch.set_num_threads(1)
