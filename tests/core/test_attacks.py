"""Backward passes for the gradients of inputs: their loops are no training, and their gradients stay one process's own."""

from pathlib import Path
from textwrap import dedent

from .converting import conversion
from .projects import rewritten, train
from .support import Trap, case_by_case, each_row

PERTURBED = """
        def perturbed(model, x, y):
            shift = torch.zeros_like(x)
            shift.requires_grad = True
            for _ in range(3):
                F.cross_entropy(model(x + shift), y).backward()
                shift.data += 0.1 * shift.grad.sign()
                shift.grad.zero_()
            return shift.detach()
"""
HARDEST = """
        def hardest(model, x, y):
            code = torch.randn(len(x), 4)
            code.requires_grad = True
            search = torch.optim.Adam([code], lr=0.1)
            for _ in range(3):
                search.zero_grad()
                worst = -F.cross_entropy(model(x + code), y)
                worst.backward()
                search.step()
            return code.detach()
"""
TRAIN = """
        <model>
        loader, test_loader = DataLoader(data, batch_size=4), DataLoader(test, batch_size=4)
        for epoch in range(2):
            for x, y in loader:
                x = x + CALL(model, x, y)
                <step loss = F.cross_entropy(model(x), y)>
"""
LINES = (
    "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
    "for x, y in loader:",
    "accelerator.backward(loss)",
)
IN_A_CLASS = """
class Attack:
    def attack(self, model, x, y):
        return self.search(model, x, y)
    def search(self, model, x, y):
        code = torch.zeros_like(x, requires_grad=True)
        search = torch.optim.SGD([code], lr=1)
        rate = torch.optim.lr_scheduler.CosineAnnealingLR(RATED, 3)
        for _ in range(3):
            worst = -F.cross_entropy(model(x + code), y, reduction="sum")
            search.zero_grad()
            worst.backward()
            search.step()
            rate.step()
        return code.detach()
def test(model, attacker):
    return sum(model(x + attacker.attack(model, x, y)).sum() for x, y in DataLoader(test_data, batch_size=4))
def train(model, loader, attacker):
    for x, y in loader:
        <step F.cross_entropy(model(x + attacker.attack(model, x, y)), y)>
<model>
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
loader = DataLoader(data, batch_size=4)
for epoch in range(2):
    train(model, loader, Attack())
    test(model, Attack())
    schedule.step()
"""
TRAPS = [
    Trap(
        "an attack behind a method that chooses it, whose optimizer has a schedule",
        IN_A_CLASS.replace("RATED", "search"),
        LINES[:1],
        ("accelerator.backward(worst)", 'loss_reduction="sum"'),
    ),
    Trap(
        "and one that steps by what was made elsewhere",
        IN_A_CLASS.replace("RATED", "schedule.optimizer"),
        ("accelerator.backward(worst)",),
    ),
    Trap(
        "an attack within the training step",
        PERTURBED + TRAIN.replace("CALL", "perturbed"),
        LINES,
        ("accelerator.backward(F.", "prepare(range", "Accelerator()\n    shift"),
    ),
    Trap(
        "latents of one batch with an optimizer of their own",
        HARDEST + TRAIN.replace("CALL", "hardest"),
        LINES,
        ("prepare(search)", "accelerator.backward(worst)"),
    ),
    Trap(
        "latents in a list that has a name",
        HARDEST.replace("search = ", "pieces = [code]\n            search = ").replace("([code]", "(pieces")
        + TRAIN.replace("CALL", "hardest"),
        LINES,
        ("prepare(search)", "accelerator.backward(worst)"),
    ),
    Trap(
        "and one to which the model's parameters are added",
        HARDEST.replace(
            "search = ", "pieces = [code]\n            pieces += model.parameters()\n            search = "
        ).replace("([code]", "(pieces")
        + TRAIN.replace("CALL", "hardest"),
        ("accelerator.backward(worst)",),
    ),
    Trap(
        "an evaluation under attack is dealt as evaluations are",
        PERTURBED
        + TRAIN.replace("x + CALL(model, x, y)", "x.float()")
        + """
        model.eval()
        correct, seen = 0, 0
        for x, y in test_loader:
            x = x + perturbed(model, x, y)
            correct += (model(x).argmax(1) == y).sum().item()
            seen += len(y)
        print(correct / seen)
        """,
        ("correct, seen = accelerator.merge(test_loader, correct, seen)",),
        ("accelerator.reduce",),
    ),
]
test_trap = case_by_case(TRAPS)

FOR_OWN_ROWS = {
    "attack": """
        import torch
        import torch.nn.functional as F
        def fooled(net, x, y):
            net.eval()
            near = x.clone().detach()
            for turn in range(6):
                near = near.detach().requires_grad_(True)
                out = net(near)
                if (out.argmax(1) != y).all() or float(x[0, 0]) < turn:
                    break
                F.cross_entropy(out, y).backward()
                near = near + 0.1 * near.grad.sign()
            net.train()
            return near.detach()
        """,
    "train": """
        import torch
        import torch.nn.functional as F
        from attack import fooled
        from torch.utils.data import DataLoader, TensorDataset
        def test(net, loader):
            hits = 0
            for x, y in loader:
                near = fooled(net, x, y)
                with torch.no_grad():
                    hits += (net(near).argmax(1) == y).sum().item()
            return hits
        torch.manual_seed(0)
        <net>
        x = torch.arange(6.0)[:, None].repeat(1, 4)
        rows = TensorDataset(x, torch.tensor([0, 1, 0, 1, 0, 1]))
        for x, y in DataLoader(rows, 1, shuffle=False):
            near = fooled(net, x, y)
            <step F.cross_entropy(net(near), y)>
        net.eval()
        result = net.weight.tolist(), test(net, DataLoader(rows, 2))
        """,
}


def test_an_attack_that_stops_by_its_own_rows_waits_for_nobody(tmp_path: Path) -> None:
    """On two processes the passes of an attack differ in number, in the training and, of three batches, in the test."""
    after = rewritten(tmp_path, "train", **FOR_OWN_ROWS)["attack"]
    assert "        with Accelerator().no_sync(net):\n            F.cross_entropy(out, y).backward()" in after
    first, second = train(tmp_path, "train", 2)
    assert first == second


@each_row(r"""
before => after
if (out.argmax(1) != y).all() or float(x[0, 0]) < turn:\n            break => net(near)
near.grad.sign() => near.sign()  # its gradients are not of inputs
""")
def test_passes_that_all_processes_make_alike_stay(before: str, after: str, tmp_path: Path) -> None:
    files = {name: dedent(text) for name, text in FOR_OWN_ROWS.items()}
    assert before in files["attack"]
    files["attack"] = files["attack"].replace(before, after)
    shown = "result = net.weight.tolist(), test(net, DataLoader(rows, 2))"
    files["train"] = files["train"].replace(shown, "")
    assert "no_sync" not in rewritten(tmp_path, "train", **files)["attack"]


@each_row("""
given => called => found
net, loss_of, x, y => net(near) => net  # the loss is given the model's answer
loss_of, x, y => net(near) => net  # a model of the file
pick, loss_of, x, y => pick()(near) => ''
""")
def test_the_model_whose_passes_stay_local(given: str, called: str, found: str) -> None:
    text = f"""
<torch>
net = torch.nn.Linear(4, 2)
def fooled({given}):
    near = x.clone().detach().requires_grad_(True)
    while True:
        loss = loss_of({called}, y)
        loss.backward()
        if near.grad.sum() > 0:
            return near.detach()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in DataLoader([], 8):
    near = fooled({given.replace("pick", "lambda: net").replace("loss_of", "torch.nn.functional.mse_loss")})
    <step torch.nn.functional.mse_loss(net(near), y)>
"""
    done = conversion(text)
    said = [one.reason for one in done.findings if "waits for the other processes" in one.reason]
    assert (f"with Accelerator().no_sync({found}):" in done.text) is bool(found)
    assert bool(said) is not bool(found)


PROJECTED = """
<torch>
net = torch.nn.Linear(4, 4)
latent, rows, noises = torch.zeros(4), torch.ones(8, 4), []
for size in range(2):
    noises.append(torch.randn(4))
parts = []
for part in net.parameters():
    parts.append(part)
for noise in noises:
    noise.requires_grad = True
for part in parts:
    part.requires_grad = True
latent.requires_grad = True
optimizer = torch.optim.Adam({given}, lr=0.1)
for turn in range(100):
    x = rows{drawn}
    <step (net(latent + noises[0]) - x).square().sum()>
"""


@each_row("""
given => drawn => is_left
[latent] => '' => True
[latent] + noises => '' => True
[latent] + noises => [torch.randint(8, (2,))] => False  # each process draws rows of its own
[latent, *net.parameters()] => '' => False
[latent] + list(net.parameters()) => '' => False
net.parameters() => '' => False
parts => '' => False  # a list of the model's, which train
""")
def test_a_script_that_moves_tensors_of_its_own_alone_is_left(given: str, drawn: str, is_left: bool) -> None:
    done = conversion(PROJECTED.format(given=given, drawn=drawn))
    assert ("Accelerator" not in done.text) is is_left
    assert any("no model trains here" in one.reason for one in done.findings) is is_left
