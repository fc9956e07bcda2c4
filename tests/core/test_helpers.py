"""Functions of the project that write: one process calls them, or writes inside them."""

import pytest

from .outputs import each_output
from .support import Trap, converted

test_helpers = each_output("""
== a helper that only writes is called by one process
def draw(rows, path):
    plt.plot(rows)
    plt.savefig(path)
--
* draw([1, 2], "out.png")
== a helper that is called more often than it writes is guarded inside
def note(text):
+     if PartialState().is_main_process:
.     with open("notes.txt", "a") as file:
.         file.write(text)
--
note("a")
~ print("b")
note("c")
== a helper that returns is guarded inside
def draw(rows, path):
+     if PartialState().is_main_process:
.     plt.savefig(path)
    return len(rows)
--
size = draw([1, 2], "out.png")
~ print(size)
== a helper that draws at random is guarded inside
@torch.no_grad()
def sample(model):
+     noise = torch.randn(4, 4, device=PartialState().device)
-     noise = torch.randn(4, 4)
+     if PartialState().is_main_process:
.     save_image(model(noise), "out.png")
--
sample(model)
== a helper that leaves the model in another mode is guarded inside
def show(model):
    model.eval()
+     if PartialState().is_main_process:
.     plt.savefig("out.png")
--
show(model)
== a helper that downloads, too, is guarded inside
def show():
+     with PartialState().main_process_first():
.     rows = MNIST("data", download=True)
+     if PartialState().is_main_process:
.     save_image(rows, "out.png")
--
show()
== a bar of one's own
last = 0
def bar(count):
    global last
    for i in range(last, count):
        sys.stdout.write("=")
    last = count
    sys.stdout.flush()
--
* bar(3)
== a helper that passes on to a library's function of its own name
import imageio
def imsave(path, rows):
    return imageio.imsave(path, rows)
--
* imsave("out.png", [1])
== a picture that is moved to the device
+ if accelerator.is_main_process:
- save_image(rows.cuda(), "out.png")
+     save_image(rows.to(accelerator.device), "out.png")
== a command
* os.system("cp a.py b.py")
os.system("mkdir out")
subprocess.run([sys.executable, "-m", "pip", "install", name])
free = subprocess.check_output(["df"])
== a helper that fills a file which no second process can open, and draws: all draw on as it does
def prepare(path):
    import h5py
    file = h5py.File(path, "w")
    file.create_dataset("rows", data=np.random.rand(4))
    file.close()
--
* prepare("rows.h5")
+ synchronize_rng_states(["python", "numpy", "torch"])
== a helper that starts a program
def film(folder):
    command = 'ffmpeg -y -i {}/%d.png all.mp4'.format(folder)
    process = subprocess.Popen(command.split(), stdout=subprocess.PIPE)
    said, _ = process.communicate()
--
* film("out")
== a helper that asks a program, or makes ready what all need, stays
def version():
    process = subprocess.Popen(['git', 'log'], stdout=subprocess.PIPE)
    return process.communicate()[0]
def fetch():
    process = subprocess.Popen(['wget', 'rows.csv'])
    process.wait()
--
~ print(version())
fetch()
== a helper that the author guards stays
def draw(path):
    plt.savefig(path)
--
if rank == 0:
    draw("out.png")
== a method of a model that nothing calls stays
class Net(nn.Module):
    def forward(self, rows):
        return rows
    def export(self):
        np.save("weights.npy", self.rows)
--
~ print(Net()(rows))
== a data set's own files, row by row, stay
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, i):
        np.save(f"{i}.npy", i)
        return i
--
for row in DataLoader(Rows()):
~     print(row)
""")

REPORT = """
class Report:
    def __init__(self):
        self.counts = []
    @torch.no_grad()
    def score(self, epoch):
        os.makedirs("found", exist_ok=True)
        np.save("found/rows.npy", {rows})
        self.counts.append(len(os.listdir("found")))
        shutil.rmtree("found")
report = Report()
<model>
for x, y in DataLoader(data):
    <step loss = F.cross_entropy(model(x), y)>
report.score(1)
{behind}
"""


@pytest.mark.parametrize(
    ("rows", "behind", "is_alone"),
    [("[1]", "", True), ("[1]", "show(report.counts)", False), ("np.random.rand(2)", "", False)],
)
def test_an_evaluation_that_takes_its_folder_away_is_one_processs(
    rows: str, behind: str, is_alone: bool
) -> None:
    done = converted(Trap("report", f"import os, shutil\n{REPORT.format(rows=rows, behind=behind)}").text)
    assert ("\nif accelerator.is_main_process:\n    report.score(1)\n" in done.text) is is_alone
