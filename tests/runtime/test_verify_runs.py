"""How `verify` runs a script: what the script finds, how its run ends, and what it leaves behind."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from crosstrain_verify import VerifyInputError, verify
from crosstrain_verify.running.client import clean_environment

from tests.runtime.verify_scripts import DISTRIBUTED, PLAIN, changed, differences, run, verdicts
from tests.support.processes import remaining

STEP = "    optimizer.step()"


def test_steps_end_the_runs_early(tmp_path: Path) -> None:
    """A difference after the steps asked for is not seen, and the line after the last step is."""
    late = changed(DISTRIBUTED, (STEP, f"{STEP}; rank == 0 and i >= 48 and print(i)"))
    assert differences(run(tmp_path, late, steps=3)) == []
    report = run(tmp_path, late, steps=4)
    assert differences(report) == [("printed line", None)] * 2
    assert report.original.steps == 4


def test_crash_on_rank_1_is_shown_with_its_traceback(tmp_path: Path) -> None:
    crash = f"    if rank == 1 and i == 32: raise ValueError('boom')\n{STEP}"
    report = run(tmp_path, changed(DISTRIBUTED, (STEP, crash)))
    assert verdicts(report) == ["identical", "failed"]
    error = report.runs[1].error
    assert error.startswith("rank 1 of 2:\nTraceback (most recent call last):\n  File ")
    assert error.count("Traceback") == 1
    assert error.strip().endswith("ValueError: boom")
    assert "crosstrain" not in error
    assert report.exit_code == 1


@pytest.mark.parametrize(
    ("ending", "verdict", "error"),
    [
        ("sys.exit(3)", "failed", "SystemExit: 3"),
        ("import os\nos.abort()", "failed", "rank 0 of 1 died"),
        ("sys.exit()", "identical", ""),
    ],
)
def test_exit_code_and_signal_are_failures(tmp_path: Path, ending: str, verdict: str, error: str) -> None:
    report = run(tmp_path, f"{PLAIN}{ending}\n", processes=[1])
    assert verdicts(report) == [verdict]
    assert error in report.runs[0].error


@pytest.mark.parametrize(
    ("original", "verdict", "error"),
    [
        ("import torch\ntorch.zeros(2) @ torch.zeros(3)\n", "failed", "RuntimeError"),
        (  # of several ways to start it the first one's failure is its own
            "import os\nif 'RANK' not in os.environ: raise KeyError('set RANK')\nraise ValueError('no data')\n",
            "failed",
            "KeyError: 'set RANK'",
        ),
        ("print(1)\n", "no steps", ""),
    ],
)
def test_original_that_does_not_train_is_said_before_anything_is_compared(
    tmp_path: Path, original: str, verdict: str, error: str
) -> None:
    report = run(tmp_path, DISTRIBUTED, original=original)
    assert report.original.verdict.value == verdict
    assert error in report.original.error
    assert (report.runs, report.ok, report.exit_code) == ((), False, 1)


def test_script_without_steps(tmp_path: Path) -> None:
    assert verdicts(run(tmp_path, "print(1)\n")) == ["no steps", "no steps"]


def test_hang_is_ended_with_the_place_and_leaves_no_process(tmp_path: Path) -> None:
    """One rank waits in a collective that the other never enters; it has also started a child."""
    hang = (
        "if rank == 0:\n    import subprocess; child = subprocess.Popen(['sleep', '600'])\n"
        "    open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}')\n    dist.barrier()\n"
        "else:\n    import time; time.sleep(600)\n"
    )
    pids = tmp_path / "pids"
    report = run(tmp_path, DISTRIBUTED + hang, processes=[2], timeout=20.0, args=[str(pids)], confined=False)
    assert verdicts(report) == ["hung"]
    error = report.runs[0].error
    assert "rank 0 is at" in error and "in barrier" in error
    assert "rank 1 is at" in error and "after.py" in error
    assert remaining([int(pid) for pid in pids.read_text().split()]) == []


MANY_PATHS = """
import random, sys
import numpy as np, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(20, 6), torch.randn(20, 1))
net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
table = nn.Embedding(5, 6, sparse=True)
first = torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.01))
second = torch.optim.SparseAdam(list(table.parameters()), lr=0.1)
for x, y in DataLoader(data, batch_size=4, shuffle=True):
    noise = random.random() + float(np.random.rand())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=noise > 1):
        out = checkpoint(net, x + table(torch.randint(5, (4,))), use_reentrant=True)
        losses = [(out.float() - y).square().mean(), out.float().abs().mean() * noise]
    torch.autograd.backward(losses)
    for optimizer in (first, second):
        optimizer.step(), optimizer.zero_grad()
torch.save([*net.state_dict().values(), table.weight.detach(), torch.get_rng_state()], "end.pt")
print(repr(random.random()), repr(np.random.rand()), flush=True)
import shutil; shutil.copy("end.pt", sys.argv[1])
"""


def test_tracing_changes_no_bit(tmp_path: Path) -> None:
    """Weights, buffers and every random stream of a traced run are those of `python script.py`."""
    import torch

    (tmp_path / "plain").mkdir()
    seeded = "import random, numpy, torch\nrandom.seed(5), numpy.random.seed(5), torch.manual_seed(5)\n"
    script = seeded + MANY_PATHS
    options: dict[str, object] = {"processes": [1], "args": [str(tmp_path / "traced.pt")]}
    assert verdicts(run(tmp_path, MANY_PATHS, original=MANY_PATHS, **options)) == ["identical"]
    report = run(tmp_path, script, original=script, confined=False, **options)
    assert verdicts(report) == ["identical"], report
    assert report.original.steps == 10
    subprocess.run(
        [sys.executable, str(tmp_path / "after.py"), str(tmp_path / "untraced.pt")],
        cwd=tmp_path / "plain",
        env=clean_environment(os.environ),
        check=True,
        capture_output=True,
    )
    traced, untraced = torch.load(tmp_path / "traced.pt"), torch.load(tmp_path / "untraced.pt")
    assert len(traced) == len(untraced)
    assert all(torch.equal(a, b) for a, b in zip(traced, untraced, strict=True))


def test_script_runs_as_main_with_its_folder_arguments_and_exit_handlers(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("VALUE = 'from helper'\n")
    script = (
        "import atexit, pathlib, pickle, sys, helper\n"
        "class Thing: pass\n"
        "atexit.register(lambda: print('bye', pickle.loads(pickle.dumps(Thing())).__class__ is Thing))\n"
        "here = list(pathlib.Path().iterdir())\n"
        "print(__name__, helper.VALUE, sys.argv[1:], pathlib.Path(sys.argv[0]).name, here)\n"
    )
    report = run(tmp_path, PLAIN + script, original=PLAIN, args=["a", "-b"], processes=[1])
    difference = report.runs[0].difference
    assert difference is not None
    assert difference.migrated == repr("__main__ from helper ['a', '-b'] after.py []")
    silent = script.replace("print(__name__", "(__name__")
    report = run(tmp_path, PLAIN + silent, original=PLAIN, processes=[1])
    assert report.runs[0].difference is not None
    assert report.runs[0].difference.migrated == repr("bye True")


def test_folder_is_copied_for_every_run_and_never_written(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "scale.txt").write_text("0.5")
    (project / "big").mkdir()
    (project / "big" / "shift.txt").write_text("1.0")
    extra = (
        "assert not pathlib.Path('out').exists(), 'not fresh'\n"
        "pathlib.Path('out').mkdir()\npathlib.Path('data/scale.txt').write_text('gone')\n"
        "pathlib.Path(__file__).with_name('beside').write_text('x')\nprint(pathlib.Path().resolve())\n"
    )
    read = "(96, 10) * float(open('data/scale.txt').read()) + float(open('big/shift.txt').read())"
    script = "import pathlib\n" + changed(PLAIN, ("(96, 10)", read)) + extra
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    report = run(project, script, original=script, processes=[1], folder=project, links=["big"])
    assert verdicts(report) == ["identical"], report
    after = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    del after[project / "before.py"], after[project / "after.py"]
    assert after == before


def test_input_errors(tmp_path: Path) -> None:
    script = tmp_path / "a.py"
    script.write_text(PLAIN)
    for arguments, options, message in [
        ((script, tmp_path / "no.py"), {}, "no script"),
        ((script, script), {"processes": [0]}, "processes"),
        ((script, script), {"steps": 0}, "steps"),
        ((script, script), {"folder": tmp_path / "no"}, "no folder"),
        *((((script, script), {"backend": "xla"}, "torch_xla"),) if find_spec("torch_xla") is None else ()),
    ]:
        with pytest.raises(VerifyInputError, match=message):
            verify(*arguments, **options)  # type: ignore[arg-type]


# -- `verify` on planted differences: every mistake is caught, named, and nothing else is ------------------


def test_one_process_is_identical_and_two_are_equal(tmp_path: Path) -> None:
    report = run(tmp_path, DISTRIBUTED, args=["--name", "x y"])
    assert verdicts(report) == ["identical", "equal"], report
    assert report.ok
    assert report.exit_code == 0
    assert report.original.steps == 6
    alone, both = report.runs
    compared = {"loss", "gradient norm", "weight norm", "learning rate", "weights"}
    assert alone.largest == dict.fromkeys(compared, 0.0)
    assert 0 < both.largest["weights"] < 1e-4


# Each planted mistake, and what must be reported for one and for two processes: (quantity, step).
PLANTED = {
    "learning_rate_from_step_3": (
        [(STEP, f"    if i == 32: optimizer.param_groups[0]['lr'] = 0.11\n{STEP}")],
        [("learning rate", 3), ("learning rate", 3)],
    ),
    "weights_touched_at_the_end": (
        [('if rank == 0:\n    print("done"', 'model[0].bias.data += 1e-3\nif rank == 0:\n    print("done"')],
        [("weights", None), ("weights", None)],
    ),
    "gradients_summed": (
        [("        average(parameter.grad)", "        average(parameter.grad); parameter.grad *= world")],
        [("gradient norm", 1)],
    ),
    "every_rank_sees_everything": (
        [("share = 16 // world", "share = 16"), ("rank * share", "0"), ("(rank + 1) * share", "share")],
        [],  # the same mathematics, done twice: nothing that training can show
    ),
    "a_rank_that_drifts": ([(STEP, f"{STEP}\n    model[0].weight.data += 1e-6 * rank")], [("ranks", 2)]),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_difference_is_named(tmp_path: Path, name: str) -> None:
    changes, expected = PLANTED[name]
    report = run(tmp_path, changed(DISTRIBUTED, *changes))
    assert differences(report) == expected, report
    assert report.ok == (not expected)
    assert report.exit_code == (1 if expected else 0)


def test_expect_agree_asks_for_nothing_more(tmp_path: Path) -> None:
    changes, _ = PLANTED["gradients_summed"]
    report = run(tmp_path, changed(DISTRIBUTED, *changes), expect="agree")
    assert verdicts(report) == ["identical", "agree"]
    drifting, _ = PLANTED["a_rank_that_drifts"]
    report = run(tmp_path, changed(DISTRIBUTED, *drifting), expect="agree")
    assert differences(report) == [("ranks", 2)]


def test_lines_of_other_ranks_are_noted(tmp_path: Path) -> None:
    report = run(tmp_path, DISTRIBUTED + "rank == 1 and print('me too')\n", processes=[2])
    assert verdicts(report) == ["equal"]
    assert report.runs[0].notes == ("rank 1 printed 1 line of its own: 'me too'",)


def test_ignored_lines(tmp_path: Path) -> None:
    timed = DISTRIBUTED + "rank == 0 and print('took 12 s')\n"
    assert differences(run(tmp_path, timed, processes=[1])) == [("printed line", None)]
    assert verdicts(run(tmp_path, timed, processes=[1], ignore=[r"^took .* s$"])) == ["identical"]
