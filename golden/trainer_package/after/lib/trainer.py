import torch
import torch.nn as nn
from crosstrain import Accelerator

from lib import config
from lib.config import device
from lib.meters import Average


class Trainer:
    def __init__(self, model, train_loader, test_loader):
        accelerator = Accelerator()
        self.model = model.to(device)
        self.train_loader = train_loader
        self.test_loader = test_loader
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config.LEARNING_RATE)
        self.model, self.optimizer, self.train_loader = accelerator.prepare(
            self.model, self.optimizer, self.train_loader
        )
        self.best = 0.0

    def fit(self):
        accelerator = Accelerator()
        for epoch in range(config.EPOCHS):
            loss = self.train_one_epoch()
            accuracy = self.evaluate()
            accelerator.print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy:.4f}")
            if accuracy > self.best:
                self.best = accuracy
                accelerator.save(self.model.state_dict(), config.CHECKPOINT)

    def train_one_epoch(self):
        accelerator = Accelerator()
        self.model.train()
        losses = Average()
        for batch in self.train_loader:
            images, labels = batch["image"].to(device), batch["label"].to(device)
            loss = self.criterion(self.model(images), labels)
            self.optimizer.zero_grad()
            accelerator.backward(loss)
            self.optimizer.step()
            losses.update(loss.item(), len(labels))
        losses = accelerator.merge(self.train_loader, losses)
        return losses.value

    @torch.no_grad()
    def evaluate(self):
        accelerator = Accelerator()
        self.model.eval()
        correct, total = 0, 0
        evaluation_loader = accelerator.prepare_evaluation(self.test_loader)
        for batch in evaluation_loader:
            images, labels = batch["image"].to(config.device), batch["label"].to(config.device)
            correct += (self.model(images).argmax(dim=1) == labels).sum().item()
            total += len(labels)
        correct, total = accelerator.merge(evaluation_loader, correct, total)
        return correct / total
