"""One plain training script with places to fill."""

import io
import re
import tokenize
from collections import Counter
from pathlib import Path

from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileResult, Options

# `<place>` stands before what is there where a test puts nothing else; an empty one leaves no line.
PLAIN = r'''"""Points of three classes."""
import torch
import torch.nn.functional as F
<accelerator>
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
<imports>
<definitions>
<options>
<device>device = torch.device("cuda" if torch.cuda.is_available() else "cpu")  # the fastest there is
<data>train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
<loader>train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
<test_data>
<model>model = nn.Linear(8, 3).to(device)
<optimizer>optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
<setup>
<prepare>
for epoch in range(2):
    <epoch>model.train()
    <loop>for x, y in train_loader:  # one epoch
        <batch>x, y = x.to(device), y.to(device)
        <zero>optimizer.zero_grad()
        <loss>out = model(x)\nloss = F.cross_entropy(out, y)
        <backward>loss.backward()
        <step>optimizer.step()
        <after_step>
    <after_loop>
    # the epoch is over
    <after_epoch>
<end>
'''
CONVERTED = {
    "accelerator": "from crosstrain import Accelerator",
    "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
    "prepare": "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)",
    "backward": "accelerator.backward(loss)",
}


def script(**places: str) -> str:
    """The plain script with other text in these places, indented as they stand."""
    lines: list[str] = []
    for line in PLAIN.split("\n"):
        indent, place, text = re.fullmatch(r"( *)(?:<(\w+)>)?(.*)", line).groups()  # type: ignore[union-attr]
        inner = places.get(place, text.replace("\\n", "\n")) if place else text
        lines += [indent + one if one else "" for one in inner.split("\n") if not place or inner]
    return "\n".join(lines)


def migrate(text: str) -> FileResult:
    return migrate_text(Path("train.py"), text, Options())


def comments(text: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)
