"""CT303 by use: where the group of a script that distributes itself comes to life.

The author's `init_process_group` makes it, and the Accelerator before that. Nothing is started, and no variable of the
launcher is set, where a file is only imported. A script without a branch of its own for plain python is a group of one there.

`Get_rank()` of MPI is 0 in every process that the launcher starts, so that the runtime tells the number instead. A function that
also communicates by MPI stays as it is: each process is a world of its own there, in which it does all.

"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.placing.known import Choice
from crosstrain_migrate.core.placing.ranks import OF_CLUSTER, without_launcher
from crosstrain_migrate.core.placing.waiting import timeout_in
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, is_function_frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk, walk_all

from .wrappers import is_wrapper

RULE = "CT303"
REASON = "the launcher's processes, or plain python's one, are the group"
_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
_WRITTEN = ("MASTER_ADDR", "MASTER_PORT", *_VARIABLES)
_CHOOSES_DEVICE = re.compile(r"init_process_group|cuda\.set_device|torch\.device\(|\.cuda\(")
NO_MPI = "the launcher's processes are no MPI processes: the runtime numbers them"
_TELLS = {
    "Get_rank": "process_index",
    "rank": "process_index",
    "Get_size": "num_processes",
    "size": "num_processes",
}


def has_branch_without_group(script: Script) -> bool:
    """Whether the author's script trains without a group where nothing has launched it, with nothing wrapped."""
    wrappers = (call for call in script.calls if is_wrapper(script, call))
    if not all(_is_flagged(script, call) for call in wrappers):
        return False
    asks = without_launcher(script) or any(map(_asks_launcher, script.table.each(ast.Call, ast.Compare)))
    return asks or _makes_group_where_asked(script)


def _makes_group_where_asked(script: Script) -> bool:
    """Whether the author's flag makes the group, `if config.distributed: dist.init_process_group(...)`, and other code asks
    whether there is one; what reads the launcher's variables in any case has no such branch."""
    made = [call for call in script.calls if script.makes_group(call)]
    return all(_is_flagged(script, call) for call in made) and _is_asked_for(script) and not _reads(script)


def _is_flagged(script: Script, call: ast.Call, depth: int = 3) -> bool:
    """Whether a test leads to a call, or to each call of its function: `if gpus > 1: mp.spawn(train_together, ...)`."""
    if any(isinstance(one, ast.If | ast.IfExp) and not is_main_test(one) for one in script.around(call)):
        return True
    frame = script.frame(call)
    calls = script.callers(frame) if depth and is_function_frame(frame) else []
    return bool(calls) and all(_is_flagged(script, one, depth - 1) for one in calls)


def _is_asked_for(script: Script) -> bool:
    return any(script.dotted(call.func).endswith("distributed.is_initialized") for call in script.calls)


def plan_start(plan: Plan, accelerators: Accelerators) -> set[Frame]:
    """The group is there before the script's own code asks for it, or writes an address of its own: the frames in which it
    comes to life; none where the script's own code makes it."""
    script = plan.script
    addresses = [one for one in script.table.each(ast.Subscript) if _is_address(script, one)]
    written_first = [one for one in addresses if isinstance(script.frame(one), ast.Module)]
    has_branch = has_branch_without_group(script)
    if has_branch and not written_first and not (addresses and accelerators.choice is not None):
        return set()
    options = [] if has_branch else ["group_of_one=True"]
    reads = [] if has_branch else _reads(script)
    if reads:
        options.append("environment=True")
    home = accelerators.home
    at_import = [one for one in reads if isinstance(script.frame(one), ast.Module)]
    is_first = bool(written_first or at_import) or isinstance(home, ast.Module)
    if is_first and (timeout := timeout_in(script, script.entry)):
        options.append(f"timeout={timeout}")
    code = f"PartialState({', '.join(options)})"
    if is_first:
        guarded = _in_main_guard(script, [*written_first, *at_import])
        place = guarded or _last_import(script)
        plan.imports(place, "PartialState")
        insert = plan.before if guarded else plan.after
        insert(place, RULE, REASON, code)
        return {script.module(place)}
    makers = {script.frame(call) for call in script.calls if script.makes_group(call)}
    asking = {script.frame(one) for one in (*reads, *addresses)}
    # What an option may leave out, `if args.distributed: join_group()`, where other code asks for the group.
    is_left = bool(reads) and asking <= makers and _is_asked_for(script)
    at_home = _before_reads(script, home, accelerators.statement(home), [*reads, *addresses])
    places = set() if is_left else {at_home}
    for frame in filter(is_function_frame, map(script.frame, reads)):
        if is_left or not is_called_below(script, frame, home):
            places.add(script.first_statement(frame))
    for statement in sorted(places, key=place_of):
        plan.imports(statement, "PartialState")
        plan.before(statement, RULE, REASON, code)
    return set(map(script.frame, places))


def late_start(script: Script, frames: list[Frame]) -> Choice | None:
    """Where the accelerator is made in a script that trains without a group, too: where its author makes the group, behind
    what says which GPUs there are."""
    if not has_branch_without_group(script):
        return None
    for frame in frames:
        for node in script.within(frame):
            if isinstance(node, ast.Call) and script.makes_group(node):
                chosen = [s for s in _block(script, frame, node) if _CHOOSES_DEVICE.search(ast.unparse(s))]
                return Choice("", frame, chosen[0])
    return None


def _block(script: Script, frame: Frame, node: ast.AST) -> list[ast.stmt]:
    """The statements of a frame, or of its `__main__` guard, that a node stands in one of."""
    statement = script.statement(node)
    suite = script.suite_of(statement)
    while statement not in frame.body:
        above = script.parent(statement)
        assert isinstance(above, ast.stmt)
        if isinstance(frame, ast.Module) and above in frame.body and "__name__" in ast.unparse(above)[:20]:
            break
        statement = above
        suite = script.suite_of(statement)
    return suite


def _before_reads(script: Script, home: Frame, statement: ast.stmt, reads: list[ast.AST]) -> ast.stmt:
    """The first statement of a function that comes to a read, by calls too, where that is above `statement`; else that one."""
    for one in home.body:
        if place_of(one) >= place_of(statement):
            break
        called = [f for n in walk(one) for f in script.functions_of(n)]
        within = [read for read in reads if script.frame(read) is home and script.table.is_inside(read, one)]
        if within or any(is_called_below(script, script.frame(read), f) for f in called for read in reads):
            return one
    return statement


def is_called_below(script: Script, frame: Frame, home: Frame) -> bool:
    """Whether a function runs within another, or is it."""
    return home in script.above(frame)


def _last_import(script: Script) -> ast.stmt:
    """The last of the imports at the head of the script's own file."""
    body = script.entry.body
    found = body[0]
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            found = statement
        elif isinstance(statement, (*FUNCTIONS, ast.ClassDef, ast.If, ast.For)):
            break
    return found


def _in_main_guard(script: Script, nodes: list[ast.AST]) -> ast.stmt | None:
    """The first of the statements of `if __name__ == "__main__":` that these stand in: what is chosen above it still counts."""
    for guard in script.entry.body:
        if isinstance(guard, ast.If) and "__name__" in ast.unparse(guard.test):
            found = [next((s for s in guard.body if script.table.is_inside(n, s)), None) for n in nodes]
            if found and None not in found:
                return min((s for s in found if s is not None), key=place_of)
    return None


def _is_address(script: Script, node: ast.Subscript) -> bool:
    """`os.environ["MASTER_PORT"] = ...`, from which the processes would not find each other, or `["RANK"]`, their numbers.

    Numbers in a branch are those of another launcher, which started no process here.
    """
    names = [n.value for n in walk(node.slice) if isinstance(n, ast.Constant)]
    is_written = isinstance(node.ctx, ast.Store) and written(node.value).endswith("environ")
    if not is_written or not names or names[0] not in _WRITTEN or not script.is_reached(node):
        return False
    return names[0] not in _VARIABLES or not any(isinstance(one, ast.If) for one in script.around(node))


def _reads(script: Script) -> list[ast.expr]:
    """Where reached code reads, or asks for, a variable that launchers set."""
    entries = [n for n in script.table.each(ast.Subscript) if _is_entry_of_launcher(n)]
    asked = [n for n in script.table.each(ast.Call, ast.Compare) if _asks_launcher(n)]
    return [n for n in (*entries, *asked) if script.is_reached(n)]


def _is_entry_of_launcher(node: ast.Subscript) -> bool:
    is_read = isinstance(node.ctx, ast.Load) and written(node.value).endswith("environ")
    return is_read and isinstance(node.slice, ast.Constant) and node.slice.value in _VARIABLES


def _asks_launcher(node: ast.AST) -> bool:
    """`os.environ.get("RANK", -1)`, `os.getenv("RANK")`, `"RANK" in os.environ`"""
    if isinstance(node, ast.Call) and node.args:
        given = node.args[0]
        is_asked = written(node.func).endswith(("environ.get", "getenv"))
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        given = node.left
        is_asked = written(node.comparators[0]).endswith("environ")
    else:
        return False
    return is_asked and isinstance(given, ast.Constant) and given.value in _VARIABLES


def plan_mpi(plan: Plan) -> None:
    """Plans the edits of what asks MPI for a process's number, also by the first that is set of some of its variables."""
    script = plan.script
    for names in script.table.each(ast.List, ast.Tuple):
        known = {OF_CLUSTER.get(str(getattr(one, "value", "")), "") for one in names.elts}
        one = getattr(script.parent(names), "target", None)  # of a loop
        if len(known) != 1 or "" in known or not isinstance(one, ast.Name) or not script.is_reached(names):
            continue
        if re.search(rf"(environ\[|environ\.get\(|getenv\(){one.id}\b", ast.unparse(script.frame(names))):
            plan.replace(names.elts[0], RULE, NO_MPI, f'"{known.pop()}", {{it}}', it=names.elts[0])
    for frame in script.frames:
        asked = list(_asked(script, frame))
        if any(node.attr not in _TELLS for node in asked):
            continue
        for node in asked:
            parent = script.parent(node)
            whole = parent if isinstance(parent, ast.Call) and parent.func is node else node
            if script.is_reached(node) and not any(plan.is_replaced(one) for one in script.around(whole)):
                told = f"{plan.state(node)}.{_TELLS[node.attr]}"
                plan.replace(whole, RULE, NO_MPI, told)


def _asked(script: Script, frame: Frame) -> Iterator[ast.Attribute]:
    """What a frame asks of MPI's world."""
    for node in script.within(frame):
        if isinstance(node, ast.Attribute) and _is_world(script, frame, node.value):
            yield node


def _is_world(script: Script, frame: Frame, node: ast.expr) -> bool:
    if script.dotted(node) == "mpi4py.MPI.COMM_WORLD":
        return True
    places = (frame, script.module(frame))
    values = [value for place in places for value in script.values(place, written(node))]
    return any(script.dotted(n) == "mpi4py.MPI.COMM_WORLD" for n in walk_all(values))
