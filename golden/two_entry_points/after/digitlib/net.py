import torch.nn as nn


class Classifier(nn.Module):
    def __init__(self, num_classes, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, width), nn.ReLU())
        self.head = nn.Linear(width, num_classes)

    def forward(self, x):
        return self.head(self.trunk(x))
