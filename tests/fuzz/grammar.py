"""Python from a grammar: training scripts in many shapes, between statements of every kind the language has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]
Lines = list[str]

_NAMES = st.sampled_from(
    ["x", "y", "net", "loss", "data", "step", "total", "größe", "self", "accelerator", "device"]
)
_COMMENTS = st.sampled_from(
    [
        "",
        "",
        "",
        "",
        "  # why",
        "  #no space",
        "  # noqa: E501  # type: ignore",
        "\t# tab",
        "  # é 漢字",
        "  # {x}",
    ]
)


@st.composite
def expression(draw: Draw, depth: int = 2) -> str:
    """Any expression; the names in it need not be bound."""
    leaf = st.one_of(
        _NAMES,
        st.integers(0, 10**6).map(str),
        st.sampled_from(
            ["None", "1.5e-3", "'s'", '"t"', "f'{x!r:>{step}}'", "b''", "...", "0x_ff", "True", '"""a\nb"""']
        ),
    )
    if depth == 0:
        return str(draw(leaf))
    a, b = draw(expression(depth - 1)), draw(expression(depth - 1))
    return str(
        draw(
            st.one_of(
                leaf,
                st.sampled_from(
                    [
                        f"({a} + {b})",
                        f"-({a})",
                        f"[{a}, {b}]",
                        f"{{{a}: {b}}}",
                        f"({a},)",
                        f"({a} if {b} else {a})",
                        f"(lambda q, *r, s={a}: {b})",
                        f"[q for q in {a} if {b}]",
                        f"(walrus := {a})",
                        f"f({a}, *{b}, key={a})",
                        f"({a})[{b}]",
                        f"({a})[1:{b}, ...]",
                        f"({a}).attr",
                        f"({a}).to({b})",
                        f"({a}).cuda()",
                        f"({a}).item()",
                        f"(\n        {a}  # inside\n        < {b}\n    )",
                        f"print({a})",
                    ]
                ),
            )
        )
    )


@st.composite
def statements(draw: Draw, depth: int = 2) -> Lines:
    """A suite of one to three statements, at indentation 0; deeper lines begin with tabs."""
    found: Lines = []
    for _ in range(draw(st.integers(1, 3))):
        found += draw(_statement(depth))
    return found


@st.composite
def _statement(draw: Draw, depth: int) -> Lines:
    name, value, comment = draw(_NAMES), draw(expression()), draw(_COMMENTS)
    simple = [
        f"{name} = {value}{comment}",
        f"{name}: int = {value}{comment}",
        f"{name} += {value}{comment}",
        f"{value}{comment}",
        f"{name} = other = {value}; pass{comment}",
        f"first, *{name} = {value}{comment}",
        f"del {name}{comment}",
        f"assert {value}, {name}{comment}",
        f"if {value}: {name} = 1{comment}",
        f"import os as {name}{comment}",
        f"from math import (\n    pi,  # one\n    tau as {name},\n){comment}",
        "",
        "# a line of its own",
        "\f",
    ]
    if depth == 0:
        return [str(draw(st.sampled_from(simple)))]
    inner = _deeper(draw(statements(depth - 1)))
    compound = [
        [f"if {value}:{comment}", *inner, f"elif {name}:", *inner, "else:", *inner],
        [f"for {name} in {value}:{comment}", *inner, "else:", *inner],
        [f"while {value}:{comment}", *inner, "\tbreak"],
        ["try:", *inner, f"except (ValueError, KeyError) as {name}:{comment}", *inner, "finally:", *inner],
        [f"with open({value}) as {name}, open('w', 'w'):{comment}", *inner],
        [
            f"def {name}(a, /, b: int = 1, *args, c, **kw) -> None:{comment}",
            '\t"""Says."""',
            *inner,
            f"\treturn {value}",
        ],
        ["@decorated", f"async def {name}():{comment}", *inner, "\tawait x"],
        [f"class {name}(object):{comment}", *inner],
        [
            f"match {value}:",
            f"\tcase [1, {{'k': _}}]:{comment}",
            *("\t" + line for line in inner),
            "\tcase _:",
            "\t\tpass",
        ],
    ]
    return list(draw(st.one_of(st.sampled_from(simple).map(lambda line: [line]), st.sampled_from(compound))))


def _deeper(lines: Lines) -> Lines:
    """A suite: it needs a statement that is not a comment."""
    return [*("\t" + line for line in lines), "\tpass"]


# -- training scripts ----------------------------------------------------------------------------------------

_IMPORTS = [
    [
        "import torch",
        "import torch.nn as nn",
        "import torch.optim as optim",
        "from torch.utils.data import DataLoader",
    ],
    [
        "import torch as T; torch = T",
        "from torch import nn, optim",
        "from torch.utils import data",
        "DataLoader = data.DataLoader",
    ],
    [
        '"""Docs."""',
        "from __future__ import annotations",
        "import torch, torch.nn as nn",
        "from torch import (",
        "    optim,  # steps",
        ")",
        "from torch.utils.data import DataLoader",
    ],
    [
        "#!/usr/bin/env python",
        "# -*- coding: utf-8 -*-",
        "import torch",
        "from torch import nn",
        "from torch import optim",
        "from torch.utils.data import DataLoader as DataLoader",
    ],
]
_DEVICES = [
    [],
    ['device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'],
    ['device = "cuda:0"  # the big one'],
    [
        "use_cuda = torch.cuda.is_available()",
        "device = torch.device('cuda') if use_cuda else torch.device('cpu')",
    ],
    ["device = torch.device('cuda', 1)"],
]
_MODELS = [
    "nn.Linear(4, 2)",
    "nn.Sequential(\n    nn.Linear(4, 3),  # in\n    nn.ReLU(),\n    nn.Linear(3, 2),\n)",
    "Net()",
    "build()",
]
_OPTIMIZERS = [
    "optim.SGD(model.parameters(), lr=0.1)",
    "optim.AdamW([{'params': model.parameters(), 'lr': 1e-3}], lr=1e-2)",
    "getattr(optim, 'Adam')(model.parameters())",
    "optim.Adam(filter(lambda p: p.requires_grad, model.parameters()))",
]
_SCHEDULERS = [
    None,
    "optim.lr_scheduler.StepLR(optimizer, 1)",
    "optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=len(loader) * 3)",
    "optim.lr_scheduler.ReduceLROnPlateau(optimizer)",
]
_FORWARD = [
    ["out = model(inputs)", "loss = criterion(out, labels)"],
    ["loss = criterion(model(inputs), labels)  # at once"],
    [
        "out = model(inputs)",
        "loss = criterion(out, labels) + 0.1 * sum(p.pow(2).sum() for p in model.parameters())",
    ],
    ["loss = nn.functional.cross_entropy(\n    model(inputs), labels,  # both\n    reduction='sum')"],
    ["out = model(inputs)", "loss = (out.logsumexp(1) - out[range(len(out)), labels]).mean()"],
    ["with torch.autocast('cuda'):", "\tloss = criterion(model(inputs), labels)"],
]
_STEP = [
    ["optimizer.zero_grad()", "loss.backward()", "optimizer.step()"],
    ["optimizer.zero_grad(); loss.backward(); optimizer.step()"],
    [
        "loss.backward(retain_graph=True)  # keep",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "optimizer.step()",
        "optimizer.zero_grad()",
    ],
    ["(loss / 2).backward()", "if step % 2 == 1:", "\toptimizer.step()", "\toptimizer.zero_grad()"],
    ["model.zero_grad()", "torch.autograd.backward(loss)", "optimizer.step()"],
]
_METRICS = [
    [],
    ["total += loss.item()"],
    ["total += loss.item() * inputs.size(0)", "correct += (model(inputs).argmax(1) == labels).sum().item()"],
    ["losses.append(loss.detach())"],
    ["if step % 10 == 0: print(f'{step}: {loss.item():.3f}', flush=True)"],
    ["if torch.isnan(loss):", "\tbreak"],
    ["print('%d %f' % (step, float(loss)))  # old style"],
]
_ENDS = [
    [],
    ["torch.save(model.state_dict(), 'model.pt')"],
    ["torch.save({'model': model.state_dict(), 'epoch': 1}, f'ck{1}.pth')", "state = torch.load('ck1.pth')"],
    ["with open('log.txt', 'w') as log:", "\tlog.write(str(total))"],
    [
        "model.eval()",
        "with torch.no_grad():",
        "\tfor inputs, labels in val_loader:",
        "\t\tcorrect += (model(inputs).argmax(1) == labels).sum()",
        "print(correct / len(val_loader.dataset))",
    ],
]


def _pick(draw: Draw, choices: list[Any]) -> Any:
    return draw(st.sampled_from(choices))


@st.composite
def training_script(draw: Draw) -> str:
    """A script that trains, more or less, at module level, in a function or in a class."""
    device = _pick(draw, _DEVICES)
    move = bool(device) and draw(st.booleans())
    inner = [
        *(["inputs, labels = inputs.to(device), labels.to(device, non_blocking=True)"] if move else []),
        *_pick(draw, _FORWARD),
        *_pick(draw, _STEP),
        *_pick(draw, _METRICS),
    ]
    scheduler = _pick(draw, _SCHEDULERS)
    if scheduler is not None and draw(st.booleans()):
        inner.append("scheduler.step()")
    setup = [
        *device,
        "loader = DataLoader(list(range(8)), batch_size=2, shuffle=True)",
        "val_loader = DataLoader(list(range(8)))",
        f"model = {_pick(draw, _MODELS)}" + (".to(device)" if move else _pick(draw, ["", ".cuda()"])),
        "criterion = nn.CrossEntropyLoss()",
        f"optimizer = {_pick(draw, _OPTIMIZERS)}",
        *([f"scheduler = {scheduler}"] if scheduler else []),
        "total, correct, losses = 0.0, 0, []",
    ]
    epoch = [
        "model.train()",
        "for step, (inputs, labels) in enumerate(loader):",
        *("\t" + line.replace("\n", "\n\t") for line in inner),
        *(["scheduler.step(total)"] if scheduler else []),
    ]
    loop = ["for epoch in range(3):", *("\t" + line.replace("\n", "\n\t") for line in epoch)]
    body = [*setup, *_junk(draw), *loop, *_pick(draw, _ENDS)]
    definitions = [
        *(
            "class Net(nn.Module):",
            "\tdef __init__(self):",
            "\t\tsuper().__init__()",
            "\t\tself.a = nn.Linear(4, 2)",
        ),
        *("\tdef forward(self, x):", "\t\treturn self.a(x)  # forward", "def build(): return Net()"),
    ]
    lines = [*_pick(draw, _IMPORTS), *_junk(draw), *definitions, *_shaped(draw, body), *_junk(draw)]
    return formatted(draw, lines)


def _junk(draw: Draw) -> Lines:
    if not draw(st.integers(0, 2)):
        return ["def unrelated():", *_deeper(draw(statements()))]
    return []


def _shaped(draw: Draw, body: Lines) -> Lines:
    inside = ["\t" + line.replace("\n", "\n\t") for line in body]
    return list(
        _pick(
            draw,
            [
                body,
                ["def main():", *inside, "if __name__ == '__main__':", "\tmain()"],
                ["def main(args=None):", '\t"""Trains."""', *inside, "\treturn model", "main()"],
                ["if True:", *inside],
                [
                    "class Trainer:",
                    "\tdef fit(self):",
                    *("\t" + line.replace("\n", "\n\t") for line in inside),
                    "Trainer().fit()",
                ],
            ],
        )
    )


def formatted(draw: Draw, lines: Lines) -> str:
    """With comments and blank lines here and there, and one of the ways to indent."""
    indent = draw(st.sampled_from(["    ", "  ", "\t", "        "]))
    remarks = draw(st.lists(st.integers(0, max(len(lines) - 1, 0)), max_size=4))
    found: Lines = []
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip("\t"))
        if number in remarks:
            found.append("\t" * depth + f"# remark {number}")
        found.append(line)
        if number in remarks and not line.rstrip().endswith((":", "\\")):
            found.append("")
    text = "\n".join(found)
    text = "\n".join(_reindented(line, indent) for line in text.split("\n"))
    return text + draw(st.sampled_from(["\n", "", "\n\n", "\n# the end"]))


def _reindented(line: str, indent: str) -> str:
    body = line.lstrip("\t")
    return indent * (len(line) - len(body)) + body
