import torch
import torch.nn as nn
import torch.optim as optim
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
# settings
gpu_ids = list(range(torch.cuda.device_count()))
num_epochs = 2
batch_size = 52
learning_rate = 0.2

torch.manual_seed(66)
device = accelerator.device


class TwoLayerNet(nn.Module):
    def __init__(self, hidden_size=30):
        super(TwoLayerNet, self).__init__()
        self.hidden_size = hidden_size
        self.l1 = nn.Linear(64, hidden_size)
        self.l2 = nn.Linear(hidden_size, 10)

    def forward(self, x):
        return self.l2(torch.relu(self.l1(x)))

    def regularization(self):
        return 1e-3 * (self.l1.weight.pow(2).sum() + self.l2.weight.pow(2).sum())


data = load_digits()
features = torch.tensor(data.data / 16.0, dtype=torch.float)
targets = torch.tensor(data.target, dtype=torch.long)

# Multiply the batch by the number of GPUs, DataParallel splits it again.
train_loader = DataLoader(TensorDataset(features[:191], targets[:191]),
                          batch_size=batch_size * max(1, len(gpu_ids)), shuffle=True)
test_loader = DataLoader(TensorDataset(features[191:338], targets[191:338]), batch_size=32)

model = TwoLayerNet()
if len(gpu_ids) > 1:
    accelerator.print("Let's use", len(gpu_ids), "GPUs!")
model = accelerator.prepare(model)
model.to(device)

criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=learning_rate)

optimizer, train_loader = accelerator.prepare(optimizer, train_loader)
test_loader = accelerator.prepare_evaluation(test_loader)
for epoch in range(num_epochs):
    model.train()
    epoch_loss = 0.0
    for x, y in train_loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y) + model.module.regularization()
        accelerator.backward(loss)
        optimizer.step()
        epoch_loss += loss.item()
    epoch_loss = accelerator.reduce(epoch_loss, "mean")

    model.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for x, y in test_loader:
            x, y = x.to(device), y.to(device)
            correct += (model(x).argmax(dim=1) == y).sum().item()
            total += y.size(0)
        correct, total = accelerator.merge(test_loader, correct, total)
    accelerator.print("epoch %d  loss %.4f  accuracy %.2f%%" % (epoch + 1, epoch_loss / len(train_loader), 100.0 * correct / total))

accelerator.print("hidden units:", model.module.hidden_size)
accelerator.save(model.module.state_dict(), "two_layer_net.pth")
