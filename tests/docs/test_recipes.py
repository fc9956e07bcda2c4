"""What the documentation gives to copy into other programs' files: a hook, an editor's task, a configuration."""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from crosstrain_migrate.cli.config import load

from .console import ROOT, run

PLAIN = ROOT / "golden/mnist_functions/before.py"
REFUSED = ROOT / "golden/tensor_parallel/before.py"
PUSH = "git -c user.name=a -c user.email=a@b commit -qam work && git push -q origin HEAD; echo exit code $?"


def _block(page: str, language: str) -> str:
    """The only block of a language in a page."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return str(found)


@pytest.mark.skipif(os.name == "nt", reason="the hook is a shell script")
def test_the_hook_stops_a_push_until_the_script_is_converted(tmp_path: Path) -> None:
    work, remote = tmp_path / "work", tmp_path / "remote"
    run("git init -q --bare remote && git init -q work && git -C work remote add origin ../remote", tmp_path)
    shutil.copy(PLAIN, work / "train.py")
    hook = work / ".git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_block("guides/editors.md", "sh"))
    hook.chmod(0o755)
    run("git add -A", work)
    stopped = run(PUSH, work)
    assert "would change train.py" in stopped
    assert "exit code 1" in stopped
    assert not list((remote / "refs/heads").iterdir())
    run("migrate train.py --write", work)
    assert run(PUSH, work).endswith("exit code 0\n")
    assert list((remote / "refs/heads").iterdir())


def test_the_task_of_vs_code_finds_every_finding(tmp_path: Path) -> None:
    (task,) = json.loads(_block("guides/editors.md", "json"))["tasks"]
    matcher: dict[str, Any] = task["problemMatcher"]
    pattern = matcher["pattern"]
    shutil.copy(REFUSED, tmp_path / "refused.py")
    shutil.copy(PLAIN, tmp_path / "train.py")
    lines = run(f"{task['command']} --tpu", tmp_path).splitlines()
    found = [match for line in lines if (match := re.match(pattern["regexp"], line))]
    seen = [[match[pattern[name]] for name in ("file", "line", "column", "code")] for match in found]
    assert seen == [["refused.py", "26", "13", "CT901"], ["train.py", "52", "26", "CT703"]]
    assert all(match[pattern["message"]] for match in found)
    assert matcher["severity"] in ("error", "warning", "info")
    makeprg = re.search(r"makeprg=(.*)", _block("guides/editors.md", "vim"))
    assert makeprg and makeprg[1].replace("\\ ", " ") == task["command"], "vim runs another command"


def test_the_configuration_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(_block("reference/configuration.md", "toml"))
    read = load([tmp_path], None)
    assert (read.ignore, read.exclude, read.runtime) == (("CT401",), ("third_party/",), "crosstrain")
