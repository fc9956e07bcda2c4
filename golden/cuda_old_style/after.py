from __future__ import print_function

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.autograd import Variable
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
use_cuda = torch.cuda.is_available()
torch.manual_seed(1234)
if use_cuda:
    torch.cuda.manual_seed(1234)

batch_size = 50
nb_epoch = 2

digits = load_digits()
images = torch.from_numpy(digits.images).float().unsqueeze(1).div(16)
labels = torch.from_numpy(digits.target).long()

kwargs = {'num_workers': 1, 'pin_memory': True} if use_cuda else {}
train_loader = DataLoader(TensorDataset(images[:193], labels[:193]), batch_size=batch_size, shuffle=True, **kwargs)
test_loader = DataLoader(TensorDataset(images[193:340], labels[193:340]), batch_size=batch_size, shuffle=False, **kwargs)


class ConvNet(nn.Module):
    def __init__(self):
        super(ConvNet, self).__init__()
        self.conv = nn.Conv2d(1, 12, kernel_size=3)
        self.fc = nn.Linear(12 * 3 * 3, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        x = x.view(x.size(0), -1)
        return self.fc(x)


model = ConvNet()
if use_cuda:
    model.to(accelerator.device)

criterion = nn.CrossEntropyLoss()
if use_cuda:
    criterion = criterion.to(accelerator.device)
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def train(epoch):
    model.train()
    train_loss = 0
    correct = 0
    total = 0
    for batch_idx, (data, target) in enumerate(train_loader):
        if use_cuda:
            data, target = data.to(accelerator.device), target.to(accelerator.device)
        data, target = Variable(data), Variable(target)
        optimizer.zero_grad()
        output = model(data)
        loss = criterion(output, target)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()

        train_loss += loss.data.item()
        pred = output.data.max(1)[1]  # index of the largest score
        correct += pred.eq(target.data).cpu().sum().item()
        total += target.size(0)
        accelerator.print('epoch %d, %d/%d: loss so far %.3f, right so far %.3f%% (%d/%d)' % (
            epoch, batch_idx + 1, len(train_loader), accelerator.reduce(train_loss, "mean") / (batch_idx + 1),
            100. * accelerator.reduce(correct, "sum") / accelerator.reduce(total, "sum"),
            accelerator.reduce(correct, "sum"), accelerator.reduce(total, "sum")))


def test(epoch):
    model.eval()
    test_loss = 0
    correct = 0
    evaluation_loader = accelerator.prepare_evaluation(test_loader)
    for data, target in evaluation_loader:
        if use_cuda:
            data, target = data.to(accelerator.device), target.to(accelerator.device)
        with torch.no_grad():
            data, target = Variable(data), Variable(target)
            output = model(data)
        test_loss += F.cross_entropy(output, target, reduction='sum').data.item()
        pred = output.data.max(1, keepdim=True)[1]
        correct += pred.eq(target.data.view_as(pred)).cpu().sum().item()
    test_loss, correct = accelerator.merge(evaluation_loader, test_loss, correct)

    test_loss /= len(test_loader.dataset)
    accelerator.print('epoch %d, test: loss %.4f, right %d/%d (%.2f%%)' % (
        epoch, test_loss, correct, len(test_loader.dataset), 100. * correct / len(test_loader.dataset)))


model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
for epoch in range(1, nb_epoch + 1):
    train(epoch)
    test(epoch)
