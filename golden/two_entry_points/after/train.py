"""Step 1: train on the digits 0 to 4.  Step 2 is finetune.py."""
import torch
from crosstrain import Accelerator

from digitlib import get_device, make_loader, run_epoch, Classifier


def main():
    accelerator = Accelerator()
    torch.manual_seed(1)
    device = get_device()
    train_loader = make_loader(range(5), start=0, stop=187, batch_size=48, shuffle=True)
    test_loader = make_loader(range(5), start=187, stop=334, batch_size=32)

    model = Classifier(num_classes=5).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(2):
        train_loss, _ = run_epoch(model, train_loader, device, optimizer)
        test_loss, test_acc = run_epoch(model, test_loader, device)
        accelerator.print("epoch %d: train loss %.4f, test loss %.4f, test accuracy %.4f"
                          % (epoch, train_loss, test_loss, test_acc))

    accelerator.save(model.state_dict(), "base.pt")


if __name__ == "__main__":
    main()
