"""The switch that tells the script that there are several processes: a flag, an option, a comparison.

It is the test around `init_process_group` or `mp.spawn`. Where it follows from options or constants, it is set from the
launcher's environment instead, where the author sets it. Tests that already ask the environment stay: they are right under
any launcher.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import keyword_of
from crosstrain_migrate.rules.distribution.launcher_settings import INIT, SPAWN, asked_variable
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk

from .rank_sources import STATE, add_import, asks_group, reads_environment, told_by_launcher

RULE = "CT303"
REASON = "the launcher decides how many processes there are"
SWITCH = '"RANK" in os.environ'  # under every launcher, with one process, too: there is a group
MORE_THAN_ONE = 'int(os.environ.get("WORLD_SIZE", 1)) > 1'
SWITCHES = (SWITCH, MORE_THAN_ONE)
LOCAL_RANK = "local_rank"  # what torch's launchers have always called it

# The variables of other launchers, and their names under ours.
VARIABLES = {
    "OMPI_COMM_WORLD_RANK": "RANK",
    "OMPI_COMM_WORLD_SIZE": "WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK": "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "LOCAL_WORLD_SIZE",
    "SLURM_PROCID": "RANK",
    "SLURM_NTASKS": "WORLD_SIZE",
    "SLURM_LOCALID": "LOCAL_RANK",
}


def plan(stage: Stage) -> None:
    _local_ranks(stage)
    _other_launchers(stage)
    done: set[str] = set()
    starts = (*stage.facts.calls_to(*SPAWN), *stage.facts.calls_to(INIT))
    for call in starts:  # in the order in which they run
        for test in _tests_around(stage, call, frozenset()):
            for part in _parts(test):
                _decide(stage, part, done)


def _tests_around(stage: Stage, node: ast.AST, seen: frozenset[ast.AST]) -> list[ast.expr]:
    """The tests that must hold where `node` runs, in its function and around the calls of that."""
    found: list[ast.expr] = []
    for child, around in stage.outward(node):
        if isinstance(around, ast.If) and child in around.body:
            found.append(around.test)
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            for site in stage.single.sources.sites(around) if around not in seen else ():
                found += _tests_around(stage, site, seen | {around})
            break
    return found


def _parts(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [part for value in test.values for part in _parts(value)]
    return [test]


def _decide(stage: Stage, part: ast.expr, done: set[str]) -> None:
    text = ast.unparse(part)
    if text in done or "__name__" in text or reads_environment(part) or asks_group(stage, part):
        return
    done.add(text)
    if isinstance(part, ast.Name | ast.Attribute):
        _flag(stage, part)
    elif isinstance(part, ast.Compare) and _counts(stage, part):
        for same in stage.facts.each(ast.Compare):
            if ast.unparse(same) == text and not stage.is_settled(same):
                stage.gone.add(same)
                stage.replace(same, RULE, REASON, MORE_THAN_ONE if _wants_several(same) else SWITCH)
                add_import(stage, same, "os")


def _flag(stage: Stage, flag: ast.Name | ast.Attribute) -> None:
    sources = stage.single.sources.of(flag)
    if told_by_launcher(stage, flag) and not all(isinstance(source, ast.Constant) for source in sources):
        return  # the launcher is asked for it
    stores = [
        stage.statement(d) for d in stage.single.sources.definitions(flag) if not isinstance(d, ast.arg)
    ]
    set_here = [s for s in stores if isinstance(s, ast.Assign) and not reads_environment(s.value)]
    for statement in set_here:
        if statement.value not in stage.gone:
            stage.replace_whole(statement.value, RULE, REASON, SWITCH)
            add_import(stage, statement, "os")
    if not stores and isinstance(flag, ast.Attribute):
        set_option(stage, flag, stage.statement(flag), SWITCH)
    if not stores and isinstance(flag, ast.Name):
        for origin in sources:
            if isinstance(origin, ast.Name | ast.Attribute):
                _flag(stage, origin)


def switches(stage: Stage) -> set[str]:
    """The flags that say whether the script was launched, by their spelling."""
    found: set[str] = set()
    for statement in stage.facts.each(ast.Assign):
        new = next((x for x in stage.edits if isinstance(x, e.Replace) and x.node is statement.value), None)
        if reads_environment(statement.value) or (new is not None and new.template in SWITCHES):
            found.update(ast.unparse(target) for target in statement.targets)
    lines = (x.code for x in stage.edits if isinstance(x, e.InsertBefore))
    return found | {line.removesuffix(f" = {SWITCH}") for line in lines if line.endswith(f" = {SWITCH}")}


def _counts(stage: Stage, test: ast.Compare) -> bool:
    """`args.world_size > 1`, `args.gpus != 1`, `torch.cuda.device_count() > 1`: whether a test compares a count with a constant."""
    sides = [test.left, *test.comparators]
    numbers = [s for s in sides if isinstance(s, ast.UnaryOp) or _is_number(s)]
    others = [s for s in sides if s not in numbers]
    return len(numbers) == 1 and len(others) == 1 and not told_by_launcher(stage, others[0])


def _wants_several(test: ast.Compare) -> bool:
    """`n > 1`, `n != 1`, `n >= 2`: false for a single process, also where a launcher has started it."""
    asked = (type(test.ops[0]), ast.unparse(test.comparators[0]))
    return asked in {(ast.Gt, "1"), (ast.NotEq, "1"), (ast.GtE, "2")}


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def set_option(stage: Stage, option: ast.Attribute, before: ast.stmt, code: str) -> bool:
    """Sets an option above the first statement that reads it, in the suite of `before`."""
    sources = stage.single.sources
    if not sources.is_namespace(option.value) or option.attr not in sources.options:
        return False
    suite = suite_of(stage.facts, before)
    readers = [s for s in suite if s.lineno <= before.lineno and _reads(s, option.attr)]
    first = min(readers, key=place_of, default=before)
    line = f"{stage.source(option)} = {code}"
    if any(isinstance(x, e.InsertBefore) and x.code == line for x in stage.edits):
        return False
    stage.edits.append(e.InsertBefore(first, RULE, REASON, code=line))
    add_import(stage, before, STATE if STATE in code else "os")
    return True


def _reads(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(n, ast.Attribute) and n.attr == name and isinstance(n.ctx, ast.Load)
        for n in walk(statement)
    )


def _other_launchers(stage: Stage) -> None:
    """`os.environ["OMPI_COMM_WORLD_RANK"]`, where no test has asked whether mpirun started the script.

    Below such a test all of a launcher's variables stay: a rank of SLURM's and a world size of ours do not belong together.
    """
    for node in stage.facts.each(ast.Subscript):
        name = asked_variable(node) or ""
        tests = [ast.unparse(a.test) for a in stage.facts.table.ancestors(node) if isinstance(a, ast.If)]
        launcher = name.partition("_")[0]  # SLURM, OMPI: where one of its variables is, all are
        if name in VARIABLES and not any(f"{launcher}_" in test for test in tests):
            stage.replace(node.slice, RULE, "as the launcher calls it", f'"{VARIABLES[name]}"')


def _local_ranks(stage: Stage) -> None:
    """`--local_rank`, which older launchers pass on the command line: newer ones set it in the environment."""
    call = stage.single.sources.options.get(LOCAL_RANK)
    if call is None:
        return
    default, required = keyword_of(call, "default"), keyword_of(call, "required")
    if default is not None and reads_environment(default):
        return
    known = stage.source(default) if default is not None else "0"
    code = f'int(os.environ.get("LOCAL_RANK", {known}))'
    reason = "the launcher says it in the environment"
    if default is not None:
        stage.replace(default, RULE, reason, code)
    else:
        stage.edits.append(e.InsertArgument(call, RULE, reason, position=-1, code=f"default={code}"))
    if required is not None:
        stage.edits.append(e.RemoveArgument(call, RULE, argument=required))
    add_import(stage, call, "os")
