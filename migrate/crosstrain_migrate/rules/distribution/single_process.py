"""What a script that distributes itself computes when it runs as one process: ranks are 0, sizes are 1.

`SingleProcess.value_of` gives an expression's value where that is certain. `launch_value` gives it only where it follows from
the launch: only tests of that kind are folded, and all others stay as the author has them.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Function, Instance, Method, Symbol
from crosstrain_migrate.rules.arguments import default_of, spawn_arguments, spreads
from crosstrain_migrate.rules.sources import sources_of
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.walks import walk

from .constant_folding import BINARY, COMPARE, PENDING, PURE, KnownValue, apply, join, marked
from .dead_code import DeadCode
from .launcher_settings import (
    DIST,
    ENVIRONMENT,
    LAUNCHED,
    ONE,
    RANKS,
    SIZES,
    SPAWN,
    SPAWNED_RANK,
    WRAPPERS,
    World,
    asked_variable,
    copied_variables,
)
from .options import option

MANY = 16  # combinations of alternatives that are tried


def returns_of(facts: Facts, function: FunctionNode) -> list[ast.Return]:
    """The `return` statements of a function itself, those of nested functions apart."""
    found = [n for n in walk(function) if isinstance(n, ast.Return)]
    return [n for n in found if facts.enclosing_function(n) is function]


def entries(node: ast.expr, key: object) -> list[ast.expr]:
    """The values under a key of a dictionary that is written out."""
    pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
    return [value for own, value in pairs if isinstance(own, ast.Constant) and own.value == key]


def stored_under(facts: Facts, key: object) -> list[tuple[ast.expr, ast.expr]]:
    """The dictionaries in which the script stores something under a key, with what it stores: `options["rank"] = 0`."""
    stores = ((t, s.value) for s in facts.each(ast.Assign) for t in s.targets if isinstance(t, ast.Subscript))
    return [(t.value, v) for t, v in stores if isinstance(t.slice, ast.Constant) and t.slice.value == key]


class SingleProcess:
    """Evaluates expressions of one script under the assumption that it runs as a single, unlaunched process, or as
    one process of another `world`."""

    def __init__(self, facts: Facts, world: World = ONE) -> None:
        self.facts = facts
        self.sources = sources_of(facts)
        self.world = world
        self._memo: dict[ast.AST, KnownValue | None] = {}
        self._unreached = DeadCode(facts.table, self._value)
        self.spawns = facts.calls_to(*SPAWN)

    # -- values ----------------------------------------------------------------------------------------------

    def value_of(self, node: ast.expr) -> KnownValue | None:
        """The value of an expression, if it is certain."""
        found = self._value(node)
        return None if found is PENDING else found

    def launch_value(self, node: ast.expr) -> KnownValue | None:
        """The value of an expression, if it is certain and follows from how the script was launched."""
        found = self.value_of(node)
        return found if found is not None and found.from_launch else None

    def _value(self, node: ast.expr) -> KnownValue | None:
        if node in self._memo:
            return self._memo[node]
        self._memo[node] = PENDING
        handler: Callable[[ast.expr], KnownValue | None] | None = getattr(
            self, f"_value_{type(node).__name__}", None
        )
        found = handler(node) if handler is not None else None
        if found is PENDING:
            del self._memo[node]  # it may be known once the cycle it is part of is left
        else:
            self._memo[node] = found
        return found

    def _value_Constant(self, node: ast.Constant) -> KnownValue:
        return KnownValue(node.value)

    def _value_Tuple(self, node: ast.Tuple | ast.List) -> KnownValue | None:
        kind = tuple if isinstance(node, ast.Tuple) else list
        return self._pure(lambda *parts: kind(parts), node.elts)

    _value_List = _value_Tuple

    def _value_Name(self, node: ast.Name) -> KnownValue | None:
        if node.id == SPAWNED_RANK:
            return KnownValue(self.world.rank, True)
        definitions = self.sources.definitions(node)
        alive = [d for d in definitions if not self.dead(d)]
        # Several processes also run the code that is dead here.
        return marked(join([self._definition(d) for d in alive]), len(alive) < len(definitions))

    def _definition(self, node: ast.AST) -> KnownValue | None:
        if isinstance(node, ast.arg):
            return self._argument(node)
        if not isinstance(node, ast.Name | ast.Attribute):
            return None
        statement = self.facts.table.statement_of(node)
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            return self._value(statement.value)
        if isinstance(statement, ast.AugAssign) and statement.target is node:
            return self._augmented(statement)
        if not isinstance(statement, ast.Assign):
            return None
        for target in statement.targets:
            if target is node:
                return self._value(statement.value)
            if isinstance(target, ast.Tuple | ast.List) and node in target.elts:
                return self._element(statement.value, target.elts.index(node), len(target.elts))
        return None

    def _augmented(self, statement: ast.AugAssign) -> KnownValue | None:
        """`args.rank += gpu`: from what it was assigned before."""
        target, function = statement.target, BINARY.get(type(statement.op))
        if function is None or not isinstance(target, ast.Name | ast.Attribute):
            return None
        first = [d for d in self.sources.definitions(target) if not self._augments(d) and not self.dead(d)]
        before, by = join([self._definition(d) for d in first]), self._value(statement.value)
        if before is None or by is None:
            return None
        return PENDING if PENDING in (before, by) else apply(function, [before, by])

    def _augments(self, definition: ast.AST) -> bool:
        statement = self.facts.table.statement_of(definition)
        return isinstance(statement, ast.AugAssign) and statement.target is definition

    def _element(self, value: ast.expr, index: int, length: int) -> KnownValue | None:
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == length:
            return self._value(value.elts[index])
        if isinstance(value, ast.Call):
            results = [self._returned(f, index) for f in self._local(value)]
            if results:
                return join(results)
        found = self._value(value)
        if found is None or found is PENDING:
            return found
        if isinstance(found.value, tuple | list) and len(found.value) == length:
            return KnownValue(found.value[index], found.from_launch)
        return None

    def _argument(self, argument: ast.arg) -> KnownValue | None:
        function = self.facts.table.of_node[argument].node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return None
        found: list[KnownValue | None] = [
            self._passed(site, function, argument)
            for site in self.sources.sites(function)
            if not self.dead(site)
        ]
        spawns = [s for s in self.spawns if s.args and self._spawned(s) is function]
        found.extend(self._spawned_argument(s, function, argument) for s in spawns if not self.dead(s))
        return marked(join(found), bool(spawns))  # started processes get other values

    def _passed(
        self, site: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, argument: ast.arg
    ) -> KnownValue | None:
        expression = self.facts.passed(site, function, argument.arg)
        if expression is not None:
            return self._value(expression)
        default = default_of(function, argument)
        return self._value(default) if default is not None and not spreads(site) else None

    def _spawned(self, spawn: ast.Call) -> ast.AST | None:
        return next((v.node for v in self.facts.of(spawn.args[0]) if isinstance(v, Function)), None)

    def _spawned_argument(
        self, spawn: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, argument: ast.arg
    ) -> KnownValue | None:
        names = [a.arg for a in function.args.args]
        index = names.index(argument.arg) if argument.arg in names else -1
        if index == 0:
            return KnownValue(self.world.rank, True)
        given = spawn_arguments(spawn)
        if given is None or not 0 <= index - 1 < len(given):
            return None
        return self._value(given[index - 1])

    def _value_Attribute(self, node: ast.Attribute) -> KnownValue | None:
        stores = self.sources.definitions(node)
        alive = [a for a in stores if not self.dead(a)]
        if self.world.several:  # the last value is the one after `+=`
            alive = [a for a in alive if self._augments(a)] or alive
        found = [self._definition(a) for a in alive]
        if self.sources.is_namespace(node.value):
            found.append(option(self.sources.options.get(node.attr), node.attr, self.world, self._value))
        else:
            found += self._fields(node)
        return marked(join(found), len(alive) < len(stores))

    def _fields(self, node: ast.Attribute) -> list[KnownValue | None]:
        """`config.world_size` of a `Config(world_size=...)` whose class has no constructor of its own."""
        if not isinstance(node.value, ast.Name | ast.Attribute):
            return []
        made = [o for o in self.sources.origins(node.value) if isinstance(o, ast.Call)]
        return [self._value(k.value) for c in made for k in c.keywords if k.arg == node.attr]

    def _value_Call(self, node: ast.Call) -> KnownValue | None:
        paths = self.facts.paths(node.func)
        library = (self._library(path, node) for path in paths)
        found = next((value for value in library if value is not None), None) or self._environment(node)
        if found is not None:
            return found
        name = next((p[9:] for p in paths if p.startswith("builtins.") and p[9:] in PURE), None)
        if name == "int" and len(node.args) == 1 and (asked := self._needed(node.args[0])) is not None:
            return apply(int, [asked])
        if name is not None and not node.keywords:
            return self._pure(PURE[name], node.args)
        targets = self._local(node)
        return join([self._returned(f) for f in targets]) if targets else None

    def _library(self, path: str, node: ast.Call) -> KnownValue | None:
        name = path.rsplit(".", 1)[-1]
        if path.startswith(DIST):
            if name in {"get_rank", "get_node_local_rank"}:
                return KnownValue(self.world.rank if name == "get_rank" else self.world.local_rank, True)
            if name == "get_world_size":
                return KnownValue(self.world.size, True)
            if name in {"is_initialized", "is_torchelastic_launched"}:
                return KnownValue(self.world.several, True)
        if path == "torch.cuda.device_count" or path == "torch.accelerator.device_count":
            return KnownValue(self.world.local_size, True)
        if path.startswith("transformers.") and name == "is_main_process" and node.args:
            return self._pure(lambda rank: rank in (-1, 0), node.args[:1])
        if path == "builtins.hasattr" and len(node.args) == 2:
            owner, attribute = node.args
            asked = isinstance(attribute, ast.Constant) and attribute.value == "module"
            if asked and self._may_be_wrapped(owner):
                return KnownValue(self.world.several, True)
            return self._has_option(owner, attribute)
        if path == "builtins.isinstance" and len(node.args) == 2:
            classes = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else [node.args[1]]
            if classes and all(self.facts.paths(c) & WRAPPERS for c in classes):
                return KnownValue(self.world.several, True)
        return None

    def _has_option(self, owner: ast.expr, name: ast.expr) -> KnownValue | None:
        """`hasattr(args, "rank")` of an attribute that only the branches of several processes set."""
        if not self.sources.is_namespace(owner) or not isinstance(name, ast.Constant):
            return None
        stored = self.sources.definitions(ast.Attribute(owner, str(name.value), ast.Load()))
        if name.value in self.sources.options or not stored or not all(map(self.dead, stored)):
            return None
        return KnownValue(False, True)

    def _may_be_wrapped(self, node: ast.expr) -> bool:
        """Whether no class of a module has a `module` of its own."""
        values = self.facts.of(node)
        return not any(
            isinstance(v, Instance) and (v.cls, "module") in self.facts.interp.heap for v in values
        )

    def _environment(self, node: ast.Call) -> KnownValue | None:
        """`os.environ.get("RANK", 0)`, `os.getenv(...)`: nothing launched the script, so the default holds."""
        name = asked_variable(node)
        if name not in LAUNCHED:
            return None
        launched = self.world.variable(name)
        if launched is not None or len(node.args) < 2:
            return KnownValue(launched, True)
        return marked(self._value(node.args[1]), True)

    def _needed(self, node: ast.expr) -> KnownValue | None:
        """`int(os.getenv("SLURM_NODEID"))`: without a default, the script expects to be launched."""
        plain = isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords
        return self._variable(asked_variable(node)) if plain else None

    def _pure(self, function: Callable[..., object], nodes: list[ast.expr]) -> KnownValue | None:
        arguments = [self._value(n) for n in nodes]
        if any(a is PENDING for a in arguments):
            return PENDING
        if all(a is not None for a in arguments):
            return apply(function, [a for a in arguments if a is not None])
        several = [self._alternatives(n) for n in nodes]
        if not all(several) or math.prod(map(len, several)) > MANY:
            return None
        return join([apply(function, list(one)) for one in itertools.product(*several)])

    def _alternatives(self, node: ast.expr, depth: int = 4) -> list[KnownValue]:
        """The few values that an expression may have, where no single one is certain: `0 if args.no_cuda else 1`."""
        found = self._value(node)
        if found is PENDING or not depth:
            return []
        if found is not None:
            return [found]
        if isinstance(node, ast.IfExp):
            return _all([self._alternatives(node.body, depth), self._alternatives(node.orelse, depth)])
        if not isinstance(node, ast.Name | ast.Attribute):
            return []
        every = [self._defines(d, depth - 1) for d in self.sources.definitions(node) if not self.dead(d)]
        return _all(every)

    def _defines(self, definition: ast.AST, depth: int) -> list[KnownValue]:
        found = self._definition(definition)
        if found is not None:
            return [] if found is PENDING else [found]
        statement = self.facts.table.statement_of(definition)
        if not isinstance(statement, ast.Assign) or definition not in statement.targets:
            return []
        return self._alternatives(statement.value, depth)

    def _local(self, node: ast.Call) -> list[FunctionNode]:
        found: list[FunctionNode] = []
        for value in self.facts.of(node.func):
            if isinstance(value, Function):
                found.append(value.node)
            elif isinstance(value, Method):
                found.append(value.function.node)
            elif not isinstance(value, Symbol):
                return []
        return found

    def _returned(self, function: FunctionNode, index: int | None = None) -> KnownValue | None:
        """What a function of the script returns, or the element at `index` of the tuple it returns."""
        if isinstance(function, ast.Lambda):
            return self._value(function.body) if index is None else None
        everywhere = returns_of(self.facts, function)
        returns = [n for n in everywhere if not self.dead(n)]
        if not returns:
            return KnownValue(None) if index is None else None
        values = [n.value for n in returns]
        if index is None:
            found = [self._value(v) if v is not None else KnownValue(None) for v in values]
        else:
            tuples = [v.elts if isinstance(v, ast.Tuple) else [] for v in values]
            found = [self._value(t[index]) if index < len(t) else None for t in tuples]
        return marked(join(found), len(returns) < len(everywhere))

    def _value_Subscript(self, node: ast.Subscript) -> KnownValue | None:
        if (name := asked_variable(node)) is not None:
            return self._variable(name)
        if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
            return self._entry(node.value, node.slice.value)
        return self._pure(lambda a, b: a[b], [node.value, node.slice])

    def _variable(self, name: object) -> KnownValue | None:
        """`os.environ["RANK"]`: without a launcher it would raise, so it counts as launched on one process."""
        if name not in RANKS | SIZES:
            return None
        launched = self.world.variable(str(name))
        return KnownValue(launched if launched is not None else "0" if name in RANKS else "1", True)

    def _entry(self, owner: ast.expr, key: str) -> KnownValue | None:
        """`options["world_size"]` of a dictionary that the script writes out."""
        written: list[ast.expr] = [owner] if isinstance(owner, ast.Dict) else []
        if isinstance(owner, ast.Name | ast.Attribute):
            written = self.sources.origins(owner)
        found: list[KnownValue | None] = []
        for value in written:
            if isinstance(value, ast.DictComp):
                found.append(self._variable(key) if key in copied_variables(value) else None)
                continue
            if not isinstance(value, ast.Dict):
                return None
            found += map(self._value, entries(value, key))
        found += [self._value(value) for _, value in stored_under(self.facts, key)]
        return join(found)

    def _value_Compare(self, node: ast.Compare) -> KnownValue | None:
        if len(node.ops) != 1:
            return None
        left, op, right = node.left, node.ops[0], node.comparators[0]
        if isinstance(op, ast.In | ast.NotIn) and ast.unparse(right) in ENVIRONMENT:
            launched = isinstance(left, ast.Constant) and left.value in LAUNCHED
            return KnownValue(isinstance(op, ast.NotIn) is not self.world.several, True) if launched else None
        return self._pure(COMPARE[type(op)], [left, right])

    def _value_BoolOp(self, node: ast.BoolOp) -> KnownValue | None:
        parts = [self._value(v) for v in node.values]
        settles = isinstance(node.op, ast.Or)
        for part in parts:
            if part is not None and part is not PENDING and part.truth is settles:
                return KnownValue(settles, part.from_launch)
        if any(p is None for p in parts):
            return None
        if any(p is PENDING for p in parts):
            return PENDING
        return KnownValue(not settles, any(p.from_launch for p in parts if p is not None))

    def _value_UnaryOp(self, node: ast.UnaryOp) -> KnownValue | None:
        if isinstance(node.op, ast.Not):
            return self._pure(operator.not_, [node.operand])
        return self._pure(operator.neg, [node.operand]) if isinstance(node.op, ast.USub) else None

    def _value_BinOp(self, node: ast.BinOp) -> KnownValue | None:
        function = BINARY.get(type(node.op))
        return self._pure(function, [node.left, node.right]) if function is not None else None

    def _value_IfExp(self, node: ast.IfExp) -> KnownValue | None:
        test = self._value(node.test)
        if test is PENDING:
            return PENDING
        if test is None:
            return join([self._value(node.body), self._value(node.orelse)])
        return marked(self._value(node.body if test.truth else node.orelse), test.from_launch)

    # -- code that one process never runs --------------------------------------------------------------------

    def dead(self, node: ast.AST) -> bool:
        """Whether `node` stands in a branch that the process does not take, or below one in which it always returns."""
        return self._unreached.dead(node)

    def leaves(self, statement: ast.stmt) -> bool:
        """Whether the process always returns in `statement`, because of how it was launched."""
        return self._unreached.leaves(statement)


class EveryProcess(SingleProcess):
    """One process of a script whose branches all stay: no code is dead."""

    def dead(self, node: ast.AST) -> bool:
        return False

    def leaves(self, statement: ast.stmt) -> bool:
        return False


def _all(parts: list[list[KnownValue]]) -> list[KnownValue]:
    """All alternatives together; none if one part has none."""
    return [k for part in parts for k in part] if parts and all(parts) else []
