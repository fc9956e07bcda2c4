"""The number of the GPU that the author chooses, `--gpu 1`: a process that nobody launched keeps to it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import stores_in

from .options import Options, origin
from .sides import asks_place, side_of

_GPU = ("cuda", "cuda:", "cuda:%d", "cuda:%s", "cuda:{}")


def gpu_number(script: Script, home: Frame, below: ast.stmt | None = None) -> tuple[Frame | None, str]:
    """The number's expression, and where its variable is bound; no frame for a constant, "" for none or several.

    `.cuda(args.gpu)`, `torch.device("cuda", 1)`, `f"cuda:{args.gpu}"`, `torch.cuda.set_device(gpu)`

    home: where the accelerator is made. below: a statement above which it is made.
    """
    options = Options(script)
    found: dict[object, tuple[Frame | None, str]] = {}  # by the option, or by the place
    sources: dict[str, str] = {}
    if _is_chosen_before(script, home):
        return None, ""
    if (held := _held_as_text(script)) is not None:
        return held
    for node in numbers_among(script, _numbering(script)):
        option = options.read_by(node)
        if isinstance(node, ast.Constant):
            found[node.value] = (None, str(node.value))
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            place = origin(script, script.frame(node), written(node), through_names=True)
            is_kept = below is not None and script.table.is_inside(node, below)
            if place[1] in map(written, stores_in(script.statement(node))) and not is_kept:
                return None, ""  # which is a device from here on
            sources[written(node)] = script.source(node)  # in the author's quotes
            key = place if option is None else option.call
            if (
                key not in found or script.class_of(place[0]) is None
            ):  # the words of who parsed it, not of an object
                found[key] = place
        else:
            return None, ""
        if option is not None and option.is_local_rank:
            return None, ""
    texts = {text for _, text in found.values()}
    is_entry = len(texts) == 1 and "[" in min(texts)  # `config["gpu"]`, in each function that is given it
    if (len(set(found.values())) != 1 and not is_entry) or texts <= {"0"}:
        return None, ""
    frame, text = next(iter(found.values()))
    return frame, sources.get(text, text)


def _held_as_text(script: Script) -> tuple[Frame, str] | None:
    """The one variable that holds the GPU's name where there are several: `name = "cuda:0"`, `name = "cuda:" + sys.argv[3]`."""
    nodes = [node for node, _ in _numbered(script, _numbering(script))]
    bound = [s.targets[0] if isinstance(s := script.parent(n), ast.Assign) else None for n in nodes]
    names = {one.id if isinstance(one, ast.Name) else "" for one in bound}
    return (
        (script.frame(nodes[0]), names.pop())
        if len(nodes) > 1 and len(names) == 1 and "" not in names
        else None
    )


def _is_chosen_before(script: Script, home: Frame) -> bool:
    """Whether the top level of a file chooses a GPU before the accelerator is made: everything is to be on that one."""
    nodes = (n for module in script.modules if module is not home for n in script.within(module))
    return any(
        isinstance(n, ast.expr) and side_of(script, n) == "gpu" and script.is_reached(n) for n in nodes
    )


def numbers_among(script: Script, nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """What stands where a GPU's number does, also in `.to(gpus[0])` beside `DataParallel(model, device_ids=gpus)`. A device
    that was made of one, `x.cuda(device)`, is none."""
    return (number for _, number in _numbered(script, nodes))


def _numbered(script: Script, nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, ast.expr]]:
    spread = {last_name(k.value) for call in script.calls for k in call.keywords if k.arg == "device_ids"} - {
        ""
    }
    for node in nodes:
        number_of: ast.expr | None = None
        if isinstance(node, ast.Constant):
            kind, _, number = node.value.partition(":") if isinstance(node.value, str) else ("", "", "")
            is_default = number == "0" and any(isinstance(one, ast.arguments) for one in script.around(node))
            is_part = isinstance(script.parent(node), ast.JoinedStr)
            if kind == "cuda" and number.isdigit() and not is_part and not is_default:
                number_of = ast.Constant(int(number))
        elif is_method(node, "to") and node.args and isinstance(first := node.args[0], ast.Subscript):
            if isinstance(first.slice, ast.Constant) and last_name(first.value) in spread:
                number_of = first
        elif (found := _number_in(script, node)) is not None:
            is_text = isinstance(node, ast.JoinedStr | ast.BinOp) or is_method(node, "format")
            # `device = torch.device(f"cuda:{device}")`
            number_of = found if is_text or not _is_device(script, found) else None
        if number_of is not None and script.is_reached(node) and not _is_of_file(script, node):
            yield node, number_of


def numbered_lists(script: Script) -> set[str]:
    """The last names of the lists whose entries number GPUs: `gpu_ids` of `f"cuda:{opt.gpu_ids[0]}"`."""
    numbers = numbers_among(script, _numbering(script))
    return {last_name(one.value) for one in numbers if isinstance(one, ast.Subscript)}


def _numbering(script: Script) -> list[ast.AST]:
    """What may number a GPU."""
    return [*script.table.each(ast.Constant, ast.JoinedStr), *script.table.each(ast.BinOp, ast.Call)]


def is_number(script: Script, node: ast.expr, lists: set[str]) -> bool:
    """Whether what `.to` is given is a GPU's number: `.to(0)`, `.to(gpu_ids[0])` of a list in `lists`, and `.to(gpu)` beside
    `.cuda(gpu)`."""
    if isinstance(node, ast.Name | ast.Attribute):
        calls = [c for c in script.calls_in(script.frame(node)) if is_method(c, "cuda") and c.args]
        return any(written(c.args[0]) == written(node) for c in calls) and not _is_device(script, node)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return not lists.isdisjoint(_names_of_list(script, node.value))
    return isinstance(node, ast.Constant) and type(node.value) is int


def numbers_given(script: Script, node: ast.expr, lists: set[str]) -> list[ast.expr]:
    """The GPUs' numbers that calls give a function which moves to what it is given, `.to(device)`, and does nothing else with
    it: they are named in the calls, since other scripts may give it theirs."""
    frame, name = script.frame(node), written(node)
    if not isinstance(node, ast.Name) or name not in script.parameters(frame) or script.stores(frame, name):
        return []
    users = [script.parent(read) for read in script.reads(frame, name)]
    if not all(one is not None and is_method(one, "to") for one in users):
        return []
    return [one for one, _ in script.given_for(frame, name) if is_number(script, one, lists)]


def _names_of_list(script: Script, node: ast.expr, depth: int = 4) -> set[str]:
    """The last name of a list, and of those that a parameter of its name is given."""
    frame, name = script.frame(node), written(node)
    found = {last_name(node)}
    given = script.given_for(frame, name) if depth and not script.values(frame, name) else []
    return found.union(*(_names_of_list(script, one, depth - 1) for one, _ in given))


def _is_device(script: Script, node: ast.expr) -> bool:
    frame, text = origin(script, script.frame(node), written(node), through_names=True)
    frames = script.frames if "." in text else [frame]  # `opt.device = torch.device(...)`, wherever it is set
    values = (value for one in frames for value in script.values(one, text))
    return any(side_of(script, value) for value in values)


def _is_of_file(script: Script, node: ast.AST) -> bool:
    """Whether a number says where a file's tensors go, `map_location="cuda:0"`: the model is placed for itself."""
    return any(isinstance(one, ast.keyword) and one.arg == "map_location" for one in script.around(node))


def _number_in(script: Script, node: ast.AST) -> ast.expr | None:
    if isinstance(node, ast.JoinedStr):
        parts = node.values if len(node.values) == 2 else []
        is_gpu = [getattr(part, "value", None) for part in parts[:1]] == ["cuda:"]
        return parts[1].value if is_gpu and isinstance(parts[1], ast.FormattedValue) else None
    if isinstance(node, ast.BinOp):
        is_gpu = isinstance(node.left, ast.Constant) and node.left.value in _GPU
        return _without_text(node.right) if is_gpu else None
    if not isinstance(node, ast.Call):
        return None
    name = script.dotted(node.func)
    if name == "torch.device" and node.args and getattr(node.args[0], "value", None) == "cuda":
        given = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "index")]
        return given[0] if given else None
    if name in ("torch.cuda.set_device", "torch.cuda.device") and len(node.args) == 1:
        return None if _is_place(script, node.args[0]) else node.args[0]
    if is_method(node, "format") and getattr(node.func.value, "value", None) in _GPU:
        return node.args[0] if len(node.args) == 1 else None
    if is_method(node, "cuda") and not name.startswith("torch."):
        given = [*node.args, *(k.value for k in node.keywords if k.arg == "device")]
        return given[0] if given else None
    return None


def _is_place(script: Script, node: ast.expr) -> bool:
    """Whether a GPU is that of a tensor: `torch.cuda.device(rows.get_device())`, `torch.cuda.device(rows.device)`."""
    given = [node, *script.values(script.frame(node), written(node))]
    own = [one for one in given if Options(script).read_by(one) is None]
    return any(asks_place(one) or getattr(one, "attr", "") == "device" for one in own)


def _without_text(node: ast.expr) -> ast.expr:
    """`gpu` of `str(gpu)`"""
    is_text = isinstance(node, ast.Call) and last_name(node.func) == "str" and len(node.args) == 1
    return node.args[0] if is_text and isinstance(node, ast.Call) else node
