"""Functions of the project that do nothing but write or show: where one process is enough, so is one process's call."""

from __future__ import annotations

import ast
import re
from typing import TypeGuard

from crosstrain_migrate.core.output import commands, writers
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.draws import RANDOM
from crosstrain_migrate.core.reading.forms import FUNCTIONS, MethodCall, is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

from .effects import Effects

_DRAWS = re.compile(
    r"^(rand\w*|normal_?|uniform_?|shuffle|sample|choices?|multinomial|permutation|bernoulli_?|manual_seed|seed|next|iter"
    r"|exponential_?)$"
)
# What one process may do to a model that all have, where the same function takes it back.
_IN_PLACE = {"eval": {"train"}, "train": {"eval"}, "cpu": {"cuda"}, "cuda": set[str](), "to": set[str]()}
# New code that all processes come to, or wait.
_COLLECTIVE = re.compile(
    r"(\.(reduce|merge|gather\w*|prepare\w*|backward|wait_for_everyone|main_process_first)|broadcast_object_list)\("
)
_HARMLESS = frozenset({"close", "flush", "write", "writelines", "writerow", "writerows"})


class Helpers:
    """Which functions only write."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.effects = Effects(plan.script)
        self._found: dict[Function, list[ast.Call]] = {}

    def called(self, call: ast.Call) -> Function | None:
        """The one function of the project that a call means."""
        if self.script.class_made(call) is not None:
            return None
        found = self.script.functions_of(call)
        if isinstance(call.func, ast.Name):  # `open(path)` beside a method `open`
            found = [one for one in found if self.script.class_of(one) is None]
        if len(found) > 1 and isinstance(call.func, ast.Attribute) and written(call.func.value) == "self":
            found = self._own_methods(call, found)
        return found[0] if len(found) == 1 else None

    def _own_methods(self, call: ast.Call, found: list[Function]) -> list[Function]:
        """The methods of that name that `self.method()` may mean: the class's own, unless one that derives from it has another."""
        cls = self.script.class_of(self.script.frame(call))
        own = [one for one in found if cls is not None and self.script.class_of(one) is cls]
        bases = [b for one in found if (other := self.script.class_of(one)) is not None for b in other.bases]
        is_overridden = cls is not None and cls.name in map(self.script.last, bases)
        return found if not own or is_overridden else own

    def writes(self, function: Function) -> int:
        """The number of calls that write or show in a function and those that it calls."""
        return len(self.writing(function))

    def writing(self, function: Function) -> list[ast.Call]:
        """These calls, each once."""
        if function not in self._found:
            reached, found = [function], []
            for one in reached:  # grows meanwhile
                for call in _calls(one):
                    if self._is_write(call):
                        found.append(call)
                    elif (called := self.called(call)) is not None and called not in reached:
                        reached.append(called)
            self._found[function] = found
        return self._found[function]

    def _is_write(self, call: ast.Call) -> bool:
        kinds = (
            writers.writes_file,
            commands.runs_command,
            writers.shows,
            writers.saves_weights,
            writers.opens_to_write,
        )
        return any(is_kind(self.script, call) for is_kind in kinds)

    def given_paths(self, call: ast.Call, function: Function) -> list[ast.expr]:
        """The arguments of a call that may name what its function writes: those whose parameters are the paths, else all."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        paths = [writers.path_of_write(self.script, one) for one in self.writing(function)]
        names = {written(path) if isinstance(path, ast.Name) else "" for path in paths}
        own = names & set(self.script.parameters(function))
        if names != own or any(self.script.stores(function, name) for name in own):
            return given
        found = [self.script.argument_for(call, function, name) for name in sorted(own)]
        return [one for one in found if one is not None] if None not in found else given

    def saves_weights(self, function: Function) -> bool:
        """Whether weights are saved in a function, or in one that it calls."""
        return any(writers.saves_weights(self.script, call) for call in self.writing(function))

    def met_in(self) -> set[ast.AST]:
        """The nodes at which something is made that all processes do together, and those around them."""
        met = self.met_at()
        return met | {around for node in met for around in self.script.around(node)}

    def met_at(self) -> set[ast.AST]:
        """The nodes at which an edit makes something that all processes do together."""
        return {
            edit.node
            for edit in self.plan.edits
            if isinstance(edit, e.Within | e.InsertBefore)
            or is_collective(edit)
            or (edit.transaction == e.CORE and edit.rule not in ("CT105", "CT101"))
        }

    def only_writes(self, function: Function, *, may_draw: bool = False) -> bool:
        """Whether nothing but files and windows is changed by a function, so that no other process needs its call.

        may_draw: it may draw random numbers, which the others then lack.
        """
        reached = [function]
        for one in reached:  # grows meanwhile
            if not self._only_writes_itself(one, may_draw):
                return False
            called = (self.called(call) for call in _calls(one))
            reached += dict.fromkeys(f for f in called if f is not None and f not in reached)
        return True

    def _only_writes_itself(self, function: Function, may_draw: bool) -> bool:
        """The same, whatever the functions do that it calls."""
        nodes = walk_all(function.body)
        edited = self.met_at()
        if any(node in edited or isinstance(node, ast.Yield | ast.YieldFrom | ast.Await) for node in nodes):
            return False
        if any(isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Nonlocal)) for node in nodes):
            return False
        shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        if any(self._is_used_elsewhere(function, name) for name in shared):
            return False
        own = self.effects.fresh(nodes, {*shared, *self.script.parameters(function)})
        if self.effects.changes(nodes, own | shared):
            return False
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        without_gradient = any(
            last_name(call.func) in ("no_grad", "eval", "inference_mode") for call in calls
        )
        if not without_gradient and any(self._may_be_model(call, function) for call in calls):
            return False
        return all(self._is_harmless(call, own, nodes, may_draw) for call in calls)

    def _is_harmless(self, call: ast.Call, own: set[str], nodes: list[ast.AST], may_draw: bool) -> bool:
        last = last_name(call.func)
        if may_draw and RANDOM.match(self.script.dotted(call.func)):
            return True
        if draws(call) or "Loader" in last:
            return False
        if self.called(call) is not None:
            return True
        if self.script.functions(last) or self.script.class_made(call) is not None:
            return False
        if not isinstance(call.func, ast.Attribute) or not is_statement_call(self.script, call):
            return True
        if self.effects.is_module(call.func) or self.effects.is_fresh(call.func.value, own):
            return True
        if last in _IN_PLACE:
            of = written(call.func.value)
            there = {n.func.attr for n in nodes if _is_method_of(n, of)}
            return there >= _IN_PLACE[last]
        return last in _HARMLESS or self._is_write(call)

    def keeps_something(self, nodes: list[ast.AST]) -> bool:
        """Whether a block of code changes what was there before it, or leaves a model in another mode."""
        modes = [n for n in nodes if is_method(n, "train", "eval") and is_statement_call(self.script, n)]
        there = {written(n.func) for n in modes}
        of = {text.rpartition(".")[0] for text in there}
        return any(not {f"{one}.train", f"{one}.eval"} <= there for one in of) or self.effects.changes(
            nodes, self.effects.fresh(nodes)
        )

    def _may_be_model(self, call: ast.Call, function: Function) -> bool:
        """Whether a call may be a model's: of what the function is given, or of an attribute."""
        is_given = isinstance(call.func, ast.Name) and call.func.id in self.script.parameters(function)
        is_held = isinstance(call.func, ast.Attribute) and written(call.func.value) == "self"
        return (is_given or is_held) and not self.script.functions(last_name(call.func))

    def _is_used_elsewhere(self, function: Function, name: str) -> bool:
        inside = set(map(id, walk(function)))
        module = self.script.module(function)
        return any(
            n.id == name
            and isinstance(n.ctx, ast.Load)
            and id(n) not in inside
            and self.script.module(n) is module
            and self.script.is_reached(n)
            and self.script.frame(n) is not module
            for n in self.script.table.each(ast.Name)
        )


def is_collective(edit: e.Edit) -> bool:
    """Whether an edit puts code somewhere that every process must come to."""
    return _COLLECTIVE.search(getattr(edit, "template", "") + getattr(edit, "code", "")) is not None


def draws(call: ast.Call) -> bool:
    """Whether a call draws random numbers."""
    return _DRAWS.match(last_name(call.func)) is not None


def _calls(function: Function) -> list[ast.Call]:
    return [n for n in walk_all(function.body) if isinstance(n, ast.Call)]


def _is_method_of(node: ast.AST, text: str) -> TypeGuard[MethodCall]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and written(node.func.value) == text
    )


class Meetings:
    """Where all processes meet: what communicates, is prepared or trained, which one must not do alone. `ended`: the guards behind
    which all wait."""

    def __init__(self, plan: Plan, helpers: Helpers, ended: list[ast.stmt]) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.helpers = helpers
        self._ended = ended
        self._runs: dict[ast.Call, list[Function]] = {}  # the functions of the project that a call may run

    def are_at(self, nodes: list[ast.AST]) -> bool:
        """Whether an edit has put there what every process must come to."""
        places = set(map(id, nodes))
        edited = [edit.node for edit in self.plan.edits if is_collective(edit)]
        return any(id(node) in places for node in (*edited, *self._ended))

    def is_collective(self, call: ast.Call) -> bool:
        """Whether a call may lead to code that communicates: to a function of the project, or one that was replaced."""
        if self.are_at([call, call.func]):
            return True
        run = self._run_by(call)
        met = self.helpers.met_in() if run else set()
        return any(self._communicates(function, set(), met) for function in run)

    def may_be_between(self, above: ast.AST, below: ast.AST) -> bool:
        """Whether all may meet between two places: those of several functions or loops, or around what all do together."""
        frame, loops = self.script.frame(below), self.script.loops_around(below)
        is_other = frame is not self.script.frame(above) or loops != self.script.loops_around(above)
        if is_other or place_of(above) > place_of(below):
            return True
        inside = [n for n in self.script.within(frame) if isinstance(n, ast.stmt | ast.Call)]
        nodes = [n for n in inside if place_of(above) < place_of(n) < place_of(below)]
        return any(self.is_collective(n) if isinstance(n, ast.Call) else self.are_at([n]) for n in nodes)

    def only_writes(self, node: ast.With) -> bool:
        """Whether a block does nothing but write, so that no other process needs it."""
        inside, stores = walk_all(node.body), stores_in(*node.body)
        if any("." in written(n) or self.script.reads_behind(node, written(n)) for n in stores):
            return False
        if any(
            is_method(n, "backward", "step") or (isinstance(n, ast.Call) and self.is_collective(n))
            for n in inside
        ):
            return False
        if self.helpers.keeps_something([*node.items, *inside]):
            return False
        return not any(isinstance(n, ast.Return | ast.Yield | ast.Break | ast.Continue) for n in inside)

    def _run_by(self, call: ast.Call) -> list[Function]:
        """The functions of the project that a call may run: those of that name, or the constructors of the class."""
        if call not in self._runs:
            name = self.script.last(call.func)
            cls = self.script.class_made(call)
            named = [] if name == "__init__" else self.script.functions(name)
            inits = (m for m in self.script.all_methods(cls) if m.name == "__init__")
            objects = [] if named else self.script.functions("__call__")
            self._runs[call] = [*named, *inits, *(one for one in objects if call in self.script.callers(one))]
        return self._runs[call]

    def _communicates(self, function: Function, seen: set[Function], met: set[ast.AST]) -> bool:
        """Whether something is prepared, trained or merged in a function, or in one that it calls."""
        if function in seen:
            return False
        seen.add(function)
        if function in met:
            return True
        called = (f for c in self.script.calls_in(function) for f in self._run_by(c))
        return any(self._communicates(one, seen, met) for one in called)


def null_device(
    plan: Plan, path: ast.expr, state: str, rule: str, reason: str, group: str, other: str = "os.devnull"
) -> None:
    """The file at `path` is the null device, or another one, on all but the main process, which `state` knows."""
    given = "({path})" if isinstance(path, ast.IfExp | ast.Lambda) else "{path}"
    code = f"{given} if {state}.is_main_process else {other}"
    is_asked = isinstance(plan.script.parent(path), ast.Attribute)  # to open itself
    plan.replace(path, rule, reason, f"({code})" if is_asked else code, group, path=path)
    import_for(plan, path, other, rule, group)


def import_for(plan: Plan, node: ast.AST, code: str, rule: str, group: str) -> None:
    """The standard library's module that new code asks, `tempfile.mkdtemp()`, is imported where it is not."""
    module, wanted = plan.script.module(node), "tempfile" if "tempfile." in code else "os"
    names = {
        a.asname or a.name for n in plan.script.within(module) if isinstance(n, ast.Import) for a in n.names
    }
    if wanted not in {name.split(".")[0] for name in names}:
        plan.add(e.AddImport(module, rule, transaction=group, code=f"import {wanted}"))
