"""What one process does before others, and what the others see of it: files, flags, numbers and names."""

from pathlib import Path

import pytest

from .converting import converted, notes
from .running import launched, plain
from .support import each_row

TRAIN = """
    <model>
    for x, y in DataLoader({rows}):
        loss = torch.nn.functional.mse_loss(model(x), y)
        <step loss>
"""
HEAD = """import argparse
import os
import pickle
import random
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
"""

GROUP = (
    HEAD
    + """
distributed = {flag}
def main():
    if distributed:
        dist.init_process_group("gloo")
        rank = int(os.environ["RANK"])
    else:
        rank = 0
    print("= rank", rank, distributed, flush=True)
    {shown}
"""
    + TRAIN.format(rows="torch.utils.data.TensorDataset(torch.ones(4, 4), torch.ones(4, 2))")
    + "\nif __name__ == '__main__':\n    main()\n"
)


def test_a_flag_that_is_off_is_on_where_processes_are_launched(tmp_path: Path) -> None:
    after = converted(GROUP.format(flag=False, shown="pass"))
    assert "distributed = PartialState().num_processes > 1" in after
    assert plain(tmp_path, after) == ["= rank 0 False"]
    assert launched(tmp_path, after) == ["= rank 0 True", "= rank 1 True"]


@pytest.mark.parametrize("flag", ["True", "False\nif os.path.exists('two'):\n    distributed = True"])
def test_a_flag_that_the_author_sets_is_the_author_s(flag: str) -> None:
    assert "num_processes > 1" not in converted(GROUP.format(flag=flag, shown="pass"))


@pytest.mark.parametrize(("shown", "stays"), [('print("GPUs: %d" % {})', True), ("share = 8 // {}", False)])
def test_the_number_of_gpus_that_is_shown_is_the_machine_s(shown: str, stays: bool) -> None:
    after = converted(GROUP.format(flag=True, shown=shown.format("torch.cuda.device_count()")))
    assert ("torch.cuda.device_count()" in after) is stays


@each_row(r"""
test => more => expected
is_available() => '' => args.share = int(os.environ.get("LOCAL_WORLD_SIZE", 0))\n    if torch.
cudnn => '' => args.share = 0\n    if torch.
is_available() => name => if torch.cuda.is_available() or int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > 1:
is_available() => torch.cuda.get_device_name() => if torch.cuda.is_available():
""")
def test_processes_that_are_counted_by_gpus_are_counted_without_them(
    test: str, more: str, expected: str
) -> None:
    before = "pass" if more else "args.share = 0"
    shown = f"{before}\n    if torch.cuda.{test}:\n        args.share = torch.cuda.device_count(); {more}"
    assert expected in converted(GROUP.format(flag=True, shown=shown))


FOLDER = (
    HEAD
    + """
class Log:
    def __init__(self, path, resume=False):
        if resume:
            self.file = open(path, "r")
            self.lines = self.file.readlines()
            self.file = open(path, "a")
        else:
            self.file = open(path, "w")
class Logs:
    def __init__(self, paths):
        for path in paths:
            Log(path, resume=True)
def main():
    args = argparse.ArgumentParser().parse_args()
    if args.seed is None:
        args.seed = {seed}
    args.out = "runs/" + str(args.seed)
    os.makedirs(args.out, exist_ok=True)
    last = os.path.join(args.out, "last.pth")
    if not os.path.isfile(last):
        log = Log(os.path.join(args.out, "log.txt"))
    else:
        state = torch.load(last)
        log = Log(os.path.join(args.out, "log.txt"), resume=True)
"""
    + TRAIN.format(rows="[]")
    + "    torch.save(model.state_dict(), last)\n\nmain()\n"
)


@pytest.mark.parametrize(
    "draw", ["random.randint(1, 10000)", "SystemRandom().random()", "random.choice(NAMES)"]
)
def test_a_seed_that_is_drawn_and_names_a_folder_is_the_main_process_s(draw: str) -> None:
    after = converted(FOLDER.format(seed=draw))
    assert f"args.seed = broadcast_object_list([{draw}])[0]" in after
    for other in ("1", "args.random(3)", "net.choice(NAMES)"):
        assert "broadcast_object_list" not in converted(FOLDER.format(seed=other))
    in_loop = FOLDER.format(seed=draw).replace("    if args.seed is None:", "    for _ in range(3):")
    assert "broadcast_object_list" not in converted(in_loop)


def test_a_name_that_a_file_s_top_level_draws_for_an_option_is_the_main_process_s() -> None:
    parser = (
        'parser = argparse.ArgumentParser()\nparser.add_argument("--seed", default={seed})\n\ndef main():'
    )
    text = FOLDER.replace("def main():", parser).replace("argparse.ArgumentParser().parse", "parser.parse")
    drawn = text.format(seed="random.randint(1, 9)").replace(
        "        args.seed = random", "        pass  # random"
    )
    assert "default=broadcast_object_list([random.randint(1, 9)])[0])" in converted(drawn)


def test_a_log_that_another_run_reads_is_opened_by_one_process() -> None:
    text = FOLDER.format(seed="1")
    assert converted(text).count("is_main_process else os.devnull") == 2
    assert not notes(text, "CT403")
