"""Files of one process, run: the same files with the same contents under plain python and on two processes."""

import shutil
import zipfile
from pathlib import Path

import pytest

from .projects import convert, rewritten, train, write
from .running import launched, plain
from .support import converted

FOLDERS = """
import os
import shutil
import time
from pathlib import Path
<torch>
class Settings:
    def __init__(self, stamp=None, overwrite=False):
        if stamp is None:
            stamp = str(time.time_ns())
        self._folder = Path("runs") / stamp
        self.folder.mkdir(parents=True, exist_ok=overwrite)
    @classmethod
    def read(cls):
        return cls()
    @property
    def folder(self):
        return self._folder
def main(settings):
    if os.path.exists("out"):
        if input("overwrite?") == "y":
            shutil.rmtree("out")
    os.makedirs("out")
    found = os.path.isdir("out")
    <model nn.Linear(4, 1)>
    for (x,) in DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2):
        <step loss = model(x).pow(2).mean()>
    torch.save(model.state_dict(), str(settings.folder / "model.pt"))
    print("=", found)
if __name__ == "__main__":
    main(Settings.read())
"""


def test_a_folder_that_must_not_be_there_is_made_by_one_process(tmp_path: Path) -> None:
    after = converted(FOLDERS.lstrip()).text
    for name, run in (("one", plain), ("two", launched)):
        folder = tmp_path / name
        folder.mkdir()
        assert run(folder, after) == ["= True"]
        made = list((folder / "runs").iterdir())
        assert [[path.name for path in one.iterdir()] for one in made] == [["model.pt"]]


STORE = """import os, pickle, shutil
<torch>
class Store:
    def __init__(self, path):
        self.path, self.items = path, []
        try:
            self.load()
        except FileNotFoundError:
            pass
    def load(self):
        with open(self.path, "rb") as file:
            self.items = pickle.load(file)
    def save(self):
        self.saved = len(self.items)
        with open(self.path + ".new", "wb") as file:
            pickle.dump(self.items, file)
        {put}(self.path + ".new", self.path)
store = Store("items")
<model torch.nn.Linear(4, 1)>
for epoch in range(2):
    for x in DataLoader(torch.ones(4, 4), 2):
        <step model(x).mean()>
    store.items.append(epoch)
    store.save()
print("=", sorted(os.listdir(".")), store.items, store.saved)
"""


def test_a_file_is_moved_once_also_where_nobody_can_wait_for_it(tmp_path: Path) -> None:
    """A second process would not find it any more."""
    after = converted(STORE.format(put="os.renames")).text
    moved = '                pickle.dump(self.items, file)\n            os.renames(self.path + ".new", self.path)\n'
    assert moved in after
    assert launched(tmp_path, after) == ["= ['items', 'script.py'] [0, 1] 2"]


def test_what_each_process_makes_for_itself_it_removes_itself() -> None:
    own = "with tempfile.TemporaryDirectory() as folder:\n        path = os.path.join(folder, 'x')\n        torch.save(1, path)\n        os.remove(path)"
    script = STORE.replace("import os,", "import tempfile, os,").replace("    store.save()", f"    {own}")
    assert "\n        os.remove(path)\n" in converted(script.format(put="os.replace")).text


RENAMED = """import os
import shutil
import time
<torch>
def numbered(path):
    number = 0
    found = path
    while os.path.exists(found):
        number += 1
        found = path + "_" + str(number)
    return found
def main():
    path = "one"
    time.sleep(0.3 * int(os.environ.get("RANK", 0)))
    if os.path.exists(path):
        path = numbered(path)
        print("takes", path)
    {make}
    <model>
    for x, y in DataLoader(TensorDataset(torch.ones(8, 4), torch.ones(8, 2)), 2):
        <step>
    torch.save(model.state_dict(), os.path.join(path, "last.pt"))
    model.load_state_dict(torch.load(os.path.join(path, "last.pt")))
    return path
if __name__ == "__main__":
    result = main()
"""


def test_all_processes_take_the_free_name_that_the_main_one_has_found(tmp_path: Path) -> None:
    """The second one finds the folder that the first has just made."""
    text = RENAMED.replace("{make}", "os.makedirs(path, exist_ok=True)")
    convert(write(tmp_path, script=text), "script")
    assert train(tmp_path, "script", 2) == ["one", "one"]
    assert train(tmp_path, "script", 2) == ["one_1", "one_1"]


def test_a_name_that_a_function_has_counted_up_to_is_the_main_process_s(tmp_path: Path) -> None:
    text = RENAMED.replace("{make}", "os.mkdir(path)").replace('    path = "one"\n    time', "    time")
    text = text.replace(TAKES, 'path = numbered("day" + time.strftime("%j"))')
    convert(write(tmp_path, script=text), "script")
    for _ in range(2):
        one, other = train(tmp_path, "script", 2)
        assert one == other
    assert len(list(tmp_path.glob("day*"))) == 2


FREE = """from pathlib import Path
def free():
    for number in range(9):
        path = "one_%d" % number
        if not os.path.exists(path):
            os.makedirs(path)
            return path
def main():"""
TAKES = 'if os.path.exists(path):\n        path = numbered(path)\n        print("takes", path)'


@pytest.mark.parametrize(
    ("asks", "paths"),
    [
        ("if os.path.exists(path):\n        raise RuntimeError(path)\n    os.makedirs(path)", ["one"]),
        (
            "for name in os.listdir('.'):\n        if name == path:\n            raise OSError\n    os.makedirs(path)",
            ["one"],
        ),
        ("path = free()", ["one_0", "one_1"]),
        (
            "if Path(path).exists():\n        path = free()\n    os.makedirs(path, exist_ok=True)",
            ["one", "one_0"],
        ),
        (
            "if not os.path.exists(path):\n        os.makedirs(path)\n    elif len(path) > 3:\n        raise OSError\n"
            "    else:\n        shutil.rmtree(path)\n        os.makedirs(path)",
            ["one", "one"],
        ),
        (
            "n = 0\n    while os.path.exists('run%d' % n):\n        n += 1\n"
            "    os.mkdir('run%d' % n)\n    path = 'run%d' % n",
            ["run0", "run1"],
        ),
        (
            "while True:\n        path = path + 'x'\n"
            "        if not os.path.isdir(path):\n            break\n    os.system('mkdir -p %s' % path)",
            ["onex", "onexx"],
        ),
    ],
)
def test_all_have_asked_for_a_folder_before_one_makes_it(asks: str, paths: list[str], tmp_path: Path) -> None:
    text = RENAMED.replace("{make}", "pass").replace(TAKES, asks).replace("def main():", FREE)
    convert(write(tmp_path, script=text), "script")
    assert [train(tmp_path, "script", 2) for _ in paths] == [[path, path] for path in paths]


def test_a_folder_that_nothing_asks_for_ends_a_second_run(tmp_path: Path) -> None:
    text = RENAMED.replace("{make}", "os.mkdir(path)").replace(TAKES, "pass")
    convert(write(tmp_path, script=text), "script")
    assert train(tmp_path, "script", 2) == ["one", "one"]
    with pytest.raises(RuntimeError, match="FileExistsError"):
        train(tmp_path, "script", 2)


ROWS_OF_ITS_NAME = """
class Rows:
    def __init__(self):
        self.main = [2, 1]
    def all_rows(self):
        return in_order({given})
def in_order(main):
    try:
        return sorted(main)
    except TypeError:
        return None
if __name__ == "__main__":
    Rows().all_rows()
"""


@pytest.mark.parametrize(("given", "is_common"), [("self.main", True), ("main", False)])
def test_rows_of_a_function_s_name_do_not_call_it(given: str, is_common: bool) -> None:
    """A function that is given may be called where one process fails alone: nobody may wait there."""
    script = RENAMED.replace("{make}", "os.makedirs(path, exist_ok=True)")
    text = converted(script + ROWS_OF_ITS_NAME.replace("{given}", given)).text
    assert ("broadcast_object_list([path])" in text) == is_common


def test_a_path_that_is_only_read_is_found_by_each_process() -> None:
    assert "broadcast_object_list" not in converted(RENAMED.replace("{make}", "pass")).text


UNPACKS = """
import os, pickle, shutil, tempfile, zipfile
from pathlib import Path
<torch>
class Rows:
    def path_of_rows(self):
        return Path("kept") / "rows.pkl"
    def unpack(self, folder):
        with zipfile.ZipFile("rows.zip") as packed:
            packed.extractall(folder)
    def fetch(self):
        root = Path(tempfile.mkdtemp())
        folder = root / "folder"
        self.unpack(folder)
        shutil.move(folder / os.listdir(folder)[0], "raw.txt")
        shutil.rmtree(root)
    def prepared(self):
        path = self.path_of_rows()
        {early}
        path.parent.mkdir(exist_ok=True)
        self.fetch()
        rows = torch.tensor([float(one) for one in Path("raw.txt").read_text().split()])
        with path.open("wb") as file:
            pickle.dump(rows, file)
    def load(self):
        self.prepared()
        path = self.path_of_rows()
        return pickle.load(path.open("rb"))
def main():
    <model nn.Linear(1, 1)>
    for x in torch.utils.data.DataLoader(Rows().load().view(-1, 1), batch_size=2):
        <step loss = model(x).pow(2).mean()>
    return os.path.exists("raw.txt")
if __name__ == "__main__":
    result = main()
"""
EARLY = "if path.is_file():\n            return"


def test_what_is_unpacked_beside_its_place_is_one_process_s(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as packed:
        packed.writestr("rows.txt", "1 2 3 4 5 6 7 8")
    after = rewritten(tmp_path, "train", train=UNPACKS.replace("{early}", EARLY))["train"]
    assert "main_process_first():\n            self.prepared()" in after
    for world in (2, 1):
        assert train(tmp_path, "train", world) == [True] * world
        shutil.rmtree(tmp_path / "kept")


def test_what_one_process_writes_at_the_path_of_a_method_is_waited_for() -> None:
    after = converted(UNPACKS.replace("{early}", "pass").lstrip()).text
    assert "wait_for_everyone()\n        return pickle.load(path.open" in after
    other = UNPACKS.replace("{early}", "pass").replace(
        "        path = self.path_of_rows()\n        return",
        "        path = Path('other.pkl')\n        return",
    )
    assert "wait_for_everyone()\n        return" not in converted(other.lstrip()).text


TOOLS = """
import os
def mkdir(path):
    if not os.path.exists(path):
        os.mkdir(path)
"""

FRESH = """
import argparse, json, os, shutil
<torch>
import tools
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Linear(4, 1)
    def forward(self, x):
        return self.main(x)
def prepared():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="out")
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    args.device = "cuda"
    if not torch.cuda.is_available():
        args.device = "cpu"
    if not args.resume:
        if os.path.exists(args.out):
            shutil.rmtree(args.out)
        os.makedirs(args.out)
    with open(os.path.join(args.out, "settings.json"), "w") as file:
        json.dump(vars(args), file)
    tools.mkdir("extra")
    return args
def main():
    args = prepared()
    <model Net().to(args.device)>
    for x in torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2):
        <step loss = model(x.to(args.device)).pow(2).mean()>
    torch.save(model.state_dict(), os.path.join(args.out, "model.pt"))
    return sorted([*os.listdir("."), *os.listdir(args.out)])
if __name__ == "__main__":
    result = main()
"""


def test_a_folder_that_is_made_afresh_and_options_that_are_written_as_json(tmp_path: Path) -> None:
    after = rewritten(tmp_path, "train", tools=TOOLS, train=FRESH)["train"]
    assert 'tools.mkdir("extra")' in after  # the project's own function takes the path alone
    assert "args.device = PartialState().device.type" in after
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.txt").write_text("of an earlier run")
    for world in (1, 2):
        for found in train(tmp_path, "train", world):
            assert {"extra", "model.pt", "settings.json"} <= set(found) and "old.txt" not in found


KEEPS_TWO = """
import os
<torch>
def keep(net, name):
    torch.save(net.state_dict(), name)
    names = [name]
    if os.path.exists("kept.txt"):
        with open("kept.txt") as file:
            names += file.read().split()
    for old in names[2:]:
        if os.path.exists(old):
            os.remove(old)
    with open("kept.txt", "w") as file:
        file.write(" ".join(names[:2]))
<net nn.Linear(2, 1)>
loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)
for epoch in range(4):
    for (x,) in loader:
        loss = net(x).pow(2).mean()
        <step loss>
    keep(net, f"{epoch}.pt")
result = sorted(one for one in os.listdir(".") if one.endswith(".pt")) + open("kept.txt").read().split()
"""


def test_a_list_of_the_files_that_are_kept_is_one_process_s(tmp_path: Path) -> None:
    """It decides by what is there who reads it: all wait behind the write, and what is removed nobody waits to fetch."""
    after = rewritten(tmp_path, "script", script=KEEPS_TWO)["script"]
    assert "if os.path.exists(old) and accelerator.is_main_process:" in after
    assert "    accelerator.wait_for_everyone()\naccelerator = " in after
    assert train(tmp_path, "script", 2) == [["2.pt", "3.pt", "3.pt", "2.pt"]] * 2
