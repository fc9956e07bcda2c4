import argparse

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_net(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))


def accuracy(net, loader, accelerator):
    net.eval()
    correct = 0
    for images, labels in loader:
        with torch.no_grad():
            scores = net(images)
        correct += accelerator.gather_for_metrics(scores.argmax(1).eq(labels)).sum().item()
    return correct / len(loader.dataset)


def train_teacher(net, loader, accelerator, epochs, lr):
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net, optimizer = accelerator.prepare(net, optimizer)
    for epoch in range(epochs):
        net.train()
        total = 0.0
        for images, labels in loader:
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            total += accelerator.weighted(loss).item() * accelerator.global_rows(labels)
        total = accelerator.reduce(total, reduction="mean")
        accelerator.print(f"teacher epoch {epoch}: loss {total / len(loader.dataset):.4f}")


def distill(student, teacher, loader, accelerator, epochs, lr, T, alpha):
    """Hard labels with weight 1 - alpha, the teacher's softened ones with weight alpha."""
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False  # the teacher does not learn any more

    ce = nn.CrossEntropyLoss()
    kl = nn.KLDivLoss(reduction="batchmean")
    optimizer = torch.optim.SGD(student.parameters(), lr=lr, momentum=0.9)
    student, optimizer = accelerator.prepare(student, optimizer)
    for epoch in range(epochs):
        student.train()
        sums = {"ce": 0.0, "kd": 0.0}
        for images, labels in loader:
            with torch.no_grad():
                teacher_logits = teacher(images)
            student_logits = student(images)

            loss_ce = ce(student_logits, labels)
            loss_kd = kl(F.log_softmax(student_logits / T, dim=1), F.softmax(teacher_logits / T, dim=1)) * T * T
            loss = (1 - alpha) * loss_ce + alpha * loss_kd

            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

            sums["ce"] += accelerator.weighted(loss_ce).item() * accelerator.global_rows(labels)
            sums["kd"] += accelerator.weighted(loss_kd).item() * accelerator.global_rows(labels)
        n = len(loader.dataset)
        sums = accelerator.reduce(sums, reduction="mean")
        accelerator.print(f"student epoch {epoch}: ce {sums['ce'] / n:.4f} kd {sums['kd'] / n:.4f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--teacher-epochs", type=int, default=10)
    ap.add_argument("--student-epochs", type=int, default=10)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--temperature", type=float, default=2.0)
    ap.add_argument("--alpha", type=float, default=0.7)
    ap.add_argument("--lr", type=float, default=0.1)
    args = ap.parse_args()

    torch.manual_seed(6)
    accelerator = Accelerator()
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y, dtype=torch.long)
    train_loader = DataLoader(TensorDataset(x[:1411], y[:1411]), args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[1411:], y[1411:]), args.batch_size)
    train_loader, test_loader = accelerator.prepare(train_loader, test_loader)

    teacher = make_net(128)
    student = make_net(12)

    train_teacher(teacher, train_loader, accelerator, args.teacher_epochs, args.lr)
    accelerator.print(f"teacher accuracy {accuracy(teacher, test_loader, accelerator):.4f}")

    distill(
        student, teacher, train_loader, accelerator, args.student_epochs, args.lr, args.temperature, args.alpha
    )
    accelerator.print(f"student accuracy {accuracy(student, test_loader, accelerator):.4f}")

    accelerator.save_model(student, "student.pt")


if __name__ == "__main__":
    main()
