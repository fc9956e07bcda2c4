"""CT601 and CT603: evaluation over all processes' rows, where that gives the same numbers, and whole where not."""

from __future__ import annotations

from .support import Case, Slots, converts, each, leaves

RULE, WHOLE = "CT601", "CT603"
TEST_DATA = """\
test_set = TensorDataset(torch.ones(20, 8), torch.zeros(20, dtype=torch.long))
test_loader = DataLoader(test_set, batch_size=8)"""
PREPARED = """\
model, optimizer, train_loader, test_loader = accelerator.prepare(
    model, optimizer, train_loader, test_loader
)"""
DEVICE = "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"
RIGHT = "right += (model(x).argmax(1) == y).sum().item()"
GATHERED = "right += accelerator.gather_for_metrics(model(x).argmax(1) == y).sum().item()"
LOSS_OF_BATCH = "F.cross_entropy(model(x), y).item()"
BOTH = "output, y = accelerator.gather_for_metrics((model(x), y))\n"
METER = """\
class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def average(self):
        return self.total / self.count
"""


def evaluation(body: str, start: str, end: str, mode: str, loop: str) -> str:
    inner = "\n".join(f"        {line}" for line in body.split("\n"))
    lines = [mode, start, "with torch.no_grad():  # no gradients", f"    {loop}", inner, end]
    return "\n".join(line for line in lines if line)


def told(end: str) -> str:
    return end.replace("print(", "accelerator.print(")


def distributed(
    name: str,
    body: str,
    after: str,
    start: str = "right = 0",
    end: str = "print(right)",
    mode: str = "model.eval()",
    loop: str = "for x, y in test_loader:",
    told_end: str = "",
    at: str = "",
    loop_after: str = "",
    **more: str,
) -> Case:
    """Evaluation that becomes distributed."""
    return converts(
        RULE,
        name,
        {"test_data": TEST_DATA, "after_epoch": evaluation(body, start, end, mode, loop), **more},
        {
            "prepare": PREPARED,
            "after_epoch": evaluation(after, start, told_end or told(end), mode, loop_after or loop),
        },
        at=at
        or next((line for line in body.split("\n") if line not in after.split("\n")), body.split("\n")[-1]),
    )


def whole(
    name: str,
    body: str,
    at: str,
    start: str = "right = 0",
    end: str = "print(right)",
    mode: str = "model.eval()",
    loop: str = "for x, y in test_loader:",
    after: Slots | None = None,
    body_after: str = "",
    findings: tuple[tuple[str, str], ...] = (),
    **more: str,
) -> Case:
    """Evaluation that every process does for itself, and the finding that says why."""
    return leaves(
        WHOLE,
        name,
        {"test_data": TEST_DATA, "after_epoch": evaluation(body, start, end, mode, loop), **more},
        {"after_epoch": evaluation(body_after or body, start, told(end), mode, loop), **(after or {})},
        [(WHOLE, at), *findings],
    )


POSITIVE = [
    distributed("right answers", RIGHT, GATHERED),
    distributed(
        "a number of the batch that nobody reads, but as another loop's",
        RIGHT,
        GATHERED,
        loop="for i, (x, y) in enumerate(test_loader):",
        end="for i in range(2):\n    print(right, i)",
        told_end="for i in range(2):\n    accelerator.print(right, i)",
    ),
    distributed("batches moved first", f"x, y = x.to(device), y.to(device)\n{RIGHT}", GATHERED, at=RIGHT),
    distributed(
        "right answers through a variable",
        "guess = model(x).argmax(dim=1)\nright += guess.eq(y.view_as(guess)).sum().item()",
        "guess = model(x).argmax(dim=1)\nright += accelerator.gather_for_metrics(guess.eq(y.view_as(guess))).sum().item()",
    ),
    distributed(
        "right answers and how many",
        "out = model(x)\n_, guess = torch.max(out, 1)\nseen += y.size(0)\nright += (guess == y).sum().item()",
        "out = model(x)\n_, guess = torch.max(out, 1)\n"
        "seen += accelerator.global_rows(y)\n"
        "right += accelerator.gather_for_metrics(guess == y).sum().item()",
        start="right, seen = 0, 0",
        end="print(right / seen)",
        at="seen += ",
    ),
    distributed(
        "a metric object",
        "x, y = x.to(device), y.to(device)\nout = model(x)\nmetric.update(out, y)",
        "out = model(x)\nout, y = accelerator.gather_for_metrics((out, y))\nmetric.update(out, y)",
        at="metric.update",
        start="metric = torchmetrics.MeanSquaredError(sync_on_compute=False)",
        end="print(metric.compute())",
        imports="import torchmetrics",
    ),
    distributed(
        "a sum on the device",
        "right = right + (model(x).argmax(1) == y).sum()",
        "right = right + accelerator.gather_for_metrics(model(x).argmax(1) == y).sum()",
        end="print(right.item())",
    ),
    distributed(
        "a summed loss of rows that are moved in it",
        'total += F.cross_entropy(model(x.to(device)), y.to(device), reduction="sum").item()',
        (
            "total += F.cross_entropy(accelerator.gather_for_metrics(model(x)), accelerator.gather_for_metrics(y), "
            'reduction="sum").item()'
        ),
        start="total = 0.0",
        end="print(total / len(test_set))",
    ),
    distributed(
        "a meter by sample",
        "meter.update(F.cross_entropy(model(x), y).item(), x.size(0))",
        BOTH + "meter.update(F.cross_entropy(output, y).item(), y.size(0))",
        start="meter = Meter()",
        end="print(meter.average)",
        definitions=METER,
    ),
    distributed(
        "the best two",
        "_, top = model(x).topk(2, 1)\nright += (top == y.unsqueeze(1)).any(1).sum().item()",
        "_, top = model(x).topk(2, 1)\n"
        "right += accelerator.gather_for_metrics((top == y.unsqueeze(1)).any(1)).sum().item()",
    ),
    distributed(
        "predictions kept on the CPU",
        "guesses.append(model(x).argmax(1).cpu())\ntruth.append(y)",
        "guesses.append(accelerator.gather_for_metrics(model(x).argmax(1)).cpu())\n"
        "truth.append(accelerator.gather_for_metrics(y).cpu())",
        start="guesses, truth = [], []",
        end="print((torch.cat(guesses) == torch.cat(truth)).float().mean())",
    ),
    distributed(
        "labels that change their type on the CPU",
        "guesses.append(model(x).argmax(1).cpu())\ntruth.append(y)",
        "guesses.append(accelerator.gather_for_metrics(model(x).argmax(1)).cpu())\n"
        "truth.append(accelerator.gather_for_metrics(y).cpu())",
        start="guesses, truth = [], []",
        end="print((torch.cat(guesses).float() - torch.cat(truth).to(torch.float32)).abs().mean())",
    ),
    distributed(
        "labels that the script moves to the device in the end",
        "guesses.append(model(x).argmax(1))\ntruth.append(y)",
        "guesses.append(accelerator.gather_for_metrics(model(x).argmax(1)))\n"
        "truth.append(accelerator.gather_for_metrics(y))",
        start="guesses, truth = [], []",
        end="truth = torch.cat(truth).to(device)\nprint((torch.cat(guesses) == truth).float().mean())",
        told_end="truth = torch.cat(truth)\naccelerator.print((torch.cat(guesses) == truth).float().mean())",
    ),
    distributed(
        "predictions for a library",
        "guesses.extend(model(x).argmax(1).tolist())\ntruth.extend(y.tolist())",
        "guesses.extend(accelerator.gather_for_metrics(model(x).argmax(1)).tolist())\n"
        "truth.extend(accelerator.gather_for_metrics(y).cpu().tolist())",
        start="guesses, truth = [], []",
        end="print(f1_score(truth, guesses))",
        imports="from sklearn.metrics import f1_score",
    ),
    distributed(
        "predictions as arrays",
        "hits.append((model(x).argmax(1) == y).cpu().numpy())",
        "hits.append(accelerator.gather_for_metrics(model(x).argmax(1) == y).cpu().numpy())",
        start="hits = []",
        end="print(np.concatenate(hits).mean())",
        imports="import numpy as np",
    ),
    distributed(
        "right answers of each class",
        "guess = model(x).argmax(1)\nfor c in range(3):\n    hits[c] += ((guess == c) & (y == c)).sum().item()",
        "guess = model(x).argmax(1)\nfor c in range(3):\n"
        "    hits[c] += accelerator.gather_for_metrics((guess == c) & (y == c)).sum().item()",
        start="hits = [0] * 3",
        end="print(hits)",
    ),
    distributed(
        "squared errors and how many elements",
        "total += (model(x).argmax(1) - y).pow(2).sum().item()\nseen += y.numel()",
        "total += accelerator.gather_for_metrics((model(x).argmax(1) - y).pow(2)).sum().item()\n"
        "seen += accelerator.global_rows(y.flatten())",
        start="total, seen = 0.0, 0",
        end="print((total / seen) ** 0.5)",
        at="total += ",
    ),
    distributed("evaluation mode the other way", RIGHT, GATHERED, mode="model.train(False)"),
    distributed(
        "counted, and the count unused", RIGHT, GATHERED, loop="for i, (x, y) in enumerate(test_loader):"
    ),
    distributed(
        "a bar",
        RIGHT,
        GATHERED,
        loop="for x, y in tqdm(test_loader):",
        loop_after="for x, y in tqdm(test_loader, disable=not accelerator.is_local_main_process):",
        imports="from tqdm import tqdm",
    ),
    distributed(
        "the best so far",
        RIGHT,
        GATHERED,
        setup="best = 0",
        end='if right > best:\n    best = right\n    torch.save(model.state_dict(), "best.pt")',
        told_end='if right > best:\n    best = right\n    accelerator.save_model(model, "best.pt")',
    ),
    distributed("an early stop", RIGHT, GATHERED, end="if right > 10:\n    break"),
    distributed(
        "a mean of rows kept one by one",
        'losses.append(F.cross_entropy(model(x), y, reduction="none"))',
        'losses.append(accelerator.gather_for_metrics(F.cross_entropy(model(x), y, reduction="none")))',
        start="losses = []",
        end="print(torch.cat(losses).mean().item())",
    ),
]

TWO_LOADERS = {
    "test_data": TEST_DATA + "\nvalid_loader = DataLoader(test_set, batch_size=4)",
    "definitions": (
        "def count(model, loader, device):\n"
        "    model.eval()\n"
        "    right = 0\n"
        "    with torch.no_grad():\n"
        "        for x, y in loader:\n"
        "            x, y = x.to(device), y.to(device)\n"
        "            right += (model(x).argmax(1) == y).sum().item()\n"
        "    return right\n"
    ),
}
POSITIVE.append(
    converts(
        RULE,
        "two loaders that share one loop are gathered once",
        {
            **TWO_LOADERS,
            "after_epoch": "count(model, valid_loader, device)",
            "end": "count(model, test_loader, device)",
        },
        {
            "definitions": (
                "def count(model, loader):\n"
                "    model.eval()\n"
                "    right = 0\n"
                "    with torch.no_grad():\n"
                "        for x, y in loader:\n"
                "            right += accelerator.gather_for_metrics(model(x).argmax(1) == y).sum().item()\n"
                "    return right\n"
            ),
            "prepare": (
                "model, optimizer, train_loader, test_loader, valid_loader = accelerator.prepare(\n"
                "    model, optimizer, train_loader, test_loader, valid_loader\n"
                ")"
            ),
            "after_epoch": "count(model, valid_loader)",
            "end": "count(model, test_loader)",
        },
        at="right += ",
    )
)

PER_BATCH = "acc.append((model(x).argmax(1) == y).float().mean().item())"
NEGATIVE = [
    whole(
        "a mean of batch means",
        "total += F.cross_entropy(model(x), y).item()",
        "print(total / len(test_loader))",
        start="total = 0.0",
        end="print(total / len(test_loader))",
    ),
    whole(
        "what a metric object says of each batch",
        "right += metric(model(x), y)",
        "right +=",
        start="right = 0\nmetric = torchmetrics.MeanSquaredError(sync_on_compute=False)",
        imports="import torchmetrics",
    ),
    whole("a list of batch means", PER_BATCH, PER_BATCH, start="acc = []", end="print(sum(acc) / len(acc))"),
    whole("batches that are kept", RIGHT, "list(test_loader)", loop="for x, y in list(test_loader):"),
    whole("no evaluation mode", RIGHT, "for x, y in test_loader:", mode=""),
    whole("an early end", f"{RIGHT}\nif right > 3:\n    break", "        break"),
    whole(
        "batches are counted",
        f"{RIGHT}\nif i == 2:\n    assert right",
        "enumerate(test_loader)",
        loop="for i, (x, y) in enumerate(test_loader):",
    ),
    whole(
        "the number of the last batch is read behind the loop",
        RIGHT,
        "enumerate(test_loader)",
        loop="for i, (x, y) in enumerate(test_loader):",
        end="print(right / (i + 1))",
    ),
    whole(
        "told batch by batch",
        "print((model(x).argmax(1) == y).float().mean().item())",
        "print((model(x)",
        body_after="accelerator.print((model(x).argmax(1) == y).float().mean().item())",
    ),
    whole(
        "a library's score of each batch",
        "scores.append(f1_score(y.numpy(), model(x).argmax(1).numpy()))",
        "scores.append",
        start="scores = []",
        end="print(sum(scores) / len(scores))",
        imports="from sklearn.metrics import f1_score",
    ),
    whole(
        "a metric object from elsewhere",
        "metric.update(model(x), y)",
        "metric.update",
        start="metric = scoring.Accuracy()",
        end="print(metric.compute())",
        imports="import scoring",
    ),
    whole(
        "another metric object from elsewhere",
        "metric.add_batch(predictions=model(x).argmax(1), references=y)",
        "metric.add_batch",
        start='metric = evaluate.load("accuracy")',
        end="print(metric.compute())",
        imports="import evaluate",
    ),
    whole(
        "a confusion matrix, row by row",
        "guess = model(x).argmax(1)\nfor t, p in zip(y.view(-1), guess.view(-1)):\n    matrix[t.long(), p.long()] += 1",
        "for t, p in zip",
        start="matrix = torch.zeros(3, 3)",
        end="print(matrix)",
    ),
    whole(
        "a confusion matrix, by position",
        "guess = model(x).argmax(1)\nfor i in range(len(y)):\n    matrix[y[i], guess[i]] += 1",
        "for i in range(len(y))",
        start="matrix = torch.zeros(3, 3)",
        end="print(matrix)",
    ),
    whole(
        "a decision on each row",
        "guess = model(x).argmax(1)\nfor label, p in zip(y, guess):\n    if label == p:\n        hits[label] += 1",
        "for label, p in zip",
        start="hits = [0] * 3",
        end="print(hits)",
    ),
    whole(
        "the worst batch",
        "worst = max(worst, F.cross_entropy(model(x), y).item())",
        "worst = max",
        start="worst = 0.0",
        end="print(worst)",
    ),
    whole(
        "the best batch",
        f"best = min(best, {LOSS_OF_BATCH})",
        "best = min",
        start="best = 1e9",
        end="print(best)",
    ),
    whole(
        "batches that are counted by hand",
        f"{RIGHT}\nn += 1",
        "n += 1",
        start="right, n = 0, 0",
        end="print(right / n)",
    ),
    whole(
        "the inverse of each batch's loss",
        f"total += 1 / {LOSS_OF_BATCH}",
        "total += 1",
        start="total = 0.0",
        end="print(total)",
    ),
    whole(
        "the square of each batch's loss",
        f"total += {LOSS_OF_BATCH} ** 2",
        "total += ",
        start="total = 0.0",
        end="print(total)",
    ),
    whole("the first batch alone", f"{RIGHT}\nbreak", "        break"),
    whole(
        "rows chosen by a mask",
        "keep = y != 0\nright += (model(x).argmax(1)[keep] == y[keep]).sum().item()",
        "right += ",
    ),
    whole(
        "right answers counted across rows",
        "_, top = model(x).topk(2, 1)\ntop = top.t()\nhits = top.eq(y.view(1, -1).expand_as(top))\n"
        "right += hits[:1].reshape(-1).float().sum().item()",
        "right += hits",
    ),
    whole(
        "the number of batches is used",
        RIGHT,
        "print(right / len(test_loader))",
        end="print(right / len(test_loader))",
    ),
    whole(
        "added up with +=, as lists",
        "guesses += model(x).argmax(1).tolist()",
        "guesses += ",
        start="guesses = []",
        end="print(len(guesses))",
    ),
    leaves(
        WHOLE,
        "a loader without a variable",
        {
            "test_data": TEST_DATA,
            "after_epoch": evaluation(
                RIGHT, "right = 0", "", "model.eval()", "for x, y in DataLoader(test_set, batch_size=8):"
            ),
        },
        findings=[(WHOLE, "for x, y in DataLoader(test_set")],
    ),
    leaves(
        WHOLE,
        "no loader at all",
        {
            "after_epoch": "model.eval()\nwith torch.no_grad():\n    probe = model(torch.ones(2, 8).to(device))"
        },
        {"device": DEVICE},
    ),
    leaves(  # `y` may be the training loop's where the evaluation loop had no batch
        "CT602",
        "the last batch is read afterwards, under a name that the training loop has, too",
        {
            "test_data": TEST_DATA,
            "after_epoch": evaluation(
                "guess = model(x).argmax(1)",
                "right = 0",
                "print((guess == y).float().mean())",
                "model.eval()",
                "for x, y in test_loader:",
            ),
        },
        {
            "after_epoch": evaluation(
                "guess = model(x).argmax(1)",
                "right = 0",
                "accelerator.print((guess == y).float().mean())",
                "model.eval()",
                "for x, y in test_loader:",
            ),
        },
        findings=[("CT602", "print((guess == y)"), ("CT603", "print((guess == y)")],
    ),
    whole(
        "the last batch is read afterwards",
        "guess = model(a).argmax(1)",
        "print((guess == b)",
        end="print((guess == b).float().mean())",
        loop="for a, b in test_loader:",
    ),
    leaves(RULE, "a loader that nobody iterates", {"test_data": TEST_DATA}),
    leaves(
        RULE,
        "pictures of a few rows",
        {
            "test_data": TEST_DATA,
            "imports": "import matplotlib.pyplot as plt",
            "end": "x, y = next(iter(test_loader))\nplt.plot(x[0])",
        },
        findings=[(WHOLE, "test_loader = DataLoader")],
    ),
]


@each(POSITIVE, NEGATIVE)
def test_evaluation(case: Case) -> None:
    case.check()
