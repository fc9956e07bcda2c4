import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(8)

# The effective batch is batch_size * accum_steps, in the memory of batch_size.
batch_size = 20
accum_steps = 4
num_epochs = 2

accelerator = Accelerator()
device = accelerator.device


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 10, 3)
        self.norm = nn.GroupNorm(2, 10)
        self.head = nn.Linear(10 * 9, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = F.max_pool2d(x, 2)
        return self.head(x.flatten(start_dim=1))


digits = load_digits()
xs = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
ys = torch.tensor(digits.target)
# 191 images make 10 batches: two full windows of four and a short one of two
train_dataset = TensorDataset(xs[:191], ys[:191])
test_dataset = TensorDataset(xs[191:338], ys[191:338])
train_dataloader = DataLoader(train_dataset, batch_size=batch_size, shuffle=True)
test_dataloader = DataLoader(test_dataset, batch_size=32)

model = Classifier().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

model, optimizer, train_dataloader = accelerator.prepare(model, optimizer, train_dataloader)
test_dataloader = accelerator.prepare_evaluation(test_dataloader)
for epoch in range(num_epochs):
    model.train()
    train_loss = 0.0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(train_dataloader):
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y)
        loss = loss / accum_steps  # so that the gradients add up to a mean
        accelerator.backward(loss)
        train_loss += loss.item() * accum_steps

        if (i + 1) % accum_steps == 0 or (i + 1) == len(train_dataloader):
            optimizer.step()
            optimizer.zero_grad()
    train_loss = accelerator.reduce(train_loss, "mean")

    model.eval()
    num_correct = 0
    for x, y in test_dataloader:
        x, y = x.to(device), y.to(device)
        with torch.inference_mode():
            num_correct += (model(x).argmax(-1) == y).sum().item()
    num_correct = accelerator.merge(test_dataloader, num_correct)

    accelerator.print('epoch: {}, train loss: {:.4f}, test accuracy: {:.4f}'.format(
        epoch, train_loss / len(train_dataloader), num_correct / len(test_dataset)))
