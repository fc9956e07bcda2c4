"""What expressions say of a device: which kind one names, and what a test asks beside whether there is an accelerator."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from crosstrain_migrate.core.reading.forms import Frame, is_method, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk, walk_all

_ABOUT_GPU = re.compile(r"cuda|gpu|(?<![a-z])(mps(?![a-z])|cpu(_only)?(?!\w))|accel", re.I)
_GPU = re.compile(r"(cuda|mps|xpu)(:\d+)?")


def chosen_as_device(script: Script, node: ast.expr) -> ast.IfExp | None:
    """A choice that is an arm of another one: `("mps" if use_mps else "cpu")`."""
    if isinstance(node, ast.Call) and script.dotted(node.func) == "torch.device" and node.args:
        node = node.args[0]
    return node if isinstance(node, ast.IfExp) else None


def is_gpu(script: Script, frame: Frame, value: ast.expr) -> bool:
    """Whether an expression is a GPU wherever there is one."""
    if (choice := chosen_as_device(script, value)) is not None:
        return side_of(script, choice.body) == "gpu" and not flag_of(script, frame, choice.test)
    return side_of(script, value) == "gpu"


def arms_of(script: Script, node: ast.If) -> list[ast.expr]:
    """The devices that the arms of an `if` bind, where all but the last are GPUs and the last is the CPU, which may also be
    bound above it."""
    if (default := default_of(script, node)) is not None:
        return [default, *_devices_in(script, node.body, "gpu")]
    found: list[ast.expr] = []
    arm: ast.If | None = node
    while arm is not None:
        found += _devices_in(script, arm.body, "gpu")
        more = arm.orelse[0] if len(arm.orelse) == 1 else None
        if not isinstance(more, ast.If):
            last = _devices_in(script, arm.orelse, "cpu")
            return [*found, *last] if last else []
        arm = more
    return []


def _devices_in(script: Script, body: list[ast.stmt], kind: str) -> list[ast.expr]:
    return [s.value for s in body if isinstance(s, ast.Assign) and side_of(script, s.value) == kind]


def flag_of(script: Script, frame: Frame, test: ast.expr, depth: int = 0) -> str:
    """What a test asks beside whether an accelerator is there; empty where it asks nothing else."""
    if asks_availability(test) and isinstance(test, ast.Call | ast.Attribute):
        return ""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        found = [flag for value in test.values if (flag := flag_of(script, frame, value, depth))]
        return " and ".join(found)
    if isinstance(test, ast.BoolOp) and all(
        not flag_of(script, frame, value, depth) for value in test.values
    ):
        return ""
    if isinstance(test, ast.Compare) and "device_count" in ast.unparse(test):
        return ""
    if asks_place(test) or any(_is_decided_before(script, frame, name, test) for name in names_in(test)):
        return ""
    if isinstance(test, ast.Constant):
        return "" if test.value else "False"
    if isinstance(test, ast.IfExp) and _is_truth(test.body, True) and _is_truth(test.orelse, False):
        return flag_of(script, frame, test.test, depth)
    if isinstance(test, ast.IfExp) and asks_availability(test.orelse) and _is_truth(test.body, False):
        # `False if force_cpu else is_available()`
        return negated(flag_of(script, frame, test.test, depth + 1))
    if isinstance(test, ast.Name) and (decides := _set_under(script, frame, test.id)) is not None:
        return flag_of(script, frame, decides, depth + 1)
    if isinstance(test, ast.Name | ast.Attribute) and depth < 4:
        values = script.values(frame, written(test)) or script.values(script.module(test), written(test))
        is_one = len(values) == 1 and not has_condition(script, values[0])
        if is_one and not _is_deleted(script, frame, values[0]):
            inner = flag_of(script, frame, values[0], depth + 1)
            if not inner or asks_availability(values[0]):
                return inner
    return script.source(test)


def _set_under(script: Script, frame: Frame, name: str) -> ast.expr | None:
    """`wanted == -1` for a variable that is False unless `if wanted == -1:` makes it True."""
    values = script.values(frame, name)
    if len(values) != 2 or not _is_truth(values[0], False) or not _is_truth(values[1], True):
        return None
    above, under = (script.parent(script.statement(one)) for one in values)
    is_plain = isinstance(under, ast.If) and not under.orelse and script.parent(under) is above
    return (
        under.test
        if is_plain and isinstance(under, ast.If) and len(script.stores(frame, name)) == 2
        else None
    )


def negated(flag: str) -> str:
    if flag.startswith("not ") and " and " not in flag and " or " not in flag:
        return flag.removeprefix("not ")
    if re.fullmatch(r"[\w.]+ is not None", flag):
        return flag.replace("is not", "is")
    return f"not {flag}" if re.fullmatch(r"[\w.]+(\[[\w\"'.]+\])*", flag) else f"not ({flag})"


def has_condition(script: Script, node: ast.AST) -> bool:
    """Whether code runs under a condition, other than `if __name__ == "__main__":`."""
    return any(
        isinstance(one, ast.If | ast.IfExp | ast.Try) for one in script.around(node) if not is_main_test(one)
    )


def _is_decided_before(script: Script, frame: Frame, name: str, test: ast.expr) -> bool:
    """Whether a variable is a device's name that the script has chosen itself above a test: the choice is made there."""
    values = [one for one in script.values(frame, name) if place_of(one) < place_of(test)]
    sides = {side_of(script, value) for value in values}
    return {"gpu", "cpu"} <= sides or any(
        side_of(script, value) == "gpu" for value in values if not isinstance(value, ast.Constant | ast.IfExp)
    )


def _is_deleted(script: Script, frame: Frame, value: ast.expr) -> bool:
    """Whether what a flag was made of is deleted later: `del args.no_cuda`."""
    parts = {written(n) for n in walk(value) if isinstance(n, ast.Attribute)}
    return any(
        isinstance(node, ast.Delete) and any(written(target) in parts for target in node.targets)
        for node in script.within(frame)
    )


def asks_availability(test: ast.expr) -> bool:
    """`torch.cuda.is_available()`, also where its author has left out the parentheses."""
    return any(
        is_method(n, "device_count", "is_built")
        or (isinstance(n, ast.Attribute) and n.attr == "is_available")
        or _asks_torch(n)
        for n in walk(test)
    )


def _asks_torch(node: ast.AST) -> bool:
    """`hasattr(torch.backends, "mps")`: whether torch has a backend."""
    is_asked = isinstance(node, ast.Call) and last_name(node.func) == "hasattr" and len(node.args) == 2
    return is_asked and isinstance(node, ast.Call) and written(node.args[0]).startswith("torch")


def is_about_gpu(script: Script, frame: Frame, test: ast.expr) -> bool:
    """Whether a test names a GPU, or reads a variable that holds whether there is one."""
    values = [value for name in names_in(test) for value in script.values(frame, name)]
    return _ABOUT_GPU.search(ast.unparse(test)) is not None or any(map(asks_availability, values))


def asks_place(test: ast.expr) -> bool:
    """Whether a test asks where something is already: `images.is_cuda`, `images.device.type == "cuda"`."""
    return any(
        is_method(n, "get_device")
        or (isinstance(n, ast.Attribute) and (n.attr == "is_cuda" or written(n).endswith(".device.type")))
        for n in walk(test)
    )


def keeps_data(script: Script, choice: ast.IfExp) -> bool:
    """Whether the CPU is where data waits under a flag by which each batch is moved to the GPU, `if args.low_memory:`, and
    not where the script computes."""
    flag = written(choice.test)
    moves = (one for one in script.table.each(ast.If) if written(one.test) == flag)
    is_device = side_of(script, choice.body) == "cpu" and side_of(script, choice.orelse) == "gpu"
    return is_device and any(is_method(n, "cuda") for one in moves for n in walk_all(one.body))


def _is_truth(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def side_of(script: Script, node: ast.expr) -> str:
    """ "gpu" or "cpu", where an expression is a device of that kind."""
    if isinstance(node, ast.Call) and script.dotted(node.func) == "torch.device" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call) and script.dotted(node.func) == "torch.accelerator.current_accelerator":
        return "gpu"
    if isinstance(node, ast.JoinedStr):
        return "gpu" if ast.unparse(node).startswith(("f'cuda", 'f"cuda')) else ""
    if isinstance(node, ast.BinOp):
        node = node.left  # "cuda:%d" % gpu, "cuda:" + gpu
    if is_method(node, "format"):
        node = node.func.value  # "cuda:{}".format(gpu)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return "cpu" if node.value == "cpu" else "gpu" if _GPU.match(node.value) else ""
    if isinstance(node, ast.IfExp):
        return side_of(script, node.orelse) or side_of(script, node.body)
    return ""


def is_asked_as_text(script: Script, given: ast.expr) -> bool:
    """Whether a call asks for a device's name: of a function that uses it as a text, or of a library that may know no other."""
    outer = script.parent(given)
    call = script.parent(outer) if isinstance(outer, ast.keyword) else outer
    if not isinstance(call, ast.Call) or call.func is given:
        return False
    if script.is_of_library(call.func):
        return not script.dotted(call.func).startswith("torch.")
    return any(is_read_as_text(script, name, [function]) for function, name in script.given_on(given))


def is_read_as_text(script: Script, text: str, frames: Sequence[Frame] | None = None) -> bool:
    """Whether a variable is used as a text somewhere, or in some frames: compared, searched, or given where one is asked for."""
    for read in (read for frame in frames or script.frames for read in script.reads(frame, text)):
        parent = script.parent(read)
        is_searched = isinstance(parent, ast.Attribute) and parent.attr in ("startswith", "split", "find")
        is_given = isinstance(parent, ast.keyword) and parent.arg == "device_type"
        is_autocast = isinstance(parent, ast.Call) and last_name(parent.func) == "autocast"
        is_compared = isinstance(parent, ast.Compare | ast.FormattedValue | ast.BinOp)
        if is_searched or is_given or is_autocast or is_compared:
            return True
        if frames is None and is_asked_as_text(script, read):
            return True
    return False


def must_be_text(script: Script, text: str) -> bool:
    """Whether a variable that holds a device's name must hold one afterwards. What is kept among settings,
    `settings["device"] = device`, may be shown there with a width, or written as JSON, which a device cannot; settings
    within settings, `_C.MODEL.DEVICE`, and those that a library makes, `cfg = CfgNode()`, may take texts and numbers alone."""
    if is_read_as_text(script, text) or (text.count(".") > 1 and not text.startswith("self.")):
        return True
    made = [one for frame in script.frames for one in script.values(frame, text.rpartition(".")[0])]
    if any(isinstance(one, ast.Call) and script.is_of_library(one.func) for one in made):
        return True
    for read in (read for frame in script.frames for read in script.reads(frame, text)):
        parent = script.parent(read)
        is_entry = isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Subscript)
        if isinstance(parent, ast.Dict) or is_entry:
            return True
    return _is_dumped(script, text.rpartition(".")[0])


def _is_dumped(script: Script, options: str) -> bool:
    """Whether options are written as JSON with all that they hold: `json.dump(vars(args), file)`."""
    dumps = [call for call in script.calls if script.dotted(call.func) in ("json.dump", "json.dumps")]
    return options != "" and any(
        written(n) == f"{options}.__dict__"
        or (isinstance(n, ast.Call) and written(n.func) == "vars" and [*map(written, n.args)] == [options])
        for frame in {script.frame(call) for call in dumps}
        for n in script.within(frame)
    )


def default_of(script: Script, node: ast.If) -> ast.expr | None:
    """The CPU that a variable holds above an `if` without an `else` that binds a GPU to it; None where it is none such."""
    bound = {
        written(s.targets[0])
        for s in node.body
        if isinstance(s, ast.Assign) and side_of(script, s.value) == "gpu"
    }
    if node.orelse or len(bound) != 1 or script.table.is_whole_else(node):
        return None
    suite = script.suite_of(node)
    above = [
        s for s in suite[: suite.index(node)] if isinstance(s, ast.Assign) and written(s.targets[0]) in bound
    ]
    if not above or chosen_as_device(script, above[-1].value) is not None:
        return None  # a GPU wherever there is one, unless the branch takes another
    return above[-1].value if side_of(script, above[-1].value) == "cpu" else None
