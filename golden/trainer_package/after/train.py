import torch
from crosstrain import Accelerator

from lib.data import loader
from lib.model import Net
from lib.trainer import Trainer


def main():
    accelerator = Accelerator()
    torch.manual_seed(3)
    train_loader = loader(slice(0, 331), train=True)
    test_loader = loader(slice(-149, None), train=False)
    Trainer(Net(), train_loader, test_loader).fit()


if __name__ == "__main__":
    main()
