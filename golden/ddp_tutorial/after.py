import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def any_free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def join_group(rank, world_size):
    """Meets the other processes of this machine; rank is also the number of the GPU."""
    os.environ["MASTER_ADDR"] = "localhost"
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "nccl"
        torch.cuda.set_device(PartialState().device)


class Trainer:
    def __init__(self, model: torch.nn.Module, train_data: DataLoader, test_data: DataLoader,
                 optimizer: torch.optim.Optimizer, rank: int, keep_every: int) -> None:
        accelerator = Accelerator()
        self.rank = rank
        self.device = accelerator.device
        self.train_data = train_data
        self.test_data = test_data
        self.optimizer = optimizer
        self.optimizer = accelerator.prepare(self.optimizer)
        self.keep_every = keep_every
        self.model = accelerator.prepare(model.to(self.device))

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def one_epoch(self, epoch):
        self.train_data.sampler.set_epoch(epoch)
        total = torch.zeros(2, device=self.device)  # sum of the losses, number of images
        for x, y in self.train_data:
            x = x.to(self.device)
            y = y.to(self.device)
            total[0] += self.step(x, y) * len(y)
            total[1] += len(y)
        dist.all_reduce(total)
        if self.rank == 0:
            print(f"epoch {epoch}: {len(self.train_data)} batches, loss {(total[0] / total[1]).item():.4f}")

    def evaluate(self):
        self.model.eval()
        hits = torch.zeros(1, dtype=torch.long, device=self.device)
        with torch.no_grad():
            for x, y in self.test_data:
                hits += (self.model(x.to(self.device)).argmax(dim=1) == y.to(self.device)).sum()
        self.model.train()
        dist.all_reduce(hits, op=dist.ReduceOp.SUM)
        return hits.item() / len(self.test_data.dataset)

    def keep(self, epoch):
        torch.save(self.model.module.state_dict(), "trained.pt")
        print(f"epoch {epoch}: weights written")

    def fit(self, epochs: int):
        for epoch in range(epochs):
            self.one_epoch(epoch)
            if self.rank == 0 and epoch % self.keep_every == 0:
                self.keep(epoch)
        dist.barrier()
        accuracy = self.evaluate()
        if self.rank == 0:
            print(f"test accuracy {accuracy:.4f}")


def make_loader(dataset, batch_size):
    return DataLoader(
        dataset,
        batch_size=batch_size,
        shuffle=False,  # the sampler decides
        sampler=DistributedSampler(dataset, shuffle=False),
        pin_memory=torch.cuda.is_available(),
    )


def run(rank: int, world_size: int, args):
    accelerator = Accelerator()
    join_group(rank, world_size)
    torch.manual_seed(0)

    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train_data = make_loader(TensorDataset(x[:args.images], y[:args.images]), args.batch_size)
    test_data = make_loader(TensorDataset(x[-147:], y[-147:]), args.batch_size)

    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    Trainer(model, train_data, test_data, optimizer, rank, args.keep_every).fit(args.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("epochs", type=int)
    parser.add_argument("keep_every", type=int, help="write the weights every so many epochs")
    parser.add_argument("--batch-size", default=32, type=int, help="of each process")
    parser.add_argument("--images", default=1500, type=int)
    args = parser.parse_args()

    PartialState(group_of_one=True)
    os.environ["MASTER_PORT"] = str(any_free_port())
    n_gpus = PartialState().num_processes
    if n_gpus > 1:
        run(PartialState().process_index, n_gpus, args)
    else:
        run(0, 1, args)
