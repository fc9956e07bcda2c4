import torch
from torch import nn


class ConvClassifier(nn.Module):
    def __init__(self, num_classes=10, width=8):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(width * 16, num_classes)

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class LinearClassifier(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.fc = nn.Linear(64, num_classes)

    def forward(self, x):
        return self.fc(torch.flatten(x, 1))


MODELS = {"conv": ConvClassifier, "linear": LinearClassifier}


def create_model(name, **kwargs):
    return MODELS[name](**kwargs)
