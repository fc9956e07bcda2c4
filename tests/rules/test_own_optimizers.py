"""CT201 and CT903: optimizers of the script's own, which wrap or extend torch's."""

from __future__ import annotations

from .support import Case, converts, each, leaves

PREPARED, SEARCH = "CT201", "CT903"
SHARPNESS = """\
class Sharp(torch.optim.Optimizer):
    def __init__(self, params, base, **kwargs):
        super().__init__(params, kwargs)
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure=None):
        self.first_step()
        self.base.step()"""
WRAPPER = """\
class Slow(torch.optim.Optimizer):
    def __init__(self, inner, k=5):
        self.optimizer, self.k = inner, k
        self.param_groups = inner.param_groups

    def step(self, closure=None):
        return self.optimizer.step(closure)"""
EXTENDED = """\
class Careful(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure):
        closure = torch.enable_grad()(closure)
        closure()
        return super().step(closure)"""
CLOSURE = """\
def closure():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    {}
    return {}

"""
GLOBAL = 'accelerator.reduce(loss, reduction="mean")'

POSITIVE = [
    Case(
        PREPARED,
        "one that makes another of torch's",
        {
            "definitions": SHARPNESS,
            "optimizer": "optimizer = Sharp(model.parameters(), torch.optim.SGD, lr=0.1)",
        },
        at="",
        positive=False,
    ),
    Case(
        PREPARED,
        "one that is handed another",
        {
            "definitions": WRAPPER,
            "optimizer": "optimizer = Slow(torch.optim.SGD(model.parameters(), lr=0.1))",
        },
        positive=False,
    ),
    Case(
        PREPARED,
        "one that is handed another by name",
        {
            "definitions": WRAPPER,
            "optimizer": "base = torch.optim.SGD(model.parameters(), lr=0.1)\noptimizer = Slow(base)",
        },
        positive=False,
    ),
    converts(
        "CT602",
        "what it does with the closure's loss, all processes do",
        {
            "definitions": EXTENDED,
            "optimizer": "optimizer = Careful(model.parameters(), lr=0.1)",
            "loss": "",
            "backward": CLOSURE.format("loss.backward()", "loss"),
            "step": "print(optimizer.step(closure).item())",
        },
        {
            "backward": CLOSURE.format("accelerator.backward(loss)", GLOBAL),
            "step": "accelerator.print(optimizer.step(closure).item())",
        },
        at="return loss",
    ),
]

NEGATIVE = [
    leaves(
        SEARCH,
        "one that extends torch's and is given no closure",
        {
            "definitions": "class Named(torch.optim.SGD):\n    pass",
            "optimizer": "optimizer = Named(model.parameters(), lr=0.1)",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_own_optimizers(case: Case) -> None:
    case.check()
