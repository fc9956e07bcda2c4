"""CT201: one prepare, with the same names on both sides."""

from __future__ import annotations

from .support import SLOTS, Case, Slots, converts, each, leaves

RULE = "CT201"
DEVICE = {"device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"}
TWO = "encoder = nn.Linear(8, 4).to(device)\nmodel = nn.Linear(4, 3).to(device)"
TWO_AFTER = {
    "model": "encoder = nn.Linear(8, 4)\nmodel = nn.Linear(4, 3)",
    "prepare": (
        "encoder, model, optimizer, train_loader = accelerator.prepare(\n    encoder, model, optimizer, train_loader\n)"
    ),
}
TWO_LOSS = "out = model(encoder(x))\nloss = F.cross_entropy(out, y)"
SET = "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"


def prepared(
    name: str,
    before: Slots,
    after: Slots | None = None,
    at: str = "optimizer = torch",
    findings: tuple[tuple[str, str], ...] = (),
) -> Case:
    return converts(RULE, name, before, after or {}, at=at, findings=findings)


def optimizer(name: str, code: str, at: str = "optimizer = ", **more: str) -> Case:
    """An optimizer in another spelling: the ordinary prepare."""
    return prepared(name, {"optimizer": code, **more}, at=at)


def stepwise(name: str, setup: str, batch: str, after: str, **more: str) -> Case:
    """Batches that are asked for one by one."""
    before = {"setup": setup, "loop": "for _ in range(4):", "batch": batch, **more}
    return prepared(name, before, {"batch": after})


FOREVER = "def forever(loader):\n    while True:\n        yield from loader\n"
MOVING = "def moved(loader{}):\n    for x, y in loader:\n        yield {}\n"

LISTED = {
    "model": "models = [nn.Linear(8, 3).to(device) for _ in range(3)]",
    "optimizer": "optimizer = torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1)",
    "epoch": "",
    "loss": "loss = F.cross_entropy(sum(m(x) for m in models), y)",
}
PREPARED_LIST = "*models, optimizer, train_loader = accelerator.prepare(*models, optimizer, train_loader)"
BY_HAND = {
    "options": "by_hand = False",
    "optimizer": "if not by_hand:\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    "step": "if by_hand:\n    for p in model.parameters():\n        p.data.add_(p.grad, alpha=-0.1)\n"
    "else:\n    optimizer.step()",
}
REGISTRY = """\
KNOWN = {}


def register(name):
    def put(cls):
        KNOWN[name] = cls
        return cls

    return put


@register("net")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return self.layer(x)
"""
REGISTERED_FUNCTION = """\
KNOWN = {}


def register(function):
    KNOWN[function.__name__] = function
    return function


@register
def small():
    return nn.Linear(8, 3)
"""
TIMED = """\
def timed(function):
    def inner(*args):
        return function(*args)

    return inner


@timed
def made(width):
    return nn.Linear(8, width)
"""
TWO_PARTS = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))
"""
POSITIVE = [
    converts(
        RULE,
        "a variable that several branches bind is set once before them",
        {
            "options": "kind = 1",
            "optimizer": "if kind == 1:\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "elif kind == 2:\n    optimizer = torch.optim.Adam(model.parameters())",
        },
        {
            "options": "kind = 1",
            "optimizer": "optimizer = None\n"
            "if kind == 1:\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
            "elif kind == 2:\n    optimizer = torch.optim.Adam(model.parameters())",
        },
        at="if kind == 1",
    ),
    prepared(
        "an optimizer under a condition",
        BY_HAND,
        {"optimizer": f"optimizer = None\n{BY_HAND['optimizer']}"},
        at="if not by_hand:",
    ),
    prepared(
        "a model from a registry",
        {"definitions": REGISTRY, "model": 'model = KNOWN["net"]().to(device)'},
        {"model": 'model = KNOWN["net"]()'},
    ),
    prepared(
        "a model of a function in a registry",
        {"definitions": REGISTERED_FUNCTION, "model": 'model = KNOWN["small"]().to(device)'},
        {"model": 'model = KNOWN["small"]()'},
    ),
    prepared(
        "a model of a function that is timed",
        {"definitions": TIMED, "model": "model = made(3).to(device)"},
        {"model": "model = made(3)"},
    ),
    prepared(
        "models in a list",
        {
            **LISTED,
            "model": "models = [nn.Linear(8, 3).to(device), nn.Linear(8, 3).to(device)]",
            "loss": "loss = F.cross_entropy(models[0](x) + models[1](x), y)",
        },
        {
            "model": "models = [nn.Linear(8, 3), nn.Linear(8, 3)]",
            "prepare": "models[0], models[1], optimizer, train_loader = accelerator.prepare(\n"
            "    models[0], models[1], optimizer, train_loader\n)",
        },
    ),
    prepared(
        "models in a dict",
        {
            **LISTED,
            "model": "nets = {'a': nn.Linear(8, 3).to(device)}",
            "optimizer": "optimizer = torch.optim.SGD(nets['a'].parameters(), lr=0.1)",
            "loss": "loss = F.cross_entropy(nets['a'](x), y)",
        },
        {
            "model": "nets = {'a': nn.Linear(8, 3)}",
            "prepare": 'nets["a"], optimizer, train_loader = accelerator.prepare(nets["a"], optimizer, train_loader)',
        },
    ),
    prepared(
        "models that a comprehension makes",
        LISTED,
        {"model": "models = [nn.Linear(8, 3) for _ in range(3)]", "prepare": PREPARED_LIST},
    ),
    prepared(
        "models that a loop makes",
        {
            **LISTED,
            "model": "models = []\nfor _ in range(3):\n    net = nn.Linear(8, 3).to(device)\n    models.append(net)",
        },
        {
            "model": "models = []\nfor _ in range(3):\n    net = nn.Linear(8, 3)\n    models.append(net)",
            "prepare": PREPARED_LIST,
        },
    ),
    prepared(
        "models and their optimizers",
        {
            **LISTED,
            "optimizer": "optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]",
            "batch": "x, y = x.to(device), y.to(device)\noptimizer = optimizers[0]",
        },
        {
            "model": "models = [nn.Linear(8, 3) for _ in range(3)]",
            "batch": "optimizer = optimizers[0]",
            "prepare": "*_, train_loader = accelerator.prepare(*models, *optimizers, train_loader)",
        },
        at="optimizers = [",
    ),
    optimizer("one of each", SLOTS["optimizer"]),
    optimizer(
        "its class chosen by name",
        'optimizer = getattr(torch.optim, {"a": "SGD", "b": "Adam"}["b"])(model.parameters(), lr=0.1)',
    ),
    prepared(
        "a model whose class is chosen by name",
        {
            "imports": "import torchvision.models as zoo",
            "model": 'model = getattr(zoo, "resnet" + str(18))().to(device)',
        },
        {"model": 'model = getattr(zoo, "resnet" + str(18))()'},
    ),
    optimizer(
        "parameters filtered",
        "optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.1)",
    ),
    optimizer("parameters listed", "optimizer = torch.optim.SGD([p for p in model.parameters()], lr=0.1)"),
    optimizer(
        "parameters by name", "optimizer = torch.optim.SGD([p for n, p in model.named_parameters()], lr=0.1)"
    ),
    optimizer(
        "parameters in a variable",
        "parameters = model.parameters()\noptimizer = torch.optim.SGD(parameters, lr=0.1)",
    ),
    optimizer(
        "parameters in groups",
        'optimizer = torch.optim.SGD([{"params": model.parameters(), "lr": 0.2}], lr=0.1)',
    ),
    prepared(
        "a part of the model",
        {
            "model": "model = nn.Sequential(nn.Linear(8, 3)).to(device)",
            "optimizer": "optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)",
        },
        {"model": "model = nn.Sequential(nn.Linear(8, 3))"},
    ),
    converts(
        RULE,
        "a part of the model, of a class that is made elsewhere, too",
        {
            "definitions": TWO_PARTS + "\n\ndef predict(x):\n    model = Net()\n    return model(x)",
            "model": "model = Net().to(device)",
            "optimizer": "optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)",
            "end": "kept = predict(torch.ones(1, 8))",
        },
        {"model": "model = Net()"},
        at="optimizer = torch",
        main=True,
    ),
    optimizer(
        "single weights",
        "optimizer = torch.optim.SGD([model.weight, model.bias], lr=0.1)",
    ),
    optimizer(
        "one of two, by a switch",
        "if len(train_set) > 9:\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "else:\n"
        "    optimizer = torch.optim.Adam(model.parameters())",
        at="if len(train_set)",
    ),
    optimizer(
        "out of a dictionary of classes",
        'kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}\noptimizer = kinds["sgd"](model.parameters(), lr=0.1)',
    ),
    optimizer("by its name", 'optimizer = getattr(torch.optim, "SGD")(model.parameters(), lr=0.1)'),
    prepared(
        "two models, one optimizer",
        {
            "model": TWO,
            "optimizer": "optimizer = torch.optim.SGD(list(encoder.parameters()) + list(model.parameters()), lr=0.1)",
            "loss": TWO_LOSS,
        },
        TWO_AFTER,
    ),
    prepared(
        "two models chained",
        {
            "imports": "import itertools",
            "model": TWO,
            "optimizer": "optimizer = torch.optim.SGD(itertools.chain(encoder.parameters(), model.parameters()), lr=0.1)",
            "loss": TWO_LOSS,
        },
        TWO_AFTER,
    ),
    prepared(
        "two models, two optimizers",
        {
            "model": TWO,
            "optimizer": (
                "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nsecond = torch.optim.SGD(encoder.parameters(), lr=0.1)"
            ),
            "loss": TWO_LOSS,
            "step": "optimizer.step()\nsecond.step()",
        },
        {
            "model": TWO_AFTER["model"],
            "prepare": (
                "encoder, model, optimizer, second, train_loader = accelerator.prepare(\n"
                "    encoder, model, optimizer, second, train_loader\n"
                ")"
            ),
        },
        at="second = torch",
    ),
    prepared(
        "two loaders side by side",
        {
            "data": SET
            + "train_loader = DataLoader(train_set, batch_size=8)\nother_loader = DataLoader(train_set, batch_size=8)",
            "loop": "for (x, y), (u, v) in zip(train_loader, other_loader):",
            "batch": "x, y, u = x.to(device), y.to(device), u.to(device)",
            "loss": "loss = F.cross_entropy(model(x), y) + model(u).pow(2).mean()",
        },
        {
            "prepare": (
                "model, optimizer, train_loader, other_loader = accelerator.prepare(\n"
                "    model, optimizer, train_loader, other_loader\n"
                ")"
            ),
            "batch": "",
        },
        findings=(("CT605", "loss.backward()"),),
    ),
    prepared(
        "made by functions",
        {
            "definitions": "def build(device):\n    return nn.Linear(8, 3).to(device)\n",
            "model": "model = build(device)",
        },
        {"definitions": "def build():\n    return nn.Linear(8, 3)\n", "model": "model = build()"},
    ),
    prepared(
        "compiled before the optimizer",
        {"model": "model = nn.Linear(8, 3)\nmodel = torch.compile(model)\nmodel = model.to(device)"},
        {"model": "model = nn.Linear(8, 3)\nmodel = torch.compile(model)"},
    ),
    prepared(
        "the loader under another name in the loop",
        {"setup": "batches = train_loader", "loop": "for x, y in batches:"},
    ),
    prepared(
        "a progress bar with a name",
        {"imports": "from tqdm import tqdm", "epoch": "bar = tqdm(train_loader)", "loop": "for x, y in bar:"},
        {"epoch": "bar = tqdm(train_loader, disable=not accelerator.is_local_main_process)"},
    ),
    prepared("counted", {"loop": "for i, (x, y) in enumerate(train_loader, start=1):"}),
    prepared("beside a range", {"loop": "for i, (x, y) in zip(range(10), train_loader):"}),
    stepwise(
        "the first batch, again and again",
        "",
        "x, y = next(iter(train_loader))\nx, y = x.to(device), y.to(device)",
        "x, y = next(iter(train_loader))",
    ),
    stepwise(
        "an iterator begun anew at its end",
        "batches = iter(train_loader)",
        "try:\n"
        "    x, y = next(batches)\n"
        "except StopIteration:  # once more\n"
        "    batches = iter(train_loader)\n"
        "    x, y = next(batches)\n"
        "x, y = x.to(device), y.to(device)",
        "try:\n"
        "    x, y = next(batches)\n"
        "except StopIteration:  # once more\n"
        "    batches = iter(train_loader)\n"
        "    x, y = next(batches)",
    ),
    stepwise(
        "an endless generator",
        "batches = forever(train_loader)",
        "x, y = next(batches)\nx, y = x.to(device), y.to(device)",
        "x, y = next(batches)",
        definitions=FOREVER,
    ),
    prepared(
        "a generator that moves the batches",
        {
            "definitions": MOVING.format(", device", "x.to(device), y.to(device)"),
            "loop": "for x, y in moved(train_loader, device):",
            "batch": "",
        },
        {"definitions": MOVING.format("", "x, y"), "loop": "for x, y in moved(train_loader):"},
    ),
    prepared(
        "a stream that begins before the model is made",
        {
            "definitions": FOREVER,
            "data": SLOTS["data"] + "\nbatches = forever(train_loader)",
            "loop": "for _ in range(4):",
            "batch": "x, y = next(batches)\nx, y = x.to(device), y.to(device)",
        },
        {
            "data": SLOTS["data"]
            + "\ntrain_loader = accelerator.prepare(train_loader)\nbatches = forever(train_loader)",
            "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
            "batch": "x, y = next(batches)",
        },
        at="train_loader = DataLoader",
    ),
]

NEGATIVE = [
    leaves(RULE, "a second name for the loader, further down", {"setup": "same = train_loader"}),
    leaves(RULE, "a second name for the model, further down", {"setup": "net = model"}),
    leaves(RULE, "a model whose mode is set", {"setup": "model.eval()\nmodel.train()"}),
    leaves(
        RULE,
        "the names of a model's parameters",
        {"setup": "names = [n for n, _ in model.named_parameters()]"},
    ),
    leaves(RULE, "a rate that is read", {"setup": 'rate = optimizer.param_groups[0]["lr"]'}),
    leaves(
        RULE,
        "a rate that is set by hand",
        {"after_epoch": 'for group in optimizer.param_groups:\n    group["lr"] *= 0.5'},
    ),
    leaves(RULE, "a loader's number of workers", {"setup": "workers = train_loader.num_workers"}),
    leaves(
        RULE,
        "a class of the script's own that is called Optimizer",
        {
            "definitions": "class Optimizer:\n    def step(self):\n        pass\n",
            "setup": "idle = Optimizer()\nidle.step()",
        },
    ),
    leaves(
        RULE,
        "a function of the script's own that is called prepare",
        {"definitions": "def prepare(number):\n    return number + 1\n", "setup": "assert prepare(3) == 4"},
    ),
    leaves(RULE, "a model's class that nothing makes an object of", {"definitions": TWO_PARTS}),
    leaves(RULE, "losses in a list", {"setup": "losses = [nn.MSELoss(), nn.L1Loss()]"}),
    leaves(RULE, "a data set in a dictionary", {"setup": 'sets = {"train": train_set}'}),
    leaves(
        RULE,
        "one batch looked at before the model is made",
        {"data": SLOTS["data"] + "\nfirst, _ = next(iter(train_loader))\nwidth = first.shape[1]"},
    ),
    leaves(
        RULE,
        "a sampler",
        {
            "data": SET
            + "order = torch.utils.data.SequentialSampler(train_set)\ntrain_loader = DataLoader(train_set, batch_size=8, sampler=order)"
        },
    ),
    leaves(
        RULE,
        "a worker's function",
        {
            "definitions": "def seed(index):\n    torch.manual_seed(index)\n",
            "data": SET + "train_loader = DataLoader(train_set, batch_size=8, worker_init_fn=seed)",
        },
    ),
    leaves(RULE, "gradients switched off for a part", {"setup": "model.bias.requires_grad = True"}),
    leaves(
        RULE,
        "a teacher that is not trained",
        {
            "setup": "teacher = nn.Linear(8, 3).to(device)\nteacher.eval()",
            "loss": "with torch.no_grad():\n    wanted = teacher(x)\nloss = F.mse_loss(model(x), wanted)",
        },
        DEVICE,
    ),
    leaves(
        RULE,
        "an average of the weights",
        {
            "imports": "import copy",
            "setup": "average = copy.deepcopy(model)",
            "after_step": (
                "for a, p in zip(average.parameters(), model.parameters()):\n    a.data.mul_(0.9).add_(p.data, alpha=0.1)"
            ),
        },
    ),
    leaves(RULE, "weights that are loaded", {"setup": 'model.load_state_dict(torch.load("m.pt"))'}),
    leaves(
        RULE,
        "a use after everything exists",
        {"setup": "model(torch.ones(2, 8).to(device))"},
        DEVICE,
    ),
    leaves(RULE, "a loader nobody iterates", {"setup": "spare = DataLoader(train_set, batch_size=8)"}),
    leaves(
        RULE,
        "a loss module",
        {"setup": "criterion = nn.CrossEntropyLoss()", "loss": "loss = criterion(model(x), y)"},
    ),
    leaves(RULE, "a list called loader", {"setup": "loader = [1, 2]\nfor item in loader:\n    assert item"}),
    leaves(RULE, "the model's summary", {"setup": "count = sum(p.numel() for p in model.parameters())"}),
    leaves(
        RULE, "a model in a list that is only looked through", {"setup": "for m in [model]:\n    m.train()"}
    ),
    leaves(
        RULE,
        "a model in a dict beside its name",
        {"setup": "parts = {'model': model}\nparts['model'].train()"},
    ),
    leaves(
        RULE,
        "a list that a loop fills with something else",
        {"setup": "sizes = []\nfor p in model.parameters():\n    sizes.append(p.numel())"},
    ),
    leaves(RULE, "a registry that nobody asks", {"definitions": REGISTRY}),
    leaves(RULE, "a function in a registry that nobody asks", {"definitions": REGISTERED_FUNCTION}),
    leaves(
        RULE,
        "a class in a dict that is only counted",
        {"definitions": REGISTRY, "setup": "assert len(KNOWN) == 1"},
    ),
    leaves(
        RULE,
        "other models in a list",
        {"setup": "others = [nn.Linear(8, 3) for _ in range(3)]\nprint(len(others))"},
        {"setup": "others = [nn.Linear(8, 3) for _ in range(3)]\naccelerator.print(len(others))"},
    ),
    leaves(
        RULE,
        "an optimizer in every case",
        {
            "options": "quick = False",
            "optimizer": "if quick:\n    optimizer = torch.optim.Adam(model.parameters())\nelif epochs < 0:\n    raise SystemExit\n"
            "else:\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
            "definitions": "epochs = 2",
        },
    ),
    leaves(
        RULE,
        "a scheduler that may be None",
        {
            "options": "decay = False",
            "setup": "scheduler = None\nif decay:\n    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)",
            "after_epoch": "if scheduler is not None:\n    scheduler.step()",
        },
        {
            "device": "accelerator = Accelerator(step_scheduler_with_optimizer=False)  # the fastest there is",
            "prepare": "",
            "setup": "scheduler = None\nif decay:\n    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n"
            "model, optimizer, train_loader, scheduler = accelerator.prepare(\n    model, optimizer, train_loader, scheduler\n)",
        },
    ),
    leaves(RULE, "an optimizer that is made and never used", {"setup": "spare = None"}),
    leaves(
        RULE,
        "a function that would prepare, never called",
        {"definitions": "def prepare(model):\n    return model\n"},
    ),
    leaves(
        RULE,
        "a batch sampler's own arguments",
        {"data": SET + "train_loader = DataLoader(train_set, batch_size=8, drop_last=True, num_workers=0)"},
    ),
    leaves(
        RULE, "weights frozen before", {"setup": "for p in model.parameters():\n    p.requires_grad_(True)"}
    ),
    leaves(RULE, "the model's mode", {"epoch": "model.train(True)"}),
    leaves(RULE, "hooks", {"setup": "model.register_forward_hook(lambda *a: None)"}),
    leaves(
        RULE, "the word in a comment or a string", {"end": '# accelerator.prepare(model)\nnote = "prepare"'}
    ),
    leaves(
        RULE,
        "zeroed gradients spelled the other way",
        {"step": "optimizer.step()\nmodel.zero_grad(set_to_none=True)"},
    ),
]


@each(POSITIVE, NEGATIVE)
def test_prepare(case: Case) -> None:
    case.check()
