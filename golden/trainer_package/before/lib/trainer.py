import torch
import torch.nn as nn

from lib import config
from lib.config import device
from lib.meters import Average


class Trainer:
    def __init__(self, model, train_loader, test_loader):
        self.model = model.to(device)
        self.train_loader = train_loader
        self.test_loader = test_loader
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.LEARNING_RATE)
        self.best = 0.0

    def fit(self):
        for epoch in range(config.EPOCHS):
            loss = self.train_one_epoch()
            accuracy = self.evaluate()
            print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy:.4f}")
            if accuracy > self.best:
                self.best = accuracy
                torch.save(self.model.state_dict(), config.CHECKPOINT)

    def train_one_epoch(self):
        self.model.train()
        losses = Average()
        for batch in self.train_loader:
            images, labels = batch["image"].to(device), batch["label"].to(device)
            loss = self.criterion(self.model(images), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.update(loss.item(), len(labels))
        return losses.value

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        correct, total = 0, 0
        for batch in self.test_loader:
            images, labels = batch["image"].to(config.device), batch["label"].to(config.device)
            correct += (self.model(images).argmax(dim=1) == labels).sum().item()
            total += len(labels)
        return correct / total
