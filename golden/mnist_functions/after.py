import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc1 = nn.Linear(16 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)  # 8x8 -> 4x4
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    accelerator = Accelerator()
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        accelerator.backward(loss)
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            accelerator.print('epoch {} [{:5d}/{} {:3.0f}%]  loss {:.6f}'.format(
                epoch, batch_idx * accelerator.reduce(len(data), "sum"), len(train_loader.dataset),
                100. * batch_idx / len(train_loader), accelerator.reduce(loss, "mean").item()))


def test(model, device, test_loader):
    accelerator = Accelerator()
    model.eval()
    test_loss = 0
    correct = 0
    test_loader = accelerator.prepare_evaluation(test_loader)
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction='sum').item()  # a sum: divided by the number of images below
            pred = output.argmax(dim=1, keepdim=True)  # the digit it believes in
            correct += pred.eq(target.view_as(pred)).sum().item()
        test_loss, correct = accelerator.merge(test_loader, test_loss, correct)

    test_loss /= len(test_loader.dataset)

    accelerator.print('\ntest: loss {:.4f}, {} of {} right ({:.1f}%)\n'.format(
        test_loss, correct, len(test_loader.dataset),
        100. * correct / len(test_loader.dataset)))


def load_data():
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    labels = torch.tensor(digits.target, dtype=torch.long)
    train_set = TensorDataset(images[:1437], labels[:1437])
    test_set = TensorDataset(images[1437:], labels[1437:])
    return train_set, test_set


def main():
    # command line
    parser = argparse.ArgumentParser(description='Handwritten digits, 8x8')
    parser.add_argument('--batch-size', type=int, default=64, help='images in one training step')
    parser.add_argument('--test-batch-size', type=int, default=100, help='images in one test step')
    parser.add_argument('--epochs', type=int, default=12)
    parser.add_argument('--lr', type=float, default=1.0)
    parser.add_argument('--gamma', type=float, default=0.8, help='the learning rate shrinks by this factor every epoch')
    parser.add_argument('--no-cuda', action='store_true', help='stay on the CPU even if there is a GPU')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--log-interval', type=int, default=10, help='print the loss of every n-th batch')
    parser.add_argument('--save-model', action='store_true', help='write the weights to mnist_cnn.pt')
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()

    torch.manual_seed(args.seed)

    accelerator = Accelerator(cpu=args.no_cuda)
    device = accelerator.device

    # workers and pinned memory only pay off with a GPU
    loader_args = dict(num_workers=1, pin_memory=True) if use_cuda else {}
    train_set, test_set = load_data()
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, **loader_args)
    test_loader = DataLoader(test_set, batch_size=args.test_batch_size, **loader_args)

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)

    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()

    if args.save_model:
        accelerator.save(model.state_dict(), "mnist_cnn.pt")


if __name__ == '__main__':
    main()
