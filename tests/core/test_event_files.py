"""Event files of TensorBoard are one process's, in whatever way a script makes and keeps its writers."""

from pathlib import Path

import pytest

from .converting import converted
from .projects import rewritten
from .support import each_row

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
@each_row(r"""
use => is_ours
writers[0].add_image("x", shade(2 * x), step) => True
for one in writers:\n        one.add_scalar("step", step) => True
writers[0].add_image("x", shade(x), step) => False
folder = writers[0].get_logdir() => False
show(writers) => False
""")
def test_writers_of_a_list_or_a_table(made: str, use: str, is_ours: bool) -> None:
    """A picture that the shading changes is no longer the batch's own, so that every process must come to it."""
    after = converted(SEVERAL.format(made=made, use=use))
    assert (") if accelerator.is_main_process else None" in after) is is_ours


@each_row(r"""
made => use => given
SummaryWriter("a") => show(writer) => "a" if accelerator.is_main_process else tempfile.mkdtemp()
SummaryWriter() => show(writer) => log_dir=None if accelerator.is_main_process else tempfile.mkdtemp()
SummaryWriter("a") => show(writer, writer.log_dir) => "a"  # from which every process may read
""")
def test_a_writer_that_anything_may_use(made: str, use: str, given: str) -> None:
    """The other processes' files are not found beside the main process's."""
    after = converted(SEVERAL.format(made=f"writer = {made}", use=use))
    assert f"writer = SummaryWriter({given})" in after
    assert ("import tempfile" in after) is ("tempfile" in given)


@each_row(r"""
made => use => is_ours
FileWriter => writer.add_summary(tf.Summary(value=[]), step) => True
create_file_writer => with writer.as_default():\n        tf.summary.scalar("x", step) => True
create_file_writer => with writer.as_default():\n        seen = record(step) => False
""")
def test_a_writer_of_tensorflow(made: str, use: str, is_ours: bool) -> None:
    made = f'import tensorflow as tf\nwriter = tf.summary.{made}("a")'
    after = converted(SEVERAL.format(made=made, use=use))
    assert ('("a") if accelerator.is_main_process else None' in after) is is_ours
    assert (f"is_main_process:\n        {use[:12]}" in after) is is_ours


@pytest.mark.parametrize(
    "made",
    ['{"writer": SummaryWriter("a"), "steps": 0}', 'dict(steps=0)\nstate["writer"] = SummaryWriter("a")'],
)
@each_row(r"""
use => is_ours
writer = state["writer"]; writer.add_scalar("x", step, state["steps"]); state["steps"] += 1 => True
state["writer"].add_scalar("x", step)\n    other = state["steps"] + state.get("left", 1) => True
other = state.get("writer") => False
folder = state["writer"].get_logdir() => False
show(state) => False
""")
def test_a_writer_among_other_things(made: str, use: str, is_ours: bool) -> None:
    """What the dictionary holds beside it is every process's."""
    after = converted(SEVERAL.format(made=f"state = {made}", use=use))
    assert ('SummaryWriter("a") if accelerator.is_main_process else None' in after) is is_ours


@pytest.mark.parametrize(("use", "is_ours"), [('w.add_text("a", "b")', True), ("a = w.get_logdir()", False)])
def test_a_writer_of_a_with_statement(use: str, is_ours: bool) -> None:
    after = converted(SEVERAL.format(made=f'with SummaryWriter("runs") as w:\n    {use}', use="pass"))
    assert ("else nullcontext()" in after) is ("import nullcontext" in after) is is_ours


TRAIN = """
    <torch>
    {made}
    <model>
    for step, (x, y) in enumerate(DataLoader([], 2)):
        <step loss = torch.nn.functional.mse_loss(model(x), y)>
        {use}
    {end}
    """

LOGS = """
    from torch.utils.tensorboard import SummaryWriter
    def logs():
        writer = SummaryWriter("events")
        return print, writer
    """


@pytest.mark.parametrize(
    ("use", "made"),
    [('writer.add_scalar("loss", loss, step)', True), ("folder = writer.get_logdir()", False)],
)
def test_a_writer_that_is_returned_beside_something_else(use: str, made: bool, tmp_path: Path) -> None:
    begin = "from logs import logs\n    show, writer = logs()"
    trains = TRAIN.format(made=begin, use=use, end="pass")
    after = rewritten(tmp_path, "train", logs=LOGS, train=trains)["logs"]
    assert (".is_main_process else None" in after) is made


JOURNAL = """
    from torch.utils.tensorboard import SummaryWriter
    class Journal:
        def __init__(self):
            self.events = None
        def update(self, value, step):
            if self.events is None:
                self.events = SummaryWriter("events")
            self.events.add_scalar("loss", value, step)
        def close(self):
            {closed}
    """


@pytest.mark.parametrize(
    ("closed", "made"), [("self.events.close()", True), ("return self.events.log_dir", False)]
)
def test_an_event_file_of_a_module_that_other_scripts_import(closed: str, made: bool, tmp_path: Path) -> None:
    """One process opens it, unless another one may ask it for something."""
    begin = "from journal import Journal\n    journal = Journal()"
    trains = TRAIN.format(made=begin, use="journal.update(loss.item(), step)", end="journal.close()")
    other = "from journal import Journal\nJournal().update(1, 2)\n"
    journal = JOURNAL.format(closed=closed)
    after = rewritten(tmp_path, "train", journal=journal, test=other, train=trains)["journal"]
    assert ('SummaryWriter("events") if PartialState().is_main_process else None' in after) is made
    assert "if PartialState().is_main_process:\n            self.events.add_scalar" in after


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


@each_row("""
base => use => made
SummaryWriter => journal.record(loss.item(), step) => True
SummaryWriter => rate = journal.rate => False
Table => journal.record(loss.item(), step) => False
""")
def test_a_writer_of_the_projects_own_class(base: str, use: str, made: bool, tmp_path: Path) -> None:
    """It opens an event file as its base does: one process makes it, unless all ask it for something."""
    files = {name: text.replace("{base}", base).replace("{use}", use) for name, text in OWN_WRITER.items()}
    after = rewritten(tmp_path, "train", **files)["train"]
    assert ('Journal("events", 16000) if accelerator.is_main_process else None' in after) is made
    assert ("if accelerator.is_main_process:\n            journal.record" in after) is made


def test_a_writer_that_goes_to_a_function_whose_name_another_file_has_too(tmp_path: Path) -> None:
    train = """
        <torch>
        from torch.utils.tensorboard import SummaryWriter
        {other}
        def show({parameters}):
            writer.add_scalar("loss", loss, 0)
        def train(net):
            writer = SummaryWriter()
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            <loop torch.nn.functional.mse_loss(net(x), y)>
            show({parameters})
    """
    first = train.format(other="import second", parameters="loss, writer")
    first = first.replace("    show(loss", "    show(loss.item()")
    second = train.format(other="", parameters="net, writer, loss")
    script = "import torch\nimport first, second\nfirst.train(torch.nn.Linear(4, 2))\nsecond.train(torch.nn.Linear(4, 2))\n"
    after = rewritten(tmp_path, "script", script=script, first=first, second=second)
    for name in ("first", "second"):
        assert "SummaryWriter() if accelerator.is_main_process else None" in after[name]


PASSED_ON = """<torch>
from torch.utils.tensorboard import SummaryWriter
kept, out = [], []
def keep(rows):
    out = rows.mean()
    kept.append(out)
def show({named}, step):
    {named}.add_scalar("step", step)
def record(other, step):
    show(other, step)
writer = SummaryWriter("a")
<model>
for step, (x, y) in enumerate(DataLoader([], 2)):
    <step loss = torch.nn.functional.mse_loss(model(x), y)>
    keep(x)
    record(writer, step)
    out.append(step)
"""


@pytest.mark.parametrize("named", ["out", "shown"])
def test_what_has_a_writers_name_elsewhere_is_no_writer(named: str) -> None:
    after = converted(PASSED_ON.format(named=named))
    assert 'SummaryWriter("a") if accelerator.is_main_process else None' in after
    assert "is_main_process:\n        record(writer, step)" in after
    assert "\n    kept.append(out)\n" in after
    assert "\n    out.append(step)\n" in after
