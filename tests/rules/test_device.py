"""CT103 and CT105: models and everything else that is on a device."""

from __future__ import annotations

from .support import Case, converts, each, leaves

MODEL, OTHER = "CT103", "CT105"
KEPT = "device = accelerator.device  # the fastest there is"
ACCELERATOR = "accelerator = Accelerator()\n" + KEPT


def model(name: str, before: str, after: str = "model = nn.Linear(8, 3)", **more: str) -> Case:
    return converts(MODEL, name, {"model": before, **more}, {"model": after})


def elsewhere(
    name: str,
    before: str,
    after: str,
    slot: str = "end",
    findings: tuple[tuple[str, str], ...] = (),
    **more: str,
) -> Case:
    """A use of the device that stays one."""
    return Case(OTHER, name, {slot: before, **more}, {slot: after}, findings=findings)


POSITIVE_MODEL = [
    model("chained to the constructor", "model = nn.Linear(8, 3).to(device)"),
    model("as a statement of its own", "model = nn.Linear(8, 3)\nmodel.to(device)"),
    model("assigned to itself", "model = nn.Linear(8, 3)\nmodel = model.to(device)"),
    model("with cuda()", "model = nn.Linear(8, 3).cuda()"),
    model("with cuda() as a statement", "model = nn.Linear(8, 3)\nmodel.cuda()"),
    model("with a device number", "model = nn.Linear(8, 3).cuda(0)"),
    model("to a device by its name", 'model = nn.Linear(8, 3).to("cuda:0")'),
    model("by keyword", "model = nn.Linear(8, 3).to(device=device)"),
    model("where there is a GPU", "model = nn.Linear(8, 3)\nif torch.cuda.is_available():\n    model.cuda()"),
    converts(
        MODEL,
        "where there is a GPU, with a word where there is none",
        {
            "model": "model = nn.Linear(8, 3)\nif torch.cuda.is_available():\n    model.cuda()  # fast\n"
            'else:\n    # slow\n    print("no GPU")'
        },
        {
            "model": "model = nn.Linear(8, 3)\n# fast\nif not torch.cuda.is_available():\n"
            '    # slow\n    accelerator.print("no GPU")'
        },
        at="model.cuda()",
    ),
    converts(
        MODEL,
        "where a test of two things holds",
        {
            "model": "model = nn.Linear(8, 3)\nbig = True\nif big and torch.cuda.is_available():\n"
            "    model.cuda()\nelse:\n    workers = 2"
        },
        {
            "model": "model = nn.Linear(8, 3)\nbig = True\n"
            "if not (big and torch.cuda.is_available()):\n    workers = 2"
        },
        at="model.cuda()",
    ),
    model(
        "with a type that stays",
        "model = nn.Linear(8, 3).to(device, torch.float64)",
        "model = nn.Linear(8, 3).to(torch.float64)",
    ),
    model(
        "before it is compiled",
        "model = torch.compile(nn.Linear(8, 3).to(device))",
        "model = torch.compile(nn.Linear(8, 3))",
    ),
    model(
        "and back to the CPU in the end",
        "model = nn.Linear(8, 3)\nmodel.to(device)",
        "model = nn.Linear(8, 3)",
        end="model.cpu()",
    ),
    converts(
        MODEL,
        "a loss module without weights",
        {
            "setup": "criterion = nn.CrossEntropyLoss().to(device)",
            "loss": "out = model(x)\nloss = criterion(out, y)",
        },
        {"setup": "criterion = nn.CrossEntropyLoss()"},
    ),
]

NEGATIVE_MODEL = [
    leaves(
        MODEL,
        "another type and no device",
        {"model": "model = nn.Linear(8, 3).to(torch.float32)"},
    ),
    leaves(MODEL, "half and double", {"model": "model = nn.Linear(8, 3).double().float()"}),
    leaves(MODEL, "a type for the model", {"model": "model = nn.Linear(8, 3).to(dtype=torch.float32)"}),
    leaves(MODEL, "a model that was never moved", {"model": "model = nn.Linear(8, 3)"}),
    leaves(
        MODEL,
        "a copy on the CPU at the end",
        {"end": "import copy\n\nplain = copy.deepcopy(model).cpu()"},
    ),
    leaves(
        MODEL,
        "moved to the CPU by name",
        {"end": 'model = model.to("cpu")'},
    ),
    leaves(
        MODEL,
        "a model that comes back from the CPU, to which it went to be saved",
        {"after_epoch": "model.eval().cpu()\nprint(model.bias.device)\nmodel.to(device).train()"},
        {
            "device": ACCELERATOR,
            "after_epoch": "model.eval().cpu()\naccelerator.print(model.bias.device)\nmodel.to(device).train()",
        },
    ),
    leaves(
        MODEL,
        "one that another function has moved to the CPU, later in the loop",
        {
            "definitions": "def report(model):\n    model.cpu()\n    return model.bias.device\n",
            "epoch": "model.cuda()",
            "after_epoch": "report(model)",
        },
        {"epoch": "model.to(accelerator.device)"},
    ),
    leaves(
        MODEL,
        "a second model that is not trained stays where it is put",
        {"setup": "teacher = nn.Linear(8, 3).to(device)\nteacher.eval()"},
        {"setup": "teacher = nn.Linear(8, 3).to(device)\nteacher.eval()", "device": ACCELERATOR},
    ),
    leaves(
        MODEL,
        "a loss module with weights",
        {
            "setup": "criterion = nn.CrossEntropyLoss(weight=torch.ones(3)).to(device)",
            "loss": "out = model(x)\nloss = criterion(out, y)",
        },
        {"device": ACCELERATOR},
        findings=[("CT202", "loss.backward()")],
    ),
    leaves(
        MODEL,
        "an object of another kind with a method `to`",
        {"imports": "import robots", "setup": "arm = robots.Arm().to(device)"},
        {"device": ACCELERATOR},
    ),
    leaves(
        MODEL, "channels last", {"model": "model = nn.Linear(8, 3).to(memory_format=torch.channels_last)"}
    ),
    leaves(
        MODEL,
        "a layer's move in its own forward",
        {
            "definitions": (
                "class Net(nn.Module):\n"
                "    def __init__(self):\n"
                "        super().__init__()\n"
                "        self.layer = nn.Linear(8, 3)\n"
                "\n"
                "    def forward(self, x):\n"
                "        return self.layer(x) + torch.zeros(3).to(x.device)\n"
            ),
            "model": "model = Net()",
        },
    ),
    leaves(
        MODEL,
        "a name in a comment or a string",
        {"model": 'model = nn.Linear(8, 3)  # not .to(device)\nnote = ".cuda()"'},
    ),
    leaves(MODEL, "to another tensor's place", {"end": "w = torch.ones(3).to(model.weight)"}),
    leaves(
        MODEL, "the parameters of a step", {"step": "optimizer.step()\nw = model.weight.detach().clone()"}
    ),
]

POSITIVE_OTHER = [
    elsewhere(
        "a factory", 'x = torch.zeros(3, device="cuda")', "x = torch.zeros(3, device=accelerator.device)"
    ),
    elsewhere(
        "a device made where it is used",
        'x = torch.zeros(3, device=torch.device("cuda:0"))',
        "x = torch.zeros(3, device=accelerator.device)",
    ),
    elsewhere(
        "cuda() of a new tensor", "x = torch.zeros(3).cuda()", "x = torch.zeros(3).to(accelerator.device)"
    ),
    elsewhere(
        "to a GPU by its name", 'x = torch.zeros(3).to("cuda")', "x = torch.zeros(3).to(accelerator.device)"
    ),
    elsewhere(
        "a map_location",
        'state = torch.load("start.pt", map_location="cuda:0")',
        'state = torch.load("start.pt", map_location=accelerator.device)',
    ),
    elsewhere(
        "a whole model that is loaded to run",
        'twin = torch.load("whole.pt", weights_only=False)\ntwin.eval()',
        'twin = torch.load("whole.pt", weights_only=False, map_location=accelerator.device)\ntwin.eval()',
    ),
    elsewhere(
        "cuda(), not waiting",
        "x = torch.zeros(3).cuda(non_blocking=True)",
        "x = torch.zeros(3).to(accelerator.device, non_blocking=True)",
    ),
    converts(
        OTHER,
        "a device that something still uses",
        {"end": "x = torch.zeros(3, device=device)"},
        {"device": ACCELERATOR},
        at="device = torch.device",
    ),
    converts(
        OTHER,
        "a string that is compared and printed as one",
        {
            "device": 'device = "cuda" if torch.cuda.is_available() else "cpu"',
            "options": "",
            "setup": 'if device == "cuda":\n    torch.backends.cudnn.benchmark = True\nprint(f"on {device}")',
        },
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device.type",
            "setup": 'if device == "cuda":\n    torch.backends.cudnn.benchmark = True\naccelerator.print(f"on {device}")',
        },
        at='device = "cuda"',
    ),
    converts(
        OTHER,
        "use_cuda goes with its last use",
        {
            "options": "use_cuda = torch.cuda.is_available()",
            "device": 'device = torch.device("cuda" if use_cuda else "cpu")',
        },
        {"options": "", "device": "accelerator = Accelerator()"},
    ),
]

NEGATIVE_OTHER = [
    leaves(OTHER, "the CPU where a tensor is made", {"end": 'x = torch.zeros(3, device="cpu")'}),
    leaves(
        OTHER,
        "weights that are loaded and counted",
        {"end": 'state = torch.load("start.pt")\nassert len(state)'},
    ),
    leaves(OTHER, "loading to the CPU", {"end": 'state = torch.load("start.pt", map_location="cpu")'}),
    leaves(OTHER, "the device of another tensor", {"end": "x = torch.zeros(3, device=model.weight.device)"}),
    leaves(OTHER, "like another tensor", {"end": "x = torch.zeros_like(model.weight)"}),
    leaves(
        OTHER,
        "asking whether there is a GPU",
        {"end": "if torch.cuda.is_available():\n    note = torch.cuda.device_count()"},
    ),
    leaves(OTHER, "the word in other strings", {"end": 'note = "cuda"\nother = ["cuda", "cpu"]'}),
    leaves(
        OTHER,
        "a device that is the CPU",
        {"end": 'host = torch.device("cpu")\nx = torch.zeros(3, device=host)'},
    ),
    leaves(
        OTHER,
        "what is derived from the device",
        {
            "device": 'device = "cuda" if torch.cuda.is_available() else "cpu"',
            "setup": 'kind = "cuda" if "cuda" in device else "cpu"\nassert kind',
        },
        {"device": "accelerator = Accelerator()\ndevice = accelerator.device.type"},
    ),
    leaves(
        OTHER,
        "use_cuda that something else asks",
        {
            "options": "use_cuda = torch.cuda.is_available()",
            "device": 'device = torch.device("cuda" if use_cuda else "cpu")',
            "end": "workers = 4 if use_cuda else 0",
        },
        {"device": "accelerator = Accelerator()"},
    ),
]

POSITIVE = [*POSITIVE_MODEL, *POSITIVE_OTHER]
NEGATIVE = [*NEGATIVE_MODEL, *NEGATIVE_OTHER]


@each(POSITIVE, NEGATIVE)
def test_device(case: Case) -> None:
    case.check()


def test_the_number_of_a_gpu_is_a_device_whatever_its_name() -> None:
    case = Case(
        MODEL,
        "to a number that has a name",
        {"model": "gpu = 1\nmodel = nn.Linear(8, 3).to(gpu)", "batch": "x, y = x.to(gpu), y.to(0)"},
        {"model": "gpu = 1\nmodel = nn.Linear(8, 3)", "batch": ""},
        findings=((OTHER, ".to(gpu)"),),
    )
    case.check()
