"""What one process does: prints, bars, files, folders, downloads; and what the author guards stays guarded."""

from .outputs import each_output

test_output = each_output("""
== weights that a function of a file that is not there saves
from elsewhere import save_checkpoint
--
* save_checkpoint({"model": model.state_dict()}, "out.pt")
~ print("saved")
== weights that a function saves which is given
from elsewhere import *
--
def keep(save_checkpoint):
    save_checkpoint(model.state_dict(), "out.pt")
keep(log)
== and that is waited for where it is read again
from elsewhere import save_checkpoint
--
* save_checkpoint({"model": model.state_dict()}, "out.pt")
+ accelerator.wait_for_everyone()
log(torch.load("out.pt"))
== weights that such a function takes over, or the path that it gives back
from elsewhere import copy_weights, save_checkpoint
--
copy_weights(model.state_dict(), model)
path = save_checkpoint(model.state_dict(), "out.pt")
== a sound of which such a function is told the path, and what it is told no file
from os.path import join
from elsewhere import audio
--
path = join("out", "{}.wav".format(epoch))
* audio.save_wav(wave, path)
audio.save_name("a wave")
wave = audio.save_wav(wave, path)
!!         audio.save_name
== a print
~ print("done")
== a print with Python 2's comma behind it, and one of which a tuple is made
~ print("done"),
both = print("done"),
== a picture in memory is every process's own
from matplotlib import pyplot as plt
from elsewhere import picture
--
page = io.BytesIO()
plt.savefig(page, format='png')
picture.save(page)
* plt.savefig('a.png')
matrix = ConfusionMatrix(x, y)
* matrix.save_obj(os.path.join('out', f'matrix_{x}'), save_stat=True)
engine.save_checkpoint(os.path.join('out', 'engine'))
words = matrix.write_words(9)
== a print into a file, and one that the terminal shows
print("done", file=log)
~ print("done", file=sys.stderr)
== a print under another name
- say = print
- log = lambda text: print(text, file=sys.stderr)
+ say = accelerator.print
+ log = lambda text: accelerator.print(text, file=sys.stderr)
shown = map(print, "ab"), print
== a console's print, and another object's
from rich.console import Console
page = Console()
other = open("page")
--
* page.print("done")
other.print("done")
== a print that is always flushed
- print = functools.partial(print, flush=True)
+ print = functools.partial(accelerator.print, flush=True)
--
print("done")
== the author's own print
def print(*what):
    log(what)
--
print("done")
== a print that the file binds to a logger's method
print = logging.getLogger().info
--
print("done")
== a logger that shows all its lines, but warnings are every process's
from loguru import logger
--
* logger.info(f"{len(rows)} rows")
logger.warning("few")
== loguru's files are one process's, and so is what it shows but warnings
from loguru import logger
--
log.add("other")
* logger.add("run.log", level="INFO")
- logger.add(sys.stdout, level="INFO")
+ logger.add(sys.stdout, level="INFO" if accelerator.is_main_process else "WARNING")
- logger.add(sys.stderr)
+ logger.add(sys.stderr, level="DEBUG" if accelerator.is_main_process else "WARNING")
== a bar
- for i in tqdm(range(3)):
+ for i in tqdm(range(3), disable=not accelerator.is_main_process):
    log(i)
== a bar that an option switches off
- bar = tqdm(range(3), disable=not args.verbose)
+ bar = tqdm(range(3), disable=not args.verbose or not accelerator.is_main_process)
other = tqdm(range(3), disable=rank != 0)
third = tqdm(range(3), disable=None), tqdm.contrib.logging.logging_redirect_tqdm()
== a bar that the script computes with counts on every process
bar = tqdm(total=3)
for i in range(3):
    bar.update(i)
    log(i / bar.n)
other = tqdm(total=3); log(other._time())
== a bar that the script only updates
- bar = tqdm(total=3)
+ bar = tqdm(total=3, disable=not accelerator.is_main_process)
other = rows.n
bar.update(1)
* bar.write("one")
rows.write("two")
== a block that only writes is guarded as a whole
* with open("options.json", "w") as file:
.     json.dump(options, file)
== a helper that only computes does not keep a block from being guarded
def drawn(rows):
    return str(rows)
--
* with open("rows.txt", "w") as file:
.     file.write(drawn(data))
== a folder
if not os.path.exists("out"):
-     os.makedirs("out")
+     os.makedirs("out", exist_ok=True)
== a folder by the function that cannot be told that it may be there
if not os.path.isdir("out"):
-     os.mkdir("out")
+     os.makedirs("out", exist_ok=True)
== a folder of a path, beside the project's own function of that name
def mkdir(path):
-     os.mkdir(path)
+     with PartialState().main_process_first():
+         os.makedirs(path, exist_ok=not PartialState().is_main_process)
--
- Path("out").mkdir()
+ with accelerator.main_process_first():
+     Path("out").mkdir(exist_ok=not accelerator.is_main_process)
- (Path("out") / "in").mkdir()
+ (Path("out") / "in").mkdir(exist_ok=True)
mkdir("more")
== a folder whose name is to be kept, which is None
- made = os.mkdir("out")
+ with accelerator.main_process_first():
+     made = os.makedirs("out", exist_ok=not accelerator.is_main_process)
== a folder that nothing asks for ends the run where it is there, and so those within it
- os.makedirs(out)
+ with accelerator.main_process_first():
+     os.makedirs(out, exist_ok=not accelerator.is_main_process)
- os.mkdir(os.path.join(out, "images"))
+ os.makedirs(os.path.join(out, "images"), exist_ok=True)
- os.mkdir(out + "/models")
+ os.makedirs(out + "/models", exist_ok=True)
== folders of a loop, none of which may be there
for name in ["images", "models"]:
-     os.mkdir(name)
+     with accelerator.main_process_first():
+         os.makedirs(name, exist_ok=not accelerator.is_main_process)
== a folder that its author removes before
* shutil.rmtree(out, ignore_errors=True)
+ accelerator.wait_for_everyone()
- os.makedirs(out)
+ os.makedirs(out, exist_ok=True)
== a folder that must be new where some process may not come
for epoch in range(len(rows)):
    for x in rows[epoch]:
-         os.mkdir(f"{epoch}")
+         os.makedirs(f"{epoch}", exist_ok=True)
?? every process makes this folder
== a folder about which a caller asks
def make(path):
-     os.mkdir(path)
+     os.makedirs(path, exist_ok=True)
--
if not os.path.isdir(out):
    make(out)
== a function that was not read, which is given a model and a folder
from elsewhere.torch import save_model
--
* save_model(model, "out")
== options that a library writes
* FLAGS.append_flags_into_file("flags.txt")
== a folder of another object, which may be a value
archive = open_archive()
--
made = archive.mkdir("out")
== a folder whose name is to be kept, and that must be new
try:
    made = os.mkdir("out")
except FileExistsError:
    made = "out"
== weights in a folder whose time comes a long way
class Keeper:
    def __init__(self, place):
        self.place = place
    def keep(self, state):
        path = os.path.join(self.place, "model.pt")
+         if PartialState().is_main_process:
.         torch.save(state, path)
def named(settings):
    stamp = time.strftime("%d")
    name = f"{stamp}_run"
    settings.out = os.path.join("runs", name)
--
named(settings)
Keeper(settings.out).keep(model.state_dict())
== a folder by a function that says whether it was there
?? depends on whether it was there
def made(path):
    if not os.path.isdir(path):
-         os.makedirs(path)
+         os.makedirs(path, exist_ok=True)
        return True
    else:
        return False
--
if made("out"):
~     print("new")
== a folder that must be new
* try:
.     os.mkdir("out")
. except FileExistsError:
.     print("it is there")
== a folder that must be new, or the run ends
try:
-     os.mkdir("out")
+     with accelerator.main_process_first():
+         os.makedirs("out", exist_ok=not accelerator.is_main_process)
except FileExistsError:
    sys.exit("it is there")
== a folder that is made where the author does not find it
try:
    os.stat("out")
except OSError:
-     os.mkdir("out")
+     os.makedirs("out", exist_ok=True)
== a folder that is asked for before it is made, and whose error ends the run, or is told alone
try:
    if not os.path.exists("out"):
-         os.makedirs("out")
+         os.makedirs("out", exist_ok=True)
except OSError:
    sys.exit(1)
try:
    if not os.path.exists("in"):
        os.makedirs("in")
except OSError:
    pass
== a folder that is made anew where it is there already
* try:
.     os.mkdir("out")
. except FileExistsError:
.     shutil.rmtree("out")
.     os.mkdir("out")
== what is saved is there for all
~ torch.save(model.state_dict(), "model.pt")
model.load_state_dict(torch.load("model.pt"))
== a copy of a file
- if best:
+ if best and accelerator.is_main_process:
    shutil.copyfile("a", "b")
== what the author guards
if rank == 0:
    print("done")
    writer.add_scalar("a", 1)
== a writer's numbers and pictures
* writer.add_image("a", picture)
. plt.savefig("a.png")
== in an evaluation that is dealt one process has the batch
hits = 0
+ evaluation_loader = accelerator.prepare_evaluation(test_loader)
with torch.no_grad():
-     for i, (x, y) in enumerate(test_loader):
+     for i, (x, y) in enumerate(evaluation_loader, evaluation_loader.start):
        hits += (model(x).argmax(1) == y).sum().item()
        torch.save(x, f"{i}.pt")
+     hits = accelerator.merge(evaluation_loader, hits)
~ print(hits)
== a number that is called a rank
- if lora_rank > 0:
+ if lora_rank > 0 and accelerator.is_main_process:
    np.save("a.npy", [1])
== a process that is asked for is enough
if int(os.environ.get("LOCAL_RANK", 0)) == 0:
    np.save("a.npy", [1])
== what is saved when something has failed
try:
    play()
except RuntimeError:
*     torch.save(model.state_dict(), "a.pt")
== what is saved when all are interrupted
try:
    play()
except KeyboardInterrupt:
~     torch.save(model.state_dict(), "a.pt")
== what is said of the batches of an evaluation
test_loader = DataLoader(test)
--
model.eval()
right = 0
+ evaluation_loader = accelerator.prepare_evaluation(test_loader)
- for x, y in test_loader:
+ for x, y in evaluation_loader:
    with torch.no_grad():
        right += (model(x).argmax(1) == y).sum().item()
*     sys.stdout.write(".")
+ right = accelerator.merge(evaluation_loader, right)
~ print(right)
== what a worker says of a row
class Rows:
    def __getitem__(self, i):
        sys.stdout.write(".")
        return i
data = Rows()
--
play()
""")
