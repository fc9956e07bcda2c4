"""`make demo`: a plain script, the diff, the migrated script on two processes, both accuracies.

Works in .demo/ and changes nothing else.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = Path(__file__).parent / "demo_assets" / "digits.py"


def run(title: str, *command: str) -> str:
    """Runs a command in .demo/, shows it and its output as it comes, and returns the output."""
    print(f"\n$ {title}", flush=True)
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=ROOT / ".demo", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        sys.exit(f"`{title}` failed with exit code {process.returncode}")
    return "".join(lines)


def accuracy(output: str) -> str:
    found = re.findall(r"Test accuracy: ([\d.]+%)", output)
    return found[-1] if found else "not printed"


def main() -> None:
    folder = ROOT / ".demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(SCRIPT, folder / "train.py")
    binaries = Path(sys.executable).parent
    plain = run("python train.py", sys.executable, "train.py")
    run("migrate train.py", str(binaries / "migrate"), "train.py")
    run("migrate train.py --write --no-diff", str(binaries / "migrate"), "train.py", "--write", "--no-diff")
    launch = "crosstrain launch --cpu --num-processes 2 train.py"
    migrated = run(launch, str(binaries / "crosstrain"), *launch.split()[1:])
    print(f"\nTest accuracy, plain script in one process:       {accuracy(plain)}")
    print(f"Test accuracy, migrated script on two processes:  {accuracy(migrated)}")


if __name__ == "__main__":
    main()
