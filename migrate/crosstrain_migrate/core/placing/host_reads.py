"""CT105: what the code reads on the CPU comes from there.

A prepared loader gives its batches on the device, also those that the author's script left on the CPU: labels that become an
array at the end, lengths of packed sequences. `labels.numpy()` becomes `labels.cpu().numpy()`, which is right anywhere.

What the author leaves on the CPU, labels of which the script moves only a copy, `loss_of(out, y.to(device))`, is brought back where
it meets what comes from there: `(out.cpu() == y)` would mix devices, and so would a list of `y` beside one of `out.cpu()`. There it
becomes `y.cpu()`.

"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame, is_method, names_in, pairs
from crosstrain_migrate.core.reading.in_step import InStep
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name, place_of, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

RULE = "CT105"
REASON = "batches are on the device: what is read on the CPU is brought there"
GROUP = "read on the CPU"
_ARRAYS = ("numpy", "sklearn", "scipy", "pandas", "matplotlib")
_PACKED = "torch.nn.utils.rnn.pack_padded_sequence"
_KIND = re.compile(r"torch\.([A-Z][a-z]+Tensor)")
_READ = ("item", "tolist", "numpy", "size", "numel")
OF_TENSORS = words("to cuda size view float long detach unsqueeze squeeze argmax numel eq")
# Calls behind which a tensor is on another device, or no tensor any more; and those that only look at what they are given.
_MOVED = frozenset({"to", "cuda", "cpu", "item", "tolist", "numpy", "size", "dim", "numel", "type"})
# What numpy and sklearn cannot read of a device's tensor, in pieces.
_PULLED_APART = frozenset({"list", "tuple", "set", "sorted"})
_OF_PYTHON = _PULLED_APART | {"zip", "map", "range", "dict"}
_OF_TWO = words("eq ne lt le gt ge equal add sub mul div mm matmul dot gather")
_VIEWS = frozenset({"data", "T", "mT"})
_LOSS = re.compile("loss|crit|(^|_)(bce|mse|ce|nll)($|_)", re.I)
_LOOKS = frozenset({"print", "len", "isinstance", "str", "type", "format"})
# What only a tensor is asked for, among what stands in a batch: names, boxes, a dictionary of targets.
_TENSORS_OWN = (*OF_TENSORS, "cpu", "numpy", "item", "tolist", "bool", "byte", "flatten", "reshape")


def plan_host_reads(plan: Plan, code: InStep) -> None:
    """Brings to the CPU what numpy and packed sequences read."""
    script = plan.script
    for call in script.calls:
        if is_method(call, "numpy") and not call.keywords:
            if code.is_tensor(call.func.value) and not _is_on_cpu(script, call.func.value):
                plan.replace(call, RULE, REASON, "{of}.cpu().numpy()", GROUP, of=call.func.value)
        elif script.dotted(call.func) == _PACKED and len(call.args) > 1:
            _bring(plan, code, call.args[1])
        elif _reads_arrays(script, call):
            for argument in call.args:
                _bring(plan, code, argument)
        elif written(call.func) == "isinstance" and len(call.args) == 2:
            kind = _KIND.fullmatch(script.dotted(call.args[1]))
            if kind is not None and code.is_tensor(call.args[0]) and not _is_on_cpu(script, call.args[0]):
                reason = "the type is that of tensors on the CPU, and batches are on the device"
                plan.replace(call.args[1], RULE, reason, f"({kind[0]}, torch.cuda.{kind[1]})", GROUP)


def note_unseen_reads(plan: Plan, code: InStep) -> None:
    """Names what numpy or the like reads in a script without devices that may be a tensor of the batch, where no code shows it."""
    script = code.script
    for one in (argument for call in script.calls for argument in call.args if _reads_arrays(script, call)):
        frame = script.frame(one)
        if (
            isinstance(one, ast.Name)
            and code.is_tensor(one)
            and not _is_on_cpu(script, one)
            and not _is_list(script, frame, one)
            and not _is_array(script, frame, one)
            and not _is_tensor_for_sure(script, frame, one)
        ):
            reason = f"`{one.id}` may be a tensor of the device, which numpy cannot read"
            plan.note(RULE, one, reason, "add `.cpu()` if it is, or use `crosstrain launch --cpu`")


def _is_array(script: Script, frame: Frame, node: ast.expr) -> bool:
    """Whether a variable is bound, always or last, to what numpy or Python itself gives: `matrix = confusion_matrix(y, out)`,
    `_, labels = zip(*pairs)`."""

    def makes(value: ast.expr | None) -> bool:
        return isinstance(value, ast.Call) and (
            _reads_arrays(script, value) or written(value.func) in _OF_PYTHON
        )

    values, here = script.values(frame, written(node)), script.statement(node)
    stores = [one for one in script.stores(frame, written(node)) if script.statement(one) is not here]
    above = [script.statement(one) for one in stores if script.is_always_above(one, node)]
    last = max(above, key=place_of, default=None)
    return (bool(values) and all(map(makes, values))) or (isinstance(last, ast.Assign) and makes(last.value))


def _reads_arrays(script: Script, call: ast.Call) -> bool:
    return script.dotted(call.func).partition(".")[0] in _ARRAYS


def _bring(plan: Plan, code: InStep, node: ast.expr) -> None:
    """Brings an argument to the CPU, where it is a tensor for sure; a list of them is only spoken of."""
    script, frame = plan.script, plan.script.frame(node)
    if not isinstance(node, ast.Name | ast.Attribute) or not code.is_tensor(node) or _is_on_cpu(script, node):
        return
    if _is_list(script, frame, node):
        kept = _kept(script, frame, node)
        if any(_is_tensor_for_sure(script, frame, one) and not _is_on_cpu(script, one) for one in kept):
            plan.note(
                RULE,
                node,
                f"`{written(node)}` holds tensors of the device, which numpy cannot read",
                "add `.cpu()`",
            )
    elif not _is_array(script, frame, node) and _is_tensor_for_sure(script, frame, node):
        plan.replace(node, RULE, REASON, "{of}.cpu()", GROUP, of=node)


def _is_on_cpu(script: Script, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression, or what its variable is bound to elsewhere, goes over the CPU: `out.cpu().detach()`."""
    for one in walk(node):
        if is_method(one, "cpu", "numpy", "tolist", "item") or (
            is_method(one, "to") and any(getattr(a, "value", None) == "cpu" for a in one.args)
        ):
            return True
    match node:
        case ast.Subscript(value=of) | ast.Call(func=ast.Attribute(value=of)):
            return _is_on_cpu(script, of, depth)  # `y[i].squeeze()`
    values = script.values(script.frame(node), written(node)) if depth < 3 else []
    own = script.statement(node)  # `x = x.squeeze().numpy()` is there when this has run
    return any(_is_on_cpu(script, one, depth + 1) for one in values if script.statement(one) is not own)


def _is_list(script: Script, frame: Frame, node: ast.expr) -> bool:
    return any(isinstance(value, ast.List | ast.ListComp) for value in script.values(frame, written(node)))


def _kept(script: Script, frame: Frame, node: ast.expr) -> list[ast.expr]:
    """What is appended to a list."""
    calls = [
        c for c in script.calls_in(frame) if is_method(c, "append") and written(c.func.value) == written(node)
    ]
    return [argument for call in calls for argument in call.args]


def _is_tensor_for_sure(script: Script, frame: Frame, node: ast.expr) -> bool:
    """Whether the function calls a tensor's method on a variable, or binds it to what such a method gives."""
    text = written(node)
    later = _bound_later(script, frame, node)
    calls = [c for c in script.calls_in(frame) if is_method(c, *OF_TENSORS)]
    if any(written(c.func.value) == text and place_of(c) < later for c in calls):
        return True
    return is_method(node, *OF_TENSORS) or any(
        _is_chain(script, v) and place_of(v) < later for v in script.values(frame, text)
    )


def _is_chain(script: Script, node: ast.expr) -> bool:
    """Whether methods follow each other of which one is a tensor's, and none ends in a number: `(out == y).float().mean()`;
    `np.argmax(out, 1)` is an array's."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr not in _READ:
        if node.func.attr in OF_TENSORS and not _reads_arrays(script, node):
            return True
        node = node.func.value
    return False


def _bound_later(script: Script, frame: Frame, node: ast.expr) -> tuple[float, int]:
    """From where on a variable is not what is read here: it is bound again below, and no loop leads back."""
    loops = script.loops_around(node)
    stores = [
        one
        for one in script.stores(frame, written(node))
        if place_of(one) > place_of(node) and not set(loops) & set(script.loops_around(one))
    ]
    return min((place_of(script.statement(one)) for one in stores), default=(math.inf, 0))


def plan_left_on_cpu(plan: Plan, data: Iterable[Data], dealt: Iterable[ast.AST]) -> None:
    """Brings back what meets the CPU, in the loops over the training's data and over other prepared loaders."""
    for loop in dict.fromkeys([*(one.loop for one in data), *dealt, *_given(plan.script, data)]):
        if isinstance(loop, ast.For):
            _Left(plan, loop).run()


def _given(script: Script, data: Iterable[Data]) -> Iterator[ast.For]:
    """The loops of functions that are given a loader of the training as well: `check_accuracy(model, train_loader)`."""
    for one in data:
        for call in script.calls_in(one.frame):
            given = [
                (f, name, v)
                for f in script.functions_of(call)
                for name, v in script.given_by(call, f).items()
            ]
            for function, name, value in given:
                if written(value) == written(one.node):
                    loops = (n for n in script.within(function) if isinstance(n, ast.For))
                    yield from (n for n in loops if name in names_in(n.iter))


class _Left:
    """One loop over batches."""

    def __init__(self, plan: Plan, loop: ast.For) -> None:
        self.plan, self.script, self.loop = plan, plan.script, loop
        self.frame: Frame = self.script.frame(loop)
        counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) == "enumerate"
        target = loop.target.elts[-1] if counted and isinstance(loop.target, ast.Tuple) else loop.target
        self.whole = written(target) if isinstance(target, ast.Name) else ""
        self.names = {node.id for node in walk(target) if isinstance(node, ast.Name)} - {self.whole}
        self.here = walk_all(loop.body)
        self.moves = any(is_method(node, "to", "cuda") for node in self.here)
        self._unpack()

    def run(self) -> None:
        beside = [c.args[0] for c in self.here if is_method(c, "append", "extend") and c.args]
        lists = any(_is_from_cpu(self.script, one) for one in beside)
        for node in self.here:
            if isinstance(node, ast.expr) and self._is_left(node) and self._meets_cpu(node, lists):
                self.plan.replace(node, RULE, REASON, "{of}.cpu()", GROUP, of=node)

    def _unpack(self) -> None:
        """Adds what the body takes out of a whole batch: `x, y = batch`."""
        if self._is_moved:
            return
        assigned = [s for s in self.loop.body if isinstance(s, ast.Assign)]
        for target, value in (pair for s in assigned for t in s.targets for pair in pairs(t, s.value)):
            if self._is_part(value):
                self.names |= {n.id for n in walk(target) if isinstance(n, ast.Name)} - {self.whole}

    @cached_property
    def _is_moved(self) -> bool:
        """Whether the body moves a whole batch: `batch = [t.to(device) for t in batch]`, `batch.to(device)`."""
        if self._values(self.whole):
            return True
        stored = [n for n in self.here if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
        calls = [n for n in self.here if is_method(n, "to", "cuda") and is_statement_call(self.script, n)]
        return any(written(n.value) == self.whole for n in stored) or any(
            written(call.func.value) == self.whole for call in calls
        )

    def _is_part(self, node: ast.AST) -> bool:
        """Whether an expression is the whole batch, or an entry of it."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            node = node.value
        return isinstance(node, ast.Name) and node.id == self.whole

    def _is_left(self, node: ast.AST) -> bool:
        """Whether this reads a tensor of the batch that no statement moves."""
        if isinstance(node, ast.Subscript):
            return self._is_part(node) and not self._is_moved
        if not isinstance(node, ast.Name) or node.id not in self.names or not isinstance(node.ctx, ast.Load):
            return False
        return all(self._is_part(value) for value in self._values(node.id))

    def _values(self, name: str) -> list[ast.expr]:
        """What the loop binds a variable to, beside its target."""
        values = self.script.values(self.frame, name)
        return [one for one in values if self.script.table.is_inside(one, self.loop)]

    def _meets_cpu(self, node: ast.AST, lists: bool) -> bool:
        """Whether it stands beside what is on the CPU. lists: what comes from there is put into lists in this loop."""
        whole = self._with_methods(node)
        around = self.script.parent(whole) if whole is not None else None
        if whole is None or around is None:
            return False
        if is_method(around, "append", "extend") and whole in around.args:
            if not self._is_tensor(node, written(around.func.value)):
                return False
            is_kept = lists or (self.moves and around.func.attr == "extend")
            return is_kept and not self._is_read_from_cpu(written(around.func.value))
        if isinstance(around, ast.Call) and written(around.func) in _PULLED_APART:
            return self.moves and self._is_tensor(node, "")
        if not any(_is_from_cpu(self.script, other) for other in self._beside(whole, around)):
            return False
        return not isinstance(around, ast.Call) or self._takes_tensors(around) or self._is_tensor(node, "")

    def _takes_tensors(self, call: ast.Call) -> bool:
        """Whether all that a call is given are tensors: `pred.eq(y)`, a loss; `show(pred, name)` may be given a name."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        is_loss = _LOSS.search(last_name(call.func)) or self.script.dotted(call.func).startswith("torch.")
        return bool(is_loss) or (of is not None and _is_from_cpu(self.script, of))

    def _is_tensor(self, node: ast.AST, kept_in: str) -> bool:
        """Whether what a batch has is a tensor for sure, and no name of a file: it is asked for what tensors have, here or in
        another loop, or the list that it is put into is joined."""
        text = written(node)
        if any(
            is_method(c, *_TENSORS_OWN) and written(_base(c.func.value)) == text for c in self.script.calls
        ):
            return True
        joins = (c for c in self.script.calls if self.script.dotted(c.func) in ("torch.cat", "torch.stack"))
        return bool(kept_in) and any(written(c.args[0]) == kept_in for c in joins if c.args)

    def _is_read_from_cpu(self, name: str) -> bool:
        """Whether a list's one reader brings it to the CPU already: `torch.cat(labels).cpu().numpy()`."""
        reads = [call for call in self.script.calls_in(self.frame) if self.plan.is_replaced(call)]
        return any(written(node) == name for node in walk_all(reads) if isinstance(node, ast.Name))

    def _with_methods(self, node: ast.AST) -> ast.AST | None:
        """The longest expression of methods and indices on it: `y.view(-1)[mask]`; None where one moves it."""
        while True:
            around = self.script.parent(node)
            if isinstance(around, ast.Subscript) and around.value is node:
                node = around
            elif isinstance(around, ast.Attribute):
                call = self.script.parent(around)
                called = isinstance(call, ast.Call) and call.func is around
                if around.attr in _MOVED or not (called or around.attr in _VIEWS):
                    return None
                node = call if called and call is not None else around
            else:
                return node

    def _beside(self, node: ast.AST, around: ast.AST) -> Iterator[ast.AST]:
        match around:
            case ast.BinOp(left=left, right=right):
                yield left if right is node else right
            case ast.Compare(left=left, comparators=others):
                yield from (one for one in (left, *others) if one is not node)
            case ast.Call(func=func) if last_name(func) not in _LOOKS:
                if isinstance(func, ast.Attribute) and func.attr in _OF_TWO:
                    yield func.value
                given = (*around.args, *(keyword.value for keyword in around.keywords))
                yield from (one for one in given if one is not node)
            case ast.Tuple(elts=others) | ast.List(elts=others):
                call = self.script.parent(around)
                if isinstance(call, ast.Call) and self.script.dotted(call.func) in (
                    "torch.cat",
                    "torch.stack",
                ):
                    yield from (one for one in others if one is not node)


def _base(node: ast.AST) -> ast.AST:
    """`y` of `y.data`"""
    return node.value if isinstance(node, ast.Attribute) and node.attr in _VIEWS else node


def _is_from_cpu(script: Script, node: ast.AST, depth: int = 0) -> bool:
    """Whether an expression is a tensor on the CPU for sure: `out.cpu().argmax(1)`, or a variable bound to nothing else."""
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr=name)):
            if name == "cpu" or (name == "to" and [getattr(a, "value", None) for a in node.args] == ["cpu"]):
                return True
            if script.dotted(node.func).startswith("torch."):
                return bool(node.args) and _is_from_cpu(script, node.args[0], depth)
            if name in _MOVED or script.is_imported(node.func):
                return False
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            computed = bool(given) and all(_is_from_cpu(script, one, depth) for one in given)
            return computed or _is_from_cpu(script, of, depth)
        case ast.Subscript(value=of) | ast.UnaryOp(operand=of):
            return _is_from_cpu(script, of, depth)
        case ast.BinOp(left=left, right=right):
            return _is_from_cpu(script, left, depth) or _is_from_cpu(script, right, depth)
        case ast.Name(id=name) if depth < 3:
            frame = script.frame(node)
            parts = [call for call, _ in script.unpacked(frame, name)]  # `_, best = out.cpu().max(1)`
            values = [*script.values(frame, name), *parts]
            return bool(values) and all(_is_from_cpu(script, one, depth + 1) for one in values)
    return False
