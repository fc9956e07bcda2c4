"""What writes files, shows windows, or fetches: tables of calls, and questions about a single call.

What a function of a module that was not read writes, its name and what it is given say.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import defaults_by_name, last_name, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .commands import _HARMLESS_COMMAND, command_of, is_command

REMOVERS = ("shutil.rmtree", "os.remove", "os.unlink", "os.rmdir", "os.removedirs")
# Functions that write a file, with the position of the argument that names it.
FUNCTIONS = {
    **dict.fromkeys(
        ("numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "scipy.io.savemat"), 0
    ),
    **dict.fromkeys(("scipy.io.wavfile.write", "scipy.sparse.save_npz", "soundfile.write"), 0),
    **dict.fromkeys(("torchaudio.save", "librosa.output.write_wav", "write_wav", "os.mknod"), 0),
    **dict.fromkeys(("pickle.dump", "cPickle.dump", "json.dump", "yaml.dump", "yaml.safe_dump"), 1),
    **dict.fromkeys(("joblib.dump", "dill.dump", "shutil.make_archive", "torch.jit.save"), 1),
    **dict.fromkeys(("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copytree", "shutil.move"), 1),
    **dict.fromkeys(("os.rename", "os.renames", "os.replace", "os.link", "os.symlink"), 1),
    **dict.fromkeys((*REMOVERS, "torchvision.io.write_video"), 0),
    "torch.onnx.export": 2,
}
# What a second process would not find any more, or would take away from the first.
_ONCE = frozenset({"os.rename", "os.renames", "os.replace", "shutil.move", "os.remove", "os.unlink"})
# The same by the last part of their names, which say enough: functions, or methods of a figure, a table, a path.
WRITERS = {
    **dict.fromkeys(
        ("savefig", "imwrite", "imsave", "mimsave", "mimwrite", "savetxt", "savez", "save_npz", "savemat"), 0
    ),
    **dict.fromkeys(("to_csv", "to_pickle", "to_excel", "to_parquet", "tofile", "save_pretrained"), 0),
    **dict.fromkeys(("write_text", "write_bytes", "write_html", "write_image", "write_videofile"), 0),
    **dict.fromkeys(("save_image", "WriteImage"), 1),
    "dump_json": 1,
    "append_flags_into_file": 0,
    **dict.fromkeys(("unlink", "symlink_to", "hardlink_to"), None),
}
# `ion` among them: in interactive mode a figure opens its window as soon as it is made.
SHOWS = words(
    "matplotlib.pyplot.show matplotlib.pyplot.pause matplotlib.pyplot.ion pylab.show pylab.pause pylab.ion"
    " cv2.imshow cv2.namedWindow cv2.waitKey cv2.destroyAllWindows"
)
STREAMS = frozenset({"sys.stdout.write", "sys.stderr.write", "sys.stdout.writelines"})
CONSOLES = words("rich.console.Console rich.get_console")
ECHOES = words("click.echo click.secho typer.echo pprint.pprint pprint.pp rich.print termcolor.cprint")
_RECORDS = re.compile(r"add_(scalar|scalars|histogram|pr_curve|hparams|embedding)$")
_RECORDS_OF_WRITER = re.compile(r"add_(image|images|graph|text|figure|video|audio)$")
_TRACKS = re.compile(r"(mlflow|swanlab)\.(\w+\.)?(log|set_(tag|experiment)|register_model)")
_WRITER = re.compile(r"writer|board|\btb\b|summary|vis\b|viz\b|logger", re.I)
OPENS = frozenset({"open", "io.open", "codecs.open", "gzip.open", "bz2.open", "lzma.open"})
_IN_MEMORY = frozenset({"BytesIO", "StringIO"})
# Files of other kinds, which cannot be the null device.
CONTAINERS = frozenset({"h5py.File", "zipfile.ZipFile", "tarfile.open", "lmdb.open", "shelve.open"})
_LIBRARY = re.compile(r"^(torch|torchvision|scipy|skimage|imageio|matplotlib|cv2|numpy|pandas|PIL|plotly)\.")
_MODE = re.compile(r"[rwaxbtU+]{1,4}")
# Libraries whose functions save together, or have been seen to by other rules.
_COMMUNICATES = re.compile(r"^(torch|torch_xla|deepspeed|accelerate|fairscale|megatron|apex)\.")
_WRITE_NAMES = re.compile(r"^(save|write|plot|draw|export|dump)")
_SAVES_MODEL = re.compile(r"save_(model|weights|checkpoint|ckpt|network)")
# Methods of a library's object; an engine's checkpoint is saved by all processes together.
_SAVES_BY_NAME = re.compile(r"(save|write|export|dump)_(?!.*(checkpoint|state|model))")
_FILE = re.compile(r"\.[a-z]\w{1,4}$")
_FOLLOWED = 3


def opened_path(script: Script, node: ast.AST) -> ast.expr | None:
    """The path of `open(path, "w")`; None for another call, and for one that reads."""
    if not isinstance(node, ast.Call) or script.dotted(node.func) not in OPENS or not node.args:
        return None
    mode = mode_of(script, node, 1)
    is_written = set(mode) & set("wax") and ("+" not in mode or _is_never_read(script, node))
    return node.args[0] if is_written else None


def _is_never_read(script: Script, opened: ast.Call) -> bool:
    """Whether nothing but methods that write is asked of a variable that holds a file: `log = open(path, "a+")`."""
    bound = script.parent(opened)
    if not isinstance(bound, ast.Assign) or not isinstance(bound.targets[0], ast.Name):
        return False
    return _is_only_written(script, script.frame(opened), bound.targets[0].id, 0)


def _is_only_written(script: Script, frame: Frame, name: str, depth: int) -> bool:
    """Whether a variable's file is only written, also by the functions of the project that are given it."""
    frames = script.frames_in(script.module(frame))
    inside = [one for one in frames if one is frame or not script.binds(one, name)]
    return all(_writes(script, read, depth) for one in inside for read in script.reads(one, name))


def _writes(script: Script, read: ast.expr, depth: int) -> bool:
    use = script.parent(read)
    if isinstance(use, ast.Attribute):
        return use.attr in ("write", "writelines", "flush", "close")
    if isinstance(use, ast.Compare) or (isinstance(use, ast.keyword) and use.arg == "file"):
        return True  # `if log is not None:`, `print(..., file=log)`
    call = script.parent(use) if isinstance(use, ast.keyword) else use
    if not isinstance(call, ast.Call) or depth > 2:
        return False
    functions = script.functions_of(call)
    given = [
        _is_only_written(script, one, name, depth + 1)
        for one in functions
        for name, value in script.given_by(call, one).items()
        if value is read
    ]
    return bool(given) and len(given) == len(functions) and all(given)


def opens_to_write(script: Script, node: ast.AST) -> bool:
    """`open(path, "w")`, `path.open("w")`, `folder.open(name, "w")`, `h5py.File(path, "w")`, `lmdb.open(path, map_size=n)`, which
    readers give no size."""
    if not isinstance(node, ast.Call) or any(last_name(path) == "devnull" for path in node.args[:1]):
        return False
    name = script.dotted(node.func)
    if name == "lmdb.open":
        return {"map_size"} == {k.arg for k in node.keywords} & {"map_size", "readonly"}
    if name == "shelve.open":
        return "'r'" not in map(ast.unparse, (*node.args[1:], *(k.value for k in node.keywords)))
    if name in OPENS | CONTAINERS:
        return bool(set(mode_of(script, node, 1)) & set("wax"))
    is_path = is_method(node, "open") and not name.startswith("PIL.")
    return is_path and any(set(mode_of(script, node, at)) & set("wax") for at in (0, 1))


def mode_of(script: Script, call: ast.Call, position: int) -> str:
    """The mode in which a call opens a file; empty where it is not known."""
    given = next((k.value for k in call.keywords if k.arg == "mode"), None)
    if given is None and len(call.args) > position:
        given = call.args[position]
    modes = {*_texts(script, given)}
    is_one = len(modes) == 1 or all(set(text) & set("wax") for text in modes)
    return "".join(sorted(modes)) if is_one else ""


def _texts(script: Script, mode: ast.expr | None, depth: int = 3) -> list[str]:
    """The modes that an expression may be, also a variable, `mode = "a" if resumed else "w"`, or what a function is given."""
    values: list[ast.expr | None] = [mode.body, mode.orelse] if isinstance(mode, ast.IfExp) else []
    if isinstance(mode, ast.Name) and depth:
        frame = script.frame(mode)
        values = [*script.values(frame, mode.id)]
        if is_function_frame(frame) and mode.id in script.parameters(frame):
            told = [script.argument_for(one, frame, mode.id) for one in script.callers(frame)]
            default = defaults_by_name(frame.args).get(mode.id)
            values = [default if one is None else one for one in told or [default]]
    if values:
        return [text for one in values for text in _texts(script, one, depth - 1)]
    text = mode.value if isinstance(mode, ast.Constant) else None
    return [text if isinstance(text, str) and _MODE.fullmatch(text) else ""]


def removes_file(script: Script, call: ast.Call) -> bool:
    """Whether a call removes a file or a folder by its path."""
    return script.dotted(call.func) in REMOVERS


def happens_once(script: Script, call: ast.Call | None) -> bool:
    """Whether a call moves or removes a file."""
    return call is not None and (script.dotted(call.func) in _ONCE or moves_itself(script, call))


def moves_itself(script: Script, call: ast.Call) -> bool:
    """`path.replace(other)`; a text's method takes two, and its result is used."""
    is_plain = last_name(call.func) in ("rename", "replace") and len(call.args) == 1 and not call.keywords
    is_asked = isinstance(call.func, ast.Attribute) and not script.functions(call.func.attr)
    return is_plain and is_asked and is_statement_call(script, call)


def stands_alone(script: Script, call: ast.Call) -> bool:
    """Whether nothing is made of what a call returns: `grid = save_image(...)`, where nothing reads `grid`."""
    bound = script.parent(call)
    if not isinstance(bound, ast.Assign):
        return is_statement_call(script, call)
    names = [one.id for one in bound.targets if isinstance(one, ast.Name)]
    frame = script.frame(call)
    is_own = is_function_frame(frame) and all(script.binds(frame, one) for one in names)
    return is_own and len(names) == len(bound.targets) and not any(script.reads(frame, one) for one in names)


def writes_file(script: Script, call: ast.Call) -> bool:
    """Whether a library's call writes, moves or removes a file. What a function of the project does is seen in it."""
    name, last = script.dotted(call.func), last_name(call.func)
    if name in FUNCTIONS or moves_itself(script, call) or written_elsewhere(script, call) is not None:
        return not writes_memory(script, call)
    if is_command(script, call):
        return is_statement_call(script, call) and not _HARMLESS_COMMAND.match(command_of(*call.args[:1]))
    if is_of_project(script, call) and not _LIBRARY.match(name):
        return False
    if last in WRITERS or _TRACKS.match(name):
        return not writes_memory(script, call)
    if not isinstance(call.func, ast.Attribute):
        return False
    if last == "dump":  # of an array; a pickler's gets no path
        return bool(call.args) and _is_path(script, call.args[0])
    # `PlyData([points]).write(path)`: no open file
    if last == "write" and isinstance(call.func.value, ast.Call):
        return (kind := last_name(call.func.value.func))[:1].isupper() and kind not in _IN_MEMORY
    if last in ("render", "export"):  # of a graph, of a mesh; an environment's gets no file
        return bool(call.args) and _names_file(script, call.args[0], _FOLLOWED)
    if last == "save":  # of a picture, an animation, a vocabulary
        return bool(call.args) and not name.startswith("torch.") and not writes_memory(script, call)
    if _SAVES_BY_NAME.match(last) and any(_is_joined(script, one) for one in call.args):
        return is_statement_call(script, call)  # `matrix.save_obj(os.path.join(folder, "matrix"))`
    return records(script, call)


def records(_: Script, call: ast.Call) -> bool:
    """Whether a call tells an event writer something."""
    last, of = last_name(call.func), written(getattr(call.func, "value", call.func))
    is_plain = _RECORDS.match(last) is not None
    return is_plain or (_RECORDS_OF_WRITER.match(last) is not None and _WRITER.search(of) is not None)


def is_of_project(script: Script, call: ast.Call) -> bool:
    """Whether the project has a function of that name, or, where an object is asked, `video.save(path)`, a method."""
    named = script.functions(last_name(call.func))
    # `Path("out").mkdir()`: an object, not a module.
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_asked = of is not None and not (
        script.is_imported(call.func) and isinstance(of, ast.Name | ast.Attribute)
    )
    if isinstance(of, ast.Call) and written(of.func) == "super":  # a library's, where no class above has one
        cls = script.class_of(script.frame(of))
        above = script.all_methods(cls)
        return any(one in named and script.class_of(one) is not cls for one in above)
    made = script.values(script.frame(of), written(of)) if is_asked and of is not None else []
    made = [one for one in made if getattr(one, "value", one) is not None]
    if made and all(_is_librarys(script, one) for one in made):
        return False  # `picture = Image.fromarray(rows)`, where it may be None before
    return any(not is_asked or script.class_of(one) is not None for one in named)


def _is_librarys(script: Script, made: ast.expr, depth: int = 2) -> bool:
    """Whether a call makes a library's object, itself or in a function of the project that returns it."""
    if not isinstance(made, ast.Call):
        return False
    functions = script.functions_of(made) if depth else []
    returns = [(f, n.value) for f in functions for n in script.within(f) if isinstance(n, ast.Return)]
    given = [v for f, of in returns if of is not None for v in script.values(f, written(of)) or [of]]
    is_made = bool(given) and all(_is_librarys(script, one, depth - 1) for one in given)
    return _LIBRARY.match(script.dotted(made.func)) is not None or is_made


def _is_path(script: Script, node: ast.expr) -> bool:
    """Whether an expression, or what a variable is bound to, is a text or a path: `f"{folder}/loss.dat"`."""
    made = script.values(script.frame(node), node.id) if isinstance(node, ast.Name) else [node]
    texts = [n for n in walk_all(made) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return bool(texts) and all(
        isinstance(one, ast.Constant | ast.JoinedStr | ast.BinOp)
        or (isinstance(one, ast.Call) and last_name(one.func) in ("join", "format", "Path", "str"))
        for one in made
    )


def writes_memory(script: Script, call: ast.Call) -> bool:
    """Whether a call writes into a buffer in memory, which is each process's own: `figure.savefig(buffer)`."""
    path = path_of_write(script, call)
    bound = script.values(script.frame(call), written(path)) if path is not None else []
    made = bound or ([path] if path is not None else [])
    return bool(made) and all(isinstance(one, ast.Call) and last_name(one.func) in _IN_MEMORY for one in made)


def shows(script: Script, call: ast.Call) -> bool:
    """Whether a call opens a window, or prints otherwise than by `print`."""
    return script.dotted(call.func) in SHOWS or speaks(script, call)


def speaks(script: Script, call: ast.Call) -> bool:
    """Whether a call prints otherwise than by `print`, or has a bar print above itself."""
    name = script.dotted(call.func)
    to = written(call.func.value) if is_method(call, "write", "print", "log", "rule") else ""
    of_bar = is_method(call, "write") and (to in script.bars or name.startswith("tqdm."))
    kept = [] if script.values_anywhere("sys.stdout") else script.values_anywhere(to)
    made = (script.dotted(n.func) if isinstance(n, ast.Call) else f"{written(n)}.write" for n in kept)
    of_stream = any(kept) and {*made} <= STREAMS | CONSOLES
    return name in STREAMS | ECHOES or of_bar or of_stream


def saves_weights(script: Script, call: ast.Call) -> bool:
    return script.dotted(call.func) == "torch.save" and len(call.args) + len(call.keywords) >= 2


def path_of_write(script: Script, call: ast.Call) -> ast.expr | None:
    """The argument that names the file which a call writes."""
    if (path := opened_path(script, call)) is not None:
        return path
    if is_method(call, "open") and opens_to_write(script, call):
        is_of_path = script.dotted(call.func) not in OPENS | CONTAINERS and mode_of(script, call, 0)
        return call.func.value if is_of_path else call.args[0]
    name, last = script.dotted(call.func), last_name(call.func)
    if name not in FUNCTIONS and (path := written_elsewhere(script, call)) is not None:
        return path
    if last in ("write_text", "write_bytes") and isinstance(call.func, ast.Attribute):
        return call.func.value
    index = 1 if name == "torch.save" else FUNCTIONS.get(name, WRITERS.get(last, 0))
    if index is None or index >= len(call.args):
        return None
    return opened_path(script, call.args[index]) or call.args[index]


def written_elsewhere(script: Script, call: ast.Call) -> ast.expr | None:
    """The file that such a function writes: `save_checkpoint({"model": model.state_dict()}, path)`, `save_wav(wave, path)`."""
    name, last = script.dotted(call.func), script.last(call.func)
    is_imported = script.is_imported(call.func) or _by_star(script, call.func)
    is_unread = is_imported and not script.functions(last) and not script.classes(last)
    if not is_unread or _COMMUNICATES.match(name) or not is_statement_call(script, call):
        return None
    if _SAVES_MODEL.match(last) and len(call.args) > 1:
        return call.args[-1]
    if last.startswith("save") and any(map(_has_weights, call.args)):
        return next((one for one in call.args if not _has_weights(one)), None)
    paths = call.args if _WRITE_NAMES.match(last) else []
    return next((one for one in paths if _names_file(script, one, _FOLLOWED)), None)


def _names_file(script: Script, node: ast.expr, depth: int) -> bool:
    """Whether an expression is the path of a file, in its own function or as a caller gives it: `join(folder, "a.png")`."""
    texts = [n.value for n in walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if any(map(_FILE.search, texts)):
        return True
    if not isinstance(node, ast.Name) or not depth:
        return False
    frame = script.frame(node)
    found = list(script.values(frame, node.id))
    if not found and is_function_frame(frame) and node.id in script.parameters(frame):
        found += [script.argument_for(c, frame, node.id) or c for c in script.callers(frame)]
    return any(one is not node and _names_file(script, one, depth - 1) for one in found)


def _is_joined(script: Script, node: ast.expr) -> bool:
    """Whether an expression is a path that is put together: `os.path.join(folder, f"matrix_{epoch}")`, or that of a file."""
    values = script.values(script.frame(node), node.id) if isinstance(node, ast.Name) else []
    calls = [one for one in (node, *values) if isinstance(one, ast.Call)]
    return any(script.dotted(one.func) == "os.path.join" for one in calls) or _names_file(
        script, node, _FOLLOWED
    )


def _by_star(script: Script, node: ast.expr) -> bool:
    """Whether a name that nothing binds may come from a `from utils import *`."""
    module = script.module(node)
    stars = (one for one in script.table.each(ast.ImportFrom) if one.names[0].name == "*")
    is_free = isinstance(node, ast.Name) and script.table.scopes[script.frame(node)].resolve(node.id) is None
    return is_free and any(script.module(one) is module for one in stars)


def _has_weights(node: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and last_name(n.func) == "state_dict" for n in walk(node))
