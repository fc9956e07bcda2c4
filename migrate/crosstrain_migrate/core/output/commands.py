"""What a script runs another program for, as the text of the command says, and which calls fetch a file, or unpack one."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import defaults_by_name, last_name, place_of, words, written
from crosstrain_migrate.syntax.walks import walk_all

_COMMANDS = words("os.system subprocess.call subprocess.run subprocess.check_call subprocess.check_output")
_PROGRAMS = _COMMANDS | words("subprocess.Popen os.popen subprocess.getoutput subprocess.getstatusoutput")
# A folder may be made by all; what is installed, all need.
_HARMLESS_COMMAND = re.compile(r"^\s*(mkdir|pip|(python )?-m pip|clear|cls|nvidia-smi|export|ulimit)\b")
FETCHES_FILES = re.compile(r"\b(wget|curl|unzip|tar|gdown|gunzip|aria2c)\b")
FETCHES = (
    *(
        "urllib.request.urlretrieve",
        "urllib.urlretrieve",
        "urlretrieve",
        "download_url_to_file",
        "wget.download",
    ),
    *(
        "gdown.download",
        "download_url",
        "download_from_url",
        "download_and_extract_archive",
        "shutil.unpack_archive",
        "nltk.download",
    ),
    "gdown.download_file_from_google_drive",
)
# Libraries whose data sets are fetched, or made from raw files, when they are constructed, or split by a method of their class.
_SELF_FETCHING = re.compile(
    r"^(torch_geometric\.datasets|dgl\.data|medmnist)(\.\w+)*\.[A-Z]\w*$"
    r"|^torchtext(\.(legacy|experimental))?\.(datasets|vocab)(\.\w+)*\.([A-Z]\w*|pretrained_aliases)"
    r"(\.(splits|iters|download))?$"
    r"|^ogb\.(\w+\.)+\w*Dataset\w*$|^sklearn\.datasets\.fetch_\w+$|^gensim\.downloader\.load$"
    r"|^(tensorflow\.)?keras\.datasets\.\w+\.(load_data|get_word_index)$"
)


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


def is_heard(script: Script, call: ast.Call) -> bool:
    """Whether all run a program for what it says, `os.popen("wc -l " + path).read()`, of the files that it is told of."""
    return script.dotted(call.func) in _PROGRAMS and not is_statement_call(script, call)


def removes(script: Script, call: ast.Call) -> bool:
    """`os.system("rm -rf " + path)`"""
    return is_command(script, call) and command_of(*call.args[:1]).split()[:1] == ["rm"]


def command_of(*made: ast.expr) -> str:
    """The text of a command, as far as it is written out."""
    parts = [n for n in walk_all(made) if isinstance(n, ast.Constant)]
    return " ".join(n.value for n in sorted(parts, key=place_of) if isinstance(n.value, str))


def fetches(script: Script, call: ast.Call) -> bool:
    """Whether a call brings a file, or unpacks one, without asking whether it is there."""
    name, last = script.dotted(call.func), last_name(call.func)
    if is_command(script, call):
        return FETCHES_FILES.search(command_of(*call.args[:1])) is not None
    if script.functions(last):
        return False
    return name.endswith(FETCHES) or last == "extractall"


def fetches_itself(script: Script, call: ast.Call) -> bool:
    """A data set that looks for its files and fetches them: `MNIST(root, download=True)`."""
    value = next((k.value for k in call.keywords if k.arg == "download"), None)
    if value is None:
        options = [k.value for k in call.keywords if k.arg is None and script.class_made(call) is None]
        if any(_asks_to_fetch(script, one) for one in options):
            return True
        named = (
            call.func.value if isinstance(call.func, ast.Subscript) else call.func
        )  # DATASETS["AG_NEWS"](...)
        return _SELF_FETCHING.match(script.dotted(named)) is not None or _fetches_vectors(call)
    return not (isinstance(value, ast.Constant) and not value.value) and not is_off(script, call, value)


def _asks_to_fetch(script: Script, options: ast.expr) -> bool:
    """Whether `**options`, or `**TABLE[name]`, may say `download=True`, as the table is written down."""
    while isinstance(options, ast.Subscript):
        options = options.value
    home = script.frame(options)
    values = [
        *script.values(home, written(options)),
        *script.values(script.module(options), written(options)),
    ]
    nodes = walk_all((options, *values))
    given = [pair for n in nodes if isinstance(n, ast.Dict) for pair in zip(n.keys, n.values, strict=True)]
    pairs = [(getattr(key, "value", None), value) for key, value in given]
    pairs += [(n.arg, n.value) for n in nodes if isinstance(n, ast.keyword)]
    return any(key == "download" and isinstance(v, ast.Constant) and v.value is True for key, v in pairs)


def _fetches_vectors(call: ast.Call) -> bool:
    """`field.build_vocab(rows, vectors="glove.6B.100d")`."""
    given = (
        [k.value for k in call.keywords if k.arg == "vectors"]
        if last_name(call.func) == "build_vocab"
        else []
    )
    return any(isinstance(one, ast.Constant) and isinstance(one.value, str) for one in given)


def is_off(script: Script, node: ast.AST, value: ast.expr) -> bool:
    """Whether `download=download` passes on a parameter of the function around it that is false, and that no caller gives."""
    frame = script.frame(node)
    if isinstance(frame, ast.Module) or not isinstance(value, ast.Name):
        return False
    default = defaults_by_name(frame.args).get(value.id)
    is_false = isinstance(default, ast.Constant) and not default.value
    callers = script.callers(frame)
    may_give = any(keyword.arg is None for call in callers for keyword in call.keywords)  # f(**options)
    return is_false and not may_give and all(script.argument_for(c, frame, value.id) is None for c in callers)
