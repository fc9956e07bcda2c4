"""Which values may be another one on each process: what comes from a process's own batches, from what a model answers,
and from clocks.

What every process computes of the same data is the same in theory alone: kernels round, buffers and random numbers are
each process's own. So a model's answers count as different, and so does what is made of them, through variables,
attributes, arguments and results of the project's functions.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from crosstrain_migrate.core.numbers.accumulators import CLOCK, QUIET_ROOTS
from crosstrain_migrate.core.numbers.dealing import Evaluations
from crosstrain_migrate.core.numbers.repeated import Repeated
from crosstrain_migrate.syntax.nodes import last_name, words, written
from crosstrain_migrate.syntax.walks import children

from .alike import counters_of
from .draws import RANDOM
from .forms import RANGES, Frame, Loop, is_function_frame, is_method, pairs
from .keys import Key, entries_of, entry_of, is_got, is_root, option_of, parts
from .places import Places
from .roles import Roles
from .script import Script
from .variables import Variables

ALIKE, GIVEN, OWN = 0, 1, 2  # GIVEN: different where the function's caller gives something different
_SAME = ("device", "dtype", "shape", "ndim", "dataset", "training", "requires_grad")
_FINDS = ("where", "nonzero", "argwhere", "flatnonzero")
_SAME_CALLS = words("len size dim isinstance hasattr is_available keys type load_state_dict")


class Differing:
    """What may differ, variable by variable."""

    def __init__(
        self,
        script: Script,
        roles: Roles,
        evaluations: Evaluations,
        alike: dict[tuple[Frame, str], Loop],
        models: Iterable[tuple[str, ast.AST]] = (),
    ) -> None:
        """alike: what the conversion makes alike behind a loop, by function and variable. models: what is prepared."""
        self.script = script
        self.variables = Variables(script)
        self.roles = roles
        self.loops: set[ast.AST] = {one.loop for one in roles.data if one.loop is not None}
        # Where no training loop goes over data, each process draws for itself from the first step on.
        steps = [script.loops_around(one.call)[:1] for one in roles.optimizers if not self.loops]
        self.loops |= {one.loop for one in evaluations.dealt} | {one.loop for one in evaluations.whole}
        self._drawing = self.loops | {loop for loops in steps for loop in loops}
        self._trained = evaluations.trained
        self._levels: dict[Key, int] = {}
        self._until: dict[Key, Loop] = {}
        self._fixed: set[Key] = set()
        self._entries: dict[Key, set[Key]] = defaultdict(set)
        self._alike_texts: dict[str, list[ast.AST]] = defaultdict(list)
        self._texts: dict[ast.AST, str] = {}
        self._turns: dict[ast.AST, bool] = {}
        self._results: dict[Frame, list[int]] = {}
        self._places = Places()
        for (frame, text), loop in alike.items():
            for store in script.stores(frame, text):
                if (key := self.variables.key(store)) is not None:
                    self._until[key] = loop
        prepared = {key for text, use in models if (key := self.variables.key_of(text, use)) is not None}
        self._repeated = Repeated(script, roles, evaluations, {*prepared}, self.variables.roots).loops()
        self._spread()

    # -- asked by the others -----------------------------------------------------------------------------------

    def level(self, node: ast.AST) -> int:
        """Whether the value of an expression may differ: ALIKE, GIVEN or OWN."""
        if isinstance(node, ast.Constant | ast.Lambda):
            return ALIKE
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and self._is_made_alike(
            node
        ):
            return ALIKE
        if isinstance(node, ast.Compare) and (
            all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
            or ast.unparse(node.comparators[-1]) == "None"  # `optimizer != None`
        ):
            return ALIKE
        if isinstance(node, ast.Name):
            return self._of_variable(node)
        if isinstance(node, ast.Attribute):
            if node.attr in _SAME:
                return ALIKE
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                return self._of_variable(node)
        if (
            isinstance(node, ast.Subscript | ast.Attribute)
            and not self._is_called(node)
            and not _is_of_call(node)
            and (isinstance(node, ast.Subscript) or self.variables.key(node) not in self._until)
            and (entry := self.variables.entry(node)) is not None
        ):
            key = self.variables.key(node)
            return max(self._of_key(entry), self._of_key(key) if key is not None else ALIKE)
        if isinstance(node, ast.Call):
            return self._of_call(node)
        return max((self.level(child) for child in children(node)), default=ALIKE)

    def make_alike(self, node: ast.expr, within: ast.AST | None = None) -> None:
        """The conversion makes what an expression says the same on every process: everywhere, or within a statement."""
        is_entry = isinstance(node, ast.Subscript) and is_root(node.value)
        key = self.variables.entry(node) if is_entry else self.variables.key(node) if is_root(node) else None
        if within is None and key is not None:
            self._fixed.add(key)
        if within is not None or key is None or is_entry:
            self._alike_texts[self._text(node)].append(within or self.script.frame(node))
        self._spread()

    def known(self) -> tuple[set[Key], dict[str, list[ast.AST]]]:
        """What `make_alike` has said until now."""
        return {*self._fixed}, {text: [*nodes] for text, nodes in self._alike_texts.items()}

    def go_back_to(self, known: tuple[set[Key], dict[str, list[ast.AST]]]) -> None:
        if known != (self._fixed, self._alike_texts):
            self._fixed, self._alike_texts = known[0], defaultdict(list, known[1])
            self._spread()

    def calls_trained(self, call: ast.Call) -> bool:
        """Whether a call asks a model, or another object that the training calls."""
        text = written(call.func)
        if isinstance(call.func, ast.Name) and not self.variables.is_variable(call.func):
            return False
        return text in self._trained or (is_method(call, "loss") and text.rpartition(".")[0] in self._trained)

    # -- one expression ----------------------------------------------------------------------------------------

    def _is_made_alike(self, node: ast.expr) -> bool:
        if not self._alike_texts:
            return False
        return any(
            self.script.table.is_inside(node, one) for one in self._alike_texts.get(self._text(node), ())
        )

    def _text(self, node: ast.expr) -> str:
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

    def _of_variable(self, node: ast.Name | ast.Attribute) -> int:
        key = self.variables.key(node)
        if key is None:
            return ALIKE
        loop = self._until.get(key)
        if loop is not None:  # behind its loop it is alike
            return OWN if self.script.table.is_inside(node, loop) else ALIKE
        if self._counts_turns(node):
            return ALIKE
        return max(map(self._of_key, (key, *self._entries_of(key))))

    def _counts_turns(self, node: ast.Name | ast.Attribute) -> bool:
        """Whether a variable counts the turns of a loop around it, `for i in range(9)`, whatever another loop binds to it."""
        if node not in self._turns:  # asked again whenever something else may differ
            self._turns[node] = self._is_turn(node)
        return self._turns[node]

    def _is_turn(self, node: ast.Name | ast.Attribute) -> bool:
        around = (one for one in self.script.loops_around(node) if isinstance(one, ast.For))
        named = (one for one in around if written(one.target) == written(node))
        loop = next((one for one in named if not self.script.table.is_inside(node, one.iter)), None)
        is_range = loop is not None and written(getattr(loop.iter, "func", loop.iter)) in RANGES
        return is_range and loop not in self.loops

    def _of_key(self, key: Key) -> int:
        self._places.ask(key)
        return ALIKE if key in self._fixed else self._levels.get(key, ALIKE)

    def _entries_of(self, key: Key) -> set[Key]:
        self._places.ask(key)
        return self._entries[key]

    def _returned(self, function: Frame) -> list[int]:
        self._places.ask(function)
        return self._results.get(function, [])

    def _counts_found(self, call: ast.Call) -> bool:
        """`len(hard[0])` of `hard = np.where(losses > 1)`, `len(x)` of `x = x[x < 1]`: what is found depends on the values."""
        of = call.args[0] if last_name(call.func) == "len" and call.args else None
        of = of.value if isinstance(of, ast.Subscript) else of
        made = self.script.values(self.script.frame(of), of.id) if isinstance(of, ast.Name) else []
        is_found = (isinstance(m, ast.Call) and last_name(m.func) in _FINDS and len(m.args) < 2 for m in made)
        return any(is_found) or any(isinstance(getattr(m, "slice", None), ast.Compare) for m in made)

    def _is_called(self, node: ast.expr) -> bool:
        call = self.script.parent(node)
        return isinstance(call, ast.Call) and call.func is node

    def _of_call(self, call: ast.Call) -> int:
        name = last_name(call.func)
        if name == "state_dict" and isinstance(self.script.parent(call), ast.List | ast.Tuple | ast.Dict):
            return ALIKE  # what stands beside weights in a checkpoint is no less alike for them
        if name in _SAME_CALLS:
            return max(map(self.level, call.args)) if self._counts_found(call) else ALIKE
        if (
            is_got(call)
            and (entry := self.variables.entry(call)) is not None
            and (key := self.variables.key(call)) is not None
        ):
            return max(self._of_key(entry), self._of_key(key), *map(self.level, call.args[1:]), ALIKE)
        is_asked = self.calls_trained(call) and not self._is_repeated(call)
        if is_asked or name == "next" or CLOCK.search(f"{written(call.func)}()"):
            return OWN
        is_drawn = RANDOM.match(self.script.dotted(call.func))
        if is_drawn and any(loop in self._drawing for loop in self.script.loops_around(call)):
            return OWN
        functions = self.script.functions_of(call)
        results = [max(self._returned(one), default=ALIKE) for one in functions]
        is_known = (
            functions and self._is_function(call.func) and not any(map(self.script.is_generator, functions))
        )
        if is_known and max(results) == ALIKE:
            return ALIKE  # whatever it is given
        inner: list[ast.expr] = [call.func] if isinstance(call.func, ast.Attribute) else []
        inner += [*call.args, *(keyword.value for keyword in call.keywords)]
        found = [*(level for level in results if level == OWN), *(self.level(one) for one in inner)]
        return max(found, default=ALIKE)

    def _is_function(self, func: ast.expr) -> bool:
        """Whether a call's function is named itself, in its module or of `self`: no object's method of the same name."""
        of = func.value if isinstance(func, ast.Attribute) else func
        return not self.variables.is_variable(of) and not isinstance(of, ast.Call | ast.Subscript)

    def _is_repeated(self, node: ast.AST) -> bool:
        """Whether a node stands in an evaluation that every process does alike."""
        return any(loop in self._repeated for loop in self.script.loops_around(node))

    def is_in_pass(self, node: ast.AST) -> bool:
        """Whether a node stands in a loop over batches."""
        return any(loop in self.loops for loop in self.script.loops_around(node))

    # -- from variable to variable -----------------------------------------------------------------------------

    def _spread(self) -> None:
        """Goes over the code until nothing more is found that may differ."""
        self._levels.clear()
        self._results.clear()
        statements, given = self.variables.statements, self.variables.given
        self._places.begin(len(statements) + len(given))
        rounds = 0
        while self._places.are_due and (rounds := rounds + 1) <= 12:
            for n, (frame, node) in enumerate(statements):
                if self._places.is_due(n):
                    self._one(frame, node)
            for n, (parameter, one) in enumerate(given, len(statements)):
                if self._places.is_due(n):
                    self._give(parameter, one)
        self._places.end()

    def _give(self, parameter: Key, given: ast.expr) -> None:
        """Of an object of which members alone may differ, `args.log`, a function is given the others alike."""
        key = self.variables.key(given) if isinstance(given, ast.Name) and self.level(given) else None
        if key is not None and self._of_key(key) == ALIKE:
            for _, name in [one for one in self._entries_of(key) if self._of_key(one)]:
                self._raise_entry(parameter, (parameter[0], parameter[1] + name.removeprefix(key[1])), GIVEN)
        elif self.level(given):
            self._raise(parameter, GIVEN)

    def _one(self, frame: Frame, node: ast.AST) -> None:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._assign(target, node.value)
        elif isinstance(node, ast.AugAssign | ast.NamedExpr):
            self._bind(node.target, self.level(node.value))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, self.level(node.context_expr))
        elif isinstance(node, ast.For):
            level = OWN if node in self.loops - self._repeated else self.level(node.iter)
            same = counters_of(node, self.script)
            if is_method(node.iter, "items") and isinstance(node.target, ast.Tuple):
                same.add(written(node.target.elts[0]))  # as `keys` are
            for part in parts(node.target):
                if written(part) not in same:
                    self._bind(part, level)
        elif isinstance(node, ast.Return) and node.value is not None:
            self._return(frame, node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._change(node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        for part, given in pairs(target, value):
            key = self.variables.key(part) if isinstance(part, ast.Name) else None
            entries = entries_of(given)
            if key is not None and entries:
                for name, one in entries:
                    self._raise_entry(key, entry_of(key, name), self.level(one))
                continue
            results = self._results_of(given)
            if key is not None and isinstance(given, ast.Call):
                for member, level in self._members_returned(given):
                    self._raise_entry(key, (key[0], key[1] + member), level)
            if isinstance(part, ast.Tuple | ast.List) and len(results) == len(part.elts):
                for element, level in zip(part.elts, results, strict=True):
                    self._bind(element, level)
            else:
                self._bind(part, self.level(given))

    def _results_of(self, value: ast.expr) -> list[int]:
        """Of each value that a function of the project returns, where a call of it is assigned."""
        if not isinstance(value, ast.Call) or self.calls_trained(value):
            return []
        functions = self.script.functions_of(value)
        results = [self._returned(function) for function in functions]
        if len(results) != 1 or len(results[0]) < 2:
            return []
        given = max((self.level(a) for a in (*value.args, *(k.value for k in value.keywords))), default=ALIKE)
        return [given if level == GIVEN else level for level in results[0]]

    def _return(self, frame: Frame, value: ast.expr) -> None:
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        levels = [ALIKE if self._members_alone(frame, one) else self.level(one) for one in values]
        known = self._results.get(frame)
        if known is not None and len(known) == len(levels):
            levels = [max(pair) for pair in zip(known, levels, strict=True)]
        elif known is not None:
            levels = [max([*known, *levels])]  # either may be `()`
        if levels != known:
            self._results[frame] = levels
            self._places.changed(frame)

    def _members_alone(self, frame: Frame, returned: ast.expr) -> list[tuple[str, int]]:
        """The members that alone may differ of an object that a function returns to variables: `.folder` of options whose
        folder is named by the time."""
        key = self.variables.key(returned) if isinstance(returned, ast.Name) else None
        if key is None or self._of_key(key) or key[0] is not frame or not is_function_frame(frame):
            return []
        uses = [self.script.parent(call) for call in self.script.callers(frame)]
        if not all(isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name) for one in uses):
            return []
        found = [(one[1].removeprefix(key[1]), self._of_key(one)) for one in self._entries_of(key)]
        return [(name, level) for name, level in found if level]

    def _members_returned(self, call: ast.Call) -> list[tuple[str, int]]:
        found = self.script.functions_of(call)
        returns = [(f, n.value) for f in found for n in self.script.within(f) if isinstance(n, ast.Return)]
        return [one for f, value in returns if value is not None for one in self._members_alone(f, value)]

    def _bind(self, target: ast.expr, level: int) -> None:
        for part in parts(target):
            key = self.variables.key(part)
            if key is not None and not self._is_made_alike(part):
                self._raise_entry(key, self.variables.entry(part) or key, level)

    def _raise_entry(self, key: Key, entry: Key, level: int) -> None:
        if level:
            self._raise(entry, level)
            if entry != key and entry not in self._entries[key]:
                self._entries[key].add(entry)
                self._places.changed(key)

    def _raise(self, key: Key, level: int) -> None:
        if level > self._levels.get(key, ALIKE):
            self._levels[key] = level
            self._places.changed(key)

    def _change(self, call: ast.Call) -> None:
        """A call that stands alone may put what it is given into its object: `losses.append(loss)`, `stopper(loss)`."""
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        level = max((self.level(one) for one in given), default=ALIKE)
        if not level or QUIET_ROOTS.search(written(call.func)) or is_method(call, "backward", "step"):
            return
        if name := option_of(call):  # `parser.add_argument("--save", default=str(time.time()))`
            for held in self.variables.options:
                self._raise_entry(held, (held[0], f"{held[1]}.{name}"), level)
            return
        of = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if self.variables.roots(of) & self.variables.options and isinstance(of, ast.Name):
            return  # a function that the options hold: `args.hook(loss)` leaves them as they are
        seen: set[Key] = set()
        work: list[tuple[ast.expr, str]] = [(of, "")]
        while work:
            node, member = work.pop()
            key = self.variables.key(node)
            scope, name = self.variables.entry(node) or key or (node, "")
            entry = (scope, name + member if member.count(".") + member.count("[") < 3 else name)
            if key is None or entry in seen or key not in self.variables.bound:
                continue
            seen.add(entry)
            self._raise_entry(key, entry, level)
            # `.log` of `args.log`, which the caller's `args` has as well
            member = entry[1].removeprefix(key[1])
            work += (
                (one, member) for one in self.variables.item_of(node) or self.variables.origins.get(key, [])
            )
            work += ((one, "") for one in self.variables.origins.get(entry, ()) if member)


def _is_of_call(node: ast.expr) -> bool:
    """Whether something is taken out of what a call returns, which depends on what it is given: `np.asarray(x).mean(0)[-1]`."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return isinstance(node, ast.Call) and not is_got(node)
