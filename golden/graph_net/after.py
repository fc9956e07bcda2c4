import argparse

import numpy as np
import torch
import torch.nn.functional as F
from crosstrain import Accelerator
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


def step(model, optimizer, criterion, graph, labels, nodes):
    model.train()
    loss = criterion(model(*graph)[nodes], labels[nodes])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def score(model, criterion, graph, labels, nodes):
    """Loss and accuracy on some of the nodes; the whole graph goes through the network all the same."""
    model.eval()
    with torch.no_grad():
        log_probs = model(*graph)[nodes]
    hits = (log_probs.argmax(dim=1) == labels[nodes]).float()
    return criterion(log_probs, labels[nodes]).item(), hits.mean().item()


if __name__ == '__main__':
    accelerator = Accelerator()
    use_cuda = torch.cuda.is_available()
    device = accelerator.device

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
    accelerator.print('graph network on', device)

    features, labels, adj_mat = load_graph(args.nodes, args.neighbours)
    features, labels, adj_mat = features.to(device), labels.to(device), adj_mat.to(device)
    idx = torch.randperm(len(labels)).to(device)
    n_test, n_val = len(labels) // 3, len(labels) // 6
    idx_test, idx_val, idx_train = idx[:n_test], idx[n_test:n_test + n_val], idx[n_test + n_val:]

    gcn = GCN(features.shape[1], args.hidden_dim, 10).to(device)
    optimizer = torch.optim.Adam(gcn.parameters(), lr=args.lr, weight_decay=args.l2)
    criterion = nn.NLLLoss()

    graph = (features, adj_mat)
    gcn, optimizer = accelerator.prepare(gcn, optimizer)
    for epoch in range(1, args.epochs + 1):
        step(gcn, optimizer, criterion, graph, labels, idx_train)
        if epoch % args.print_every == 0:
            accelerator.print(f'epoch {epoch}:', 'train %.4f / %.4f' % score(gcn, criterion, graph, labels, idx_train),
                              'validation %.4f / %.4f' % score(gcn, criterion, graph, labels, idx_val))

    accelerator.print('test: loss %.4f, accuracy %.4f' % score(gcn, criterion, graph, labels, idx_test))
