# Two backward passes through one graph, and the gradient norm watched at every step.
import math

import torch
import torch.nn as nn
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(50)
accelerator = Accelerator()
dev = accelerator.device


class Net(nn.Module):
	def __init__(self):
		super().__init__()
		self.encoder = nn.Sequential(nn.Linear(64, 24), nn.Tanh())
		self.decoder = nn.Linear(24, 64)
		self.classifier = nn.Linear(24, 10)

	def forward(self, x):
		code = self.encoder(x)
		return self.classifier(code), self.decoder(code)


def grad_norm(module):
	total = 0.0
	for p in module.parameters():
		if p.grad is not None:
			total += p.grad.detach().pow(2).sum().item()
	return math.sqrt(total)


data, target = load_digits(return_X_y=True)
data = torch.tensor(data, dtype=torch.float32) / 16
target = torch.tensor(target)
train_dl = DataLoader(TensorDataset(data[:201], target[:201]), batch_size=56, shuffle=True)
test_dl = DataLoader(TensorDataset(data[201:348], target[201:348]), batch_size=56)

net = Net().to(dev)
opt = torch.optim.SGD(net.parameters(), lr=0.3)
classify = nn.CrossEntropyLoss()
rebuild = nn.MSELoss()

step = 0
net, opt, train_dl = accelerator.prepare(net, opt, train_dl)
test_dl = accelerator.prepare_evaluation(test_dl)
for epoch in range(2):
	net.train()
	for x, y in train_dl:
		x, y = x.to(dev), y.to(dev)
		opt.zero_grad()
		scores, recon = net(x)
		loss1 = classify(scores, y)
		loss2 = rebuild(recon, x)
		accelerator.backward(loss1, retain_graph=True)  # the second loss needs the encoder's part again
		accelerator.backward(loss2)
		norm = grad_norm(net)
		opt.step()
		step += 1
		accelerator.print("step %d  classification %.4f  reconstruction %.4f  |grad| %.4f" % (
			step, accelerator.reduce(loss1, "mean").item(), accelerator.reduce(loss2, "mean").item(), norm))

	net.eval()
	right, err, n = 0, 0.0, 0
	with torch.no_grad():
		for x, y in test_dl:
			x, y = x.to(dev), y.to(dev)
			scores, recon = net(x)
			right += torch.sum(scores.argmax(1) == y).item()
			err += rebuild(recon, x).item() * len(x)
			n += len(x)
		right, err, n = accelerator.merge(test_dl, right, err, n)
	accelerator.print("epoch %d  accuracy %.4f  reconstruction %.4f" % (epoch, right / n, err / n))
