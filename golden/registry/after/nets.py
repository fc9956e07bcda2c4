"""The networks that a configuration may ask for."""

from torch import nn


class Linear(nn.Linear):
    def __init__(self, hidden=0):
        super().__init__(64, 10)


class Perceptron(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x)
