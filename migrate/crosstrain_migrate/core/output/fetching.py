"""What fetches a file, or unpacks one: questions about a single call."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, defaults_by_name, last_name, written
from crosstrain_migrate.syntax.walks import walk_all

from .commands import FETCHES_FILES, command_of, is_command

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
        "freeimage.download",
    ),
    "gdown.download_file_from_google_drive",
)
# Libraries whose data sets are fetched, or made from raw files, when they are constructed, or split by a method of their class.
_SELF_FETCHING = re.compile(
    r"^(torch_geometric\.datasets|dgl\.data|medmnist)(\.\w+)*\.[A-Z]\w*$"
    r"|^torchtext(\.(legacy|experimental))?\.(datasets|vocab)(\.\w+)*\.([A-Z]\w*|pretrained_aliases)"
    r"(\.(splits|iters|download))?$"
    r"|^torch\.hub\.(load|list|help)$"
    r"|^ogb\.(\w+\.)+\w*Dataset\w*$|^sklearn\.datasets\.fetch_\w+$|^gensim\.downloader\.load$"
    r"|^(tensorflow\.)?keras\.datasets\.\w+\.(load_data|get_word_index)$"
)
# Those that do so where the project derives from them, and which of its methods they run where the files are not there.
_FILLED_FIRST = {"torch_geometric.data.": ("download", "process"), "dgl.data.": ("download",)}


def fetches(script: Script, call: ast.Call) -> bool:
    """Whether a call brings a file, or unpacks one, without asking whether it is there."""
    name, last = script.dotted(call.func), last_name(call.func)
    if is_command(script, call):
        told = [
            *call.args[:1],
            *(k.value for k in call.keywords if k.arg == "env"),
        ]  # `env={"lines": "wget ..."}`
        return FETCHES_FILES.search(command_of(*told)) is not None
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
        # DATASETS["AG_NEWS"](...)
        named = call.func.value if isinstance(call.func, ast.Subscript) else call.func
        is_library = _SELF_FETCHING.match(script.dotted(named)) is not None
        is_library = is_library and not any(ast.unparse(k) == "source='local'" for k in call.keywords)
        return is_library or _fetches_vectors(call) or bool(filling(script, call))
    return not (isinstance(value, ast.Constant) and not value.value) and not is_off(script, call, value)


def filling(script: Script, call: ast.Call) -> list[Function]:
    """What a library runs where a call makes a data set of the project's whose files are not there: its `download`, `process`."""
    methods = script.all_methods(script.class_made(call))
    bases = {script.dotted(b) for one in map(script.class_of, methods) if one is not None for b in one.bases}
    of = [base for base in bases if base.endswith("Dataset")]
    named = [n for start, names in _FILLED_FIRST.items() for b in of if b.startswith(start) for n in names]
    kept = [v for one in methods if one.name == "processed_file_names" for v in script.returned(one)]
    if any(isinstance(v, ast.List) and not v.elts for v in kept):
        return []  # it keeps no files: each process fills its own
    return [one for one in methods if one.name in named and not script.callers(one)]


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
