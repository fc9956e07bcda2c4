"""Files and folders that one process writes and all read again, also under a path that differs by process."""

import pytest

from .converting import converted
from .outputs import each_output

test_read_again = each_output("""
== what nobody reads is removed at once, under the guard of its neighbours
rows = np.load("rows.npy")
* np.save("old.npy", rows)
. os.remove("older.npy")
. os.remove("oldest.npy")
== the wait for the readers is under no guard
rows = np.load("rows.npy")
* np.save("old.npy", rows)
+ accelerator.wait_for_everyone()
* os.remove("rows.npy")
== a name without an ending is waited for once, and not where one process reads it again
* with open("best", "w") as file:
.     file.write("x")
other = open("other").read()
+ accelerator.wait_for_everyone()
rows = [open("best").read(), open("best").read()]
last = open("best").read()
* with open("copy", "w") as file:
.     file.write(open("best").read())
== what a command wrote is waited for, whichever of its files that is, and what one is asked about
scores = "scores.txt"
* os.system("%s < %s > %s" % ("eval", "rows.txt", scores))
other = [open("more.txt").read(), os.popen("wc -l more.txt").read()]
+ accelerator.wait_for_everyone()
lines = open(scores).read()
* Path("ref").write_text("x")
+ accelerator.wait_for_everyone()
text = Path("ref").read_text()
* np.save("ref.npy", text)
+ accelerator.wait_for_everyone()
count = os.popen("wc -l ./ref.npy").read()
== an object of a library that is made of a file reads it, and has done so where it is removed
* rows.to_csv("rows.csv")
other = TabularDataset("more.csv"), Rows("rows.csv")
+ accelerator.wait_for_everyone()
table = data.TabularDataset("./rows.csv", format="csv")
+ accelerator.wait_for_everyone()
* os.remove("rows.csv")
== a folder that is filled is whole before all list one
for name in names:
*     cv2.imwrite(os.path.join(out, name), [1])
+ accelerator.wait_for_everyone()
* writer.add_scalar("loss", 1, 0)
rows = os.listdir(out)
* shutil.copyfile("a.txt", name)
. cv2.imwrite("one.png", [1])
== all wait under a test that all pass, and not behind it
for turn in range(9):
    if turn == 8:
*         cv2.imwrite(os.path.join(out, str(turn)), [1])
+         accelerator.wait_for_everyone()
rows = os.listdir(out)
== a path that the file names once is the same in every function
TABLE = "out/table.txt"
def write_table():
    with open(TABLE, "w") as file:
        file.write("x")
def read_table():
+     PartialState().wait_for_everyone()
    return open("out/table.txt").read()
--
* write_table()
~ print(read_table())
== nobody waits in a function that one process alone comes to, as often as it does
def old(path):
    return open(path).read()
def stamp(names):
    for name in names:
        path = "%s/%s" % (out, name)
        with open("new", "w") as file:
            file.write(old(path))
        shutil.move("new", path)
--
for turn in range(2):
-     stamp(["a"])
+     if accelerator.is_main_process:
+         stamp(["a"])
== also in a function that is called in a try, whose failure is raised again
def table_of(rows):
-     np.save("table.npy", rows)
+     if PartialState().is_main_process:
+         np.save("table.npy", rows)
+     PartialState().wait_for_everyone()
    return np.load("table.npy")
--
try:
    log(table_of(rows))
except OSError:
    log("none")
    raise
== a path is known in the words of who gives it
def dump(text, path):
-     with open(path, "w") as file:
-         file.write(text)
+     if PartialState().is_main_process:
+         with open(path, "w") as file:
+             file.write(text)
    return len(text)
def prepare(config):
    return dump("x", config.table)
--
length = prepare(args)
other = open(args.other).read()
+ accelerator.wait_for_everyone()
table = open(args.table).read()
== what a command makes where files are missing is there before another process looks for it
+ with accelerator.main_process_first():
. if not os.path.exists("rows"):
.     os.system("./prepare.sh")
names = os.listdir("rows")
== a file whose name is not written out may be any of its folder
path = os.path.join(out, name)
* with open(path, "w") as file:
.     file.write("x")
+ accelerator.wait_for_everyone()
rows = open(os.path.join(args.out, "rows.txt")).read()
== a file that is named is no other of its folder
path = os.path.join(out, "log.txt")
* with open(path, "w") as file:
.     file.write("x")
rows = open(os.path.join(args.out, "rows.txt")).read()
other = open(os.path.join(args.data, "rows.txt")).read()
== what is written in some of the training's steps is waited for where all read it
for epoch in range(2):
    steps = enumerate(loader)
    for step, (x, y) in steps:
        <step F.cross_entropy(model(x), y)>
        if step % 2 == 0:
*             np.save("best.npy", [1])
+             accelerator.wait_for_everyone()
            best = np.load("best.npy")
== nobody waits in a loop within a loop that may turn more often on one process
rows = 1
--
for epoch in range(2):
    while rows < 9 * random.random():
        np.save("best.npy", [1])
        best = np.load("best.npy")
== what is made once and kept
+ with accelerator.main_process_first():
. if not os.path.exists("rows.npy"):
.     np.save("rows.npy", [1])
rows = np.load("rows.npy")
== a folder that is numbered by what is there is the main process's
name = "run%d" % len(os.listdir("runs"))
* os.mkdir(name)
. torch.save(model.state_dict(), name + "/model.pt")
== of one that all make, each goes by what the main process has found in it
- os.makedirs("runs")
+ with accelerator.main_process_first():
+     os.makedirs("runs", exist_ok=not accelerator.is_main_process)
last = 0
- for name in os.listdir("runs"):
+ for name in broadcast_object_list([os.listdir("runs")])[0]:
    last = max(last, int(name))
- os.makedirs(f"runs/{last + 1}")
+ os.makedirs(f"runs/{last + 1}", exist_ok=True)
~ torch.save(model.state_dict(), f"runs/{last + 1}/model.pt")
== weights under a number of training, each process's own, are one process's
for epoch in range(2):
    running = 0.0
    for x, y in loader:
        <step loss = F.cross_entropy(model(x), y)>
        running += loss.item()
+     running = accelerator.reduce(running, "mean")
*     torch.save(model.state_dict(), "model_%d_%.3f.pt" % (epoch, running / 3))
== weights under a number that is alike on all processes are there for all
others = rows
--
+ evaluation_loader = accelerator.prepare_evaluation(others)
for epoch in range(2):
    running = 0.0
    for x, y in loader:
        <step loss = F.cross_entropy(model(x), y)>
        running += loss.item()
    hits = 0
    with torch.no_grad():
-         for x, y in others:
+         for x, y in evaluation_loader:
            hits += (model(x).argmax(1) == y).sum().item()
+         hits = accelerator.merge(evaluation_loader, hits)
~     torch.save(model.state_dict(), f"model_{epoch}_{hits}.pt")
== a temporary file is each process's own
from subprocess import run
--
file = tempfile.NamedTemporaryFile()
rows = file.name + ".npy"
np.save(rows, [1])
with open(file.name + ".txt", "w") as text:
    text.write("x")
* np.save("rows.npy", [1])
run(["count", rows])
== a picture that all open again is waited for
from PIL import Image
--
* save_image(rows, "shown.png")
if args.show:
+     accelerator.wait_for_everyone()
    show(Image.open("shown.png"))
other = Image.open("other.png")
== weights in a temporary file that is moved are one process's, and each removes what is left of its own
handle, part = tempfile.mkstemp(suffix=".pt")
* torch.save(model.state_dict(), part)
. os.replace(part, "out.pt")
if os.path.exists(part):
    os.remove(part)
== also where weights are loaded from a path with a time in it
handle, part = tempfile.mkstemp(suffix=".pt")
* torch.save(model.state_dict(), part)
try:
    model.load_state_dict(torch.load(args.out + time.ctime()))
except OSError:
    pass
== but each keeps those that it loads again from its own
?? each process makes the path of this file for itself
part = tempfile.mkstemp()[1]
~ torch.save(model.state_dict(), part)
model.load_state_dict(torch.load(part))
== a link to the last file is made by one process, which removes the old one
last = Path("last.pt")
- if last.exists():
+ if last.exists() and accelerator.is_main_process:
    last.unlink()
* last.symlink_to("out.pt")
== what was read is written anew when all have read it
rows = np.load("rows.npy")
+ accelerator.wait_for_everyone()
* np.save("rows.npy", rows)
== and is there for the next turn, where some process might not come to the read
for name in names:
    if os.path.exists("rows.npy"):
        rows = np.load("rows.npy")
+     accelerator.wait_for_everyone()
*     np.save("rows.npy", rows)
+     accelerator.wait_for_everyone()
== a path that is put together twice, or kept in a variable, is the same
def keep(tag):
+     if PartialState().is_main_process:
.     json.dump([1], open(tag + ".json", "w"))
    path = tag + ".json"
+     PartialState().wait_for_everyone()
    return json.load(open(path))
def tell(tag):
    path = f"{tag}_more.json"
+     if PartialState().is_main_process:
.     with open(path, "w") as file:
.         json.dump([1], file)
+     PartialState().wait_for_everyone()
    return json.load(open(f"{tag}_more.json"))
--
rows = keep(args.out), tell(args.out)
== a sparse matrix that is written where it cannot be read
import scipy.sparse as sp
def matrix():
+     with PartialState().main_process_first():
.     try:
.         found = sp.load_npz('a.npz')
.     except OSError:
.         found = sp.eye(3)
.         sp.save_npz('a.npz', found)
    return found
--
rows = matrix()
== a class or a function that reads a file waits for it, and for what a helper wrote
def put(path, rows):
    np.save(path, rows)
class Rows:
    def __init__(self, path):
        self.path = path
        self.rows = json.load(open(self.path))
def read(path):
    return np.load(path)
--
* json.dump([1], open("rows.json", "w"))
+ accelerator.wait_for_everyone()
rows = Rows("rows.json")
* np.save(path, [1])
+ accelerator.wait_for_everyone()
~ print(read(path))
* put("rows.npy", [1])
+ accelerator.wait_for_everyone()
rows = np.load(file="rows.npy")
== a file that a function writes anew is waited for each time
def keep(rows):
    x = rows * 2
+     if PartialState().is_main_process:
.     np.save("all.npy", x)
    return x
--
one = keep(rows)
+ accelerator.wait_for_everyone()
rows = [np.load("all.npy"), np.load("all.npy")]
two = keep(rows)
+ accelerator.wait_for_everyone()
rows = np.load("all.npy")
== a file that must be there, in a turn of words that are written out
def score(path):
    assert os.path.isfile(path)
    return os.popen("score " + path).read()
--
for name in names:
    for part in ["valid", "test"]:
*         np.save(f"{name}_{part}.npy", [1])
+         accelerator.wait_for_everyone()
~         print(score(f"{name}_{part}.npy"))
== a folder that is filled where it is not there
+ with accelerator.main_process_first():
. if not os.path.exists("small"):
.     os.makedirs("small")
.     for path in os.listdir("large"):
.         cv2.imwrite("small/" + path, cv2.imread("large/" + path))
~ print(os.listdir("small"))
== a function that returns where its folder is there
def shrink(folder):
    missing = False
    if not os.path.exists(folder):
        missing = True
    if not missing:
        return
    os.makedirs(folder)
    command = f"cp large/* {folder}"
    check_output(command, shell=True)
--
+ with accelerator.main_process_first():
. shrink("small")
~ print(os.listdir("small"))
== a function that returns what it finds, or makes it
def table():
    if os.path.exists('a.npy'):
        return np.load('a.npy')
    rows = np.arange(3)
    np.save('a.npy', rows)
    return rows
--
+ with accelerator.main_process_first():
. rows = table()
== a folder that is made on the way to a file is not waited for
if not os.path.exists("out"):
+     os.makedirs("out", exist_ok=True)
-     os.makedirs("out")
* plt.savefig("out/a.png")
== weights that are resumed from, and saved much later
if os.path.isfile("a.pt"):
    model.load_state_dict(torch.load("a.pt"))
else:
+     loader = accelerator.prepare(loader)
    for x, y in loader:
-         F.cross_entropy(model(x), y).backward()
+         accelerator.backward(F.cross_entropy(model(x), y))
        optimizer.step()
~     torch.save(model.state_dict(), "a.pt")
    model.load_state_dict(torch.load("a.pt"))
""")


PARTS = """
<torch>
import os
import numpy as np
def made(out, parts):
    for part in parts:
        np.savez(os.path.join(out, part + ".npz"), rows=np.ones(4))
    return [os.path.join(out, part + ".npz") for part in parts]
def read():
    names = made("data", "ab")
    return [{read} for name in names]
{first}
loader, model = DataLoader(torch.ones(8, 4)), nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    <step model(x).mean()>
{then}
"""


@pytest.mark.parametrize(
    ("read", "first", "waits"),
    [
        ("np.load(name)", "rows = read()", True),
        ("np.load(name)", "", False),  # behind the training
        ("np.load('all.npz')", "rows = read()", False),
        ("torch.load(name)", "rows = read()", False),
    ],
)
def test_data_of_which_no_text_says_the_name_are_there_before_such_are_read(
    read: str, first: str, waits: bool
) -> None:
    after = converted(PARTS.format(read=read, first=first, then="" if first else "rows = read()"))
    written = 'np.savez(os.path.join(out, part + ".npz"), rows=np.ones(4))\n'
    assert (f"{written}        accelerator.wait_for_everyone()\n" in after) is waits and written in after


def test_nobody_waits_in_every_turn_for_what_is_written_in_some() -> None:
    turns = "for i in range(9):\n    if random.random() > i:\n        np.savetxt(out + '/' + str(i), [1])\n"
    text = PARTS.replace("import os", "import os, random").replace(
        "{first}", f"{turns}rows = os.listdir(out)"
    )
    after = converted(text.format(read="np.load(name)", then=""))
    assert "np.savetxt" in after and "wait_for_everyone" not in after
