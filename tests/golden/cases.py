"""The golden corpus: where each case is, and what its run.toml says."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.files.sources import Source
from crosstrain_migrate.results import FileResult, Options

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GOLDEN = Path(__file__).parent.parent.parent / "golden"


@dataclass(frozen=True)
class Case:
    name: str
    folder: Path
    args: tuple[str, ...]
    # "identical", "equal", "agree" or "none"; where a line shows the main process's own number, with a note, or a mean over
    # unequal shares of a last batch: "different", or "within noise" where the original draws at random
    two_processes: str
    expect: str  # "converted", "nothing" or "refused"

    @property
    def before(self) -> Path:
        return self.folder / "before.py"

    @property
    def after(self) -> Path:
        return self.folder / "after.py"

    def migrate(self) -> FileResult:
        return migrate_text(self.before, self.source.text, Options())

    @property
    def distributed(self) -> bool:
        """Whether the original shares its work among processes by itself."""
        return "init_process_group" in self.source.text

    @property
    def source(self) -> Source:
        """As the command reads it, line ends and all."""
        return decode(self.before, self.before.read_bytes())

    def report(self, result: FileResult) -> str:
        """What report.json holds."""
        return dumped(said(result))


def said(result: FileResult) -> dict[str, list[list[object]]]:
    """The findings, changes and roles of a migration."""
    return {
        "changes": [[c.line, c.rule, c.reason] for c in result.changes],
        "findings": [[f.line, f.rule, f.severity.value, f.reason] for f in result.findings],
        "roles": [[r.line, r.name, r.role, r.evidence] for r in result.roles],
    }


def dumped(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def load(folder: Path) -> Case:
    options = tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))
    return Case(folder.name, folder, tuple(options["args"]), options["two_processes"], options["expect"])


def cases() -> list[Case]:
    """Every case of one file; trees (several files) are migrated together and come with that."""
    return [load(p.parent) for p in sorted(GOLDEN.glob("*/run.toml")) if p.with_name("before.py").is_file()]
