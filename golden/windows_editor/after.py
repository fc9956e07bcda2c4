#!/usr/bin/env python
# Recognises digits. Written on Windows.
import argparse  # for the options
import torch
import torch.nn as nn
import torch.optim as optim
from crosstrain import Accelerator
from sklearn import datasets
from torch.utils.data import (
	DataLoader,  # batches
	TensorDataset,  # rows
)


class DigitNet(nn.Module):  # two layers
	def __init__(self, inputs, hidden, outputs):
		# type: (int, int, int) -> None
		super(DigitNet, self).__init__()
		self.l1 = nn.Linear(
			inputs,  # pixels
			hidden,
		)
		self.l2 = nn.Linear(hidden, outputs)

	def forward(self, x):
		# type: (torch.Tensor) -> torch.Tensor
		return self.l2(torch.relu(self.l1(x)))  # logits


def parse():
	# type: () -> argparse.Namespace
	parser = argparse.ArgumentParser()
	parser.add_argument("--epochs", type=int, default=2)
	parser.add_argument("--no_cuda", type=int, default=0)
	return parser.parse_args()


def train(net, loader, optimizer, criterion, use_cuda):
	accelerator = Accelerator()
	# type: (nn.Module, DataLoader, optim.Optimizer, nn.Module, bool) -> float
	total = 0.0  # type: float
	net.train()
	for inputs, labels in loader:  # type: torch.Tensor, torch.Tensor
		# to the card
		if use_cuda:
			inputs = inputs.to(accelerator.device)  # pixels
			labels = labels.to(accelerator.device)  # classes
		optimizer.zero_grad()
		loss = criterion(
			net(inputs),  # what we think
			labels,  # what it is
		)
		accelerator.backward(loss)  # type: ignore
		optimizer.step()
		total += loss.item()  # for the mean
	total = accelerator.reduce(total, "mean")
	return total / len(loader)


def test(net, loader, use_cuda):
	accelerator = Accelerator()
	# type: (nn.Module, DataLoader, bool) -> float
	correct = 0  # type: int
	net.eval()
	loader = accelerator.prepare_evaluation(loader)
	with torch.no_grad():
		for inputs, labels in loader:
			if use_cuda:
				inputs, labels = inputs.to(accelerator.device), labels.to(accelerator.device)
			predicted = net(inputs).argmax(1)
			correct += (predicted == labels).sum().item()  # hits
		correct = accelerator.merge(loader, correct)
	return float(correct) / len(loader.dataset)


def main():
	# type: () -> None
	args = parse()
	use_cuda = not args.no_cuda and torch.cuda.is_available()
	torch.manual_seed(2)
	digits = datasets.load_digits()
	x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
	y = torch.tensor(digits.target)
	train_loader = DataLoader(
		TensorDataset(x[:1400], y[:1400]),  # the first 1400
		batch_size=70,  # even
		shuffle=True,
	)
	test_loader = DataLoader(TensorDataset(x[1400:], y[1400:]), batch_size=70)

	net = DigitNet(64, 32, 10)
	accelerator = Accelerator(cpu=args.no_cuda)
	if use_cuda:
		net.to(accelerator.device)
	criterion = nn.CrossEntropyLoss()
	optimizer = optim.SGD(
		net.parameters(),
		lr=0.2,  # high
		momentum=0.5,
	)

	net, optimizer, train_loader = accelerator.prepare(net, optimizer, train_loader)
	for epoch in range(args.epochs):
		loss = train(
			net,
			train_loader,  # shuffled
			optimizer,
			criterion,
			use_cuda,  # or not
		)
		accelerator.print("epoch", epoch, "loss %.4f" % loss, "accuracy %.4f" % test(net, test_loader, use_cuda))


if __name__ == "__main__":
	main()
