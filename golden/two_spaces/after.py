# -*- coding: utf-8 -*-
import torch, torch.nn as nn, torch.nn.functional as F
from crosstrain import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from sklearn.datasets import load_digits

EPOCHS, BATCH, LR = 2, 60, 0.3
accelerator = Accelerator()
USE_CUDA = torch.cuda.is_available()
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

net = Net()
if USE_CUDA: net.to(accelerator.device)
opt = torch.optim.SGD(net.parameters(), lr=LR)

def run(epoch):
  net.train()
  for step, (x, y) in enumerate(train_loader):
    if USE_CUDA: x, y = x.to(accelerator.device), y.to(accelerator.device)
    opt.zero_grad(); loss = F.nll_loss(net(x), y); accelerator.backward(loss); opt.step()  # one line says it all
    if step % 10 == 0: accelerator.print(
      "epoch %d step %d loss %.4f" % (epoch, step, accelerator.reduce(loss, "mean").item())
    )

def check():
  net.eval(); right = 0
  evaluation_loader = accelerator.prepare_evaluation(test_loader)
  with torch.no_grad():
    for x, y in evaluation_loader:
      if USE_CUDA: x, y = x.to(accelerator.device), y.to(accelerator.device)
      right += net(x).max(1)[1].eq(y).sum().item()
    right = accelerator.merge(evaluation_loader, right)
  return 100. * right / len(test_loader.dataset)

net, opt, train_loader = accelerator.prepare(net, opt, train_loader)
for epoch in range(EPOCHS):
  run(epoch)
  accelerator.print("accuracy %.2f%%" % check(), "norm of the head %.3f" % net.penalty().item())  # how far the weights have come; a line that nobody ever wrapped because the editor did it
accelerator.save(net.state_dict(), "net.pth")
