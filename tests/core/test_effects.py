"""Code that writes and does something else besides: what the other processes need, they do too."""

from .outputs import each_output

test_effects = each_output("""
== random numbers that all draw from one stream
np.save("noise.npy", torch.randn(3).numpy())
== options that are set and shown
from pprint import pprint
class Settings:
    rate = 0.1
    def take(self, given):
        for name, value in given.items():
            setattr(self, name, value)
*         pprint(vars(self))
settings = Settings()
--
settings.take({"rate": 0.2})
~ print(settings.rate)
== a dictionary under a second name
def show(state):
    best = state["best"]
    best["shown"] = True
+     if PartialState().is_main_process:
.     plt.savefig("a.png")
--
show(state)
== weights that a library's function fills
def show(model):
    nn.init.constant_(model.weight, 0.0)
+     if PartialState().is_main_process:
.     plt.savefig("a.png")
--
show(model)
== a folder that is gone into
def show():
    os.chdir("out")
+     if PartialState().is_main_process:
.     plt.savefig("a.png")
--
show()
== an array that is changed through a view
def show(rows):
    shown = np.asarray(rows)
    shown[0] = 1
+     if PartialState().is_main_process:
.     plt.savefig("a.png")
--
show(rows)
== an argument that takes something away
np.save(queue.pop(), rows)
== predictions that are gathered while a file is written
- with open("a.txt", "w") as file:
+ with open("a.txt" if accelerator.is_main_process else os.devnull, "w") as file:
    for x in rows:
        found.append(x)
        file.write(str(x))
~ print(len(found))
== pictures in a grid of one's own
def show(rows):
    figure, axes = plt.subplots(2, 2)
    for ax, row in zip(axes.flat, rows):
        ax.plot(row)
        ax.set_title("row")
    names = []
    for row in rows:
        names.append(str(row))
    figure.legend(names)
    figure.savefig("a.png")
--
* show(rows)
== a copy that is changed
def show(rows):
    shown = rows.copy()
    shown[0] = 1
    shown /= shown.max()
    plt.imshow(shown)
    plt.savefig("a.png")
--
* show(rows)
== a table that is put together while it is written
* with open("a.txt", "w") as file:
.     cells = []
.     for x in rows:
.         cells.append(str(x))
.     file.write(",".join(cells))
== an argument that is computed
def name_of(number):
    parts = []
    parts.append(str(number))
    return "-".join(parts)
--
* np.save(name_of(3), rows)
== a name that begins with a setting
def name_of(args):
    name = args.name
    name += "_" + args.number
    return name
--
* np.save(name_of(args), rows)
== a setting's list that grows
def name_of(args):
    seen = args.seen
    seen += args.more
    return args.name
--
np.save(name_of(args), rows)
""")
