"""Code that writes and does something else besides: what the other processes need, they do too."""

import pytest

from .converting import conversion
from .outputs import each_output

test_effects = each_output("""
== random numbers that all draw from one stream
for epoch in range(3):
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


@pytest.mark.parametrize(
    ("made", "is_own"), [("io.BytesIO()", True), ("open(path, 'wb')", True), ("path", False)]
)
def test_what_each_process_has_opened_for_itself_is_written_by_each(made: str, is_own: bool) -> None:
    text = f"import io\n<torch>\n<model>\n<loop>\nkept = {made}\ntorch.save(model.state_dict(), kept)\n"
    text += "model.load_state_dict(torch.load(kept))\n"
    assert ("\ntorch.save(model.state_dict(), kept)\n" in conversion(text).text) is is_own


@pytest.mark.parametrize(("head", "is_guarded"), [("with torch.no_grad():", False), ("if True:", True)])
def test_an_object_that_merges_where_it_is_called_is_called_by_all(head: str, is_guarded: bool) -> None:
    rows = "self.rows" if head.startswith("with") else "range(4)"
    text = f"""<torch>
class Test:
    def __init__(self, rows):
        self.rows = rows
    def __call__(self, model):
        right = 0
        {head}
            for x in {rows}:
                right += model(x).sum().item()
        return right
test = Test(DataLoader(range(8)))
<model torch.nn.Linear(1, 1)>
<loop>
with open("o.txt", "w") as file:
    file.write(str(test(model)))
"""
    done = conversion(text).text
    assert ("if accelerator.is_main_process:\n    with open(" in done) is is_guarded, done


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ("file.close()", '        file.write("x")\n    file.close()'),
        ("print(file.name)", 'with open("o.txt" if accelerator.is_main_process else os.devnull, "w") as'),
        ("file = 3\nprint(file)", "if accelerator.is_main_process:\n    with open("),
    ],
)
def test_a_name_behind_its_block_is_bound_where_it_is_read(behind: str, expected: str) -> None:
    text = """<torch>
<model torch.nn.Linear(1, 1)>
for x in DataLoader(range(8)):
    <step model(x).square().mean()>
with open("o.txt", "w") as file:
    file.write("x")
"""
    done = conversion(text + behind + "\n")
    assert expected in done.text, done.text
