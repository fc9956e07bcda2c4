"""Complex parameters are averaged like others, wherever they stand among the parameters."""

from __future__ import annotations

import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor, nn

from tests.support.ranks import run_ranks

ROWS, STEPS = 8, 3


class Spectrum(nn.Module):
    """Weights of a Fourier transform, before or behind the weights of a linear layer."""

    def __init__(self, complex_first: bool, unused: bool) -> None:
        super().__init__()
        kernel = nn.Parameter(torch.randn(5, dtype=torch.cfloat) * 0.3)
        if complex_first:
            self.kernel = kernel
        self.linear = nn.Linear(8, 1)
        if not complex_first:
            self.kernel = kernel
        if unused:
            self.other = nn.Parameter(torch.randn(3, dtype=torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(torch.fft.irfft(torch.fft.rfft(x) * self.kernel, n=8))
        return out


def _train(complex_first: bool, unused: bool) -> list[Tensor]:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Spectrum(complex_first, unused)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    batch = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(1))
    rows = batch.tensor_split(accelerator.num_processes)[accelerator.process_index]
    for _ in range(STEPS):
        accelerator.backward(model(rows).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("complex_first", [False, True])
@pytest.mark.parametrize("unused", [False, True])
def test_two_processes_train_complex_weights_as_one_does(complex_first: bool, unused: bool) -> None:
    (expected,) = run_ranks(_train, 1, complex_first, unused)
    for weights in run_ranks(_train, 2, complex_first, unused):
        torch.testing.assert_close(weights, expected, rtol=1e-5, atol=1e-6)
