"""`--emit`: files for other tools that run `migrate --check`.

Each of them installs Crosstrain, so it names the place that this Crosstrain was installed from: a commit, a wheel, or a
version of a registry.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from crosstrain_migrate import __version__

NAME = "crosstrain"
WHEELS = "wheels"  # the folder of the user's repository that a workflow takes a wheel from


@dataclass(frozen=True, slots=True)
class Origin:
    """Where Crosstrain can be installed from.

    repository, revision: of a commit; both empty otherwise. requirement: what `pip install` takes.
    wheel: the name of the wheel that another machine needs, because it cannot reach any of this; else empty.
    """

    requirement: str
    repository: str = ""
    revision: str = ""
    wheel: str = ""


def ci_snippet(name: str, given: str | None = None) -> str:
    """The file that runs `migrate --check` in "github-actions" or "pre-commit"."""
    from .templates import environment

    (template,) = environment().list_templates(filter_func=lambda file: file.startswith(f"ci-{name}."))
    origin = of_text(given) if given else of_this_installation()
    return environment().get_template(template).render(origin=origin, wheels=WHEELS)


def of_text(given: str) -> Origin:
    """What `--emit-from` says: git+URL@REVISION, a wheel, or a requirement such as crosstrain==1.2.

    Raises ValueError for a repository without a revision.
    """
    if given.startswith("git+"):
        url, at, revision = given.removeprefix("git+").rpartition("@")
        if not at or "/" in revision:
            raise ValueError("name the commit or tag as well: git+URL@REVISION")
        return _commit(url, revision)
    if given.endswith(".whl"):
        return _wheel(Path(given).absolute())
    return Origin(given)


def of_this_installation() -> Origin:
    """What the installation says of itself (PEP 610); a checkout that is not installed is its own commit."""
    try:
        text = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        return _checkout(Path(__file__).parents[3])
    if text is None:
        return Origin(f"{NAME}=={__version__}")
    origin = json.loads(text)
    if "vcs_info" in origin:
        return _commit(origin["url"], origin["vcs_info"]["commit_id"])
    place = Path(urlsplit(origin["url"]).path)
    if "dir_info" in origin:
        return _checkout(place)
    return _wheel(place) if origin["url"].startswith("file:") else Origin(f"{NAME} @ {origin['url']}")


def _commit(url: str, revision: str) -> Origin:
    url = _without_secrets(url)
    return Origin(f"{NAME} @ git+{_for_pip(url)}@{revision}", url, revision)


def _wheel(place: Path) -> Origin:
    return Origin(f"{NAME} @ {place.as_uri()}", wheel=place.name)


def _checkout(place: Path) -> Origin:
    """A checkout's commit at its remote; without one, in the checkout itself, and its wheel for other machines."""
    revision = _git(place, "rev-parse", "HEAD")
    if remote := revision and _git(place, "remote", "get-url", "origin"):
        return _commit(remote, revision)
    wheel = f"{NAME}-{__version__}-py3-none-any.whl"
    if not revision:
        return Origin(f"{NAME} @ {place.as_uri()}", wheel=wheel)
    return replace(_commit(place.as_uri(), revision), wheel=wheel)


def _git(place: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(place), *arguments], capture_output=True, text=True, check=False
        )
    except OSError:  # no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _without_secrets(url: str) -> str:
    """The address without the user and password of an HTTP one: the snippet is committed."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _for_pip(url: str) -> str:
    """`git@host:path` as the address that pip takes."""
    found = re.fullmatch(r"([\w.-]+@)?([\w.-]+):(?!//)(.+)", url)
    return f"ssh://{found[1] or ''}{found[2]}/{found[3]}" if found else url
