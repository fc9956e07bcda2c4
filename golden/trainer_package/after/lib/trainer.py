import torch
import torch.nn as nn
from crosstrain import Accelerator

from lib import config
from lib.meters import Average


class Trainer:
    def __init__(self, model, train_loader, test_loader):
        self.accelerator = Accelerator()
        self.model = model
        self.train_loader = train_loader
        self.test_loader = test_loader
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.LEARNING_RATE)
        self.model, self.optimizer, self.train_loader, self.test_loader = self.accelerator.prepare(
            self.model, self.optimizer, self.train_loader, self.test_loader
        )
        self.best = 0.0

    def fit(self):
        for epoch in range(config.EPOCHS):
            loss = self.train_one_epoch()
            accuracy = self.evaluate()
            self.accelerator.print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy:.4f}")
            if accuracy > self.best:
                self.best = accuracy
                self.accelerator.save(self.model.state_dict(), config.CHECKPOINT)

    def train_one_epoch(self):
        self.model.train()
        losses = Average()
        for batch in self.train_loader:
            images, labels = batch["image"], batch["label"]
            loss = self.criterion(self.model(images), labels)
            self.optimizer.zero_grad()
            self.accelerator.backward(loss)
            self.optimizer.step()
            losses.update(
                self.accelerator.reduce(loss, reduction="mean").item(),
                self.accelerator.global_rows(labels)
            )
        return losses.value

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        correct, total = 0, 0
        for batch in self.test_loader:
            images, labels = batch["image"], batch["label"]
            correct += self.accelerator.gather_for_metrics(
                self.model(images).argmax(dim=1) == labels
            ).sum().item()
            total += self.accelerator.global_rows(labels)
        return correct / total
