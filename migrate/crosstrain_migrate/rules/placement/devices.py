"""Which expressions are a device, and which of them decide what it is."""

from __future__ import annotations

import ast
from collections.abc import Container
from functools import cached_property

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import External, FromBatch, Member, Sequence, Unknown, Value
from crosstrain_migrate.rules.arguments import option_name
from crosstrain_migrate.rules.distribution.single_process import SingleProcess
from crosstrain_migrate.syntax.walks import walk

# What may decide on a device: `["cpu", "cuda"][args.cuda]`, for one.
DECIDING = (
    *(ast.Call, ast.IfExp, ast.Constant, ast.JoinedStr),
    *(ast.BinOp, ast.Attribute, ast.BoolOp, ast.Subscript),
)
SELECTS_A_GPU = "this selects a GPU by its number, which has no effect any more: the launcher assigns devices"
BY_GPU_IDS = "choose GPUs with `crosstrain launch --gpu-ids`"


class Devices:
    """Tells devices of one script apart from everything else."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.single_process = SingleProcess(facts)

    def is_device(self, node: ast.expr) -> bool:
        """Whether an expression is a device: torch.device(...), a device string, or an option that holds one."""
        for value in self.facts.of(node):
            if isinstance(value, External) and value.path == "torch.device":
                return True
            if isinstance(value, Member) and (value.name in self._option_names or _is_of_unknown(value)):
                return True
        return False

    @cached_property
    def _option_names(self) -> set[str]:
        """Names of command-line options whose default or choices are device strings."""
        return {
            option_name(call)
            for call in self.facts.method_calls("add_argument")
            if any(k.arg in {"default", "choices"} and _mentions_device(k.value) for k in call.keywords)
        }

    def is_ordinal(self, node: ast.expr) -> bool:
        """`.to(0)`, and `.to(gpu)` where `gpu = 0`: the number of a GPU."""
        if not isinstance(node, ast.Constant | ast.Name | ast.Attribute):
            return False
        known = self.single_process.value_of(node)
        return known is not None and type(known.value) is int

    def is_option(self, value: ast.expr) -> bool:
        """`args.device`: a command-line option that says which device."""
        found = [v for v in self.facts.of(value) if isinstance(v, Member) and v.name in self._option_names]
        if isinstance(value, ast.Attribute) and all(map(_is_of_unknown, found)):  # `image.device` is none
            return bool(found) and self.single_process.sources.is_namespace(value.value)
        return bool(found)

    def is_setting(self, value: ast.expr) -> bool:
        """`cfg.device`, which a model goes to, of a configuration that comes from elsewhere."""
        found = [v for v in self.facts.of(value) if isinstance(v, Member)]
        return isinstance(value, ast.Attribute) and bool(found) and all(map(_is_of_unknown, found))

    def decides(self, value: ast.expr) -> bool:
        """Whether a value decides which device is used, and is not a copy of one that was decided elsewhere."""
        if isinstance(value, ast.Attribute) and self.decided_before(value):
            return True
        if isinstance(value, ast.Name | ast.Attribute) and not self.is_option(value):
            return False
        if not isinstance(value, DECIDING):
            return False
        if isinstance(value, ast.IfExp) and self._asks_a_device(value.test):
            return False
        return self.is_device(value) and not any(
            isinstance(v, FromBatch | Sequence) for v in self.facts.of(value)
        )

    def decided_before(self, value: ast.Attribute) -> list[ast.expr]:
        """The expressions that chose the device which the script has put into `args.device`, if it has."""
        sources = self.single_process.sources
        if not sources.is_namespace(value.value) or self.is_option(value):
            return []
        chosen = sources.of(value)
        return chosen if all(not isinstance(c, ast.Attribute) and self.decides(c) for c in chosen) else []

    def _asks_a_device(self, test: ast.expr) -> bool:
        """`"cuda" if "cuda" in device else "cpu"`: derived from a choice, not one of its own."""
        names = [n for n in walk(test) if isinstance(n, ast.Name | ast.Attribute)]
        return any(self.is_device(n) and not self.is_option(n) for n in names)

    def definitions(self, gone: Container[ast.AST] = ()) -> list[ast.Assign]:
        """The assignments that decide on a device, but for those that are `gone`."""
        found = []
        for node in self.facts.each(ast.Assign):
            if node in gone or is_cpu(node.value):
                continue
            target = node.targets[0]
            if isinstance(target, ast.Name | ast.Attribute) and self.decides(node.value):
                found.append(node)
        return found


def is_cpu(node: ast.expr) -> bool:
    """Whether an expression names the CPU."""
    if isinstance(node, ast.Call) and node.args:
        return is_cpu(node.args[0])
    return isinstance(node, ast.Constant) and node.value == "cpu"


def default_statement(facts: Facts, definition: ast.Assign) -> ast.If | None:
    """`if args.device is None:` around nothing but `args.device = "cuda" if ... else "cpu"`: an option's default."""
    around = facts.table.parents.get(definition)
    if not isinstance(around, ast.If) or around.body != [definition] or around.orelse:
        return None
    test, target = around.test, ast.unparse(definition.targets[0])
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if isinstance(test, ast.Compare) and ast.unparse(test).endswith((" is None", " == ''")):
        asked = test.left
    return around if asked is not None and ast.unparse(asked) == target else None


def named_by(value: ast.expr) -> ast.expr:
    """`x` of `torch.device(x)`; any other expression itself."""
    return value.args[0] if isinstance(value, ast.Call) and value.args else value


def known_values(facts: Facts, node: ast.expr) -> set[Value]:
    """What an expression may be, as far as it is known."""
    return {v for v in facts.of(node) if not isinstance(v, Unknown)}


def _mentions_device(node: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and api.DEVICE_STRING.match(n.value)
        for n in walk(node)
    )


def _is_of_unknown(value: Member) -> bool:
    """`x.device` of something unknown, a tensor or a configuration: a device either way."""
    return value.name == "device" and isinstance(value.receiver, Unknown)
