import argparse

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_net(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def accuracy(net, loader, device):
    accelerator = Accelerator()
    net.eval()
    correct = 0
    loader = accelerator.prepare_evaluation(loader)
    for images, labels in loader:
        with torch.no_grad():
            scores = net(images.to(device))
        correct += scores.argmax(1).eq(labels.to(device)).sum().item()
    correct = accelerator.merge(loader, correct)
    return correct / len(loader.dataset)


def train_teacher(net, loader, device, epochs, lr):
    accelerator = Accelerator()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net, optimizer, loader = accelerator.prepare(net, optimizer, loader)
    for epoch in range(epochs):
        net.train()
        total = 0.0
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += loss.item() * len(labels)
        total = accelerator.reduce(total, "sum")
        accelerator.print(f"teacher epoch {epoch}: loss {total / len(loader.dataset):.4f}")


def distill(student, teacher, loader, device, epochs, lr, T, alpha):
    """Hard labels with weight 1 - alpha, the teacher's softened ones with weight alpha."""
    accelerator = Accelerator()
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False  # the teacher does not learn any more

    ce = nn.CrossEntropyLoss()
    kl = nn.KLDivLoss(reduction="batchmean")
    optimizer = torch.optim.SGD(student.parameters(), lr=lr, momentum=0.9)
    student, optimizer, loader = accelerator.prepare(student, optimizer, loader)
    for epoch in range(epochs):
        student.train()
        sums = {"ce": 0.0, "kd": 0.0}
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            with torch.no_grad():
                teacher_logits = teacher(images)
            student_logits = student(images)

            loss_ce = ce(student_logits, labels)
            loss_kd = kl(F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1)) * T * T
            loss = (1 - alpha) * loss_ce + alpha * loss_kd

            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

            sums["ce"] += loss_ce.item() * len(labels)
            sums["kd"] += loss_kd.item() * len(labels)
        sums = accelerator.reduce(sums, "sum")
        n = len(loader.dataset)
        accelerator.print(f"student epoch {epoch}: ce {sums['ce'] / n:.4f} kd {sums['kd'] / n:.4f}")


def main():
    accelerator = Accelerator()
    ap = argparse.ArgumentParser()
    ap.add_argument("--teacher-epochs", type=int, default=10)
    ap.add_argument("--student-epochs", type=int, default=10)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--temperature", type=float, default=2.0)
    ap.add_argument("--alpha", type=float, default=0.7)
    ap.add_argument("--lr", type=float, default=0.1)
    args = ap.parse_args()

    torch.manual_seed(6)
    device = accelerator.device
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y, dtype=torch.long)
    train_loader = DataLoader(TensorDataset(x[:1411], y[:1411]), args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[1411:], y[1411:]), args.batch_size)

    teacher = make_net(128).to(device)
    student = make_net(12).to(device)

    train_teacher(teacher, train_loader, device, args.teacher_epochs, args.lr)
    accelerator.print(f"teacher accuracy {accuracy(teacher, test_loader, device):.4f}")

    distill(student, teacher, train_loader, device, args.student_epochs, args.lr, args.temperature, args.alpha)
    accelerator.print(f"student accuracy {accuracy(student, test_loader, device):.4f}")

    accelerator.save(student.state_dict(), "student.pt")


if __name__ == "__main__":
    main()
