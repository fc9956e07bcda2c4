"""How a script is laid out changes nothing: every layout converts to the same program, and no comment is lost."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.results import FileResult

from . import layouts
from .support import check_invariants, migrate

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
SCRIPTS = ["mnist_functions", "flat_script", "trainer_class"]


def original(name: str) -> str:
    return (GOLDEN / name / "before.py").read_text(encoding="utf-8")


def reviewed(name: str) -> str:
    return (GOLDEN / name / "after.py").read_text(encoding="utf-8")


def program(text: str) -> str:
    return ast.dump(ast.parse(text))


def rules(result: FileResult) -> Counter[tuple[str, str]]:
    return Counter((change.rule, change.reason) for change in result.changes)


# Where statements share a line, new ones stand before the line: another program that computes the same.
OTHER_PLACES = {"semicolons"}


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("layout", layouts.LAYOUTS, ids=lambda layout: layout.__name__)
def test_layouts_convert_alike(name: str, layout: layouts.Layout) -> None:
    text = layout(original(name))
    assert program(text) == program(original(name)), "the layout itself must change nothing"
    result = migrate(text)
    check_invariants(text, result)
    assert not result.refused, result.findings
    if layout.__name__ in OTHER_PLACES:
        assert {rule for rule, _ in rules(result)} == {rule for rule, _ in rules(migrate(original(name)))}
    else:
        assert program(result.after) == program(reviewed(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_letters_beyond_ascii(name: str) -> None:
    """Texts before the code on a line, whose columns in bytes are others than in characters."""
    text = layouts.not_ascii(original(name))
    result = migrate(text)
    check_invariants(text, result)
    assert result.changed, result.findings
    greeting = ast.dump(ast.parse('"größer als π"').body[0])
    assert program(result.after).replace(f"{greeting}, ", "") == program(reviewed(name))


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["no mark", "byte order mark"])
@pytest.mark.parametrize("end", [b"\r\n", b"\r", b"\n"], ids=["windows", "old mac", "unix"])
def test_line_ends_and_marks_stay(name: str, end: bytes, mark: bytes) -> None:
    data = mark + original(name).encode().replace(b"\n", end)
    source = decode(Path("train.py"), data)
    result = migrate(source.text)
    written = source.encode(result.after)
    assert written == mark + reviewed(name).encode().replace(b"\n", end)


class Annotate(ast.NodeTransformer):
    """Every plain assignment to one name, and every parameter, gets a type."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Name):
            return node
        return ast.AnnAssign(target, ast.Name("object", ast.Load()), node.value, 1)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return node if node.arg == "self" else ast.arg(node.arg, ast.Name("object", ast.Load()))


class Strip(ast.NodeTransformer):
    """The types go again."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        assert node.value is not None
        return ast.Assign([node.target], node.value, lineno=node.lineno)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg)


def bare(text: str) -> str:
    return ast.dump(Strip().visit(ast.parse(text)))


@pytest.mark.parametrize("name", SCRIPTS)
def test_annotations_change_nothing(name: str) -> None:
    text = ast.unparse(ast.fix_missing_locations(Annotate().visit(ast.parse(original(name))))) + "\n"
    result = migrate(text)
    check_invariants(text, result)
    assert not result.refused, result.findings
    assert bare(result.after) == bare(reviewed(name))


TYPED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, loader, optimizer, device):
    # type: (nn.Module, DataLoader, torch.optim.Optimizer, torch.device) -> float
    total = 0.0  # type: float
    for x, y in loader:  # type: torch.Tensor, torch.Tensor
        x, y = x.to(device), y.to(device)  # type: torch.Tensor, torch.Tensor
        loss = nn.functional.cross_entropy(model(x), y)  # type: torch.Tensor
        optimizer.zero_grad()
        loss.backward()  # type: ignore
        optimizer.step()
        total += loss.item()
    return total


def main():
    # type: () -> None
    device = torch.device("cuda")  # type: torch.device
    model = nn.Linear(8, 3).to(device)  # type: nn.Module
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(8, 8), torch.zeros(8, dtype=torch.long)), 4)
    train(model, loader, optimizer, device)


main()
"""


def test_type_comments_stay() -> None:
    result = migrate(TYPED)
    check_invariants(TYPED, result)
    assert "accelerator.backward(loss)  # type: ignore" in result.after
    assert "x.to(device)" not in result.after


ODD = {
    "a lambda in a default": "def f(g=lambda: (yield)):\n    return g\n",
    "a walrus": "if (n := 3) > 2:\n    print(n)\n",
    "a match": "match 3:\n    case 3:\n        pass\n",
    "an async generator": "async def f():\n    async for x in f():\n        yield x\n",
    "nested f-strings": "a = 1\nprint(f\"{f'{a}'}\")\n",
    "a chained comparison": "a = 1\nif 0 < a < 3 != 4:\n    pass\n",
    "star expressions": "a, *b = [1, 2]\nprint(*b, **{})\n",
    "globals": "def f():\n    global a\n    a = 1\n",
    "a class in a function": "def f():\n    class A:\n        pass\n    return A\n",
    "deep nesting": "x = " + "[" * 40 + "1" + "]" * 40 + "\n",
    "a very long line": "x = [" + ", ".join(map(str, range(5000))) + "]\n",
    "exec": 'exec("lr = 0.1")\n',
    "a decorator": "@(lambda f: f)\ndef f():\n    pass\n",
    "try star": "try:\n    pass\nexcept (ValueError, TypeError) as e:\n    raise e from None\n",
    "nothing but a docstring": '"""Nothing."""\n',
    "an unusual main": 'def main():\n    pass\n\n\nif "__main__" == __name__: main()\n',
}


@pytest.mark.parametrize("name", ODD)
def test_odd_code_beside_training(name: str) -> None:
    """Whatever else a script holds: converted or refused with a reason, and never a crash."""
    base = original("flat_script")
    text = base + ODD[name]
    result = migrate(text)
    check_invariants(text, result)
    assert result.changed or result.refused
    assert ODD[name].split("\n")[0].replace("print(", "") in result.after.replace(
        "accelerator.print(", ""
    ).replace("print(", "")


@pytest.mark.parametrize("layout", [*layouts.LAYOUTS, layouts.not_ascii], ids=lambda layout: layout.__name__)
def test_layouts_are_layouts(layout: layouts.Layout) -> None:
    """Another dress, and the same program in it: only `not_ascii` changes names."""
    before = original("mnist_functions")
    text = layout(before)
    assert text != before
    if layout is layouts.not_ascii:
        compile(text, "laid_out.py", "exec")
    else:
        assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(before))


@pytest.mark.parametrize("name", ["apex_amp", "ddp_spawn", "imagenet_style"])
def test_comments_in_every_place_of_scripts_that_are_taken_apart(name: str) -> None:
    text = layouts.comments_everywhere(original(name))
    result = migrate(text)
    assert not result.refused, result.findings
    listed = " ".join(f.reason for f in result.findings)
    lost = Counter(tokens(text)) - Counter(tokens(result.after))
    assert [comment for comment in lost if comment not in listed] == []


def tokens(text: str) -> list[str]:
    return re.findall(r"#.*", text)


BRACKETS = {
    "behind the last argument, which goes": (
        "forward(\n    model,  # trained\n    x,  # a batch\n    device,  # where\n)",
        "# where\nforward(\n    model,  # trained\n    x,  # a batch\n)",
    ),
    "behind the last argument, which goes, and no comma": (
        "forward(model,\n        x,  # a batch\n        device  # where\n)",
        "# where\nforward(model,\n        x  # a batch\n)",
    ),
    "around an expression that goes": (
        "x = x.to(  # to the card\n    device,  # the first\n    non_blocking=True,\n)",
        "# to the card\n# the first",
    ),
    "in a condition whose branch stays": (
        "if (\n    use_cuda  # or not\n):\n    x = x.cuda()\nelse:\n    x = x.cpu()",
        None,
    ),
}
COMMENTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

use_cuda = torch.cuda.is_available()
device = torch.device("cuda" if use_cuda else "cpu")


def forward(model, x, device):
    return model(x.to(device))


model = nn.Linear(8, 3).to(
    device,  # where it trains
)
optimizer = torch.optim.SGD(
    model.parameters(),  # all of them
    lr=0.1,  # high
)
loader = DataLoader(TensorDataset(torch.ones(8, 8)), 4)
for (x,) in loader:
    {}
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(  # every step
        loss.item(),  # the loss
    )
"""


@pytest.mark.parametrize("name", BRACKETS)
def test_comments_in_brackets_stay_or_move_above(name: str) -> None:
    before, after = BRACKETS[name]
    text = COMMENTED.format(before.replace("\n", "\n    "))
    result = migrate(text)
    check_invariants(text, result)
    assert not result.refused, result.findings
    assert "# where it trains\nmodel = nn.Linear(8, 3)\n" in result.after
    if after is not None:
        assert after.replace("\n", "\n    ") in result.after


HYDRA = """\
import hydra
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(cfg, model, loader, optimizer):
    model.train()
    for x, y in loader:
        x, y = x.to(cfg.device), y.to(cfg.device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    print(OmegaConf.to_yaml(cfg))
    torch.manual_seed(cfg.seed)
    data = hydra.utils.instantiate(cfg.data)
    loader = DataLoader(data, batch_size=cfg.batch_size, shuffle=True)
    model = nn.Linear(cfg.inputs, 3).to(cfg.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.optim.lr)
    for _ in range(cfg.epochs):
        train(cfg, model, loader, optimizer)


if __name__ == "__main__":
    main()
"""


def test_a_script_that_hydra_drives() -> None:
    """The decorator hands over the configuration, so `main` gets no parameter and the Accelerator is made inside."""
    result = migrate(HYDRA)
    check_invariants(HYDRA, result)
    assert not result.refused, result.findings
    assert "def main(cfg: DictConfig) -> None:\n" in result.after
    assert (
        "    train(cfg, model, loader, optimizer, accelerator)" in result.after
        or "accelerator, " in result.after
    )
    assert ".to(cfg.device)" not in result.after


ONE_A_LINE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


def train(
    model,
    loader,  # of the training data
    optimizer,
):
    for x in loader:
        optimizer.zero_grad()
        loss = model(x.cuda()).mean()
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    model = nn.Linear(8, 3).cuda()
    loader = DataLoader(torch.ones(8, 8), batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train(
        model,
        loader,  # two steps
        optimizer  # plain
    )


main()
"""


def test_what_comes_between_items_of_one_a_line_gets_a_line() -> None:
    """The parameter and the argument that bring the accelerator stand as the author's do, comments where they were."""
    result = migrate(ONE_A_LINE)
    check_invariants(ONE_A_LINE, result)
    assert "def train(\n    accelerator,\n    model,\n    loader,  # of the training data\n" in result.after
    assert "    train(\n        accelerator,\n        model,\n        loader,  # two steps\n" in result.after


def test_an_argument_behind_the_last_of_one_a_line_leaves_its_comment_there() -> None:
    load = "torch.load(\n        'best.pt',\n        weights_only=False  # the best\n    )"
    text = ONE_A_LINE.replace("    train(", f"    best = {load}\n    best.eval()\n    train(")
    result = migrate(text)
    check_invariants(text, result)
    expected = "        weights_only=False,  # the best\n        map_location=accelerator.device\n    )"
    assert expected in result.after
