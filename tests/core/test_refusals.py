"""What is known to be wrong is refused, with its line; another framework's script is left alone; the rest is converted."""

from pathlib import Path

import pytest
from crosstrain_migrate.results import Severity

from .converting import conversion
from .filling import filled
from .projects import write
from .support import each_row

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
        optimizer.step(lambda: F.mse_loss(model(x), y))
train({given})
"""

WORKERS = script(
    "import torch.distributed as dist\nfrom multiprocessing import Process",
    "def work(rank):\n    {join}train([])\n\nfor rank in (0, 1):\n    Process(target=work, args=(rank,)).start()\n\n",
)

AGAIN = script(
    "import subprocess, sys\nimport torch.distributed as dist",
    "dist.init_process_group('gloo')\n\ndef more(rank):\n    subprocess.Popen([sys.executable, {given}])\n\n",
    "more(1)",
)

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

GAMES = "def batches(games):\n    yield from games\n\n"
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

OWN_STEP = """<torch>
class Own(nn.Module):
    def play(self, x):
        out, gain, over = self.step(x)
        return out
    def step(self, x):
        return x, 1, False
own = Own()
optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
for turn in range(9):
    <step own.play(turn).mean()>
"""
STEPPED = """<torch>
model = nn.Linear(4, 2)
optimizer = Searching(model.parameters())
for turn in range(9):
    loss = model(rows).mean()
    loss.backward()
    {}
"""
GROUP = 'dist.init_process_group("gloo")\n'
LAYER = """class Norm(nn.Module):
    def forward(self, x):
        dist.all_reduce(x)
        return x
"""
AVERAGED = "def averaged(model):\n    for one in model.parameters():\n        kept = one.grad.flatten()\n        dist.all_reduce(kept)\n"
LOADER = "loader = torch.utils.data.DataLoader(rows)"
JOINS = "dist.init_process_group('gloo')\n    "
CASES = [
    *(
        (f"line search: {default}, {given}", SWITCHED.format(default=default, given=given), is_refused)
        for default, given, is_refused in (
            ("False", "[]", False),
            ("True", "[]", True),
            ("False", "[], True", True),
            ("False", "[], line_search=options.search", True),
            ("False", "[], **options", True),
        )
    ),
    ("FSDP is only named", script("from torch.distributed.fsdp import FullyShardedDataParallel"), False),
    ("in dead code", script("import torch.distributed.rpc as r", "def f():\n    r.init_rpc('a')\n\n"), False),
    ("LBFGS is only named", script("from torch.optim import LBFGS"), False),
    (
        "no line is searched",
        SWITCHED.replace("step(lambda: F.mse_loss(model(x), y))", "step()").format(default=True, given="[]"),
        False,
    ),
    ("shared memory without processes", script(before="model.share_memory()"), False),
    ("a module that only sounds like accelerate", script("import accelerated"), False),
    ("processes that join a group beside the launcher's", WORKERS.replace("{join}", JOINS), True),
    ("processes without a group", WORKERS.replace("{join}", ""), False),
    ("it starts itself once more for each rank", AGAIN.replace("{given}", "*sys.argv"), True),
    ("it starts another script", AGAIN.replace("{given}", "'judge.py'"), False),
    ("another by its own words", AGAIN.replace("{given}", "'judge.py', *sys.argv[1:]"), False),
    (
        "it only says its words",
        AGAIN.replace("{given}", "'-m', 'pip'").replace("\n\n", "\nprint(sys.argv)\n\n", 1),
        False,
    ),
    ("it plays to be judged, beside a loader", PLAYS.format(loader=LOADER, data="loader"), False),
    # An expert's recordings train the judge, the policy trains on its own games: each process has played others.
    ("it trains on its games", GAMES + PLAYS.format(loader=LOADER, data="batches(play(make_world()))"), True),
    ("it plays to be judged, without a loader", RECORDED.format(kept="pass", given="total"), False),
    ("it keeps its games", RECORDED.format(kept="memory.append((state, gain))", given="total"), True),
    ("a network's step of its own", OWN_STEP.replace("play", "forward"), False),
    ("a game that steps itself", OWN_STEP, True),
    ("an optimizer with options", STEPPED.format("loss, _, failed = optimizer.step([loss])"), False),
    (
        "a layer of several processes",
        script("import torch.distributed as dist", GROUP + LAYER, "Norm()(rows)"),
        True,
    ),
    ("a layer without a group", script("import torch.distributed as dist", LAYER, "Norm()(rows)"), False),
    (
        "a normalisation of several",
        script("import torch.distributed as dist", GROUP + LAYER + AVERAGED, "Norm()(rows), averaged(model)"),
        False,
    ),
    ("it gives its games away", RECORDED.format(kept="pass", given="total, state"), True),
]


@pytest.mark.parametrize(("text", "is_refused"), [one[1:] for one in CASES], ids=[one[0] for one in CASES])
def test_what_is_known_to_be_wrong_is_refused(text: str, is_refused: bool) -> None:
    done = conversion(text)
    assert any(one.severity is Severity.REFUSED for one in done.findings) is is_refused
    assert is_refused or "accelerator.backward" in done.text or "PartialState" in done.text


@each_row("""
seeds => then => is_left
torch_xla.seed(0) => pass => False
torch_xla.seed(0) => torch_xla.sync() => True
xm = torch_xla.xm => xm.sync() => True
""")
def test_a_script_that_only_tries_to_seed_a_tpu_is_not_built_on_it(
    seeds: str, then: str, is_left: bool
) -> None:
    tried = f"try:\n        import torch_xla\n        {seeds}\n    except ImportError:\n        pass"
    text = script(before=f"{tried}\n    {then}")
    assert (conversion(text).text == text) is is_left


@each_row(r"""
handler => used => is_left
hvd = None => if args.horovod:\n        hvd.init() => False
hvd = None => hvd.init() => True
raise => if args.horovod:\n        hvd.init() => True
""")
def test_a_library_that_an_option_chooses_is_not_what_a_script_is_built_on(
    handler: str, used: str, is_left: bool
) -> None:
    tried = f"try:\n    import horovod.torch as hvd\nexcept ImportError:\n    {handler}\n"
    text = tried + script(before=used)
    assert (conversion(text).text == text) is is_left


GIVEN_AWAY = """import torch
{imported}
<model>
{decorated}
def update(engine, batch):
    <step loss = model(batch).mean()>
{end}
"""


@each_row(r"""
imported => decorated => end => said
from ignite.engine import Engine => '' => Engine(update).run(rows) => Ignite trains
import ray => @ray.remote(num_gpus=1) => update.remote(0, rows) => Ray runs `update`
import ray => @torch.enable_grad() => update(0, rows) => ''
import mmcv => '' => update(0, mmcv.runner.build_runner(rows)) => Runner trains: it is given the model
import mmcv => '' => mmcv.runner.get_dist_info()\nupdate(0, rows) => ''
""")
def test_a_trainer_that_is_given_the_step_is_left_alone(
    imported: str, decorated: str, end: str, said: str
) -> None:
    text = filled(GIVEN_AWAY.format(imported=imported, decorated=decorated, end=end))
    done = conversion(text)
    assert (done.text == text) is bool(said)
    assert not said or any(said in one.reason for one in done.findings)


def test_steps_of_a_module_of_lightnings_are_left_alone() -> None:
    text = filled("""import torch
import pytorch_lightning as pl
class Base(pl.LightningModule):
    pass
class Model(Base):
    def training_step(self, batch, number):
        optimizer = self.optimizers()
        <step loss = self(batch).mean()>
trainer = pl.Trainer()
trainer.fit(Model(), rows)
""")
    done = conversion(text)
    assert done.text == text and any(
        "Lightning trains: it calls `Model`" in one.reason for one in done.findings
    )


def test_a_module_of_lightnings_that_the_script_trains_by_itself_is_converted() -> None:
    text = filled("""import torch
import pytorch_lightning as pl
class Model(pl.LightningModule):
    def learn(self, rows):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        for x in torch.utils.data.DataLoader(rows):
            <step loss = self(x).mean()>
pl.seed_everything(1)
Model().learn(rows)
""")
    assert "accelerator.backward(loss)" in conversion(text).text


def test_optimizers_that_a_librarys_block_steps_are_said() -> None:
    text = filled("""import torch
from steps import Manager
<model>
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(rows):
    with Manager([optimizer]):
        model(x).mean().backward()
""")
    done = conversion(text)
    assert done.text == text and ["nothing in sight steps" in one.reason for one in done.findings] == [True]
    timed = text.replace(
        "torch.optim.SGD(model.parameters(), lr=0.1)", "torch.optim.lr_scheduler.StepLR(given, 1)"
    )
    assert not conversion(timed).findings


def test_a_script_for_accelerate_is_told_which_lines_to_change() -> None:
    text = script("from accelerate import Accelerator")
    done = conversion(text)
    (told,) = done.findings
    assert done.text == text and told.severity is Severity.NOTE and "import from crosstrain" in told.remedy


TESTS = """import {runner}
<torch>
def test_training():
    <model>
    <loop>
{end}
"""


@each_row(r"""
runner => end => is_left
pytest => '' => True
unittest => if __name__ == "__main__":\n    unittest.main() => True
pytest => test_training() => False
pytest => if __name__ == "__main__":\n    test_training() => False
math => '' => False
""")
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
