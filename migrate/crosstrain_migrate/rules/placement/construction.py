"""CT101: import the Accelerator
CT102: make the one Accelerator

What:   `accelerator = Accelerator(...)` where the script chose its device, or before its first random draw.
Why:    It must exist before anything random happens (it gives all processes one random state) and before `prepare`.

Example CT102 (device):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Becomes (device):
    accelerator = Accelerator()
Example CT102 (options):
    no_cuda = False
And (device):
    device = torch.device("cpu" if no_cuda else "cuda")
Becomes (device):
    accelerator = Accelerator(cpu=no_cuda)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.torch_api import names_a_device
from crosstrain_migrate.facts.values import External, FromBatch, Function, Symbol, Value, made_at
from crosstrain_migrate.rules.access import Home
from crosstrain_migrate.rules.base import Context, Subject, refuse
from crosstrain_migrate.rules.distribution.requested_options import MARKED
from crosstrain_migrate.rules.output import fetches, loggers, opened_files
from crosstrain_migrate.rules.preparing.holders import stores
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import FunctionNode, all_arguments, line_of
from crosstrain_migrate.syntax.program import is_main_test, modules_of
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from . import precision_argument
from .early_draws import Place, defines, may_draw, unseeded_draw

IMPORT, CONSTRUCT = "CT101", "CT102"
READS_OPTIONS = frozenset({"parse_args", "parse_known_args"})


def find_home(facts: Facts, subject: Subject, definitions: list[ast.Assign]) -> Home:
    """Where the Accelerator is constructed. Raises Refusal when its name, or that of its class, is taken."""
    first = subject.scope.file.body[0]
    for name in ("accelerator", "Accelerator"):
        if facts.names.get(name) or any(name in scope.names for scope in facts.table.scopes.values()):
            raise refuse(CONSTRUCT, first, f"the name `{name}` is already used in this script", "rename it")
    scope, cls = subject.scope, None
    parent = facts.table.parents.get(scope.node)
    if isinstance(parent, ast.ClassDef):
        cls = parent
        init = facts.interp.method(cls, "__init__")
        if init is not None and facts.table.parents.get(init) is cls:
            scope = facts.table.scopes[init]  # before any other method can ask for it
    module_level = [d for d in definitions if d in scope.file.body]
    if module_level and scope.parent is not None:
        scope, cls = scope.module, None
    elif cls is None:
        scope = _above_marks(facts, _where_all_is_made(facts, subject))
    home = Home(scope, "accelerator" if cls is None else "self.accelerator", cls)
    home.statement = _statement(facts, subject, scope, definitions)
    early = unseeded_draw(facts, home)
    return home if early is None else _above_draw(facts, home, early, definitions)


def _above_draw(facts: Facts, home: Home, early: Place, definitions: list[ast.Assign]) -> Home:
    """A home above a random draw, which every process would otherwise make for itself."""
    draw, scope = early
    file = home.scope.file if home.scope.parent is None else modules_of(facts.tree)[-1]
    # The options that chose the device may not be known so early.
    asks = any(_reads_a_variable(facts, d.value) for d in definitions)
    if _is_method(facts, scope) or asks or (scope.parent is None and scope.file is not file):
        raise refuse(
            CONSTRUCT,
            draw,
            "this draws random numbers before the Accelerator can exist, and no seed is set: each process would draw "
            "different ones",
            "call torch.manual_seed (or numpy's, or random's) before it",
        )
    return Home(scope, "accelerator", None, _outermost(facts, draw, scope))


def _reads_a_variable(facts: Facts, value: ast.expr) -> bool:
    """Whether a choice of a device reads variables; a GPU number in a device's name does not count."""
    if names_a_device(value):
        return False
    if isinstance(value, ast.Name):
        return not any(isinstance(v, Symbol) for v in facts.of(value))
    return any(
        _reads_a_variable(facts, part) for part in ast.iter_child_nodes(value) if isinstance(part, ast.expr)
    )


# -- the scope -----------------------------------------------------------------------------------------------


def _is_method(facts: Facts, scope: Scope) -> bool:
    return isinstance(facts.table.parents.get(scope.node), ast.ClassDef)


def _only_caller(facts: Facts, scope: Scope) -> Scope | None:
    """The one scope that calls a function; None where there are several, or none."""
    callers = {facts.table.of_node[site] for site in facts.callers.get(scope.node, ())}
    return callers.pop() if len(callers) == 1 else None


def _where_all_is_made(facts: Facts, subject: Subject) -> Scope:
    """The scope that prepares, or the caller that makes the models and loaders which that scope is given: the Accelerator
    must exist before they draw random numbers."""
    missing = [v for v in subject.named if v not in subject.stages]
    scope, seen = subject.scope, {subject.scope}
    while missing := [v for v in missing if not stores(facts, scope, v)]:
        caller = _only_caller(facts, scope)
        if caller is None:
            return scope
        if caller in seen or _is_method(facts, caller):
            return subject.scope
        seen.add(caller)
        scope = caller
    return scope


def _above_marks(facts: Facts, scope: Scope) -> Scope:
    """The outermost caller whose own statements need the accelerator, to decide something by the rank, say."""
    marked = {facts.table.of_node[n] for n in facts.each(ast.Name) if MARKED.match(n.id)}
    found, seen = scope, {scope}
    current = _only_caller(facts, scope)
    while current is not None and current not in seen and isinstance(current.node, ast.FunctionDef):
        seen.add(current)
        if current in marked and not _is_method(facts, current):
            found = current
        current = _only_caller(facts, current)
    return found


# -- the statement -------------------------------------------------------------------------------------------


def _statement(facts: Facts, subject: Subject, scope: Scope, definitions: list[ast.Assign]) -> ast.stmt:
    """The statement of `scope` before which the Accelerator must be made."""
    mine = [d for d in definitions if facts.table.of_node[d] is scope]
    first_store = min(_first_stores(facts, subject), key=line_of)
    if scope is subject.scope:
        within: ast.stmt = first_store
    elif scope.parent is not None or not mine:
        within = first_store = min(_made_in(facts, subject, scope), key=line_of, default=_first(scope))
    else:
        within = mine[0]
    suite = suite_of(facts, _outermost(facts, within, scope))
    anchor = next((_in_suite(facts, d, suite) for d in mine), None)
    draw = next((s for s in suite if may_draw(facts, s)), None)
    marked = next((s for s in suite if _mentions_accelerator(s)), None)
    if marked is not None and first_store.lineno < marked.lineno:
        marked = _in_suite(facts, first_store, suite) or marked
    # Where the script names no device, or names it too late, the Accelerator stands above the first prepared object.
    late = anchor is not None and scope is subject.scope and anchor.lineno > _needed_by(facts, subject)
    made = _in_suite(facts, first_store, suite) or first_store if anchor is None or late else None
    first = min((s for s in (anchor, draw, marked, made) if s is not None), key=line_of)
    wants = next((s for s in suite if _wants_early(facts, subject, s)), None)
    read = [part for d in definitions for part in (d, *_tests_around(facts, d))]
    return wants if wants is not None and _may_stand(suite, wants, first, read) else first


def _mentions_accelerator(statement: ast.stmt) -> bool:
    """Whether a statement that runs at once (no definition) holds a mark for the accelerator."""
    names = (n for n in walk(statement) if isinstance(n, ast.Name))
    return not defines(statement) and any(MARKED.match(name.id) for name in names)


def _wants_early(facts: Facts, subject: Subject, statement: ast.stmt) -> bool:
    """Whether a statement that runs at once makes a writer or a log, downloads, or moves what nobody prepares: the
    Accelerator says which process does so, and where to."""
    if defines(statement):
        return False
    calls = [n for n in walk(statement) if isinstance(n, ast.Call)]
    return (
        _makes_speaker(facts, statement, calls)
        or fetches.may_download(facts, statement)
        or any(_moves_the_unprepared(facts, subject, call) for call in calls)
    )


def _makes_speaker(facts: Facts, statement: ast.stmt, calls: list[ast.Call]) -> bool:
    """Whether a statement makes a writer or a log, itself or in a function of the script."""
    called = [v.node for c in calls for v in facts.of(c.func) if isinstance(v, Function)]
    inner = [n for function in called for n in walk(function) if isinstance(n, ast.Call)]
    return any(opened_files.keeps_a_file_open(facts, part) for part in walk(statement)) or any(
        facts.paths(c.func) & loggers.MADE for c in (*calls, *inner)
    )


def _moves_the_unprepared(facts: Facts, subject: Subject, call: ast.Call) -> bool:
    """Whether a call moves a module other than those that train, a teacher say, or a tensor that no loader yields:
    `test_data.data[:100].cuda()`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"to", "cuda"}:
        return False
    moved = facts.of(call.func.value)
    modules = {v for v in moved if facts.interp.is_module(v)}
    if modules or call.func.attr == "to":
        return not modules <= set(subject.models)
    return not facts.targets(call) and not any(isinstance(v, External | FromBatch) for v in moved)


def _tests_around(facts: Facts, statement: ast.stmt) -> list[ast.expr]:
    return [around.test for around in facts.table.ancestors(statement) if isinstance(around, ast.If)]


def _may_stand(suite: list[ast.stmt], earlier: ast.stmt, first: ast.stmt, read: list[ast.AST]) -> bool:
    """Whether the Accelerator may be made before `earlier`: the variables that its arguments read exist by then."""
    if first not in suite or first.lineno <= earlier.lineno:
        return False
    between = suite[suite.index(earlier) : suite.index(first)]
    inner = [n for s in between for n in walk(s)]
    stored = {n.id for n in inner if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if any(isinstance(n, ast.Attribute) and n.attr in READS_OPTIONS for n in inner):
        return False
    return not any(isinstance(n, ast.Name) and n.id in stored for o in read for n in walk(o))


def _needed_by(facts: Facts, subject: Subject) -> int:
    """The line after which everything that is prepared is there, or the first of several trainings begins."""
    core = (*subject.models, *subject.optimizers, *subject.train_loaders)
    made = [h.last.lineno for v in core for h in stores(facts, subject.scope, v)]
    trains = [c.lineno for c, _ in facts.backward_calls if facts.table.of_node[c] is subject.scope]
    return min([max(made, default=0), *trains])


def _first(scope: Scope) -> ast.stmt:
    """The first statement of a scope's body that does something."""
    assert not isinstance(scope.node, ast.Lambda)
    body = scope.node.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    return body[1] if documented else body[0]


def _first_stores(facts: Facts, subject: Subject) -> list[ast.stmt]:
    """The statements that make what needs the Accelerator from the start, in the scope that prepares."""
    core = subject.named if subject.stages else subject.models
    found = _stored(facts, subject.scope, (*core, *subject.optimizers))
    made = [facts.table.statement_of(made_at(v)) for v in subject.unnamed]
    found += [s for s in made if facts.table.of_node[s] is subject.scope]
    stages = dict.fromkeys(subject.stages.values()) if not found else ()
    return found + [s for stage in stages for s in _calls_into(facts, subject.scope, stage)]


def _made_in(facts: Facts, subject: Subject, scope: Scope) -> list[ast.stmt]:
    """The statements of `scope` that hold what is prepared, or call the function that prepares it."""
    held = _stored(facts, scope, (*subject.models, *subject.optimizers, *subject.train_loaders))
    return held + _calls_into(facts, scope, subject.scope)


def _stored(facts: Facts, scope: Scope, values: Iterable[Value]) -> list[ast.stmt]:
    return [holding.stores[0] for value in values for holding in stores(facts, scope, value)]


def _calls_into(facts: Facts, scope: Scope, inner: Scope) -> list[ast.stmt]:
    """The statements of `scope` whose calls lead to `inner`, straight or by way of other functions."""
    found: list[ast.stmt] = []
    waiting, seen = [inner.node], {inner.node}
    while waiting:
        for call in facts.callers.get(waiting.pop(), ()):
            around = facts.table.of_node[call]
            if around is scope:
                found.append(facts.table.statement_of(call))
            elif around.node not in seen:
                seen.add(around.node)
                waiting.append(around.node)
    return found


def _outermost(facts: Facts, statement: ast.stmt, scope: Scope) -> ast.stmt:
    """The ancestor of `statement` that stands in the scope's own body, or in its `if __name__` block."""
    current = statement
    for around in facts.table.ancestors(statement):
        if around is scope.node or is_main_test(around):
            return current
        if isinstance(around, ast.stmt):
            current = around
    return current


def _in_suite(facts: Facts, node: ast.AST, suite: list[ast.stmt]) -> ast.stmt | None:
    chain = [node, *facts.table.ancestors(node)]
    return next((s for s in suite if s in chain), None)


def only_definition(facts: Facts, name: ast.Name) -> ast.expr | None:
    """What a variable is assigned, when it is assigned once and is no parameter."""
    scope = facts.table.of_node[name].resolve(name.id)
    function = scope.node if scope is not None and scope.is_function else None
    if isinstance(function, FunctionNode) and name.id in {a.arg for a in all_arguments(function)}:
        return None
    found = [
        n.value
        for n in facts.each(ast.Assign)
        if len(n.targets) == 1
        and isinstance(n.targets[0], ast.Name)
        and n.targets[0].id == name.id
        and facts.table.of_node[n] is scope
    ]
    return found[0] if len(found) == 1 else None


# -- edits ---------------------------------------------------------------------------------------------------


def construct(context: Context, in_place_of: ast.Assign | None) -> None:
    """Plans the import and the constructor, in place of a device statement that nothing uses any more."""
    precision_argument.ask(context)
    options = ", ".join(f"{k}={v}" for k, v in context.options.items())
    code = f"{context.home.holder} = Accelerator({options})"
    reason = "one Accelerator, before the first random draw"
    statement = context.home.statement
    assert statement is not None
    if in_place_of is not None and in_place_of is statement:
        context.edits.append(e.ReplaceStatement(in_place_of, CONSTRUCT, reason, code=code))
    else:
        context.edits.append(e.InsertBefore(statement, CONSTRUCT, reason, code=code))
    imported = f"from {context.runtime} import Accelerator"
    context.edits.append(e.AddImport(context.home.scope.file, IMPORT, imported, code=imported))
