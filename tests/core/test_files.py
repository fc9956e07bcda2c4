"""Files that stay open, event files, and files that every process goes on to write."""

from .outputs import GUARD, each_output
from .support import Trap, case_by_case

DRAWN = """class shape:
    width = 3
def draw(path, width):
    return cv2.imwrite(path, np.zeros(width))
def look(path, width):
    return np.load(path)[:width]"""
test_files = each_output(
    """
== a picture by a function that is told more than its path
<drawn>
--
for epoch in range(3):
    for x, y in loader:
        if x.mean() > 0:
            look("mask.npy", shape.width)
*     draw("out.png", shape.width)
== but not one that some process may read at any time
?? every process writes this file
<drawn>
--
for epoch in range(3):
    for x, y in loader:
        if x.mean() > 0:
            look("out.png", shape.width)
    draw("out.png", shape.width)
== a write whose result nobody reads
def draw():
+     if PartialState().is_main_process:
.     done = cv2.imwrite("out.png", [1])
    return 1
--
~ print(draw())
== a file that is moved to its place; a text is not
def name(text):
    return text.replace("a", "b")
--
part = Path("out.part")
* part.write_text("x")
. part.replace("out.txt")
label = name("aa")
== a film, where the script has a function `save` of its own
from matplotlib import animation
def save(model):
    return model.state_dict()
--
film = animation.ArtistAnimation(figure, frames)
* film.save("film.mp4")
save(model)
== what a method of the project does is its own
class Film:
    def save(self, path):
        self.path = path
--
film = Film()
film.save("film.mp4")
== but what it leaves to a library's class is a file
class Options(Tap):
    def save(self):
+         if PartialState().is_main_process:
.         super().save("options.json")
class Page:
    def save(self, path):
        self.path = path
class Front(Page):
    def save(self):
        super().save("front.html")
--
Options().save()
Front().save()
== a folder that one process empties is not listed by the others
* for name in os.listdir("old"):
.     os.remove(os.path.join("old", name))
. os.rmdir("old")
== a folder that one process removes is made by all when it is gone; another one is not asked for
* os.system("rm -rf " + args.save)
+ accelerator.wait_for_everyone()
os.makedirs(args.save, exist_ok=True)
* shutil.rmtree("old")
== the oldest of some files, which all forget and one removes
saved = []
for epoch in range(9):
~     torch.save(model.state_dict(), f"{epoch}.pt")
    saved.append(Path(f"{epoch}.pt"))
    while len(saved) > 3:
+         oldest = saved.pop(0)
-         saved.pop(0).unlink()
+         if accelerator.is_main_process:
+             oldest.unlink()
== a network with random rows, behind all that draws
* torch.onnx.export(model, torch.randn(1, 4), "net.onnx")
== but not in a loop, after which others draw
for epoch in range(9):
    torch.onnx.export(model, torch.randn(1, 4), "net.onnx")
?? every process writes this file
== a picture beside weights, in a folder of which all read the weights
!! wait_for_everyone
for epoch in range(3):
    model.load_state_dict(torch.load(os.path.join(args.save, "net.pt")))
*     plt.savefig(os.path.join(args.save, f"loss_{epoch}.png"))
== but not one that may be what is read
for epoch in range(3):
+     accelerator.wait_for_everyone()
    mask = cv2.imread(os.path.join(args.save, str(epoch)))
*     plt.savefig(os.path.join(args.save, f"loss_{epoch}.png"))
== but is where more is done with its files
names = []
--
for name in os.listdir("old"):
    names.append(name)
*     os.remove(os.path.join("old", name))
== a log that stays open
- log = open("log.txt", "a")
+ log = open("log.txt" if accelerator.is_main_process else os.devnull, "a")
log.write("x")
* os.fsync(log.fileno())
log.close()
== a file that a folder opens by its name
import fs
--
folder = fs.open_fs("out")
+ if accelerator.is_main_process:
. with folder.open("weights.pkl", "wb") as f:
.     torch.save(model, f)
with folder.open("rows.pkl", "rb") as f:
    rows = f.read()
== a run of a tracker that a block has
+ from contextlib import nullcontext
import mlflow
--
+ with (mlflow.start_run() if accelerator.is_main_process else nullcontext()):
- with mlflow.start_run():
*     mlflow.log_param("rate", 0.1)
== what a run is told of files, which a silent one does not keep
import wandb
--
artifact = wandb.Artifact("rows", type="rows")
+ if accelerator.is_main_process:
. artifact.add_file("rows.csv")
. wandb.log_artifact(artifact)
. artifact.wait()
other = load("other")
other.wait()
== also where it has a name that nothing reads
+ from contextlib import nullcontext
import mlflow
--
+ with (mlflow.start_run() if accelerator.is_main_process else nullcontext()) as run:
- with mlflow.start_run() as run:
    rows = list(rows)
== and one that nobody ends
import mlflow
--
* mlflow.start_run(run_name="a")
with mlflow.start_run() as run:
    name = run.info.run_id
== what a run is told of a model and its settings
import mlflow
--
+ if accelerator.is_main_process:
. mlflow.set_tag("kind", "a")
. mlflow.log_param("rate", 0.1)
. mlflow.pytorch.log_model(model, "model")
mlflow.set_tracking_uri("runs")
== a log whose path opens itself
where = Path("log.txt")
- log = where.open("a")
+ log = (where if accelerator.is_main_process else Path(os.devnull)).open("a")
--
log.write("x")
== but not what one process opens anyway is brought to the disk
* with open("a.txt", "w") as file:
.     os.fsync(file.fileno())
== a log of a module's top level, whose mode is chosen
mode = "a" if Path("log.txt").exists() else "w"
- log = open("log.txt", mode)
+ log = open("log.txt" if accelerator.is_main_process else os.devnull, mode)
--
log.write("x")
== a log that might be read and is not
- log = open("log.txt", "a+")
+ log = open("log.txt" if accelerator.is_main_process else os.devnull, "a+")
log.write("x")
print("y", file=log)
log.flush()
== nor what nobody keeps
log = open(os.devnull, "w")
log.write("x")
== nor where a function is given it
def tell(log=None):
    if log is not None:
        log.write("x")
- log = open("log.txt", "w+")
+ log = open("log.txt" if accelerator.is_main_process else os.devnull, "w+")
tell(log=log)
== but not one that is
log = open("log.txt", "a+")
log.write("x")
lines = log.readlines()
== nor one that a function reads
def told(log):
    return log.readlines()
log = open("log.txt", "w+")
told(log)
== a picture, where a class of the project saves something else
import PIL.Image
class Page:
    def save(self, name):
        self.name = name
picture = PIL.Image.fromarray(rows)
* picture.save("a.png")
def drawn():
    grid = PIL.Image.new("RGB", (8, 8))
    return grid
board = drawn()
* board.save("b.png")
last = None
if rows:
    last = PIL.Image.fromarray(rows)
* last.save("c.png")
page = Page()
page.save("a.html")
== windows that open by themselves
* plt.ion()
plt.plot([1])
* plt.pause(0.1)
plt.clf()
== a log whose mode is a parameter
def opened(path, mode="a"):
-     return open(path, mode)
+     return open(path if accelerator.is_main_process else os.devnull, mode)
log = opened("log.txt")
log.write("x")
== a mode that is chosen where the function is called, and a stream that an object keeps
mode = "a" if names else "w"
class Log:
    def __init__(self, path, mode="w"):
        self.console = sys.stdout
-         self.file = open(path, mode)
+         self.file = open(path if accelerator.is_main_process else os.devnull, mode)
    def write(self, text):
*         self.console.write(text)
        self.file.write(text)
log = Log("log.txt", mode)
names.append(log.write("x"))
== but no stream where the object takes its place
class Log:
    def __init__(self):
        self.terminal = sys.stdout
    def write(self, text):
        self.terminal.write(text)
sys.stdout = Log()
== but not where it reads
def opened(path, mode="a"):
    return open(path, mode)
log(opened("log.txt", "r").read())
== an array that is dumped to a path, not what is none
* rows.dump(f"{name}.dat")
rows.dump(name)
== a graph that is drawn into a file, not the picture of an environment
* graph.render(name + ".png")
env.render("human")
* plyfile.PlyData([rows]).write(name)
io.BytesIO().write(b"x")
== a dump into a file that is opened for it, and into one that stays open
* json.dump([1], open("rows.json", "w"))
- file = open("rows.bin", "wb")
+ file = open("rows.bin" if accelerator.is_main_process else os.devnull, "wb")
pickle.dump([1], file)
file.close()
== a file that is read stays
rows = open("rows.txt").read()
more = open("more.txt", "rb" if rows else "r").read()
== a table by rows
- table = csv.writer(open("rows.csv", "w"))
+ table = csv.writer(open("rows.csv" if accelerator.is_main_process else os.devnull, "w"))
table.writerow([1])
== a log by which all go on, where an earlier run has left it
resumes = False
if os.path.isfile("log.txt"):
    resumes = True
+ accelerator.wait_for_everyone()
- handler = logging.FileHandler("log.txt")
+ handler = logging.FileHandler("log.txt" if accelerator.is_main_process else os.devnull)
start = 3 if resumes else 0
== a log that is gone on with, by the main process
mode = "a" if os.path.exists("log.txt") else "w"
- log = open("log.txt", mode)
+ log = open("log.txt" if accelerator.is_main_process else os.devnull, mode)
log.write("new")
== the same, by all
known = os.path.exists("log.txt")
+ accelerator.wait_for_everyone()
- log = open("log.txt", "a")
+ log = open("log.txt" if accelerator.is_main_process else os.devnull, "a")
start = 3 if known else 0
== a log file of the logging module
log = logging.getLogger()
- log.addHandler(logging.FileHandler("log.txt"))
+ log.addHandler(logging.FileHandler("log.txt" if accelerator.is_main_process else os.devnull))
level = logging.INFO
- log.setLevel(level)
+ log.setLevel(level if accelerator.is_main_process else logging.WARNING)
== a level by its name
- logging.getLogger().setLevel("INFO")
+ logging.getLogger().setLevel("INFO" if accelerator.is_main_process else "WARNING")
- logging.basicConfig(level=os.getenv("L", "INFO"))
+ logging.basicConfig(level=os.getenv("L", "INFO") if accelerator.is_main_process else "WARNING")
- log.setLevel(getattr(logging, args.level))
+ log.setLevel(getattr(logging, args.level) if accelerator.is_main_process else logging.WARNING)
log.setLevel(getattr(levels, args.level))
logging.basicConfig(level=os.environ.get("L", "ERROR"))
logging.getLogger("quiet").setLevel("ERROR")
== a level that a function has by itself
def set_up(level=logging.INFO):
    shown = logging.StreamHandler()
-     shown.setLevel(level)
+     shown.setLevel(level if accelerator.is_main_process else logging.WARNING)
set_up()
== but not one that it is given, and that may be any
def set_up(level):
    logging.getLogger().setLevel(level)
set_up(args.level)
== warnings are every process's
logging.getLogger().setLevel(logging.ERROR)
== an event file
from torch.utils.tensorboard import SummaryWriter
--
+ writer = SummaryWriter("runs") if accelerator.is_main_process else None
- writer = SummaryWriter("runs")
* writer.add_scalar("a", 1)
. writer.close()
== an event file of which the script says where it is
from torch.utils.tensorboard import SummaryWriter
--
+ writer = SummaryWriter("runs") if accelerator.is_main_process else None
- writer = SummaryWriter("runs")
* logging.info(f"events in {writer.log_dir}")
. print("in", writer.log_dir)
== an event file by which the script names another
?? every process writes an event file
from torch.utils.tensorboard import SummaryWriter
--
writer = SummaryWriter("runs")
* print(keep(writer.log_dir))
path = writer.log_dir + "/rows.txt"
== a module that writes one event file, also where it is passed on
import tensorboard_logger as events
def show(log):
+     if PartialState().is_main_process:
.     log.log_value("a", 1)
--
* events.configure("runs")
show(events)
== functions that write one event file, where an option asks for it
from tensorboard_logger import configure as start, log_value
--
- if start is not None and len(sys.argv) > 1:
+ if start is not None and len(sys.argv) > 1 and accelerator.is_main_process:
    start("runs")
* log_value("a", 1)
== an event file of tensorboard_logger, of which each is one by itself
import tensorboard_logger as events
--
+ log = events.Logger("runs") if accelerator.is_main_process else None
- log = events.Logger("runs")
* log.log_value("a", 1)
== an event file that a function makes
def make(folder):
-     writer = SummaryWriter(folder)
+     writer = SummaryWriter(folder) if PartialState().is_main_process else None
    return writer
--
writer = make("runs")
* writer.add_scalar("a", 1)
== a function that writes an event file, and is handed on
?? every process writes an event file
from tensorboard_logger import configure, log_value
--
configure("runs")
keep([log_value])
== one of its event files that something else uses
?? every process writes an event file
import tensorboard_logger as events
--
log = events.Logger("runs")
keep([log])
== an event file of tensorboardX that something else uses, and of which a table is made
+ writer = SummaryWriter("runs", write_to_disk=accelerator.is_main_process)
- writer = SummaryWriter("runs")
keep([writer])
* writer.export_scalars_to_json("all.json")
== a writer of tensorboardX that knows no such thing
?? every process writes an event file
import tensorboardX
--
log = tensorboardX.writer.FileWriter("runs")
keep([log])
== a file that is read where processes may part: all wait where it is written
* np.save("best.npy", [1])
+ accelerator.wait_for_everyone()
if random.random() > 0.5:
    best = np.load("best.npy")
== but not where it is only opened: what is written follows
?? every process writes this file
log = open("kept.txt", "w")
log.write("1")
log.close()
if random.random() > 0.5:
    best = open("kept.txt").read()
== a write whose result is used
?? every process writes this file
done = cv2.imwrite("out.png", [1])
~ print(done)
== a block whose number is read behind it, though a branch may bind another
+ with open("a.txt" if accelerator.is_main_process else os.devnull, "w") as file:
- with open("a.txt", "w") as file:
    n = 1
    file.write(str(n))
if names:
    n = 3
* with open("b.txt", "w") as file:
.     k = 1
.     file.write(str(k))
k = n
== a file of a kind that is opened alike to read
import lmdb
--
* with lmdb.open("rows.db", map_size=9) as base:
.     with base.begin(write=True) as rows:
.         rows.put(b"1", b"2")
+ accelerator.wait_for_everyone()
base = lmdb.open("rows.db")
== a shelf, unless it is only read
import shelve
--
* with shelve.open("kept", writeback=True) as kept:
.     kept["rows"] = {}
.     kept["rows"][1] = 2
with shelve.open("old", flag="r") as old:
    first = old["rows"]
== a film is a file from where it is made, and so is a mesh that is exported
- film = cv2.VideoWriter("a.avi", 0, 30, (8, 8))
+ film = cv2.VideoWriter("a.avi", 0, 30, (8, 8)) if accelerator.is_main_process else None
* film.write(rows)
. film.release()
. mesh.export(os.path.join(out, "a.ply"))
mesh.export(kind)
== what a program writes into temporary files of each process's own
def fresh(count):
    names = []
    for _ in range(count):
        names.append(tempfile.NamedTemporaryFile(delete=False).name)
    yield names
--
command, other = ["draw"], ["draw"]
for names in fresh(2):
    for name in names:
        command += [name]
        other += ["a.txt"]
subprocess.run(command)
* subprocess.run(other)
== a film that is asked for an answer stays
?? every process writes this file
film = cv2.VideoWriter("a.avi", 0, 30, (8, 8))
if not film.isOpened():
    raise OSError
== a picture of what is drawn between two passes
?? every process writes this file
for epoch in range(3):
    save_image(torch.randn(4, 4), "out.png")
== a table of an evaluation that all take part in
?? every process writes this file
@torch.no_grad()
def test(model, loader):
    hits = 0
+     loader = accelerator.prepare_evaluation(loader)
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
+     hits = accelerator.merge(loader, hits)
    return hits
--
np.save("hits.npy", test(model, DataLoader(data)))
== a folder because of which the author stops, when all have asked
if os.path.exists("log"):
    if not os.environ.get("FORCE"): sys.exit()
+ accelerator.wait_for_everyone()
if not os.path.exists("rows") or len(os.listdir("rows")) == 0: sys.exit()
if os.path.exists("out"):
    sys.exit()
else:
+     accelerator.wait_for_everyone()
*     os.makedirs("out")
+ accelerator.wait_for_everyone()
== a folder that is made anew or made
if os.path.exists("out"):
    again = bool(os.environ.get("FORCE"))
    if again:
+         accelerator.wait_for_everyone()
*         shutil.rmtree("out")
.         os.makedirs("out")
    else:
        sys.exit()
else:
+     accelerator.wait_for_everyone()
*     os.makedirs("out")
+ accelerator.wait_for_everyone()
== a folder that may be there, whose error ends the run
!! every process makes this folder
try:
    os.makedirs("out", exist_ok=True)
    log("made")
except OSError:
    log("stopped")
== a folder that may be there, in words that a handler knows, and in one that nothing binds
import errno
try:
    os.makedirs("out")
except OSError as error:
    if error.errno != errno.EEXIST:
        raise
try:
-     os.makedirs("other")
+     os.makedirs("other", exist_ok=True)
except OSError as error:
    if error.errno != code.EEXIST:
        raise
== a folder by which the author chooses another
?? every process makes this folder
try:
    os.mkdir("out")
except FileExistsError:
    folder = "other"
    os.mkdir(folder)
log(folder)
""".replace("<drawn>", DRAWN)
)

SAVED_BY_TRAIN = """
    def train_epoch(model, optimizer, loader):
        model.train()
        for x, y in loader:
            <step F.cross_entropy(model(x), y)>
        GO
    def train(model, loader, start):
        path = "epoch_" + str(start) + ".npy"
        if start:
            seen = np.load(path)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(start, 9):
            train_epoch(model, optimizer, loader)
        path = "epoch_9.npy"
        np.save(path, np.arange(9))
    train(nn.Linear(4, 2), DataLoader(data, batch_size=4), 0)
"""
METHODS = [
    Trap(
        "what a function reads first: `model.train()` is no call of it",
        SAVED_BY_TRAIN.replace("GO", "pass"),
        (GUARD, "np.save(path, np.arange(9))"),
        ("wait_for_everyone",),
    ),
    Trap(
        "and is called again with all that it needs, as a module's function",
        SAVED_BY_TRAIN.replace("GO", "again.train(model, loader, epoch)"),
        ("np.save(path, np.arange(9))",),
        ("is_main_process",),
        says="every process writes this file",
    ),
]
test_a_method_is_no_call_of_a_function = case_by_case(METHODS)
