"""CT202 and CT204: the backward pass, and the reduction of the loss."""

from __future__ import annotations

from .support import Case, Slots, converts, each, leaves, refuses

BACKWARD, SUM = "CT202", "CT204"
SUMMING = {"device": 'accelerator = Accelerator(loss_reduction="sum")  # the fastest there is'}
WEIGHTED = {"device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"}
ROWS = 'out = model(x)\nrows = F.cross_entropy(out, y, reduction="none")'
CRITERION_LOSS = "out = model(x)\nloss = criterion(out, y)"
CLOSURE = """\
def closure():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    {}
    return loss

"""


def passes(name: str, before: str, after: str, **more: str) -> Case:
    return converts(BACKWARD, name, {"backward": before, **more}, {"backward": after})


def mean(name: str, loss: str, **more: str) -> Case:
    """A loss that is a mean over rows: nothing about it changes."""
    return leaves(SUM, name, {"loss": loss, **more})


def summed(name: str, loss: str, **more: str) -> Case:
    """A loss that is a sum over rows: the Accelerator is told."""
    return Case(SUM, f"a sum {name}", {"loss": loss, **more}, SUMMING, at="device = torch.device")


def unclear(name: str, loss: str, after: Slots | None = None, **more: str) -> Case:
    """Neither a mean nor a sum: converted, and reported."""
    return leaves(BACKWARD, name, {"loss": loss, **more}, after, [(BACKWARD, "loss.backward()")])


POSITIVE = [
    passes("plain", "loss.backward()", "accelerator.backward(loss)"),
    passes(
        "its keywords stay",
        "loss.backward(retain_graph=True)",
        "accelerator.backward(loss, retain_graph=True)",
    ),
    passes("the function", "torch.autograd.backward(loss)", "accelerator.backward(loss)"),
    passes(
        "the function with a list of one",
        "torch.autograd.backward([loss])",
        "accelerator.backward(loss)",
    ),
    passes("an expression", "(loss / 4).backward()", "accelerator.backward(loss / 4)"),
    passes("of a mean", "rows.mean().backward()", "accelerator.backward(rows.mean())", loss=ROWS),
    passes(
        "two a step",
        "loss.backward(retain_graph=True)\npenalty.backward()  # the second",
        "accelerator.backward(loss, retain_graph=True)\naccelerator.backward(penalty)  # the second",
        loss="out = model(x)\nloss = F.cross_entropy(out, y)\npenalty = out.pow(2).mean()",
    ),
    passes(
        "several tensors at once",
        "torch.autograd.backward([loss, penalty])",
        "accelerator.backward(loss + penalty)",
        loss="out = model(x)\nloss = F.cross_entropy(out, y)\npenalty = out.pow(2).mean()",
    ),
    passes(
        "with a factor, as a critic's loss",
        "loss.backward(minus)",
        "accelerator.backward(loss, gradient=minus)",
        setup="minus = torch.tensor(-1.0)",
    ),
    passes(
        "with a factor by keyword, and no other",
        "loss.backward(gradient=None, retain_graph=True)",
        "accelerator.backward(loss, retain_graph=True)",
    ),
    passes(
        "in a closure",
        CLOSURE.format("loss.backward()"),
        CLOSURE.format("accelerator.backward(loss)"),
        step="optimizer.step(closure)",
        loss="",
    ),
    passes(
        "accumulated by hand, the author's condition stays",
        "(loss / 4).backward()",
        "accelerator.backward(loss / 4)",
        loop="for i, (x, y) in enumerate(train_loader):",
        step="if (i + 1) % 4 == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
    ),
    passes("after a semicolon", "note = 1; loss.backward()", "note = 1; accelerator.backward(loss)"),
    summed("by name", 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="sum")'),
    summed("of rows", ROWS + "\nloss = rows.sum()"),
    summed("in a module", CRITERION_LOSS, setup='criterion = nn.CrossEntropyLoss(reduction="sum")'),
    summed("by size_average", CRITERION_LOSS, setup="criterion = nn.CrossEntropyLoss(size_average=False)"),
    summed("two added", 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="sum") + out.pow(2).sum()'),
    summed("scaled", 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="sum") * 0.01'),
    Case(
        SUM,
        "taken in the backward call",
        {"loss": ROWS, "backward": "rows.sum().backward()"},
        {**SUMMING, "backward": "accelerator.backward(rows.sum())"},
        at="device = torch.device",
    ),
]

NEGATIVE = [
    mean("a mean by default", "loss = F.cross_entropy(model(x), y)"),
    mean("a mean by name", 'loss = F.cross_entropy(model(x), y, reduction="mean")'),
    mean("a mean of rows", ROWS + "\nloss = rows.mean()"),
    mean(
        "a sum over the size of the batch", 'loss = F.cross_entropy(model(x), y, reduction="sum") / x.size(0)'
    ),
    mean(
        "a sum over the length of the batch", 'loss = F.cross_entropy(model(x), y, reduction="sum") / len(x)'
    ),
    mean(
        "a mean and a penalty on the weights",
        "loss = F.cross_entropy(model(x), y) + 0.1 * model.weight.pow(2).sum()",
    ),
    mean("two means", "out = model(x)\nloss = F.cross_entropy(out, y) + 0.1 * out.pow(2).mean()"),
    mean(
        "a gradient penalty's own gradient stays",
        "x.requires_grad_(True)\n"
        "out = model(x)\n"
        "slope = torch.autograd.grad(out.sum(), x, create_graph=True)[0]\n"
        "loss = F.cross_entropy(out, y) + slope.pow(2).mean()",
    ),
    mean("rows weighted one by one, averaged", ROWS + "\nloss = (rows * torch.ones_like(rows)).mean()"),
    unclear("an ignored index", "loss = F.cross_entropy(model(x), y, ignore_index=0)"),
    unclear(
        "a class weight",
        "loss = F.cross_entropy(model(x), y, weight=weights)",
        WEIGHTED,
        setup="weights = torch.ones(3).to(device)",
    ),
    unclear("a norm over the batch", "loss = (model(x) - F.one_hot(y, 3)).norm()"),
    unclear("a root of a mean", "loss = torch.sqrt(F.mse_loss(model(x), F.one_hot(y, 3).float()))"),
    unclear(
        "pairs within the batch",
        "out = model(x)\nloss = F.cross_entropy(out @ out.t(), torch.arange(len(x)).to(device))",
        WEIGHTED,
    ),
    unclear(
        "the hardest rows of the batch",
        ROWS + "\nloss = rows.topk(4)[0].mean()",
    ),
    unclear(
        "a mean weighted by classes, by hand",
        ROWS + "\nw = weights[y]\nloss = (rows * w).sum() / w.sum()",
        WEIGHTED,
        setup="weights = torch.ones(3).to(device)",
    ),
    refuses(
        BACKWARD,
        "a sum over rows and a penalty on the weights",
        {"loss": 'loss = F.cross_entropy(model(x), y, reduction="sum") + 0.1 * model.weight.pow(2).sum()'},
        at="loss.backward()",
    ),
    refuses(
        BACKWARD,
        "a sum and a mean added",
        {"loss": 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="sum") + out.pow(2).mean()'},
        at="loss.backward()",
    ),
    refuses(
        BACKWARD,
        "some losses are sums, others means",
        {
            "loss": 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="sum")\nother = out.mean()',
            "backward": "loss.backward(retain_graph=True)\nother.backward()",
        },
        at="loss.backward(",
    ),
    refuses(
        BACKWARD,
        "a gradient argument",
        {"loss": "loss = model(x)", "backward": "loss.backward(torch.ones_like(loss))"},
        at="loss.backward(",
    ),
    refuses(
        BACKWARD,
        "a gradient by keyword",
        {"loss": "loss = model(x)", "backward": "loss.backward(gradient=torch.ones_like(loss))"},
        at="loss.backward(",
    ),
    refuses(
        BACKWARD,
        "several tensors at once, each with its weight",
        {
            "loss": "out = model(x)\nloss = F.cross_entropy(out, y)\npenalty = out.pow(2).mean()",
            "backward": "torch.autograd.backward([loss, penalty], [torch.ones(()), torch.ones(())])",
        },
        at="torch.autograd.backward",
    ),
    refuses(
        BACKWARD,
        "no optimizer",
        {"optimizer": "", "step": "for p in model.parameters():\n    p.data -= 0.1 * p.grad"},
        at="loss.backward()",
    ),
    leaves(
        BACKWARD,
        "a method of that name of something else",
        {"imports": "import robots", "end": "robots.Arm().backward()"},
    ),
    leaves(
        BACKWARD,
        "the word in a string or a comment",
        {"end": '# loss.backward() is gone\nnote = "loss.backward()"'},
    ),
]


@each(POSITIVE, NEGATIVE)
def test_backward(case: Case) -> None:
    case.check()
