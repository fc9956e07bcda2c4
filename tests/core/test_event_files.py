"""Event files of TensorBoard are one process's, in whatever way a script makes and keeps its writers."""

from __future__ import annotations

from pathlib import Path

import pytest

from .converting import converted
from .projects import convert, write

OWN_WRITER = {
    "journal": """
        from tensorboardX import {base}

        class Journal({base}):
            def __init__(self, folder, rate):
                super().__init__(folder)
                self.rate = rate

            def record(self, loss, step):
                self.add_scalar("loss", loss, step)
                self.add_audio("sound", loss, step, self.rate)
        """,
    "train": """
        import torch
        from journal import Journal
        from torch.utils.data import DataLoader

        def fit(journal):
            <model>
            for step, (x, y) in enumerate(DataLoader([], 2)):
                <step loss = torch.nn.functional.mse_loss(model(x), y)>
                {use}

        journal = Journal("events", 16000)
        fit(journal)
        """,
}


@pytest.mark.parametrize(
    ("base", "use", "made"),
    [
        ("SummaryWriter", "journal.record(loss.item(), step)", True),
        ("SummaryWriter", "rate = journal.rate", False),
        ("Table", "journal.record(loss.item(), step)", False),
    ],
)
def test_a_writer_of_the_projects_own_class(base: str, use: str, made: bool, tmp_path: Path) -> None:
    """It opens an event file as its base does: one process makes it, unless all ask it for something."""
    files = {name: text.replace("{base}", base).replace("{use}", use) for name, text in OWN_WRITER.items()}
    convert(write(tmp_path, **files), "train")
    after = (tmp_path / "train.py").read_text()
    assert ('Journal("events", 16000) if accelerator.is_main_process else None' in after) is made
    assert ("if accelerator.is_main_process:\n            journal.record" in after) is made


SEVERAL = """<torch>
from torch.utils.tensorboard import SummaryWriter

def shade(picture):
    grey = picture.detach().cpu().numpy()
    grey[grey < 0] = 0
    return grey

{made}
<model>
for step, (x, y) in enumerate(DataLoader([], 2)):
    <step loss = torch.nn.functional.mse_loss(model(x), y)>
    {use}
"""
LIST = """writers = []
for name in ("train", "test"):
    writers.append(SummaryWriter(name))"""
TABLE = """writers = {}
writers[0] = SummaryWriter("train")"""


@pytest.mark.parametrize("made", [LIST, TABLE])
@pytest.mark.parametrize(
    ("use", "is_ours"),
    [
        ('writers[0].add_image("x", shade(2 * x), step)', True),
        ('for one in writers:\n        one.add_scalar("step", step)', True),
        ('writers[0].add_image("x", shade(x), step)', False),
        ("folder = writers[0].get_logdir()", False),
        ("show(writers)", False),
    ],
)
def test_writers_of_a_list_or_a_table(made: str, use: str, is_ours: bool) -> None:
    """A picture that the shading changes is no longer the batch's own, so that every process must come to it."""
    after = converted(SEVERAL.format(made=made, use=use))
    assert (") if accelerator.is_main_process else None" in after) is is_ours
