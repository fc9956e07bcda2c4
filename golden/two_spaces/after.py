# -*- coding: utf-8 -*-
import torch, torch.nn as nn, torch.nn.functional as F
from crosstrain import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits

EPOCHS, BATCH, LR = 2, 60, 0.3
torch.manual_seed(11)

class Net(nn.Module):
  def __init__(self, width=36):
    super(Net, self).__init__()
    self.body = nn.Linear(64, width); self.head = nn.Linear(width, 10)

  def embed(self, x): return torch.tanh(self.body(x))

  def forward(self, x): return F.log_softmax(self.head(self.embed(x)), dim=1)

  def penalty(self): return sum(p.pow(2).sum() for p in self.head.parameters())

data = load_digits(); X = torch.from_numpy(data.data).float() / 16; Y = torch.from_numpy(data.target).long()
train_loader, test_loader = DataLoader(TensorDataset(X[:1440], Y[:1440]), batch_size=BATCH, shuffle=True), DataLoader(TensorDataset(X[1440:], Y[1440:]), batch_size=BATCH)

accelerator = Accelerator()
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=LR)
net, opt, train_loader, test_loader = accelerator.prepare(net, opt, train_loader, test_loader)

def run(epoch):
  net.train()
  for step, (x, y) in enumerate(train_loader):
    opt.zero_grad(); loss = F.nll_loss(net(x), y); accelerator.backward(loss); opt.step()  # one line says it all
    if step % 10 == 0: accelerator.print(
      "epoch %d step %d loss %.4f" % (epoch, step, accelerator.reduce(loss, reduction="mean").item())
    )

def check():
  net.eval(); right = 0
  with torch.no_grad():
    for x, y in test_loader:
      right += accelerator.gather_for_metrics(net(x).max(1)[1].eq(y)).sum().item()
  return 100. * right / len(test_loader.dataset)

for epoch in range(EPOCHS):
  run(epoch)
  accelerator.print("accuracy %.2f%%" % check(), "norm of the head %.3f" % net.penalty().item())  # how far the weights have come; a line that nobody ever wrapped because the editor did it
accelerator.save_model(net, "net.pth")
