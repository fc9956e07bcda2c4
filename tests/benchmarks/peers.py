"""The environment that the benchmark runs in: this one, with the peers installed beside it."""

import os
import subprocess
import sysconfig
import venv
from importlib.metadata import version
from pathlib import Path

PEERS = {"accelerate": "accelerate==1.15.0", "lightning_fabric": "lightning-fabric==2.6.*"}  # by module


def environment(folder: Path) -> tuple[Path, dict[str, str]]:
    """An interpreter that has torch, crosstrain and the peers; and why a peer is missing, by name.

    The folder keeps it for the next time.
    """
    python = folder / "bin" / "python"
    if not python.exists():
        venv.EnvBuilder(with_pip=True).create(folder)
        site = next((folder / "lib").glob("python*/site-packages"))
        ours = Path(sysconfig.get_path("purelib"))
        links = [str(ours), *(line for path in ours.glob("*.pth") for line in _paths(path))]
        (site / "project.pth").write_text("\n".join(links) + "\n")
    found = {name: _install(python, name, requirement) for name, requirement in PEERS.items()}
    return python, {name: problem for name, problem in found.items() if problem}


def _paths(link: Path) -> list[str]:
    """What an editable install adds to the path (a .pth file may also hold code, which is not for us)."""
    lines = link.read_text().splitlines()
    return [line for line in lines if line and not line.startswith(("import", "#"))]


def _install(python: Path, name: str, requirement: str) -> str | None:
    if subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0:
        return None
    return pip_install(python, requirement, f"torch=={version('torch')}")


def pip_install(python: Path, *requirements: str) -> str | None:
    """Why the first of them is not installed; None where it is."""
    env = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [python, "-m", "pip", "install", "--quiet", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    lines = done.stderr.strip().splitlines()
    return f"pip install {requirements[0]}: {lines[-1] if lines else '?'}" if done.returncode else None


def say_versions(python: Path) -> str:
    """The versions that are measured."""
    code = (
        "from importlib.metadata import version, PackageNotFoundError\n"
        "for name in ('torch', 'crosstrain', 'accelerate', 'lightning-fabric'):\n"
        "    try: print(name, version(name), end='  ')\n"
        "    except PackageNotFoundError: pass\n"
    )
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
