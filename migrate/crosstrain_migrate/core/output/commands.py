"""What a script runs another program for, as the text of the command says."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name, place_of, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

QUESTIONS = ("input", "raw_input")
_COMMANDS = words("os.system subprocess.call subprocess.run subprocess.check_call subprocess.check_output")
_PROGRAMS = _COMMANDS | words("subprocess.Popen os.popen subprocess.getoutput subprocess.getstatusoutput")
# A folder may be made by all; what is installed, all need.
_HARMLESS_COMMAND = re.compile(r"^\s*(mkdir|pip|(python )?-m pip|clear|cls|nvidia-smi|export|ulimit)\b")
_CHANGES_FILES = re.compile(r"(^|[;&])\s*(cp|mv|rm|ln|rsync|zip|touch|ffmpeg)\b")
FETCHES_FILES = re.compile(r"\b(wget|curl|unzip|tar|gdown|gunzip|aria2c)\b")


def runs_command(script: Script, call: ast.Call) -> bool:
    """Whether a call starts a program that may write: `process = Popen(command.split())`, where the text is known."""
    if script.dotted(call.func) not in _COMMANDS | {"subprocess.Popen"}:
        return False
    named = [n.id for n in walk_all(call.args[:1]) if isinstance(n, ast.Name)]
    made = [value for name in named for value in script.values(script.frame(call), name)]
    text = command_of(*call.args[:1], *made)
    return bool(text) and not _HARMLESS_COMMAND.match(text) and not FETCHES_FILES.search(text)


def makes_by_command(script: Script, call: ast.Call) -> bool:
    """`subprocess.Popen("mkdir -p %s" % path, shell=True)`"""
    return script.dotted(call.func) in _PROGRAMS and command_of(*call.args[:1]).split()[:1] == ["mkdir"]


def is_command(script: Script, call: ast.Call) -> bool:
    """Whether a call runs another program, which may write any file that it is told of."""
    return script.dotted(call.func) in _COMMANDS


def starts_itself(script: Script, call: ast.Call) -> bool:
    """`Popen([sys.executable, *sys.argv, "rank=1"])`"""
    named = [n.id for n in walk_all(call.args[:1]) if isinstance(n, ast.Name)]
    given = [*call.args[:1], *(value for name in named for value in script.values(script.frame(call), name))]
    told = {written(n) for n in walk_all(given) if isinstance(n, ast.Attribute)}
    names_another = re.search(r"\.py\b|^-m\b", command_of(*given)) is not None
    return (
        script.dotted(call.func) in _PROGRAMS and told >= {"sys.executable", "sys.argv"} and not names_another
    )


def is_heard(script: Script, call: ast.Call) -> bool:
    """Whether all run a program for what it says, `os.popen("wc -l " + path).read()`, of the files that it is told of."""
    return script.dotted(call.func) in _PROGRAMS and not is_statement_call(script, call)


def asks_person(script: Script, call: ast.Call) -> bool:
    """`input("Overwrite? ")`"""
    name = script.dotted(call.func)
    frames = (script.frame(call), script.module(call))
    return name in QUESTIONS and not any(script.binds(one, name) for one in frames)


def questions_in(script: Script, block: ast.AST) -> list[ast.Call]:
    return [n for n in walk(block) if isinstance(n, ast.Call) and asks_person(script, n)]


def is_answered(script: Script, call: ast.Call) -> bool:
    """`code = os.system("cp -R %s %s" % (source, copy))`: a second process would be in its way, and all go by its answer."""
    ends = last_name(call.func) not in ("Popen", "popen") and is_heard(script, call)
    return ends and _CHANGES_FILES.search(command_of(*call.args[:1])) is not None


def removes(script: Script, call: ast.Call) -> bool:
    """`os.system("rm -rf " + path)`, `os.system("mv %s old" % path)`"""
    return is_command(script, call) and command_of(*call.args[:1]).split()[:1] in (["rm"], ["mv"])


def command_of(*made: ast.expr) -> str:
    """The text of a command, as far as it is written out."""
    parts = [n for n in walk_all(made) if isinstance(n, ast.Constant)]
    return " ".join(n.value for n in sorted(parts, key=place_of) if isinstance(n.value, str))
