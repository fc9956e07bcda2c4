"""What is known to be wrong is refused, with its line; another framework's script is left alone; the rest is converted."""

from pathlib import Path

import pytest
from crosstrain_migrate.results import Severity

from .converting import conversion, converted
from .filling import filled
from .projects import write

TRAINING = """<torch>
{imports}

{definitions}
def train(rows):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1)
    {before}
    for x, y in DataLoader(rows, 8):
        <step>

train([])
"""


def script(imports: str = "", definitions: str = "", before: str = "pass", optimizer: str = "SGD") -> str:
    return filled(
        TRAINING.format(imports=imports, definitions=definitions, before=before, optimizer=optimizer)
    )


SWITCHED = """<torch>

def train(rows, line_search={default}):
    <model>
    if line_search:
        optimizer = torch.optim.LBFGS(model.parameters())
    for x, y in DataLoader(rows, 8):
        <step>

train({given})
"""


@pytest.mark.parametrize(
    ("default", "given", "is_refused"),
    [
        ("False", "[]", False),
        ("True", "[]", True),
        ("False", "[], True", True),
        ("False", "[], line_search=options.search", True),
        ("False", "[], **options", True),
    ],
)
def test_a_line_search_that_no_call_asks_for_is_no_reason(default: str, given: str, is_refused: bool) -> None:
    found = conversion(SWITCHED.format(default=default, given=given)).findings
    assert any(one.severity is Severity.REFUSED for one in found) is is_refused


@pytest.mark.parametrize(
    "text",
    [
        script("from torch.distributed.fsdp import FullyShardedDataParallel"),
        script("import torch.distributed.rpc as rpc", "def elsewhere():\n    rpc.init_rpc('worker')\n\n"),
        script("from torch.optim import LBFGS"),
        script(before="model.share_memory()"),
    ],
)
def test_what_is_only_named_is_converted(text: str) -> None:
    assert "accelerator.prepare(" in converted(text)


WORKERS = script(
    "import torch.distributed as dist\nfrom multiprocessing import Process",
    "def work(rank):\n    {join}train([])\n\nfor rank in range(2):\n    Process(target=work, args=(rank,)).start()\n\n",
)


@pytest.mark.parametrize(("join", "refused"), [("dist.init_process_group('gloo')\n    ", True), ("", False)])
def test_processes_that_a_script_starts_join_no_group_of_the_launcher(join: str, refused: bool) -> None:
    found = conversion(WORKERS.replace("{join}", join)).findings
    assert any(one.severity is Severity.REFUSED for one in found) is refused


PLAYS = """import torch

policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
{loader}

def play(world):
    kept, state, over = [], world.reset(), False
    while not over:
        state, gain, over, more = world.step(policy(state).argmax())
        kept.append((state, gain))
    return kept

for state, gain in {data}:
    loss = (policy(state) * gain).sum()
    <step loss>
"""


def test_what_trains_on_a_data_set_and_plays_to_be_judged_is_converted() -> None:
    text = PLAYS.format(loader="loader = torch.utils.data.DataLoader(rows)", data="loader")
    assert "loader = accelerator.prepare(" in converted(text) or ", loader = " in converted(text)


def test_a_data_set_beside_what_it_plays_and_trains_on_is_refused() -> None:
    """An expert's recordings train the judge, the policy trains on its own games: each process has played others."""
    games = "def batches(games):\n    yield from games\n\n"
    text = games + PLAYS.format(
        loader="loader = torch.utils.data.DataLoader(rows)", data="batches(play(make_world()))"
    )
    assert [one for one in conversion(text).findings if one.severity is Severity.REFUSED]


RECORDED = """import random
import torch

policy = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
memory = []

def judge(world):
    policy.eval()
    total, state, over = 0.0, world.reset(), False
    while not over:
        state, gain, over, more = world.step(policy(state).argmax())
        {kept}
        total += gain
    return {given}

for turn in range(100):
    state, gain = random.choice(recorded)
    loss = (policy(state) * gain).sum()
    <step loss>
    print(judge(make_world()))
"""


def test_what_plays_only_to_be_judged_is_converted_without_a_loader() -> None:
    assert "accelerator.prepare(" in converted(RECORDED.format(kept="pass", given="total"))


@pytest.mark.parametrize(
    ("kept", "given"), [("memory.append((state, gain))", "total"), ("pass", "total, state")]
)
def test_what_keeps_or_gives_away_its_play_is_refused(kept: str, given: str) -> None:
    done = conversion(RECORDED.format(kept=kept, given=given))
    assert [one for one in done.findings if one.severity is Severity.REFUSED]


def test_a_trainer_that_is_given_the_step_is_left_alone() -> None:
    text = filled("""import torch
from ignite.engine import Engine

<model>

def update(engine, batch):
    <step loss = model(batch).mean()>

trainer = Engine(update)
trainer.run(torch.utils.data.DataLoader(rows))
""")
    done = conversion(text)
    assert done.text == text
    assert any("Ignite trains" in one.reason for one in done.findings)


@pytest.mark.parametrize("line", ["from accelerate import Accelerator"])
def test_a_script_for_accelerate_is_told_which_lines_to_change(line: str) -> None:
    text = script(line)
    done = conversion(text)
    assert done.text == text
    (told,) = done.findings
    assert told.severity is Severity.NOTE
    assert "import from crosstrain" in told.remedy


def test_a_module_that_only_sounds_like_accelerate_is_no_reason() -> None:
    assert "accelerator.backward" in converted(script("import accelerated"))


TESTS = """import {runner}
<torch>

def test_training():
    <model>
    <loop>

{end}
"""


@pytest.mark.parametrize(
    ("runner", "end", "is_left"),
    [
        ("pytest", "", True),
        ("unittest", 'if __name__ == "__main__":\n    unittest.main()', True),
        ("pytest", "test_training()", False),
        ("pytest", 'if __name__ == "__main__":\n    test_training()', False),
        ("math", "", False),
    ],
)
def test_a_file_of_tests_is_left_alone(runner: str, end: str, is_left: bool) -> None:
    text = filled(TESTS.format(runner=runner, end=end))
    done = conversion(text)
    assert (done.text == text) is is_left
    said = "a file of tests" if runner == "pytest" else "nothing that this script runs"
    assert any(said in one.reason for one in done.findings) is is_left
    assert not any(one.severity is Severity.REFUSED for one in done.findings)


@pytest.mark.parametrize("name", ["utils", "init_empty_weights"])
def test_a_module_that_uses_accelerate_is_not_half_converted(name: str, tmp_path: Path) -> None:
    from crosstrain_migrate.choices import Mode
    from crosstrain_migrate.cli.run import Request, run
    from crosstrain_migrate.engine import migrate_text
    from crosstrain_migrate.results import Options

    engine = f"from accelerate import {name}\n\ndef fit(model, loader, optimizer):\n    for x in loader:\n"
    engine += "        model(x).mean().backward()\n        optimizer.step()\n"
    script = "import torch\nfrom torch.utils.data import DataLoader\nfrom engine import fit\nmodel = torch.nn.Linear(2, 1)\n"
    script += "fit(model, DataLoader(torch.ones(8, 2)), torch.optim.SGD(model.parameters(), lr=0.01))\n"
    folder = write(tmp_path, engine=engine, script=script)
    outcome = run(Request((folder / "script.py",), Options(), Mode.WRITE, cache=False), migrate_text)
    assert not outcome.changed and (folder / "script.py").read_text() == script
    said = [one.reason for file in outcome.files for one in file.result.findings]
    assert ["imports from Accelerate" in one for one in said] == [True], "and not that it does not train"
