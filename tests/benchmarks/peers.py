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
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        return subprocess.run([str(python), *command], capture_output=True, text=True, env=env, check=False)

    if run("-c", f"import {name}").returncode == 0:
        return None
    pinned = f"torch=={version('torch')}"
    installed = run("-m", "pip", "install", "--quiet", requirement, pinned)
    lines = installed.stderr.strip().splitlines()
    return f"pip install {requirement}: {lines[-1] if lines else '?'}" if installed.returncode else None


def say_versions(python: Path) -> str:
    """The versions that are measured."""
    code = (
        "from importlib.metadata import version, PackageNotFoundError\n"
        "for name in ('torch', 'crosstrain', 'accelerate', 'lightning-fabric'):\n"
        "    try: print(name, version(name), end='  ')\n"
        "    except PackageNotFoundError: pass\n"
    )
    return subprocess.run(
        [str(python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
