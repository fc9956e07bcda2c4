"""CT309 by use: what numbers the processes of a script that distributes itself gets the launcher's numbers.

An option that its own launcher gave (`--local_rank`, `--rank`) takes the launcher's variable where it is set, and else the
author's default, so that a branch without processes stays taken under plain python. What the script computes for its group
(`args.nr * args.gpus + gpu`) is the group's own number. What counts the GPUs counts the processes of the machine. A number that
a cluster's own starter gives, with a default for a run without it, `environ.get("SLURM_PROCID", 0)`, is the launcher's first.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from crosstrain_migrate.core.distributed.processes import ranks_of
from crosstrain_migrate.core.distributed.wrappers import is_told, is_wrapper, keeps_parallel
from crosstrain_migrate.core.plan import CORE, IMPORT, Plan
from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, is_method
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .options import Option, Options
from .sides import asks_availability

RULE = "CT309"
KNOWN = "the launcher knows the number"
# The state's attribute, for what is given to the group.
_OF_GROUP = {"rank": "process_index", "world_size": "num_processes", "num_replicas": "num_processes"}
_WITHOUT_CUDA = {f"torch.cuda.{one}" for one in ("device_count", "manual_seed", "manual_seed_all")}
_ENVIRONMENT = re.compile(r"environ|getenv")
# What srun and mpirun tell each process that they start, and the launcher's name for it.
OF_CLUSTER = {
    "PMI_RANK": "RANK",
    "PMI_SIZE": "WORLD_SIZE",
    "SLURM_PROCID": "RANK",
    "SLURM_LOCALID": "LOCAL_RANK",
    "SLURM_NTASKS": "WORLD_SIZE",
    "SLURM_NPROCS": "WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK": "RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
    "OMPI_COMM_WORLD_SIZE": "WORLD_SIZE",
}
_VARIABLES = {"rank": "RANK", "world_size": "WORLD_SIZE", "num_replicas": "WORLD_SIZE"}


class Ranks:
    """Plans the numbers of the processes. of_one: whether plain python's one process is a group, of which it is the first."""

    def __init__(self, plan: Plan, of_one: bool = False) -> None:
        self.plan, self.of_one = plan, of_one
        self.script: Script = plan.script
        self.options = Options(self.script)
        self._done: set[ast.AST] = set()

    def run(self) -> None:
        looped = [one for one in self.script.spawns if ranks_of(self.script, one) is not None]
        for spawn in looped:  # the loop counts those of one machine, wherever else its number goes
            self._spawned(spawn)
        for call in self.script.calls:
            if self.script.makes_group(call):
                self._numbers_of(call)
        self._node_ranks()
        for spawn in self.script.spawns:
            self._spawned(spawn)
        for call in self.script.calls if not self.script.spawns else ():
            if (
                (name := _of_cluster(call))
                and self.script.is_reached(call)
                and not self._asks_the_machine(call)
            ):
                self.plan.replace(call, RULE, KNOWN, f'{written(call.func)}("{name}", {{it}})', it=call)
        for option in self.local_ranks():
            is_none = option.default is not None and ast.unparse(option.default) == "-1"
            self._default(option, "LOCAL_RANK", alone="0" if is_none and self.of_one else "")
        for default in self._launchers():
            self._import_os(default)
            several = 'int(os.environ.get("WORLD_SIZE", 1)) > 1'
            self.plan.replace(default, RULE, KNOWN, f'"pytorch" if {several} else {{it}}', it=default)
        listed = self._listed()
        for call in self.script.calls:
            is_inside = any(self.plan.is_replaced(one) for one in self.script.around(call))
            is_count = self._dotted(call) == "torch.cuda.device_count" or ast.unparse(call) in listed
            if is_inside or not is_count:
                continue
            if not self._is_only_shown(call) and not self._asks_the_machine(call):
                is_for_replicas = self._multiplies(call) and keeps_parallel(self.script)
                has_all = not self.script.spawns and (is_for_replicas or self.script.is_shared(call))
                code = self._variable(call, "LOCAL_WORLD_SIZE", f"{written(call)} or 1" if has_all else "1")
                self.plan.replace(call, RULE, "the launcher says how many processes a machine has", code)
                self._count_without_gpus(call)

    def _listed(self) -> set[str]:
        """`len(args.gpus)`, where a script starts as many processes as its settings list GPUs."""
        counts = [k.value for spawn in self.script.spawns for k in spawn.keywords if k.arg == "nprocs"]
        values = [*counts, *(value for count in counts for value in self._stores(count))]
        return {ast.unparse(v) for v in values if isinstance(v, ast.Call) and written(v.func) == "len"}

    def _multiplies(self, count: ast.Call) -> bool:
        """Whether the number only multiplies, `rows * args.gpus`: a batch for a DataParallel, which has them under plain python."""
        statement = self.script.statement(count)
        uses: list[ast.expr] = [count]
        if isinstance(statement, ast.Assign) and statement.value is count:
            text = written(statement.targets[0])
            uses = [one for frame in self.script.frames for one in self.script.reads(frame, text)]
        of = map(self.script.parent, uses)
        return all(isinstance(getattr(one, "op", None), ast.Mult) for one in of)

    def _count_without_gpus(self, count: ast.Call) -> None:
        """`gpus = 0` beside `if torch.cuda.is_available(): gpus = torch.cuda.device_count()`: launched processes are as many
        without them, and so they are where a file of settings has the other number."""
        statement = self.script.statement(count)
        branch = self.script.parent(statement)
        if not isinstance(statement, ast.Assign) or statement.value is not count:
            return
        if not isinstance(branch, ast.If) or not asks_availability(branch.test):
            return
        target = statement.targets[0]
        values = self.script.values(self.script.frame(count), written(target))
        for value in values:
            if isinstance(value, ast.Constant) and value.value == 0:
                self._replace(value, self._variable(value, "LOCAL_WORLD_SIZE", "0"))
        asked = {self._dotted(n) for n in walk_all(branch.body) if isinstance(n, ast.Call)}
        needs_cuda = any(one.startswith("torch.cuda.") for one in asked - _WITHOUT_CUDA)
        if values == [count] and isinstance(target, ast.Attribute) and not needs_cuda:
            are_several = f"{self._variable(count, 'LOCAL_WORLD_SIZE', '1')} > 1"
            self.plan.replace(branch.test, RULE, KNOWN, f"{{test}} or {are_several}", test=branch.test)

    def _dotted(self, call: ast.Call) -> str:
        return self.script.dotted(call.func)

    def _is_only_shown(self, call: ast.Call) -> bool:
        """`print("GPUs:", torch.cuda.device_count())` speaks of the machine."""
        shown = getattr(self.script.statement(call), "value", None)
        return isinstance(shown, ast.Call) and last_name(shown.func) in ("print", "info", "debug", "warning")

    def _asks_the_machine(self, call: ast.Call) -> bool:
        """Whether a test asks for the GPUs of a machine, whoever computes on them: those that a user wants, `assert
        torch.cuda.is_available() and torch.cuda.device_count() >= len(wanted)`; those of one process, for a DataParallel, a layer that
        waits for its replicas, or a network that deals itself out, `range(torch.cuda.device_count())`; those whose names a loop
        lists; those of what `srun` starts, which sets no launcher's variables. So does the default of such a variable."""
        is_list = is_range(self.script.parent(call))
        for one in self.script.around(call):
            if isinstance(one, ast.ClassDef) and is_told(one):
                return True
            by_number = is_list and isinstance(one, ast.ClassDef | ast.For | ast.ListComp)
            if by_number and re.search(r"def forward\(|torch\.cuda\.get_device_", ast.unparse(one)):
                return True
            if isinstance(one, ast.Call) and _ENVIRONMENT.search(written(one.func)):
                return True
            if isinstance(one, ast.If) and "SLURM" in ast.unparse(one.test):
                return any(self.script.table.is_inside(call, statement) for statement in one.body)
            body = one.body if isinstance(one, FUNCTIONS) else []
            if any("environ['SLURM_" in ast.unparse(s) for s in body if isinstance(s, ast.Assign)):
                return True
        statement = self.script.statement(call)
        if not isinstance(statement, ast.Assert | ast.If) or call not in walk(statement.test):
            return False
        body = statement.body if isinstance(statement, ast.If) else []
        if any(isinstance(n, ast.Call) and last_name(n.func) == "DataParallel" for n in walk_all(body)):
            return True
        stops = isinstance(statement, ast.Assert) or isinstance(body[-1], ast.Raise)
        return stops and any(is_method(n, "is_available") for n in walk(statement.test))

    # -- the group's own numbers -------------------------------------------------------------------------------

    def _numbers_of(self, group: ast.Call) -> None:
        """What `init_process_group` is given: computed numbers are the group's, an option has the launcher's."""
        for keyword in group.keywords:
            if keyword.arg in _VARIABLES:
                self._number(keyword.value, keyword.arg)

    def _number(self, node: ast.expr, of: str, depth: int = 0) -> None:
        if depth > 4:
            return
        stores, additions = self._stores(node), self._additions(node)
        for value in stores:
            if isinstance(value, ast.Name | ast.Attribute):
                self._number(value, of, depth + 1)
            elif self._is_computed(value, bool(additions)) or (len(stores) == 1 and _is_count(value)):
                self._replace(value, f"{self.plan.state(value)}.{_OF_GROUP[of]}")
                self._count_machines(value)
        for statement in additions:
            code = f"{written(statement.target)} = {self.plan.state(statement)}.{_OF_GROUP[of]}"
            self.plan.add(e.ReplaceStatement(statement, RULE, KNOWN, transaction=CORE, code=code))
        option = self.options.read_by(node)
        is_kept = isinstance(node, ast.Attribute) and all(self._keeps(option, value) for value in stores)
        if option is not None and (is_kept or not stores):
            is_counted = of != "rank" and (self.script.spawns or _is_count(option.default))
            self._default(option, _VARIABLES[of], alone="1" if is_counted else "")

    def _count_machines(self, value: ast.expr) -> None:
        """The machines of `gpus * args.nodes`, where a script stops that is not told of any: `if args.nodes < 1: raise ...`"""
        tests = (n.test for n in self.script.table.each(ast.If) if isinstance(n.body[-1], ast.Raise))
        asked = [self.options.read_by(n.left) for n in walk_all(tests) if isinstance(n, ast.Compare)]
        for factor in (value.left, value.right) if isinstance(value, ast.BinOp) else ():
            option = self.options.read_by(factor)
            if option is not None and option in asked and ast.unparse(option.default or value) == "-1":
                self._default(option, "GROUP_WORLD_SIZE")

    def _keeps(self, option: Option | None, value: ast.expr) -> bool:
        """Whether an option that is set to a value is what it was, or what a run without processes has: `if not
        args.distributed: args.rank = 0`."""
        is_fixed = isinstance(value, ast.Constant) and isinstance(
            self.script.parent(self.script.statement(value)), ast.If
        )
        return is_fixed or self.options.read_by(value) is option

    def _stores(self, node: ast.expr) -> list[ast.expr]:
        """What an attribute is set to anywhere, also where an object keeps the options (`self.args.size`), a variable in its
        function, a parameter by the calls of it."""
        if isinstance(node, ast.Attribute):
            plain = written(node).removeprefix("self.")
            texts = [plain, f"self.{plain}"] if "." in plain else [written(node)]
            return [v for f in self.script.frames for text in texts for v in self.script.values(f, text)]
        return self.options.given(self.script.frame(node), node.id) if isinstance(node, ast.Name) else []

    def _additions(self, node: ast.expr) -> list[ast.AugAssign]:
        frames: Iterable[Frame] = (
            self.script.frames if isinstance(node, ast.Attribute) else [self.script.frame(node)]
        )
        text = written(node)
        found = [
            one for frame in frames for one in self.script.within(frame) if isinstance(one, ast.AugAssign)
        ]
        return [one for one in found if written(one.target) == text]

    def _is_computed(self, value: ast.expr, is_added_to: bool) -> bool:
        """`nr * gpus + gpu`, `torch.cuda.device_count()`: not what the group says, nor what the environment says but for
        its machines times the GPUs of each, where nothing is added to it later (that sum is the group's number)."""
        if not self.script.is_reached(value):
            return False
        if isinstance(value, ast.Call):
            return self._dotted(value) == "torch.cuda.device_count"
        if not isinstance(value, ast.BinOp) or re.search(r"get_rank|get_world_size", ast.unparse(value)):
            return False
        if not _ENVIRONMENT.search(ast.unparse(value)):
            return True
        sides = [_ENVIRONMENT.search(ast.unparse(side)) for side in (value.left, value.right)]
        return isinstance(value.op, ast.Mult) and not all(sides) and not is_added_to

    def _node_ranks(self) -> None:
        """`args.nr == 0`, where `args.nr * args.gpus + gpu` is the rank: the first process of all is meant."""
        for call in self.script.calls:
            for keyword in call.keywords if self.script.makes_group(call) else ():
                if keyword.arg != "rank":
                    continue
                nodes = {text for value in self._stores(keyword.value) for text in _factors(value)}
                nodes |= _factors(keyword.value)
                for node in self._comparisons(nodes - {written(keyword.value)}):
                    self._replace(node, f"{self.plan.state(node)}.process_index")

    def _comparisons(self, texts: set[str]) -> list[ast.expr]:
        """Where an attribute that is an option is compared with 0."""
        found: list[ast.expr] = []
        for node in self.script.table.each(ast.Compare):
            left, right = node.left, node.comparators[0]
            is_zero = isinstance(right, ast.Constant) and right.value == 0
            is_node = isinstance(left, ast.Attribute) and written(left) in texts
            if is_zero and is_node and self.options.read_by(left) and self.script.is_reached(left):
                found.append(left)
        return found

    # -- processes that the script started ---------------------------------------------------------------------

    def _spawned(self, spawn: ast.Call) -> None:
        """The number of processes, and the switch that asks for them, are the launcher's."""
        ranks = ranks_of(self.script, spawn)
        counted = ranks.args if ranks is not None else [k.value for k in spawn.keywords if k.arg == "nprocs"]
        count = next(iter(counted), None)
        option = self.options.read_by(count)
        if option is not None and not self._stores_of(option):
            self._default(option, "LOCAL_WORLD_SIZE", alone="1")
        for one in self.script.around(spawn):
            if isinstance(one, ast.If) and any(self.script.table.is_inside(spawn, s) for s in one.body):
                self._switch(one.test)

    def _switch(self, test: ast.expr) -> None:
        option = self.options.read_by(test)
        if option is None or not option.is_switch or option.default is not None or option.call in self._done:
            return
        self._done.add(option.call)
        self._import_os(option.call)
        reason = "the launcher starts the processes"
        code = 'default="RANK" in os.environ'
        self.plan.add(e.InsertArgument(option.call, RULE, reason, transaction=CORE, code=code))

    # -- options -----------------------------------------------------------------------------------------------

    def local_ranks(self) -> list[Option]:
        """What `torch.distributed.launch` gave: named so, or what a wrapper's `device_ids` are."""
        found = [one for one in self.options.by_name.values() if one.is_local_rank]
        for call in self.script.calls if not self.script.spawns else ():
            for keyword in call.keywords if is_wrapper(self.script, call) else ():
                if keyword.arg == "device_ids" and isinstance(keyword.value, ast.List):
                    read = [self.options.read_by(one) for one in keyword.value.elts]
                    found += [one for one in read if one is not None and not self._stores_of(one)]
        return list(dict.fromkeys(found))

    def _launchers(self) -> list[ast.expr]:
        """The default of `--launcher`, which is none of these choices: "none", "pytorch", "slurm"."""
        named = (one for one in self.options.by_name.values() if one.name == "launcher")
        defaults = (
            (one.default, one.keyword("choices")) for one in named if self.script.is_reached(one.call)
        )
        return [
            default
            for default, choices in defaults
            if isinstance(default, ast.Constant) and default.value in ("none", None)
            if isinstance(choices, ast.List | ast.Tuple) and "'pytorch'" in map(ast.unparse, choices.elts)
        ]

    def _stores_of(self, option: Option) -> list[ast.Attribute]:
        """Where the script itself sets an option's attribute."""
        return [
            one
            for one in self.script.table.each(ast.Attribute)
            if one.attr == option.name and isinstance(one.ctx, ast.Store)
        ]

    def _default(self, option: Option, variable: str, alone: str = "") -> None:
        """An option without a value on the command line is the launcher's variable, else the author's default.

        alone: what it is under plain python, where the author's default counts processes that others started.
        """
        call, default = option.call, option.default
        if call in self._done or not self.script.is_reached(call):
            return
        self._done.add(call)
        required = option.keyword("required")
        if required is not None:
            self.plan.add(e.RemoveArgument(call, RULE, KNOWN, transaction=CORE, argument=required))
        if default is None or (isinstance(default, ast.Constant) and default.value is None):
            code = self._variable(call, variable, alone or ("" if self.asks_for_none(option) else "0"))
        elif "environ" in ast.unparse(default) or "getenv" in ast.unparse(default):
            return
        else:
            code = self._variable(call, variable, alone or self.script.source(default))
        if default is not None:
            self._replace(default, code)
            return
        self.plan.add(e.InsertArgument(call, RULE, KNOWN, transaction=CORE, code=f"default={code}"))

    def asks_for_none(self, option: Option) -> bool:
        """Whether the script has a branch for an option that was not given."""
        asked = [
            node.left
            for node in self.script.table.each(ast.Compare)
            if isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        ]
        return any(self.options.read_by(one) is option for one in asked)

    def _variable(self, node: ast.AST, name: str, otherwise: str) -> str:
        """A variable of the launcher as a number; None where `otherwise` is empty and it is not set."""
        self._import_os(node)
        if otherwise:
            return f'int(os.environ.get("{name}", {otherwise}))'
        return f'int(os.environ["{name}"]) if "{name}" in os.environ else None'

    def _import_os(self, node: ast.AST) -> None:
        module = self.script.module(node)
        self.plan.add(e.AddImport(module, "CT101", IMPORT, transaction=CORE, code="import os"))

    def _replace(self, node: ast.expr, code: str) -> None:
        self.plan.replace(node, RULE, KNOWN, code)


def without_launcher(script: Script) -> bool:
    """Whether a script has a rank of its own for a run that nothing launched: a default of -1, or None that it asks for."""
    ranks = Ranks(Plan(script))
    for option in ranks.local_ranks():
        default = option.default
        if default is not None and ast.unparse(default) == "-1":
            return True
        if ranks.asks_for_none(option) and (default is None or ast.unparse(default) == "None"):
            return True
    return False


def _of_cluster(call: ast.Call) -> str | None:
    """The launcher's variable for one of a cluster that is asked for with a number for a run without it."""
    if not _ENVIRONMENT.search(written(call.func)) or len(call.args) != 2:
        return None
    asked, default = call.args
    is_number = isinstance(default, ast.Constant) and str(default.value).lstrip("-").isdigit()
    return OF_CLUSTER.get(str(getattr(asked, "value", ""))) if is_number else None


def _is_count(value: ast.expr | None) -> bool:
    """`world_size = 4`"""
    return isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > 0


def _factors(value: ast.expr) -> set[str]:
    """The attributes that are multiplied in a sum: `args.nr` and `args.gpus` of `args.nr * args.gpus + gpu`."""
    products = [n for n in walk(value) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mult)]
    sides = [side for product in products for side in (product.left, product.right)]
    return {written(side) for side in sides if isinstance(side, ast.Attribute)}
