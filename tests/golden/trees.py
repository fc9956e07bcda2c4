"""Golden cases of several files: before/ is a small project, after/ what `migrate before/` makes of it."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.outcome import Outcome
from crosstrain_migrate.results import Observed, Options

from .cases import GOLDEN, Case, dumped, load, said


@dataclass(frozen=True)
class Tree:
    case: Case

    @property
    def name(self) -> str:
        return self.case.name

    @property
    def before(self) -> Path:
        return self.case.folder / "before"

    @property
    def after(self) -> Path:
        return self.case.folder / "after"

    @property
    def entry(self) -> str:
        """What is run: `train.py`, or the notebook."""
        return "train.ipynb" if (self.before / "train.ipynb").is_file() else "train.py"

    def migrate(self, folder: Path) -> Outcome:
        """Migrates a copy of before/ at `folder`, in place."""
        shutil.copytree(self.before, folder, ignore=shutil.ignore_patterns("__pycache__"))
        return run(Request((folder,), self._options(folder), Mode.WRITE, cache=False), migrate_text)

    def _options(self, folder: Path) -> Options:
        """With facts.json beside before/, as `--facts` gives it."""
        facts = self.case.folder / "facts.json"
        if not facts.exists():
            return Options()
        return Options(observed=Observed((folder / self.entry).resolve(), facts.read_text(encoding="utf-8")))

    def report(self, outcome: Outcome, folder: Path) -> str:
        """What report.json holds: what is said of each file."""
        return dumped({f.source.path.relative_to(folder).as_posix(): said(f.result) for f in outcome.files})


def trees() -> list[Tree]:
    return [Tree(load(p)) for p in sorted(GOLDEN.iterdir()) if (p / "before").is_dir()]


def regenerate(tree: Tree) -> Outcome:
    """Writes after/ and report.json anew."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve() / "project"
        outcome = tree.migrate(folder)
        shutil.rmtree(tree.after, ignore_errors=True)
        shutil.copytree(folder, tree.after)
        (tree.case.folder / "report.json").write_text(tree.report(outcome, folder), encoding="utf-8")
    return outcome
