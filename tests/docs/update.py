"""`python -m tests.docs.update PAGE...` runs a page's commands and writes what came: where the page shows something else
all of it, elsewhere the numbers."""

import sys
import tempfile
from pathlib import Path

from .console import prepare, read, refreshed, run


def updated(path: Path) -> str:
    page = read(path)
    text = path.read_text("utf-8")
    parts, end = [], 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve() / "project"
        folder.mkdir()
        prepare(page, folder)
        for block in page.blocks:
            if block.dry:
                continue
            shown = ""
            for command in block.commands:
                came = run(command.text, folder)
                shown += f"$ {command.text}\n{refreshed(command.shown, came)}"
            parts += [text[end : block.start], shown]
            end = block.end
    return "".join(parts) + text[end:]


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(updated(path), "utf-8")


if __name__ == "__main__":
    main()
