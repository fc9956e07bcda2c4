"""CT301 by use: a batch for all GPUs of a DataParallel, `DataLoader(rows, args.batch_size * args.n_gpu)`, and what is laid out
for each of them, `x.view(n_gpu, -1, 3)`.

A process has one device: several processes take the batch of one GPU each, one process that of the author's GPUs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.core.distributed.wrappers import PARALLEL, PARALLEL_CALLS, is_parallel, keeps_parallel
from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.placing.first import choose_visible
from crosstrain_migrate.core.placing.numbered import numbered_lists
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

REASON = "each process takes the batch of one GPU"
RATE = "each process takes this batch, which is one for all GPUs: the learning rate is computed from it"
_ONE_DEVICE = "each process has a device of its own"
_LAYS_OUT = ("repeat", "expand", "tile", "view", "reshape", "chunk", "split", "tensor_split")
_DEPTH = 3
_MAKES = re.compile(r"^torch\.((cuda\.)?\w*Tensor|randn?|zeros|ones|empty|full)$")
_NUMBER = re.compile(r"((n|nr|num|number)_?)?(of_)?gpus|(n|nr|num)_?gpu|gpus?_(num|count|size)", re.I)


def plan_gpu_batches(plan: Plan, accelerators: Accelerators) -> None:
    """Leaves out the number of GPUs where several processes have one each."""
    script = plan.script
    wrappers = [c for c in script.calls if is_parallel(script, c) or script.dotted(c.func) in PARALLEL_CALLS]
    gpus = _Gpus(script, wrappers)
    one_gpus = set[str]()  # what is multiplied by the number of GPUs: rows of one
    for loader in script.calls if wrappers else ():
        if not script.dotted(loader.func).endswith("DataLoader") or not script.is_reached(loader):
            continue
        samplers = [k.value for k in loader.keywords if k.arg == "batch_sampler"]
        made = [one for sampler in samplers for one in (sampler, *_bound(script, sampler))]
        sizes = [*loader.args[1:2], *(k.value for k in loader.keywords if k.arg == "batch_size")]
        sizes += [
            a
            for one in made
            if isinstance(one, ast.Call)
            for a in (*one.args, *(k.value for k in one.keywords))
        ]
        for size, (factor, of) in ((given, pair) for given in sizes for pair in _factors(script, given)):
            if not gpus.are_counted_by(factor) or plan.is_replaced(factor):
                continue
            if _makes_rate(script, written(size)):
                plan.note(PARALLEL, factor, RATE, "divide it by the number of GPUs, and check the rate")
            else:
                _take_out(plan, accelerators, factor)
                one_gpus.add(written(of))
    # The same product elsewhere, for noise of as many rows: `torch.randn(args.batch_size * n_gpu, 100)`.
    products = [one for one in script.table.each(ast.BinOp) if one_gpus and _is_size(script, one)]
    for factor, of in (pair for one in products for pair in _factors(script, one)):
        if written(of) in one_gpus and gpus.are_counted_by(factor) and not plan.is_replaced(factor):
            _take_out(plan, accelerators, factor)
    laid_out = [call for call in script.calls if wrappers and is_method(call, *_LAYS_OUT)]
    for times in (one for call in laid_out for one in call.args if gpus.are_counted_by(one)):
        if script.is_reached(times) and not _cuts_by(script, times):
            state = accelerators.state(times)
            code = f"({{gpus}} or 1) if {state}.num_processes == 1 else 1" if keeps_parallel(script) else "1"
            plan.replace(times, PARALLEL, _ONE_DEVICE, code, gpus=times)


def _take_out(plan: Plan, accelerators: Accelerators, factor: ast.expr) -> None:
    code = f"{{gpus}} if {accelerators.state(factor)}.num_processes == 1 else 1"
    code = f"({code})" if isinstance(plan.script.parent(factor), ast.BinOp) else code
    plan.replace(factor, PARALLEL, REASON, code, gpus=factor)


def _is_size(script: Script, node: ast.AST, depth: int = _DEPTH) -> bool:
    """Whether a number of rows, also by a variable, is one by which a tensor is made."""
    user = script.parent(node)
    user = script.parent(user) if isinstance(user, ast.Tuple) else user
    if isinstance(user, ast.Assign) and depth > 0:
        texts = map(written, user.targets)
        reads = (
            read for text in texts for frame in script.reached_frames for read in script.reads(frame, text)
        )
        return any(_is_size(script, read, depth - 1) for read in reads)
    return isinstance(user, ast.Call) and _MAKES.search(script.dotted(user.func)) is not None


def _cuts_by(script: Script, times: ast.expr) -> bool:
    """Whether the function cuts by the same number what it lays out, `x[i : i + n_gpus]`: it stays what it says."""
    reads = script.reads(script.frame(times), written(times))
    return any(isinstance(one, ast.Slice) for read in reads for one in script.around(read))


def _makes_rate(script: Script, size: str) -> bool:
    """`lr = args.lr * batch_size / 256`, which is that of the whole batch."""
    reads = [read for frame in script.frames for read in script.reads(frame, size)]
    bound = (statement for read in reads if isinstance(statement := script.statement(read), ast.Assign))
    return any(re.search(r"(^|[._])(lr|learning_?rate)", written(one.targets[0])) for one in bound)


class _Gpus:
    """What is the number of GPUs: torch's, a list's that the wrapper is given, what is named so."""

    def __init__(self, script: Script, wrappers: list[ast.Call]) -> None:
        self.script = script
        given = [k.value for call in wrappers for k in call.keywords if k.arg == "device_ids"]
        given += [one for call in wrappers for one in call.args[1 : 2 if is_parallel(script, call) else 3]]
        # `os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, config["gpus"]))`
        chosen = choose_visible(script, script.table.each(ast.Assign))
        joined = (n for s in chosen if isinstance(s, ast.Assign) for n in walk(s.value))
        given += [n for n in joined if isinstance(n, ast.Name | ast.Attribute | ast.Subscript)]
        self._lists = {*map(_name, given), *numbered_lists(script)} - {"", "map", "str"}
        ranges = (n for n in walk_all(given) if isinstance(n, ast.Call) and len(n.args) == 1)
        self._counts = {ast.unparse(n.args[0]) for n in ranges if last_name(n.func) == "range"}

    def are_counted_by(self, node: ast.expr, depth: int = 0) -> bool:
        if ast.unparse(node) in self._counts:
            return True
        if isinstance(node, ast.Call) and last_name(node.func) in ("max", "int") and node.args:
            return self.are_counted_by(node.args[-1], depth)
        if isinstance(node, ast.Call):
            is_length = last_name(node.func) == "len" and len(node.args) == 1
            is_counted = is_length and self._is_list(node.args[0], depth)
            return is_counted or self.script.dotted(node.func) == "torch.cuda.device_count"
        if not isinstance(node, ast.Name | ast.Attribute | ast.Subscript) or depth > _DEPTH:
            return False
        bound = _bound(self.script, node)
        return bool(_NUMBER.fullmatch(_name(node))) or any(
            self.are_counted_by(one, depth + 1) for one in bound
        )

    def _is_list(self, node: ast.expr, depth: int) -> bool:
        """What the wrapper is given, also cut out of a text: `devices = [int(one) for one in config.gpus.split(",")]`."""
        cut = [n.func.value for n in walk(node) if is_method(n, "split")]
        return any(_name(one) in self._lists for one in (node, *cut)) or any(
            self._is_list(one, depth + 1) for one in _bound(self.script, node) if depth < _DEPTH
        )


def _name(node: ast.expr) -> str:
    """`gpus` of `args.gpus` and of `config["gpus"]`"""
    key = node.slice if isinstance(node, ast.Subscript) else None
    return str(key.value) if isinstance(key, ast.Constant) else last_name(node)


def _factors(script: Script, size: ast.expr, depth: int = 0) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a size of a batch is multiplied with, and what that is then, also where its variable is bound: `size *= gpus`."""
    if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult):
        yield from ((size.left, size.right), (size.right, size.left))
    elif isinstance(size, ast.Name | ast.Attribute | ast.Subscript) and depth < _DEPTH:
        for value in _bound(script, size):
            yield from _factors(script, value, depth + 1)
        for one in script.table.each(ast.AugAssign):
            if isinstance(one.op, ast.Mult) and written(one.target) == written(size):
                yield one.value, one.value


def _bound(script: Script, node: ast.expr) -> list[ast.expr]:
    """What a variable is bound to in its function or file, or given, and an attribute or an entry anywhere."""
    if not isinstance(node, ast.Name):
        return [value for frame in script.frames for value in script.values(frame, written(node))]
    frame = script.frame(node)
    given = [value for value, _ in script.given_for(frame, node.id)]
    scope = script.table.of_node[node].resolve(node.id)
    homes = [one for one in script.frames if scope is not None and one is scope.node]
    return given or script.values(homes[0] if homes else script.module(node), node.id)
