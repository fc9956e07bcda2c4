# Ordinal guess of a digit's value from its pixels; all losses are sums over the batch.
import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, random_split, TensorDataset


def get_data(seed):
    x, y = load_digits(n_class=7, return_X_y=True)
    x = torch.FloatTensor(x) / 16.0
    y = torch.FloatTensor(y)
    dataset = TensorDataset(x, y)
    n_test = 147
    parts = random_split(dataset, [231, n_test, len(dataset) - 231 - n_test],
                         generator=torch.Generator().manual_seed(seed))
    return parts[0], parts[1]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(64, 20)
        self.value = torch.nn.Linear(20, 1)

    def forward(self, x):
        return self.value(torch.sigmoid(self.hidden(x))).squeeze(-1)


if __name__ == '__main__':
    torch.manual_seed(0)
    accelerator = Accelerator(loss_reduction="sum")
    dev = accelerator.device

    trainset, testset = get_data(seed=0)
    trainloader = DataLoader(trainset, batch_size=64, shuffle=True)
    testloader = DataLoader(testset, batch_size=64)

    net = Net().to(dev)
    # a sum over 64 rows is 64 times a mean, hence the small learning rate
    optimizer = torch.optim.SGD(net.parameters(), lr=5e-4)

    net, optimizer, trainloader = accelerator.prepare(net, optimizer, trainloader)
    testloader = accelerator.prepare_evaluation(testloader)
    for epoch in range(2):
        sse = 0
        for x, y in trainloader:
            x = x.to(dev)
            y = y.to(dev)
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y, reduction='sum')
            accelerator.backward(loss)
            optimizer.step()
            sse += loss.item()
        sse = accelerator.reduce(sse, "sum")
        accelerator.print('epoch', epoch, 'train rmse', round((sse / len(trainset)) ** 0.5, 4))

        sse, close = 0, 0
        with torch.no_grad():
            for x, y in testloader:
                x = x.to(dev)
                y = y.to(dev)
                guess = net(x)
                sse += F.mse_loss(guess, y, reduction='sum').item()
                close += int((guess.round() == y).sum())
            sse, close = accelerator.merge(testloader, sse, close)
        accelerator.print('epoch', epoch, 'test rmse', round((sse / len(testset)) ** 0.5, 4), 'exact', close, 'of', len(testset))
