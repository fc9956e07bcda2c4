"""Downloads that all processes would make at once; each with code that must be left alone."""

from pathlib import Path

import pytest

from .converting import converted, notes
from .outputs import each_output
from .projects import rewritten, train

test_downloads = each_output("""
== data sets and words of libraries; their batches, vocabularies and layers are no download
from keras.datasets import imdb
from ogb.graphproppred.mol_encoder import AtomEncoder
from torchtext.datasets import text_classification
from torchtext.legacy import data, datasets
--
+ with accelerator.main_process_first():
. train, test = datasets.IMDB.splits(text, label)
. words = imdb.get_word_index()
. net = torch.hub.load("owner/name:v1", "net", pretrained=True)
own = torch.hub.load("folder", "net", source="local")
train, net = data.BucketIterator.splits((rows,), batch_size=4), AtomEncoder(3)
words.build_vocab(rows, max_size=9)
rows = MNIST("data", download=False)
other = MNIST("data", **dict(train=True, download=False))
+ with accelerator.main_process_first():
. train, test = text_classification.DATASETS["AG_NEWS"](root="data")
. words.build_vocab(train, vectors="glove.6B.50d")
== what is made again where an option says so, and is then saved by each that comes
+ with accelerator.main_process_first():
. if args.keep and os.path.exists("rows.pt"):
.     rows = torch.load("rows.pt")
. else:
.     rows = torch.randn(40, 4)
-     torch.save(rows, "rows.pt")
+         accelerator.save(rows, "rows.pt")
. if os.path.exists("others.pt"):
.     others = torch.load("others.pt")
. else:
.     others = torch.randn(40, 4)
.     torch.save(others, "others.pt")
== what is said where one process goes first
+ with accelerator.main_process_first():
. if os.path.exists("rows"):
-     print("there")
+         accelerator.print("there")
. else:
.     urlretrieve("http://x", "rows")
== a function that downloads, and a library's of its name
import yaml
def dump(path):
    if os.path.exists(path):
        return path
    urlretrieve("http://x", path)
    return path
--
+ with accelerator.main_process_first():
. rows = dump("rows")
text = yaml.dump("rows")
== a function whose files are there if what one of them says is right
def prepared(folder):
    if os.path.exists(folder + "/rows.json"):
        with open(folder + "/rows.json") as file:
            if json.load(file):
                return folder
    for i in range(9):
        sitk.WriteImage(image(i), folder + "/%d.nii" % i)
    with open(folder + "/rows.json", "w") as file:
        json.dump([9], file)
    return folder
--
+ with accelerator.main_process_first():
. folder = prepared("data")
== a method that a base class calls where the files are not there, and what a command is told beside its text
class Base:
    def __init__(self, root):
+         with PartialState().main_process_first():
.         if os.path.exists(root):
.             self.there = True
.         else:
.             self.download(root)
        self.rows = open(root + "/rows.txt").read()
    def download(self, root):
        raise NotImplementedError
class Words(Base):
    def download(self, root):
        subprocess.call('/bin/bash -c "$lines"', shell=True, env={"lines": "wget http://x"})
--
rows = Words("data").rows
== what a library fetches for itself
import imageio
--
* imageio.plugins.freeimage.download()
+ accelerator.wait_for_everyone()
rows = imageio.imread("a.png")
== a class that an option chooses, which downloads by itself, and one that the file makes
from torchvision.datasets.utils import download_url
class Birds:
    def __init__(self, root, download=False):
        if download:
            download_url("http://x", root)
            tarfile.open("data/x").extractall()
class Fish:
    def __init__(self, root, download=False):
        if download:
            download_url("http://y", root)
--
+ with accelerator.main_process_first():
. rows = Fish("data", download=True)
. rows = args.kind("data", download=True)
== a data set of the file's that a library fills when it is made, and one that nothing fills
from torch_geometric.data import Dataset, InMemoryDataset, download_url
class Birds(InMemoryDataset):
    def download(self):
        os.unlink("data/x")
    def process(self):
        torch.save([], "data/y")
class Fish(Birds):
    pass
class Rows(Dataset):
    def get(self, index):
        return index
class Memory(Fish):
    def processed_file_names(self):
        return []
--
rows = Rows("data")
all = Memory("data")
+ with accelerator.main_process_first():
. rows = Fish("data")
== a download in a helper, and one at a module's top level
def get():
+     with accelerator.main_process_first():
.     return MNIST("data", download=True)
+ with accelerator.main_process_first():
. rows = MNIST("data", download=True)
--
~ print(len(get()), len(rows))
== a download that may be among a caller's options, and one that no caller asks for
class Rows:
    def __init__(self, root="data", download=False):
+         with PartialState().main_process_first():
.         self.rows = MNIST(root, download=download)
class Given:
    def __init__(self, root="data", download=False):
        self.rows = MNIST(root, download=download)
--
rows, other = Rows(**{"download": True}), Given(root="data")
== a download that a table of options asks for
TABLE = {"digits": {"train": True, "download": True}, "own": {}}
--
+ with accelerator.main_process_first():
. rows = KINDS[args.kind]("data", **TABLE[args.kind])
== a library's own way to print
from torch_geometric.logging import log as say
--
* say(Loss=0.5)
~ print("done")
rows = say("kept")
== where something is missing all come, and where something has failed one may come alone
try:
    rows = np.load("rows.npy")
except OSError:
+     with accelerator.main_process_first():
.     rows = MNIST("data", download=True)
try:
    rows.sum()
except Exception:
    rows = MNIST("data", download=True)
    raise
== what is loaded, or made and kept where it is not there yet
+ with accelerator.main_process_first():
. try:
.     words = load_words("words.json")
. except FileNotFoundError:
.     words = ["a"]
.     with open("words.json", "w") as file:
.         json.dump(words, file)
== another file than the one that is loaded
try:
    words = load_words("words.json")
except FileNotFoundError:
    words = ["a"]
*     with open("missing.json", "w") as file:
.         json.dump(words, file)
== a file that is read, and a method of that name
class Log:
    def open(self, path):
        np.save(path, 0)
--
if not os.path.exists("rows"):
    rows = []
else:
    rows = open("rows").read()
rows = open("rows").read()
== one block is enough where a part of it fetches, too
+ with accelerator.main_process_first():
. if not os.path.exists("rows.npy"):
.     rows = MNIST("data", download=True)
.     np.save("rows.npy", rows)
rows = np.load("rows.npy")
!!             with accelerator.main_process_first()
== the path as a text, read by a constructor of a library
path = pathlib.Path("words.json")
--
+ with accelerator.main_process_first():
. if not path.exists():
.     words.save(str(path))
. else:
.     words = Tokenizer.from_file(str(path))
== another file is not waited for
path = pathlib.Path("words.json")
if not path.exists():
*     words.save(str(path) + ".bak")
else:
    words = Tokenizer.from_file(str(path))
== a fetch that asks first, and one in a function that asks and returns
def fetch(name="rows.db"):
    if os.path.exists("rows.zip"):
        return
    urlretrieve("http://host/rows.zip", "rows.zip")
--
+ with accelerator.main_process_first():
. fetch()
. if not os.path.exists("rows.db"):
.     fetch("rows.db")
. if not os.path.exists("more.zip"):
.     urlretrieve("http://host/more.zip", "more.zip")
if not os.path.exists("more.db"):
+     with accelerator.main_process_first():
.     fetch("rows.db")
== what a function writes where it is not there and returns the path of, and what a command of it makes
def words(path):
+     with PartialState().main_process_first():
.     if not os.path.exists(path):
.         np.save(path, [1])
    return path
def marked(path):
-     if not os.path.exists(path):
+     if not os.path.exists(path) and PartialState().is_main_process:
        np.save(path, [1])
    return 1
def unpack(what="tar -xf rows.tar"):
    os.system(what)
def look():
    os.system("nvidia-smi")
--
+ with accelerator.main_process_first():
. if not os.path.exists("rows"):
.     unpack()
~ print(words("w.txt"), marked("m.txt"))
if not os.path.exists("seen"):
    look()
== what a function makes by `torch.save`, which is no checkpoint, or else reads
def made(path):
~     torch.save([1], path)
    return [1]
def rows(path):
+     with PartialState().main_process_first():
.     if not os.path.exists(path):
.         return made(path)
    return torch.load(path)
def kept(path):
    if not os.path.exists(path):
        return made(path)
    return [2]
--
~ print(rows("rows.pt"), kept("other.pt"))
== a checkpoint that may be written again
if not os.path.exists("best.pt") or len(sys.argv) > 1:
~     torch.save(model.state_dict(), "best.pt")
model.load_state_dict(torch.load("best.pt"))
== a fetch that does not ask
* urlretrieve("http://host/rows.zip", "rows.zip")
+ accelerator.wait_for_everyone()
rows = open("rows.zip", "rb").read()
""")

SHARED = """
    import os
    import numpy
    import torch
    def table(path):
        if not os.path.exists(path):
            numpy.save(path, numpy.ones(3))
        return numpy.load(path)
    class Trainer(torch.nn.Module):
        def __init__(self, path):
            super().__init__()
            self.net = torch.nn.Linear(1, 1)
            self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.table = table(path)
        def update(self, x):
            self.opt.zero_grad()
            (self.net(x) - x).pow(2).mean().backward()
            self.opt.step()
    class Reader:
        def __init__(self, path):
            self.table = table(path)
"""
TRAINS = """
    <torch>
    from shared import Reader, Trainer
    loader = DataLoader(TensorDataset(torch.arange(8.0).view(8, 1)), batch_size=2)
    reader = Reader("rows.npy")
    trainer = Trainer("other.npy")
    for x, in loader:
        trainer.update(x)
    result = float(trainer.table.sum() + reader.table.sum())
"""


def test_a_constructor_that_prepares_is_not_run_by_one_process_first(tmp_path: Path) -> None:
    other = "import shared\nshared.Reader('a.npy')"
    entry, shared, _ = rewritten(tmp_path, "script", script=TRAINS, shared=SHARED, other=other).values()
    assert "self.opt = accelerator.prepare(" in shared
    assert "main_process_first():\n            self.table = table(path)" in shared
    assert "main_process_first():\n    reader = Reader" in entry and "\ntrainer = Trainer(" in entry
    assert train(tmp_path, "script", 2) == [6.0, 6.0]


IN_A_TRY = """
import os
import tarfile
<torch>
def rows(root):
    path = os.path.join(root, "rows.tar")
    try:
        torch.hub.download_url_to_file("https://one.example/rows.tar", path)
        archive = tarfile.open(path)
        archive.extractall(root)
    except OSError:
        print("nothing there")
    return torch.randn(8, 2)
<model torch.nn.Linear(2, 1)>
for x in DataLoader(rows("data"), batch_size=2):
    <step model(x).mean()>
"""


def test_nobody_waits_in_a_try_that_one_process_may_leave_alone() -> None:
    after = converted(IN_A_TRY)
    assert "wait_for_everyone" not in after and "    archive.extractall(root)" in after
    assert notes(IN_A_TRY, "CT404")
    plain = IN_A_TRY.replace("    try:", "    if True:").replace(
        '    except OSError:\n        print("nothing there")\n', ""
    )
    assert "wait_for_everyone" in converted(plain), "and where nothing is tried they do"


TOLD = """
<torch>
from torchvision.datasets.utils import check_integrity, download_and_extract_archive
class Rows(torch.utils.data.Dataset):
    def __init__(self, root, download=False):
        if download:
            self.fetch(root)
    def fetch(self, root):
        if check_integrity(root, None):
            return
        download_and_extract_archive("https://one.example/rows.tar", root)
def made(name):
    dataset = Rows("data", download=True)
    return dataset
<model torch.nn.Linear(2, 1)>
for x in DataLoader(made("rows"), batch_size=2):
    <step model(x).mean()>
"""


def test_what_one_process_fetches_first_is_not_said_to_be_all_ones() -> None:
    assert "main_process_first():\n        dataset = Rows(" in converted(TOLD)
    assert not notes(TOLD, "CT404")


CUT = """
    import os
    import time
    import numpy
    import torch
    class Rows(torch.utils.data.Dataset):
        def __init__(self, folder, again=False):
            self.folder = folder
            if not self.is_cut() or again:
                self.cut()
            self.files = sorted(os.listdir(folder))
        def is_cut(self):
            if not os.path.exists(self.folder):
                return False
            return True
        def cut(self):
            time.sleep(1)
            os.makedirs(self.folder, exist_ok=True)
            for number in range(8):
                numpy.savetxt(os.path.join(self.folder, "%d.txt" % number), [number])
        def __len__(self):
            return len(self.files)
        def __getitem__(self, index):
            return torch.ones(1)
"""
TRAINS_ON_CUT = """
    <torch>
    from shared import Rows
    rows = Rows("rows")
    <net torch.nn.Linear(1, 1)>
    for x in DataLoader(rows, batch_size=2):
        <step net(x).mean()>
    result = float(len(rows))
"""
CUT_BY_ONE = "main_process_first():\n            if not self.is_cut()"


@pytest.mark.parametrize("given", ['"rows"', '"rows", again=True'])
def test_what_a_constructor_prepares_is_there_before_the_others_list_it(given: str, tmp_path: Path) -> None:
    """Not where it is told to do it again: the others would write while the main process reads."""
    after = rewritten(tmp_path, "script", script=TRAINS_ON_CUT.replace('"rows"', given), shared=CUT)
    is_first = CUT_BY_ONE in after["shared"]
    assert is_first is ("again" not in given)
    if is_first:
        assert train(tmp_path, "script", 2) == [8.0, 8.0]


ASKS = CUT.replace(
    "if not os.path.exists(self.folder):\n                return False\n            return True",
    "return os.path.exists(self.folder)",
)
OTHER = "\n    class Other{}:\n        def is_cut(self):\n            return True\n\n        def cut(self):\n            pass\n"
TURNS = TRAINS_ON_CUT.replace(
    'rows = Rows("rows")', 'for turn in {}:\n        if turn % 2 == 0:\n            rows = Rows("rows")'
)


@pytest.mark.parametrize(
    ("other", "turns", "first"),
    [("", "range(3)", True), ("", "given()", False), ("(Rows)", "range(3)", False)],
    ids=["every second turn", "turns that may differ", "methods that another class overrides"],
)
def test_a_class_with_methods_of_common_names(other: str, turns: str, first: bool, tmp_path: Path) -> None:
    after = rewritten(tmp_path, "script", script=TURNS.format(turns), shared=ASKS + OTHER.format(other))
    assert (CUT_BY_ONE in after["shared"]) is first


SMALL = """
    import os
    from subprocess import check_output
    def shrink(folder, factor):
        missing = False
        small = os.path.join(folder, "small_%d" % factor)
        if not os.path.exists(small):
            missing = True
        if not missing:
            return
        os.makedirs(small)
        check_output("sleep 1; cp {}/*.txt {}".format(folder, small), shell=True)
    def read(folder, factor):
        shrink(folder, factor)
        return sorted(os.listdir(os.path.join(folder, "small_%d" % factor)))
"""

SHRINKS = """
    import os
    <torch>
    from shared import read
    class Options:
        kind = "Folder"
    def main():
        options = Options()
        {before}if hasattr(options, "cached") and os.path.exists(options.cached):
            names = []
        else:
            if options.kind.lower() == "folder":
                names = read("rows", 2)
        <net torch.nn.Linear(1, 1)>
        for x, in DataLoader(TensorDataset(torch.arange(8.0).view(8, 1)), batch_size=2):
            <step (net(x) - x).pow(2).mean()>
        return float(len(names))
    if __name__ == "__main__":
        result = main()
"""


@pytest.mark.parametrize(("before", "first"), [("", True), ("os.makedirs(options.cached)\n        ", False)])
def test_files_made_once_are_whole_when_others_read_them(before: str, first: bool, tmp_path: Path) -> None:
    script, other = SHRINKS.replace("{before}", before), "import shared\nprint(shared.read('rows', 2))"
    entry = rewritten(tmp_path, "script", script=script, shared=SMALL, other=other)["script"]
    assert ('main_process_first():\n                names = read("rows", 2)' in entry) == first
    if first:
        (tmp_path / "rows").mkdir()
        for name in "abc":
            (tmp_path / "rows" / f"{name}.txt").touch()
        assert train(tmp_path, "script", 2) == [3.0, 3.0]


TOGETHER = """
    import torch
    from torch.utils.data import DataLoader
    from torchtext.vocab import GloVe
    class Rows:
        def __init__(self):
            self.words = GloVe("6B")
            {batches}
        def next_batch(self):
            return next(self.batches)
"""


@pytest.mark.parametrize(
    ("batches", "inside"),
    [("self.batches = iter(DataLoader(torch.ones(8, 1), 2))", True), ("self.batches = other", False)],
)
def test_a_download_beside_what_all_processes_do_together(batches: str, inside: bool, tmp_path: Path) -> None:
    loop = "for i in range(4):\n    x = rows.next_batch()\n    <step model(x).mean()>\n"
    entry = f"<torch>\nfrom shared import Rows\nrows = Rows()\n<model>\n{loop}"
    shared, other = TOGETHER.replace("{batches}", batches), "import shared\nprint(shared.Rows())"
    after = rewritten(tmp_path, "script", script=entry, shared=shared, other=other)
    first = "accelerator.main_process_first():\n"
    assert (f'{first}            self.words = GloVe("6B")' in after["shared"]) is inside
    assert (f"{first}    rows = Rows()" in after["script"]) is not inside
