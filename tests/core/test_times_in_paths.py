"""Paths that have a time in them: all have the main process's where they read again what is written there."""

from pathlib import Path

import pytest

from .outputs import each_output
from .projects import rewritten

SETTINGS = """
    import time
    out = "out"
    def setup():
        global out
        out = "out" + time.strftime("%H%M")
"""
SAVES = """
    import torch
    {}
    <model>
    for x, y in DataLoader(data):
        <step loss = F.mse_loss(model(x), y)>
    torch.save(model.state_dict(), {})
"""

test_times_in_paths = each_output("""
== all have the main process's time where they read again what is written there
- path = time.strftime("%H%M") + ".pt"
+ path = broadcast_object_list([time.strftime("%H%M")])[0] + ".pt"
- os.makedirs(path)
+ with accelerator.main_process_first():
+     os.makedirs(path, exist_ok=not accelerator.is_main_process)
~ torch.save(model.state_dict(), path)
state = torch.load(path)
== a time among the options of a text, in the path of an object that saves
class Keeper:
    def __init__(self, name):
        self.folder = os.path.join("runs", name)
    def keep(self):
+         if PartialState().is_main_process:
.         torch.save(model.state_dict(), os.path.join(self.folder, "model.pt"))
--
options = {"rate": 1}
options["time"] = time.strftime("%H%M")
Keeper("{rate}-{time}".format(**options)).keep()
== a time in what a class keeps
class Paths:
    out = os.path.join("runs", time.strftime("%H%M"))
def keep(folder):
+     if PartialState().is_main_process:
.     torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
--
keep(Paths.out)
== a temporary file whose random name is each process's own, which removes it
name = str(uuid.uuid4())
json.dump(rows.tolist(), open(name + ".json", "w"))
path = name + ".json"
found = json.load(open(path))
os.remove(name + ".json")
== the same, by a name that a seed makes alike
name = str(random.choice("abc"))
* json.dump(rows.tolist(), open(name + ".json", "w"))
~ print(name)
* os.remove(name + ".json")
== a function in which all take the main process's time is called by all
def new(name):
-     return time.strftime("%H%M") + name
+     return broadcast_object_list([time.strftime("%H%M")])[0] + name
--
np.save(new("rows"), [1])
path = new("model")
~ torch.save(model.state_dict(), path)
state = torch.load(path)
== a time that is added to the path of a copy, about which a file there decides
path = "out"
- path += time.strftime("%H%M")
+ path += broadcast_object_list([time.strftime("%H%M")])[0]
- if not os.path.exists(path + "/a"):
+ if not os.path.exists(path + "/a") and accelerator.is_main_process:
    shutil.copy("a", path)
== a path that a dictionary of arguments has
class Saver:
    def __init__(self, path, width=3):
        self.path = path
    def again(self):
        return torch.load(self.path)
- path = time.strftime("%H%M")
+ path = broadcast_object_list([time.strftime("%H%M")])[0]
options = dict(path=path, width=4)
saver = Saver(**options)
~ torch.save(model.state_dict(), path)
state = saver.again()
== and one whose entries are changed
class Saver:
    def __init__(self, path, width=3):
        self.path = path
    def again(self):
        return torch.load(self.path)
path = time.strftime("%H%M")
options = dict(path=path, width=4)
options["path"] = "out"
saver = Saver(**options)
* np.save(path, [1])
state = saver.again()
== and one that a method changes
class Saver:
    def __init__(self, path, width=3):
        self.path = path
    def again(self):
        return torch.load(self.path)
path = time.strftime("%H%M")
options = dict(path=path, width=4)
options.update(path="out")
saver = Saver(**options)
* np.save(path, [1])
state = saver.again()
== a folder that must not be there yet
path = os.path.join("out", time.strftime("%H%M"))
if os.path.exists(path):
    raise ValueError(path)
+ accelerator.wait_for_everyone()
* os.makedirs(path)
. np.save(os.path.join(path, "rows"), [1])
== one that must not be among those that a folder has
for name in os.listdir("out"):
    if name == args.name:
        raise ValueError(name)
+ accelerator.wait_for_everyone()
- os.makedirs(os.path.join("out", args.name))
+ os.makedirs(os.path.join("out", args.name), exist_ok=True)
== a folder without which an object is not made
class Log:
    def __init__(self, path):
        if os.path.exists(path):
            self.path = path
        else:
            raise ValueError(path)
    def tell(self, rows):
        np.save(os.path.join(self.path, "rows"), rows)
--
- path = os.path.join("out", time.strftime("%H%M"))
+ path = os.path.join("out", broadcast_object_list([time.strftime("%H%M")])[0])
os.makedirs(path, exist_ok=True)
* Log(path).tell([1])
== and one of a file by itself
path = "out"
path += time.strftime("%H%M")
* np.save(path, [1])
== a time in an entry of settings, and what is in another one
args["out"] += time.strftime("%H%M")
args["log"] = os.path.join("runs", "log")
* np.save(args["out"], [1])
- os.makedirs(args["log"])
+ with accelerator.main_process_first():
+     os.makedirs(args["log"], exist_ok=not accelerator.is_main_process)
~ torch.save(model.state_dict(), args["log"] + "/a.pt")
state = torch.load(args["log"] + "/a.pt")
== a time in an entry under which all read again
- args["run"]["out"] = "out" + time.strftime("%H%M")
+ args["run"]["out"] = "out" + broadcast_object_list([time.strftime("%H%M")])[0]
~ torch.save(model.state_dict(), args["run"]["out"])
state = torch.load(args["run"]["out"])
== a time in entries that are bound one by one, of which another one is read
for key in ["log", "out"]:
    args["path"][key] = os.path.join(time.strftime("%H%M"), key)
* torch.save(model.state_dict(), run.args["path"]["out"])
+ accelerator.wait_for_everyone()
state = torch.load(run.args["path"]["old"])
== and of which the same one is
for key in ["log", "out"]:
-     args["path"][key] = os.path.join(time.strftime("%H%M"), key)
+     args["path"][key] = os.path.join(broadcast_object_list([time.strftime("%H%M")])[0], key)
~ torch.save(model.state_dict(), run.args["path"]["out"])
state = torch.load(run.args["path"]["out"])
== a class that a variable holds is given the path
class Plain:
    def __init__(self, path):
        self.path = path
    def again(self):
        return torch.load(self.path)
class Other(Plain):
    pass
- path = time.strftime("%H%M")
+ path = broadcast_object_list([time.strftime("%H%M")])[0]
kind = Plain if args.plain else Other
saver = kind(path)
~ torch.save(model.state_dict(), path)
state = saver.again()
== copies whose paths others are told of, all at once, and one of which nobody is told
* shutil.copy("a", "/tmp/a.h5")
. shutil.copy("b", "/tmp/b.h5")
+ accelerator.wait_for_everyone()
args.rows = "/tmp/a.h5"
args.more = "/tmp/b.h5"
* shutil.copy("c", "/tmp/c.h5")
args.last = "c"
== the files that a path lists are listed before all have them
- found = sorted(Path("out").glob("*.pt"))
+ found = broadcast_object_list([sorted(Path("out").glob("*.pt"))])[0]
path = str(found[-1])
~ torch.save(model.state_dict(), path)
state = torch.load(path)
== one of them, which the file lists itself
- path = next(iter(Path("out").glob("*.pt")))
+ path = next(iter(broadcast_object_list([list(Path("out").glob("*.pt"))])[0]))
~ torch.save(model.state_dict(), path)
state = torch.load(path)
== a list is one already
- path = glob.glob("*.pt")[0]
+ path = broadcast_object_list([glob.glob("*.pt")])[0][0]
~ torch.save(model.state_dict(), path)
state = torch.load(path)
== the folder of an event writer, which a class that is looked up is given by name
class Run:
    def __init__(self, net, folder):
        self.writer = SummaryWriter(folder, write_to_disk=False)
    def keep(self, net):
~         torch.save(net.state_dict(), os.path.join(self.writer.logdir, "a.pt"))
        net.load_state_dict(torch.load(os.path.join(self.writer.logdir, "a.pt")))
class Longer(Run):
    def __init__(self, **given):
        super().__init__(**given)
--
kind = Longer if len(data) else None
- run = kind(net=model, folder=time.strftime("%H%M"))
+ run = kind(net=model, folder=broadcast_object_list([time.strftime("%H%M")])[0])
run.keep(model)
== another time is each process's own
+ accelerator.print(time.strftime("%H%M"))
- print(time.strftime("%H%M"))
* np.save(time.strftime("%H") + ".npy", [1])
rows = np.load("rows.npy")
== a time that is asked before the choice of a device
import argparse
- PATH = time.strftime("%H%M")
+ PartialState()
+ PATH = broadcast_object_list([time.strftime("%H%M")])[0]
parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
+ accelerator = Accelerator(cpu=args.no_cuda)
- device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
+ device = accelerator.device
--
- os.makedirs(PATH)
+ with accelerator.main_process_first():
+     os.makedirs(PATH, exist_ok=not accelerator.is_main_process)
~ torch.save(model.state_dict(), PATH)
state = torch.load(PATH)
== and in a function
import argparse
def path():
-     return time.strftime("%H%M")
+     return broadcast_object_list([time.strftime("%H%M")])[0]
parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
args = parser.parse_args()
+ accelerator = Accelerator(cpu=args.no_cuda)
PATH = path()
- device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")
+ device = accelerator.device
--
~ torch.save(model.state_dict(), PATH)
state = torch.load(PATH)
""")


@pytest.mark.parametrize(
    ("read", "path", "is_own"),
    [
        ("import settings as s", "s.out", True),
        ("from settings import out", "out", True),
        ("import settings as s", "s.name", False),
        ("import settings as s; out = 'b'", "out", False),
    ],
)
def test_the_time_in_a_global_of_another_file(read: str, path: str, is_own: bool, tmp_path: Path) -> None:
    files = {"script": SAVES.format(read, path), "settings": SETTINGS + "    name = 'a'\n"}
    after = rewritten(tmp_path, "script", **files)["script"]
    assert ("if accelerator.is_main_process:" in after) is is_own is ("accelerator.save(" not in after)


def test_the_time_in_an_attribute_of_an_object(tmp_path: Path) -> None:
    logger = """
    import os, time
    class Logger:
        def __init__(self, comment):
            self.folder = os.path.join("runs", time.strftime("%H%M%S") + comment)
    """
    script = """
    import os, torch
    from logger import Logger
    def train(model, rows, options):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x in rows:
            <step model(x).mean()>
        torch.save(model, os.path.join(options.into, "net.pt"))
    def main(options):
        logger = Logger("a")
        options.into = os.path.join(logger.folder, "nets")
        os.makedirs(options.into, exist_ok=True)
        train(torch.nn.Linear(4, 2), torch.utils.data.DataLoader(torch.ones(8, 4)), options)
    main(options)
    """
    after = rewritten(tmp_path, "script", script=script, logger=logger)["script"]
    assert "if accelerator.is_main_process:\n        os.makedirs(options.into" in after
    assert "if accelerator.is_main_process:\n        torch.save(model, " in after
