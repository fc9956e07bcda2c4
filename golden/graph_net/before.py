import argparse

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from torch import nn
from torch.nn.parameter import Parameter


def load_graph(n_nodes, k):
    """Digits are the nodes, each one is linked to its k nearest neighbours.

    Returns features, labels and the symmetrically normalised adjacency matrix (sparse).
    """
    digits = load_digits()
    x = digits.data[:n_nodes] / 16
    a = kneighbors_graph(x, k, mode='connectivity').toarray()
    a = np.maximum(a, a.T) + np.eye(n_nodes)
    d = 1 / np.sqrt(a.sum(1))
    a = d[:, None] * a * d[None, :]
    features = torch.tensor(x, dtype=torch.float32)
    labels = torch.tensor(digits.target[:n_nodes])
    return features, labels, torch.tensor(a, dtype=torch.float32).to_sparse()


class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.kernel = Parameter(torch.empty(n_in, n_out))
        self.bias = Parameter(torch.zeros(n_out))
        nn.init.xavier_normal_(self.kernel)

    def forward(self, x, adj):
        return torch.mm(adj, torch.mm(x, self.kernel)) + self.bias


class GCN(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.gc1 = GraphConv(n_in, n_hidden)
        self.gc2 = GraphConv(n_hidden, n_out)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        return F.log_softmax(self.gc2(x, adj), dim=1)


def train_iter(epoch, model, optimizer, criterion, inputs, target, mask_train, mask_val, print_every):
    model.train()
    optimizer.zero_grad()
    output = model(*inputs)
    loss = criterion(output[mask_train], target[mask_train])
    loss.backward()
    optimizer.step()

    loss_train, acc_train = test(model, criterion, inputs, target, mask_train)
    loss_val, acc_val = test(model, criterion, inputs, target, mask_val)
    if epoch % print_every == 0:
        print(f'Epoch: {epoch:4d} loss_train: {loss_train:.4f} acc_train: {acc_train:.4f} '
              f'loss_val: {loss_val:.4f} acc_val: {acc_val:.4f}')


def test(model, criterion, inputs, target, mask):
    model.eval()
    with torch.no_grad():
        output = model(*inputs)
        output, target = output[mask], target[mask]
        loss = criterion(output, target)
        acc = (output.argmax(dim=1) == target).float().sum() / len(target)
    return loss.item(), acc.item()


if __name__ == '__main__':
    use_cuda = torch.cuda.is_available()
    device = torch.device('cuda' if use_cuda else 'cpu')

    parser = argparse.ArgumentParser(description='Graph convolutions on a neighbourhood graph')
    parser.add_argument('--epochs', type=int, default=100)
    parser.add_argument('--nodes', type=int, default=900)
    parser.add_argument('--neighbours', type=int, default=5)
    parser.add_argument('--hidden-dim', type=int, default=16)
    parser.add_argument('--lr', type=float, default=0.05)
    parser.add_argument('--l2', type=float, default=5e-4, help='weight decay')
    parser.add_argument('--seed', type=int, default=42)
    parser.add_argument('--print-every', type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    print(f'Using {device} device')

    features, labels, adj_mat = load_graph(args.nodes, args.neighbours)
    features, labels, adj_mat = features.to(device), labels.to(device), adj_mat.to(device)
    idx = torch.randperm(len(labels)).to(device)
    n_test, n_val = len(labels) // 3, len(labels) // 6
    idx_test, idx_val, idx_train = idx[:n_test], idx[n_test:n_test + n_val], idx[n_test + n_val:]

    gcn = GCN(features.shape[1], args.hidden_dim, 10).to(device)
    optimizer = torch.optim.Adam(gcn.parameters(), lr=args.lr, weight_decay=args.l2)
    criterion = nn.NLLLoss()

    for epoch in range(args.epochs):
        train_iter(epoch + 1, gcn, optimizer, criterion, (features, adj_mat), labels, idx_train, idx_val, args.print_every)

    loss_test, acc_test = test(gcn, criterion, (features, adj_mat), labels, idx_test)
    print(f'Test set results: loss {loss_test:.4f} accuracy {acc_test:.4f}')
