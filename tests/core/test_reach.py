"""Nothing is edited that the entry script's training does not reach, whatever its name is."""

from pathlib import Path

import pytest
from crosstrain_migrate.core.reading.script import Script

from .converting import converted
from .projects import convert, rewritten, write
from .support import each_row

ENTRY = """
<torch>
{imports}
class Run:
    def train(self):
        <net torch.nn.Linear(1, 1)>
        for x in DataLoader(range(8)):
            <step net(x).square().mean()>
run = Run()
run.train()
{more}
"""
OTHER = """
import torch
__all__ = ["train", "score"]
def train(net):
    return torch.nn.DataParallel(net).cuda()
def score():
    return torch.ones(1).cuda()
"""


@each_row(r"""
imports => more => is_edited
import other => '' => False  # `run.train()` is a method, and no function of another file
import other => other.score() => True
import other\nfrom mine import score => score() => False  # a name is what its file imports
import other, mine => mine.score() => False  # of two files the one that is named
import other, mine => FILES = {'a': other, 'b': mine}; FILES[run.kind].score() => True
import other, mine => FILES = {'b': mine}; FILES[run.kind].score() => False
if torch:\n    import other as one\nelse:\n    import mine as one => one.score() => True
from other import score => score() => True
from passing import score => score() => True
from other import score as judged => judged() => True
import other, pack => pack.score.show() => False  # a package's file, and no function
import other, pack => pack.score.show(run).score() => True  # of what a call gives
""")
def test_what_a_name_reaches(imports: str, more: str, is_edited: bool, tmp_path: Path) -> None:
    files = {"other": OTHER, "mine": "def score():\n    return 1\n", "passing": "from other import score\n"}
    files |= {"pack/__init__": "from . import score\n", "pack/score": "def show(): 1\n"}
    (tmp_path / "pack").mkdir()
    files |= {"pack/entry": ENTRY.format(imports=imports, more=more)}
    assert (rewritten(tmp_path, "pack/entry", **files)["other"].strip() != OTHER.strip()) is is_edited


CLASSES = """
import torch
class Other:
    def __init__(self):
        self.net = torch.nn.Linear(1, 1).cuda()
    def train(self):
        return self.net.cuda()
class Named(Other):
    def train(self):
        return 1
"""


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ("", ["Linear(1, 1).cuda()", "self.net.cuda()"]),
        ("other.Named().train()", []),  # and the methods of its base
        ("import sys\ngetattr(other, sys.argv[1])().train()", ["Linear(1, 1).cuda()"]),
        ("modules = {'o': other}\nmodules['o'].Other().train()", []),
        ("eval(open('settings').read())().train()", []),  # what else would it be imported for?
        ("print(other)\neval(open('settings').read())().train()", ["Linear(1, 1).cuda()"]),
    ],
    ids=["nothing names it", "named", "looked up", "of one of several modules", "for a text", "for more"],
)
def test_methods_of_a_class_are_reached_where_it_is_named(more: str, left: list[str], tmp_path: Path) -> None:
    entry = ENTRY.format(imports="import other", more=more)
    after = rewritten(tmp_path, "entry", entry=entry, other=CLASSES)["other"]
    assert [one for one in ("Linear(1, 1).cuda()", "self.net.cuda()") if one in after] == left


TRAINS = """
<torch>
def main(args):
    <net torch.nn.Linear(1, 1)>
    for x in DataLoader(range(8)):
        <step net(x).square().mean()>
if __name__ == "__main__":
    main(None)
"""
SUBMITS = """
{imports}
import training
class Job:
    def __call__(self):
        training.main(None)
def main():
    executor = {executor}
    executor.submit(Job())
    {more}
if __name__ == "__main__":
    main()
"""


@each_row("""
imports => executor => more => is_left
import submitit => submitit.AutoExecutor(folder='jobs') => print('submitted') => True
import submitit => submitit.AutoExecutor(folder='jobs') => training.main(None) => False
from mine import Pool => Pool() => print('submitted') => False
""")
def test_a_script_that_hands_its_training_to_slurm_is_left_alone(
    imports: str, executor: str, more: str, is_left: bool, tmp_path: Path
) -> None:
    entry = SUBMITS.format(imports=imports, executor=executor, more=more)
    done = convert(write(tmp_path, training=TRAINS, entry=entry), "entry")
    assert ("crosstrain" not in (tmp_path / "training.py").read_text()) is is_left
    said = [f.reason for one in done.files for f in one.result.findings]
    assert any("submits a job" in reason for reason in said) is is_left


BESIDE = TRAINS.replace("def main(args):", "def score(name):\n    return name\n\ndef train(args):").replace(
    'if __name__ == "__main__":\n    main(None)\n', ""
)


@each_row(r"""
more => is_left
training.score('train') => True  # the name of a split
getattr(open('rows.txt'), 'train') => True
getattr(training, 'train')(None) => False
find = lambda where: getattr(where, 'train')\nfind(training)(None) => False
import sys\ngetattr(sys.modules['training'], 'train')(None) => False
import sys\nsays = 'train (best)|score'\ngetattr(training, sys.argv[1])(None) => False
training.score('train (best)|score') => True
# What a text begins with says where it looks.
import nets, sys\ntraining.score('train')\neval('nets.' + sys.argv[1] + '.make')() => True
import sys\ntraining.score('train')\neval(sys.argv[1])() => False
""")
def test_a_text_names_a_function_of_a_file_asked_for_names(more: str, is_left: bool, tmp_path: Path) -> None:
    after = rewritten(tmp_path, "entry", training=BESIDE, entry=f"import training\n{more}\n")["training"]
    assert ("crosstrain" not in after) is is_left


@pytest.mark.parametrize(("marked", "inside"), [("pyproject.toml", True), ("README.md", False)])
def test_what_is_installed_from_src_is_the_project_s(marked: str, inside: bool, tmp_path: Path) -> None:
    (tmp_path / marked).touch()
    for folder in ("scripts", "src/own"):
        (tmp_path / folder).mkdir(parents=True)
    write(tmp_path / "src" / "own", training=BESIDE)
    convert(write(tmp_path / "scripts", entry="import own.training\nown.training.train(None)\n"), "entry")
    assert ("crosstrain" in (tmp_path / "src" / "own" / "training.py").read_text()) is inside


@pytest.mark.parametrize("imported", ["datasets", "datasets.read"])
def test_a_folder_of_that_name_is_the_projects_where_a_module_in_it_is_asked_for(
    imported: str, tmp_path: Path
) -> None:
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "read.py").write_text("import torch\nx = torch.ones(4).cuda()\n")
    entry = ENTRY.format(imports=f"import {imported}", more="datasets.load_dataset('a')")
    convert(write(tmp_path, entry=entry), "entry")
    assert (".cuda()" in (tmp_path / "datasets" / "read.py").read_text()) is (imported == "datasets")


COMMANDS = """import click
<torch>
{group}
{command}
def fit(rate):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    <loop>
if __name__ == "__main__":
    {start}
"""


@each_row(r"""
group => command => start => trains
@click.group()\ndef cli():\n    pass => @cli.command()\n@click.option("--rate", type=float) => cli() => True
app = typer.Typer() => @app.command => app() => True
@click.group()\ndef cli():\n    pass => @cli.command() => print('nothing') => False
@click.group()\ndef cli():\n    pass => @cached.method() => cli() => False
ex = Experiment() => @ex.main => ex.run_commandline() => True
ex = Experiment() => @ex.main => print(ex) => False
def told():\n    print(click) => '' => told() => True  # it offers what it defines
def told(by):\n    by.main() => '' => told(click) => False
def told():\n    print(click) => '' => pass => False
""")
def test_a_command_of_a_group_is_reached_by_it(group: str, command: str, start: str, trains: bool) -> None:
    after = converted(COMMANDS.format(group=group, command=command, start=start))
    assert ("    accelerator = Accelerator()\n    model = torch.nn.Linear(4, 2)" in after) is trains
    assert ("accelerator.backward(" in after) is trains


def test_a_function_of_a_library_is_none_of_the_projects() -> None:
    text = "import rare as models\nfrom . import nets\ndef vgg(): ...\nmodels.vgg()\nnets.vgg()\nvgg()"
    script = Script(text)
    assert [one.lineno for one in script.callers(script.functions("vgg")[0])] == [5, 6]


def test_what_only_looks_at_its_argument_is_given_no_function() -> None:
    script = Script("def train(): ...\ndef parts(rows):\n    train = rows[1:]\n    len(train)\nrun(train)")
    assert [one.lineno for one in script.callers(script.functions("train")[0])] == [5]


def test_a_library_calls_no_method_by_its_name() -> None:
    script = Script(
        "import torch\nclass Kept:\n    def load(self, path): pass\ntorch.load(1)\nkept.load(2)\n"
    )
    assert [one.lineno for one in script.callers(script.functions("load")[0])] == [5]


def test_a_method_is_called_where_an_object_of_its_class_may_be() -> None:
    """`self` is of its class or of one derived from it, a class that is named runs its own."""
    script = Script(
        "class Base:\n    def start(self): pass\n    def run(self): self.start()\n"
        "class More(Base):\n    def start(self): Base.start(self)\n"
        "class Other:\n    def start(self): pass\nany_of_them.start()\nBase().run(), More(), Other()\n"
    )
    lines = [{one.lineno for one in script.callers(each)} for each in script.functions("start")]
    assert lines == [{3, 5, 8}, {3, 8}, {8}]


TRAINER = """
<torch>
import sys
class Trainer({base}):
    def __init__(self):
        super().__init__(); self.net = torch.nn.Linear(1, 1); self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def loss(self, x, mode):
        if mode == "fit": self.net(x).mean().backward()
        return self.net(x)
    def fit(self):
        for x in DataLoader(range(8)):
            self.optimizer.zero_grad()
            self.loss(x, "train")
            self.optimizer.step()
    def test(self): print(self.loss(torch.ones(1), "test"))
{start}
"""


@each_row(r"""
base => start => trains
object => Trainer().fit() => True
object => Trainer().test() => False
torch.nn.Module => Trainer().test() => False  # what a text is compared with names nothing
Base => class Base: pass\nTrainer().test() => False
threading.Thread => Trainer().test() => True  # the library may call anything
object => getattr(Trainer(), sys.argv[1])() => True
object => getattr(Trainer(), 'fi' + sys.argv[1])() => True
object => getattr(Trainer(), f'te{sys.argv[1]}')() => False
object => Trainer().test(); other.fit() => True
object => Trainer().test(); other.fit(1, 2) => False  # it takes none
torch.nn.Module => fire.Fire(Trainer) => True
object => t = Trainer()\neval('t.' + sys.argv[1])() => True
object => print(getattr(Trainer(), sys.argv[1])) => False
object => says = getattr(Trainer(), sys.argv[1]).__doc__ => False
object => getattr(Trainer(), 'te{}'.format(sys.argv[1]))() => False
object => getattr(Trainer(), 'fi%s' % sys.argv[1])() => True
""")
def test_a_script_that_only_tests_what_a_class_could_train(base: str, start: str, trains: bool) -> None:
    assert ("accelerator" in converted(TRAINER.format(base=base, start=start))) is trains


@pytest.mark.parametrize(
    ("imports", "name"),
    [("import nets", "nets"), ("import nets as zoo", "zoo"), ("from parts import nets", "nets")],
)
def test_networks_that_a_text_names_are_reached_in_their_package(
    imports: str, name: str, tmp_path: Path
) -> None:
    """`eval("nets." + name + ".make")`: the classes of the package, and its functions of that name."""
    net = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        return x.cuda()\n"
    net += "def make():\n    return Net()\ndef other(x):\n    return x.cuda()\n"
    entry = TRAINS.replace("<torch>", f"<torch>\nimport sys\n{imports}").replace(
        "def main(args):\n", f"def main(args):\n    eval('{name}.' + sys.argv[1] + '.make')()\n", 1
    )
    folder = tmp_path / ("parts/nets" if "parts" in imports else "nets")
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from . import small\n")
    (folder / "small.py").write_text(net)
    (folder.parent / "__init__.py").write_text("")
    convert(write(tmp_path, entry=entry), "entry")
    after = (folder / "small.py").read_text()
    assert after.count(".cuda()") == 1 and "return x.to(PartialState().device)\ndef make" in after


def test_a_dictionarys_method_is_no_method_of_the_project() -> None:
    """Guarded like one that writes, `state.update(loaded)` would leave the other processes with the weights that they drew."""
    script = Script(
        "class Monitor:\n    def update(self, rows): print(rows)\n"
        "KEPT, other = {}, made()\nstate = model.state_dict()\ndef told(rows):\n    KEPT.update(rows)\n"
        "state.update(loaded)\nother.update(1)\nmonitor = Monitor()\nmonitor.update(2)\ntold(3)\n"
    )
    assert [one.lineno for one in script.callers(script.functions("update")[0])] == [8, 10]
