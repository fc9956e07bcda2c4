"""`make demo`: a plain script, the diff, the proof that it trains the same, the migrated script on two processes.

Works in .demo/ and changes nothing else.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = Path(__file__).parent / "demo_assets" / "digits.py"

END = """
Test accuracy, plain script in one process:       {plain}
Test accuracy, migrated script on two processes:  {migrated}
Both are right: each of the two processes took batches of the script's size, so the second training made half as many
steps with twice the rows. With --split-batches it makes the steps of one process, and `verify` said {verdict}
of it above: the same training as one process, but for the rounding of sums.

Go on with your own script, in its environment:
  pip install {root}
  migrate train.py --verify
  migrate train.py --write
"""


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


def found(pattern: str, output: str) -> str:
    """What the last line of this form shows."""
    return (re.findall(pattern, output, re.MULTILINE) or ["not found"])[-1]


def main() -> None:
    folder = ROOT / ".demo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(SCRIPT, folder / "train.py")
    migrate = str(Path(sys.executable).parent / "migrate")
    plain = run("python train.py", sys.executable, "train.py")
    proof = run("migrate train.py --verify", migrate, "train.py", "--verify")
    run("migrate train.py --write", migrate, "train.py", "--write")
    launch = "crosstrain launch --cpu --num-processes 2 train.py"
    migrated = run(launch, str(Path(sys.executable).parent / "crosstrain"), *launch.split()[1:])
    verdict = found(r"^2 processes +(\w+)", proof)  # of two processes that share each batch
    before, after = (found(r"Test accuracy: ([\d.]+%)", output) for output in (plain, migrated))
    print(END.format(root=ROOT, plain=before, migrated=after, verdict=f"`{verdict}`"))


if __name__ == "__main__":
    main()
