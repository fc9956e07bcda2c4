"""The device that the tests of this folder run on."""

import os

import pytest
import torch

VARIABLE = "CROSSTRAIN_TEST_DEVICE"


@pytest.fixture(scope="session")
def kind() -> str:
    """torch's name for it; the tests are left out where there is none."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None:
        found = torch.accelerator.current_accelerator(check_available=True)
        if found is None:
            pytest.skip("torch sees no accelerator")
        wanted = found.type
    return wanted
