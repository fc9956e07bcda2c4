"""CT302 to CT309 by use: a script that distributes itself is mapped where it stands (CONVERT.md, "one way").

Its group, wrapper and processes become the runtime's. Samplers, rank tests, collectives, branches, the author's scaler and
evaluations stay: their meaning on N processes is the script's own.
"""

from __future__ import annotations

import ast
import re
from functools import partial

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.placing.ranks import Ranks
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, names_in, root_of
from crosstrain_migrate.core.reading.roles import Roles, Stepped
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.names import has_star_import
from crosstrain_migrate.syntax.nodes import Function, exits, last_name, place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk_all

from .flags import SAMPLERS, note_options, plan_flags
from .group import RULE as GROUP
from .group import is_called_below, plan_start
from .processes import goes_into_group, is_process, plan_alone, plan_processes
from .wrappers import WRAPPER, has_wrapper, is_wrapper, plan_wrapper

SAMPLER, SPAWN = "CT304", "CT305"
DEVICE = "CT105"
_COLLECTIVE = re.compile(
    r"distributed(\.nn)?(\.functional)?\.(all_reduce|all_gather|reduce_scatter|broadcast)\w*$"
)
_STORED_SIZE = "os.environ['WORLD_SIZE']"
_MEETS = re.compile(r"torch\.distributed\.(?!init_|get_|is_|destroy_)[a-z]\w*$")
_GROUP_NUMBERS = ("get_world_size", "get_rank")

Ordinals = set[tuple[Frame | None, str]]  # what numbers a device: attributes, and variables in their frames


def distributes_itself(script: Script) -> bool:
    return any(script.makes_group(call) for call in script.calls)


def is_of_one(script: Script) -> bool:
    """Whether each group of a script is one process: `world_size=1`, or `os.environ["WORLD_SIZE"] = "1"` in no branch."""
    groups = [call for call in script.calls if script.makes_group(call)]
    stores = (n for n in script.table.each(ast.Assign) if ast.unparse(n.targets[0]) == _STORED_SIZE)
    stored = [n.value for n in stores if script.is_reached(n)]
    sizes = [k.value for call in groups for k in call.keywords if k.arg == "world_size"] or stored
    return bool(sizes) and all(getattr(n, "value", 0) in (1, "1") and _is_certain(script, n) for n in sizes)


def _is_certain(script: Script, node: ast.AST) -> bool:
    """Whether a node stands under no condition."""
    conditions = (n for n in script.around(node) if isinstance(n, ast.If | ast.IfExp | ast.ExceptHandler))
    return all(map(is_main_test, conditions))


def is_shared_out(script: Script, data: Data) -> bool:
    """Whether the script deals a loader's rows to its processes by a sampler, which `prepare` adopts. A loader without
    one means the same on every process, or rows that the script has dealt by itself: it stays as it is, unless the author knew
    of one process alone."""
    if is_of_one(script):
        return True
    is_dealt = any(SAMPLERS.search(script.last(call.func)) for call in script.calls)
    if not is_dealt and not _only_starts_group(script):
        return False
    if not isinstance(data.node, ast.Name | ast.Attribute):
        return False
    frame, text = script.frame(data.node), written(data.node)
    is_given = is_function_frame(frame) and text in script.parameters(frame)
    return not (is_given and is_function_frame(frame) and len(script.callers(frame)) > 1)


def _only_starts_group(script: Script) -> bool:
    """Whether a script neither averages anything over its group nor deals rows by it, `rows[rank::size]` or
    `rows[rank * n : (rank + 1) * n]`."""
    given = (k.value for call in script.calls for k in call.keywords if k.arg == "rank")
    ranks = {name for one in given for name in names_in(one)}
    begins = [(one, one.lower) for one in script.table.each(ast.Slice) if one.lower is not None]
    cut = any(
        names_in(lower) & ranks or "rank" in ast.unparse(lower).lower() or (one.step and names_in(lower))
        for one, lower in begins
    )
    calls = (script.dotted(call.func) for call in script.calls)
    return not cut and not has_wrapper(script) and not any(map(_COLLECTIVE.search, calls))


def shards_layers(script: Script) -> ast.Call | None:
    """A collective of a layer's own, in a script that makes a group and where nothing averages the gradients: the processes
    share one model. Beside a wrapper, or a function of the script's own that gives gradients to a collective, it shares
    statistics (a synchronised normalisation); without a group it is a switch that the script leaves off."""
    collectives = [call for call in script.calls if _COLLECTIVE.search(script.dotted(call.func))]
    averaged = (
        getattr(n, "attr", "") == "grad" for n in walk_all({script.frame(call) for call in collectives})
    )
    if not distributes_itself(script) or has_wrapper(script) or any(averaged):
        return None
    for call in collectives:
        frame = script.frame(call)
        if not is_function_frame(frame):
            continue
        if frame.name in ("forward", "backward") and script.class_of(frame) is not None:
            return call
    return None


def trains_own_part(script: Script, roles: Roles, optimizer: Stepped) -> bool:
    """Whether an optimizer also trains a layer, in no wrapper, of which each process has a part of its own, as large as the
    group's numbers say: prepared, its gradients would be averaged over parts that have nothing to do with one another."""
    calls = (call for call in script.calls if is_wrapper(script, call))
    wrapped = {written(one) for call in calls for one in (*call.args, *(k.value for k in call.keywords))}
    texts = {*roles.models_of(optimizer.frame, optimizer.text)} - wrapped
    made = [script.class_made(value) for text in texts for value in script.values(optimizer.frame, text)]
    return any(_makes_part(script, init) for cls in made for init in script.methods(cls, "__init__"))


def _makes_part(script: Script, init: Frame) -> bool:
    """Whether torch is given, for a weight or a layer, what comes from the group's numbers."""
    known = set(_GROUP_NUMBERS)
    stored = [
        n for n in script.within(init) if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None
    ]
    for statement in sorted(stored, key=place_of):
        assert statement.value is not None
        named = [n for n in walk_all([statement.value]) if isinstance(n, ast.Name | ast.Attribute)]
        if known.isdisjoint(text for n in named for text in (written(n), last_name(n))):
            continue
        if any(script.dotted(n).startswith("torch.nn.") for n in named):
            return True
        known |= {written(t) for t in getattr(statement, "targets", [getattr(statement, "target", None)])}
    return False


class Mapping:
    """Plans what becomes of a script's own distribution."""

    def __init__(self, plan: Plan, accelerators: Accelerators) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.accelerators = accelerators
        self.ordinals = self._ordinals()
        self._starts: set[Frame] = set()  # where the conversion makes the group, above the author's place

    def run(self) -> None:
        self._starts = plan_start(self.plan, self.accelerators)
        plan_flags(self.plan, self.accelerators)
        self._numbered_devices()
        Ranks(self.plan, of_one=self._always_wraps()).run()
        note_options(self.plan, self.accelerators.roles)
        for call in self.script.calls:
            if any(self.plan.is_replaced(one) for one in self.script.around(call)):
                continue
            name = self.script.dotted(call.func)
            if self.script.makes_group(call):
                self._group(call)
            elif is_wrapper(self.script, call):
                plan_wrapper(self.plan, self.accelerators, call)
            elif name.endswith("convert_sync_batchnorm") and call.args:
                self._synchronised(call)
            elif call in self.script.spawns:
                self._spawn(call)
            elif name.endswith("DistributedSampler"):
                self._sampler(call)
            elif name.endswith(".set_epoch") and is_statement_call(self.script, call):
                self._epoch(call)

    def _always_wraps(self) -> bool:
        """Whether a wrapper stands under no condition: plain python's one process is a group then, and the first of it."""
        wrappers = (call for call in self.script.calls if is_wrapper(self.script, call))
        return any(_is_certain(self.script, call) for call in wrappers)

    def _epoch(self, call: ast.Call) -> None:
        """`sampler.set_epoch(epoch)` of what nothing binds: the author's own processes would stop there."""
        root, told = root_of(call.func), self.script.statement(call)
        is_bound = self.script.table.scopes[self.script.frame(call)].resolve(root) is not None
        if root and not is_bound and not has_star_import(self.script.module(call)):
            above = self.script.parent(told)
            if isinstance(above, ast.If) and [*above.body, *above.orelse] == [told]:
                told = above
            self.plan.remove(told, SAMPLER, "nothing binds this sampler")

    def _ordinals(self) -> Ordinals:
        """What names a device by its number, in `device_ids` and in `set_device`: attributes, and the variables of a
        function with those that it gives them to."""
        found: Ordinals = set()
        for call in self.script.calls:
            for node in self._numbers_in(call):
                frame = self.script.frame(node)
                if isinstance(node, ast.Attribute):
                    found.add((None, written(node)))
                elif isinstance(node, ast.Name) and not self._is_device(frame, node.id):
                    found |= {(one, node.id) for one in self._given(frame, node.id)}
        return found

    def _numbers_in(self, call: ast.Call) -> list[ast.expr]:
        name = self.script.dotted(call.func)
        if name == "torch.cuda.set_device":
            return call.args[:1]
        keywords = call.keywords if is_wrapper(self.script, call) else []
        lists = [k.value for k in keywords if k.arg == "device_ids"]
        return [one for given in lists if isinstance(given, ast.List) for one in given.elts]

    def _is_device(self, frame: Frame, text: str) -> bool:
        """Whether a variable is a device, or its name, so that it is right once its value is the accelerator's."""
        readers = map(self.script.parent, self.script.reads(frame, text))
        if any(isinstance(one, ast.Attribute) for one in readers):
            return True  # device.type
        values = self.script.values(frame, text)
        return any("device(" in ast.unparse(v) or "cuda:" in ast.unparse(v) for v in values)

    def _given(self, frame: Frame, text: str) -> set[Frame]:
        """A frame, and the functions that it gives the variable to under its name."""
        found, work = {frame}, [frame]
        while work:
            one = work.pop()
            for call in self.script.calls_in(one):
                for function in self.script.functions_of(call):
                    if function in found or text not in self.script.parameters(function):
                        continue
                    given = self.script.argument_for(call, function, text)
                    if given is not None and written(given) == text:
                        found.add(function)
                        work.append(function)
        return found

    def _numbered_devices(self) -> None:
        """`device = rank % torch.cuda.device_count()`: the variable becomes the device itself."""
        for frame, text in sorted(self.ordinals, key=lambda pair: pair[1]):
            if frame is None or "device" not in text:
                continue
            values = self.script.values(frame, text)
            if len(values) == 1 and len(self.script.stores(frame, text)) == 1:
                code = f"{self.accelerators.state(values[0])}.device"
                self.plan.replace(values[0], DEVICE, "each process has a device of its own", code)
                self.ordinals = self.ordinals - {(frame, text)}

    def _synchronised(self, call: ast.Call) -> None:
        """SyncBatchNorm needs a GPU."""
        statement = self.script.statement(call)
        model = written(call.args[0])
        reason = "batch statistics are shared on GPUs only"
        targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
        if [written(target) for target in targets] == [model]:
            test = "torch.cuda.is_available()"
            guard = e.Guard(statement, WRAPPER, reason, transaction="statistics", last=statement, test=test)
            self.plan.add(guard)
        else:
            template = f"({{it}} if torch.cuda.is_available() else {model})"
            self.plan.replace(call, WRAPPER, reason, template, "statistics", it=call)

    def _group(self, call: ast.Call) -> None:
        statement, home = self.script.statement(call), self.accelerators.home
        frame = self.script.frame(call)
        is_below = isinstance(home, ast.Module) or any(
            is_called_below(self.script, frame, one) for one in self._starts
        )
        is_alone = is_statement_call(self.script, call) and len(self.script.suite_of(statement)) > 1
        if self._starts and is_below and is_alone and not self.script.is_shared(call):
            self.plan.remove(statement, GROUP, "the group is there already")
            return
        if self._starts and is_below and self._numbered_by_caller(call) and self.script.is_shared(call):
            code = f"{written(call.func).rpartition('.')[0]}.is_initialized() or {{call}}"
            self.plan.replace(call, GROUP, "another script gives the numbers", code, call=call)
            return
        self.plan.imports(call, "PartialState")
        self.plan.replace(
            call, GROUP, "the group of the launcher's processes", "PartialState(group_of_one=True)"
        )

    def _numbered_by_caller(self, call: ast.Call) -> bool:
        """Whether a function takes its group's rank from its caller, `rank, size = numbers`, as `dist.init_process_group`."""
        frame, given = self.script.frame(call), [k.value for k in call.keywords if k.arg == "rank"]
        texts = {one.id for one in given if isinstance(one, ast.Name)}  # `args.rank` is the launcher's
        bound = [self.script.statement(one) for text in texts for one in self.script.stores(frame, text)]
        told = texts.union(*map(names_in, bound)) & {*self.script.parameters(frame)}
        return bool(told) and isinstance(call.func, ast.Attribute)

    def _spawn(self, call: ast.Call) -> None:
        """`mp.spawn(worker, args=(...))`: the launcher starts the processes, each calls the worker."""
        self._tell_launcher(call)
        if is_process(call):
            plan_processes(self.plan, call)
            return
        named = dict(zip(("fn", "args"), call.args, strict=False)) | {k.arg: k.value for k in call.keywords}
        workers = [
            f for f in self.script.functions(self.script.last(named["fn"])) if self.script.class_of(f) is None
        ]
        index = "local_process_index"
        if len(workers) == 1:
            self._own_order(workers[0])
            plan_alone(self.plan, workers[0], call)
            is_rank = any(
                goes_into_group(self.script, workers[0], one.arg, "rank") for one in workers[0].args.args[:1]
            )
            index = "process_index" if is_rank else index
        given, code = named.get("args"), f"{{worker}}({self.plan.state(call)}.{index}"
        holes = {"worker": named["fn"]}
        if isinstance(given, ast.Tuple) and not any(isinstance(one, ast.Starred) for one in given.elts):
            holes |= {f"a{n}": one for n, one in enumerate(given.elts)}
            code += "".join(f", {{a{n}}}" for n in range(len(given.elts)))
        elif given is not None:
            holes["given"], code = given, code + ", *{given}"
        statement = self.script.statement(call)
        kept = names_in(statement.targets[0]) if isinstance(statement, ast.Assign) else set()
        self.plan.replace(call, SPAWN, "the launcher starts the processes", f"{code})", **holes)
        suite = self.script.suite_of(statement)
        for one in suite[suite.index(statement) + 1 :]:  # `while not context.join(): pass`
            if kept & names_in(one):
                self.plan.remove(one, SPAWN, "the launcher waits for the processes")

    def _own_order(self, worker: Function) -> None:
        """A loader that shuffles without a sampler: spawned processes have random numbers of their own, which no seed of the
        process that spawned them reaches, and so other rows each."""
        calls = {one: self.script.dotted(one.func) for one in self.script.calls}
        loads = any(name.endswith("utils.data.DataLoader") for name in calls.values())
        seeds = (self.script.frame(one) for one, name in calls.items() if name == "torch.manual_seed")
        is_said = any(map(SAMPLERS.search, calls.values())) or any(
            is_called_below(self.script, one, worker) for one in seeds
        )
        if loads and not is_said and self.script.binds(self.script.module(worker), "torch"):
            first, index = self.script.first_statement(worker), f"{self.plan.state(worker)}.process_index"
            code = f"if {index}:\n    torch.manual_seed(torch.initial_seed() + {index})"
            self.plan.before(first, SPAWN, "a spawned process draws its own numbers", code)

    def _tell_launcher(self, spawn: ast.Call) -> None:
        """`try: mp.spawn(...) except: clean_up()`: a process that ended without its error would leave the others waiting."""
        tries = [one for one in self.script.around(spawn) if isinstance(one, ast.Try)]
        is_inside = partial(self.script.table.is_inside, spawn)
        for handler in [h for one in tries if any(map(is_inside, one.body)) for h in one.handlers]:
            last = handler.body[-1]
            catches_all = handler.type is None or last_name(handler.type) in ("Exception", "BaseException")
            if catches_all and not isinstance(last, ast.Raise | ast.Return) and not exits(last):
                self.plan.after(last, SPAWN, "the launcher ends the other processes", "raise")

    def _sampler(self, call: ast.Call) -> None:
        """The group's own numbers are what it takes anyway; those of a command line may say something else."""
        for keyword in call.keywords:
            if keyword.arg in ("num_replicas", "rank") and not self._is_group_number(keyword.value):
                reason = "the sampler asks the group for its numbers"
                self.plan.add(e.RemoveArgument(call, SAMPLER, reason, argument=keyword.value))

    def _is_group_number(self, node: ast.expr) -> bool:
        """`dist.get_rank()`, a function that ends in this, or a variable that is bound to such a call alone."""
        if isinstance(node, ast.Name):
            values = self.script.values(self.script.frame(node), node.id)
            return bool(values) and all(isinstance(v, ast.Call) and self._is_group_number(v) for v in values)
        return isinstance(node, ast.Call) and last_name(node.func) in _GROUP_NUMBERS


class BeforeSpawn:
    """What a script does before `mp.spawn`: its one process did it then, and every process that is launched does it now."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.spawns = script.spawns
        meets = any(_MEETS.match(script.dotted(call.func)) for call in script.calls)
        self.of_one = is_of_one(script) and not meets  # which one process would wait in alone
        self._frames: dict[Frame, bool] = {}

    def is_alone(self, node: ast.AST) -> bool:
        """Whether a node runs in the first process of a script that starts others."""
        return bool(self.spawns) and self.holds(node)

    def holds(self, node: ast.AST) -> bool:
        """Whether a node runs in the first process alone, by whichever way."""
        if self.of_one:
            return True
        frame = self.script.frame(node)
        own = [spawn for spawn in self.spawns if self.script.frame(spawn) is frame]
        if own:
            return all(place_of(node) < place_of(spawn) for spawn in own)
        if isinstance(frame, ast.Module):
            return any(isinstance(one, ast.If) and is_main_test(one) for one in self.script.around(node))
        if frame not in self._frames:
            self._frames[frame] = False  # for a function that calls itself
            calls = self.script.callers(frame)
            self._frames[frame] = bool(calls) and all(map(self.holds, calls)) and not self._is_sent(calls)
        return self._frames[frame]

    def _is_sent(self, calls: list[ast.Call]) -> bool:
        """Whether a function is given to one of the project that spawns, `launch(main, args)`: the processes run it."""
        starters = [self.script.frame(one) for one in self.spawns]
        return any(one in starters for call in calls for one in self.script.functions_of(call))
