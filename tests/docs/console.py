"""The `console` blocks of a page: read, run and compared.

A page says in comments what its commands need, and readers do not see these:

    <!-- files: golden/resume/before.py=resume.py -->    copies from the repository, FROM=TO
    <!-- dry run: no cluster here -->                     the next block is not run, only its options are read

All blocks of a page run in one folder, from top to bottom. A line `...` stands for any lines, `...` in a line for any
text; times, rates and hashes are compared by their form.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
_TOKEN = re.compile(
    r"^<!-- (?P<word>files|dry run): (?P<rest>.*?) -->$|^```console\n(?P<block>.*?)^```$", re.M | re.S
)
_PROMPT = "$ "
# Commands that a dry run may show without being able to look at their options.
FOREIGN = re.compile(
    "git clone|pip install|python -m venv|source|sbatch|kubectl|bash|code|chmod|cd|make gpu-check|uv"
)
# What differs from run to run and from machine to machine; numbers with a fraction are compared by their form.
_VARIES = (
    (re.compile(r"\b[\d,]+ samples/s"), "N samples/s"),
    (re.compile(r"\b\d+\.\d+(e-\d\d)?"), "N"),
    # seconds, last in verify's table
    (re.compile(r"^((?:original|\d+ process(?:es)?).*\S) +\d+ *$", re.M), r"\1 N"),
    (re.compile(r"\b[0-9a-f]{40}\b"), "COMMIT"),
    (re.compile(r"[▁▂▃▄▅▆▇█]+"), "CURVE"),
    (re.compile(r" +$", re.M), ""),
    (re.compile(r"(?<=\S)  +"), "  "),  # columns
)


@dataclass
class Command:
    """One command of a block, with the output that the page shows."""

    text: str
    shown: str = ""


@dataclass
class Block:
    """A console block. start, end: where its lines stand in the page; dry: why it is not run."""

    commands: list[Command]
    start: int
    end: int
    dry: str = ""


@dataclass
class Page:
    path: Path
    blocks: list[Block] = field(default_factory=list)
    files: list[tuple[Path, str]] = field(default_factory=list)


def read(path: Path) -> Page:
    """The console blocks of a page."""
    text = path.read_text("utf-8")
    page = Page(path)
    dry = ""
    for found in _TOKEN.finditer(text):
        if found["word"] == "files":
            pairs = (one.split("=") for one in found["rest"].split())
            page.files += [(ROOT / source, target) for source, target in pairs]
        elif found["word"] == "dry run":
            dry = found["rest"]
        else:
            page.blocks.append(Block(list(_commands(found["block"])), *found.span("block"), dry))
            dry = ""
    return page


def _commands(block: str) -> Iterator[Command]:
    command: Command | None = None
    for line in block.splitlines(keepends=True):
        if line.startswith(_PROMPT):
            if command is not None:
                yield command
            command = Command(line.removeprefix(_PROMPT).rstrip("\n"))
        elif command is None:
            raise ValueError(f"a console block begins with {line!r} and not with a command")
        elif command.text.endswith("\\"):
            command.text += "\n" + line.rstrip("\n")
        else:
            command.shown += line
    if command is not None:
        yield command


def prepare(page: Page, folder: Path) -> None:
    """Copy what the page's commands work on."""
    for source, target in page.files:
        if source.is_dir():
            shutil.copytree(source, folder / target, dirs_exist_ok=True)
        else:
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / target)


def run(command: str, folder: Path) -> str:
    """What a user of an 80-column pipe sees: both streams, as they come."""
    binaries = Path(sys.executable).parent
    hidden = ("CROSSTRAIN_QUIET", "COLUMNS", "FORCE_COLOR")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    variables |= {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in ("migrate", "runtime", "templates")),
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "HOME": str(folder / ".home"),
        "XDG_STATE_HOME": str(folder / ".home" / "state"),
        "XDG_CACHE_HOME": str(folder / ".home" / "cache"),
        "OMP_NUM_THREADS": "1",
        "TERM": "dumb",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    return done.stdout.replace(str(folder), "~")


def dry(command: str) -> str | None:
    """The command that reads the same options and starts nothing; None where there is none to read them."""
    if FOREIGN.match(command):
        return None
    if "crosstrain launch" not in command:
        raise ValueError(f"{command}: cannot be tried without being run")
    return command.replace("crosstrain launch", "crosstrain launch --print-config", 1)


def same(shown: str, came: str) -> bool:
    """Whether the page shows what came."""
    shown, came = (_without_what_varies(text).strip("\n") + "\n" for text in (shown, came))
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else _line(line) for line in shown.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, came) is not None


def refreshed(shown: str, came: str) -> str:
    """The shown lines with today's numbers; all that came where the page shows something else."""
    if not same(shown, came):
        return came.rstrip() + "\n" * bool(came.strip())
    lines, left = [], came.splitlines(keepends=True)
    for line in shown.splitlines(keepends=True):
        if line.strip() == "..." or "..." in line:
            lines.append(line)
            continue
        form = _without_what_varies(line)
        number = next(n for n, one in enumerate(left) if _without_what_varies(one) == form)
        lines.append(left[number].rstrip() + "\n")
        left = left[number + 1 :]
    return "".join(lines)


def _line(line: str) -> str:
    return ".*?".join(map(re.escape, line.split("...")))


def _without_what_varies(text: str) -> str:
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    return text
