import argparse

import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, accelerator, model: torch.nn.Module, train_data: DataLoader, test_data: DataLoader,
                 optimizer: torch.optim.Optimizer, keep_every: int) -> None:
        self.accelerator = accelerator
        self.device = self.accelerator.device
        self.train_data = train_data
        self.test_data = test_data
        self.optimizer = optimizer
        self.keep_every = keep_every
        self.model = model

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        self.accelerator.backward(loss)
        self.optimizer.step()
        return loss.detach()

    def one_epoch(self, epoch):
        total = torch.zeros(2, device=self.device)  # sum of the losses, number of images
        for x, y in self.train_data:
            total[0] += (
                self.accelerator.reduce(self.step(x, y), reduction="mean")
                * len(self.accelerator.gather_for_metrics(y))
            )
            total[1] += len(self.accelerator.gather_for_metrics(y))
        self.accelerator.print(f"epoch {epoch}: {len(self.train_data)} batches, loss {(total[0] / total[1]).item():.4f}")

    def evaluate(self):
        self.model.eval()
        hits = torch.zeros(1, dtype=torch.long, device=self.device)
        with torch.no_grad():
            for x, y in self.test_data:
                hits += self.accelerator.gather_for_metrics(self.model(x).argmax(dim=1) == y).sum()
        self.model.train()
        return hits.item() / len(self.test_data.dataset)

    def keep(self, epoch):
        self.accelerator.save_model(self.model, "trained.pt")
        self.accelerator.print(f"epoch {epoch}: weights written")

    def fit(self, epochs: int):
        for epoch in range(epochs):
            self.one_epoch(epoch)
            if epoch % self.keep_every == 0:
                self.keep(epoch)
        self.accelerator.wait_for_everyone()
        accuracy = self.evaluate()
        self.accelerator.print(f"test accuracy {accuracy:.4f}")


def make_loader(dataset, batch_size):
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=False,  # the sampler decides
        pin_memory=torch.cuda.is_available(),
    )


def run(args):
    torch.manual_seed(0)

    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train_data = make_loader(TensorDataset(x[:args.images], y[:args.images]), args.batch_size)
    test_data = make_loader(TensorDataset(x[-147:], y[-147:]), args.batch_size)

    accelerator = Accelerator()
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer, train_data, test_data = accelerator.prepare(
        model, optimizer, train_data, test_data
    )
    Trainer(accelerator, model, train_data, test_data, optimizer, args.keep_every).fit(args.epochs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("keep_every", type=int, help="write the weights every so many epochs")
    parser.add_argument("--batch-size", default=32, type=int, help="of each process")
    parser.add_argument("--images", default=1500, type=int)
    args = parser.parse_args()

    run(args)
