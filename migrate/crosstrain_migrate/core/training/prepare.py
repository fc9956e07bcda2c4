"""CT201 by use: what trains is prepared, jointly where one scope holds it, otherwise where it is used.

Each object is looked for upwards, from the place of its use to the scope that binds it, and through parameters to the
caller that gives it. A loader is bound anew only where nothing but its training loop iterates the variable; otherwise it
is prepared in the loop's header, or in the function that is given it. An attribute that `__init__` binds is prepared there.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.arrays import is_array
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Frame, Script, is_function_frame, names_in
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

from .conditional import made_under_condition
from .holders import Held, Holders
from .numbered import Numbered, deal_with_numbers, is_counted, numbered, say_same_batches
from .periods import count_turns, periods, stays_whole
from .schedules import (
    asks_at_each_step,
    counted_lengths,
    counting_optimizers,
    own_schedules,
    say_counted_steps,
    say_own_schedules,
    shortened,
)

RULE = "CT201"
REASON = "every process trains on its own share, and the gradients are averaged"
_ORDER = {"model": 0, "optimizer": 1, "loader": 2, "scheduler": 3}


class Preparing:
    """Plans every `prepare`."""

    def __init__(
        self, plan: Plan, roles: Roles, accelerators: Accelerators, phases: Iterable[ast.For] = ()
    ) -> None:
        """phases: the loops that also evaluate, whose loaders are prepared there, by the author's own test."""
        self.plan = plan
        self.script: Script = plan.script
        self.roles = roles
        self.accelerators = accelerators
        self.holders = Holders(plan.script)
        self.phases = list(phases)
        self.in_place: list[Data] = []  # loaders that are prepared where they are iterated
        self.lengths: list[ast.expr] = []  # where a prepared loader's length is read to count its batches
        self._own_schedules = own_schedules(self.script, roles)
        self._counting = counting_optimizers(self.script, roles)
        self._with_lengths = [*self._own_schedules, *self._counting]
        self._trained = {id(one.node) for one in roles.data}

    def run(self, models: bool = True, loaders: bool = True, schedulers: bool = True) -> None:
        """models, loaders, schedulers: these too, where the script does not wrap, deal or count them by itself."""
        held = [one for one in self._optimizers() if models or one.kind != "model"]
        held += self._loaders() if loaders else []
        for s in shortened(self.script, self.roles) if schedulers else ():
            above = self.holders.lifted(Held("scheduler", s.text, s.frame, s.call))
            held += [one for one in above if not asks_at_each_step(self.script, one, held)]
        by_frame: dict[Frame, list[Held]] = defaultdict(list)
        for one in dict.fromkeys(held):
            by_frame[one.frame].append(one)
            if one.kind == "model":
                self.plan.models.append((one.text, one.use))
        for frame, those in by_frame.items():
            self._prepare_in(frame, self._in_init(frame, self._where_made(those)))
        for data in self.in_place:
            self._prepare_in_place(data)
        if schedulers:
            say_own_schedules(self.plan, self._own_schedules, self.lengths)
            say_counted_steps(self.plan, self._counting, self.lengths)

    def _prepare_in_place(self, data: Data) -> None:
        accelerator = self.accelerators.at(data.node)
        if looked_up := self._numbered.get(data.node):
            deal_with_numbers(self.plan, looked_up, accelerator, RULE, REASON)
        elif tests := periods(self.script, data):
            count_turns(self.plan, data, tests, accelerator, RULE, REASON)
        else:
            given = "list({it})" if is_array(self.script, data.frame, data.node) else "{it}"
            self.plan.replace(data.node, RULE, REASON, f"{accelerator}.prepare({given})", it=data.node)
            for of in self._lengths_of_turns(data):
                self.plan.replace(of, RULE, REASON, f"{self.accelerators.at(of)}.prepare({{it}})", it=of)

    def _lengths_of_turns(self, data: Data) -> list[ast.expr]:
        """Where the length is read after which what is prepared begins anew, or all of the training ends:
        `if step % n == 0: it = iter(loaders["a"])`, `while step < epochs * n`."""
        text = ast.unparse(data.node)
        around = list(self.script.around(data.node))
        tests = [one.test for one in around if isinstance(one, ast.If | ast.While)]
        tests += [one.iter for one in around if isinstance(one, ast.For) and isinstance(one.iter, ast.Call)]
        counts = {n.id for test in tests for n in walk(test) if isinstance(n, ast.Name)}
        found: list[ast.expr] = []
        for call in self.script.calls_in(data.frame):
            if last_name(call.func) != "len" or list(map(ast.unparse, call.args)) != [text]:
                continue
            above = self.script.statement(call)
            bound = above.targets if isinstance(above, ast.Assign) else []
            if counts & {n.id for target in bound for n in walk(target) if isinstance(n, ast.Name)} or any(
                self.script.table.is_inside(call, test) for test in tests
            ):
                found.append(call.args[0])
        return found

    # -- which -------------------------------------------------------------------------------------------------

    def _optimizers(self) -> list[Held]:
        """The optimizers, each behind its models."""
        found: list[Held] = []
        used = [Held("optimizer", one.text, one.frame, one.call) for one in self.roles.optimizers]
        for stepped, optimizer in ((one, above) for one in used for above in self.holders.lifted(one)):
            models = self.roles.models_of(optimizer.frame, optimizer.text)
            if optimizer.text.startswith("self."):
                cls = self.script.class_of(optimizer.frame)
                inits = (
                    [m for m in self.script.methods(cls) if m.name == "__init__"] if cls is not None else []
                )
                models = models or [
                    t for m in inits for t in self.roles.models_of(m, optimizer.text) if t.startswith("self.")
                ]
            others = [*self._other_models(optimizer), *self._given_models(stepped, optimizer)]
            models += [text for text in dict.fromkeys(others) if text not in models]
            found += [
                Held("model", text, optimizer.frame, optimizer.use)
                for text in models
                if self._may_name(optimizer.frame, text)
                and self._is_there(optimizer, text)
                and not self._is_wrapped(optimizer, text)
                and not self._is_part(optimizer.frame, text, models)
            ]
            found.append(optimizer)
        return found

    def _other_models(self, optimizer: Held) -> list[str]:
        """What a script that takes all GPUs asks for its `.module`, and what is put into training mode and called."""
        cls = self.script.class_of(optimizer.frame)
        frames: list[Frame] = [optimizer.frame] if cls is None else [*self.script.methods(cls)]
        called = {written(c.func) for f in frames for c in self.script.calls_in(f)}
        found: dict[str, None] = {}
        for node in (n for frame in frames for n in self.script.within(frame)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name | ast.Attribute):
                continue
            text = written(node.value)
            trains = (
                node.attr == "train" and isinstance(self.script.parent(node), ast.Call) and text in called
            )
            of_self = text.startswith("self.") and text.count(".") == 1
            if (node.attr == "module" or trains) and text != "self" and (text.isidentifier() or of_self):
                found.setdefault(text)
        return list(found)

    def _given_models(self, used: Held, optimizer: Held) -> list[str]:
        """What the function that steps an optimizer trains, as the code that gives it both calls it."""
        if used.frame is optimizer.frame:
            return []
        models = [Held("model", text, used.frame, used.use) for text in self._other_models(used)]
        return [
            one.text for model in models for one in self.holders.lifted(model) if one.frame is optimizer.frame
        ]

    def _loaders(self) -> list[Held]:
        """The loaders whose variables are bound anew; the others are prepared in place."""
        found: list[Held] = []
        looked_up = set(map(written, self._numbered))
        for data in self.roles.data:
            if data.loop in self.phases or stays_whole(self.plan, data):
                continue
            if written(data.node) in looked_up and is_counted(self.script, data.node):
                say_same_batches(self.plan, data.node)
                continue
            whole = is_array(self.script, data.frame, data.node) or written(data.node) in looked_up
            held = None if whole else self._lifted_loader(data) or self._given_loader(data)
            if held is None:
                self.in_place.append(data)
            else:
                found.append(held)
        return [one for one in found if not self._init_has_it(one, found)]

    @cached_property
    def _numbered(self) -> dict[ast.expr, Numbered]:
        """By their data: the loops that look up by the number of the batch."""
        found = {data.node: numbered(self.script, self.roles, data) for data in self.roles.data}
        return {node: one for node, one in found.items() if one is not None}

    def _init_has_it(self, one: Held, found: list[Held]) -> bool:
        """Whether `__init__`, which alone binds an attribute, iterates it as well, and prepares it above."""
        cls = self.script.class_of(one.frame)
        others = [m for m in self.script.methods(cls) if m.name != "__init__"] if cls is not None else []
        if one.frame not in others or any(self.script.stores(m, one.text) for m in others):
            return False
        same = [o for o in found if o.text == one.text and self.script.class_of(o.frame) is cls]
        return any(o.frame not in others and self._anchor(o) in getattr(o.frame, "body", ()) for o in same)

    def _given_loader(self, data: Data) -> Held | None:
        """A loader that is a parameter is bound anew in its function."""
        node, frame = data.node, self.script.frame(data.node)
        if not isinstance(node, ast.Name) or node.id not in self.script.parameters(frame):
            return None
        return Held("loader", node.id, frame, self._use_of(data))

    def _use_of(self, data: Data) -> ast.AST:
        """The loop in whose header a loader stands, or its name alone: `bar = tqdm(loader)` above the loop."""
        return data.loop if data.loop and self.script.statement(data.node) is data.loop else data.node

    def _may_name(self, frame: Frame, text: str) -> bool:
        """Whether a model's variable can be bound anew in a frame; one of a comprehension is not there."""
        stores = self.script.stores(frame, text)
        if stores and all(isinstance(self.script.parent(one), ast.comprehension) for one in stores):
            return False
        return text.startswith("self.") or (self.script.binds(frame, text) and text != "self")

    def _is_there(self, optimizer: Held, text: str) -> bool:
        """Whether a file's variable is bound above the use of its optimizer: one that is bound below belongs to a later
        optimizer of the same name."""
        stores = self.script.stores(optimizer.frame, text)
        if not isinstance(optimizer.frame, ast.Module) or not stores:
            return True
        return any(place_of(store) < place_of(optimizer.use) for store in stores)

    def _is_part(self, frame: Frame, text: str, models: list[str]) -> bool:
        """Whether a model is a part of another one, which was made of it."""
        return any(
            other != text and isinstance(n, ast.Name | ast.Attribute) and written(n) == text
            for other in models
            for value in self.script.values(frame, other)
            if isinstance(value, ast.Call)
            for argument in value.args
            for n in walk(argument)
        )

    def _is_wrapped(self, optimizer: Held, text: str) -> bool:
        """Whether a model is prepared where DataParallel is applied to it, whatever the script's flags say."""
        values = self.script.values(optimizer.frame, text)
        calls = [n for value in values for n in walk(value) if isinstance(n, ast.Call)]
        around = set(self.script.around(optimizer.use))
        return any(
            self.script.last(call.func) == "DataParallel"
            and all(one in around for one in self.script.around(call) if isinstance(one, ast.If))
            for call in calls
        )

    # -- loaders -----------------------------------------------------------------------------------------------

    def _lifted_loader(self, data: Data) -> Held | None:
        """The variable that holds a loader and that nothing else iterates; None where there is none such."""
        if not isinstance(data.node, ast.Name | ast.Attribute) or (data.held and not self._is_length(data)):
            return None
        text, frame, use = written(data.node), self.script.frame(data.node), self._use_of(data)
        if isinstance(data.node, ast.Attribute) and written(data.node.value) != "self":
            return None
        place: Held | None = None
        given: set[int] = set()  # what the calls on the way up give
        for _ in range(4):
            rooted = self.holders.rooted(Held("loader", text, frame, use))
            frame, use = rooted.frame, rooted.use
            if not self._only_trains(frame, text, use, given):
                break
            if text.startswith("self.") or self.script.stores(frame, text):
                place = Held("loader", text, frame, use)
            above = self.holders.above(frame, text)
            if len({name for name, _ in above}) != 1:
                break
            text, use = above[0]
            frame = self.script.frame(use)
            last = place_of(above[-1][1])
            if any(place_of(use) < place_of(store) < last for store in self.script.stores(frame, text)):
                break  # bound anew between two calls: it is another loader
            given |= {id(node) for _, call in above for node in walk(call)}
        return place

    def _is_length(self, data: Data) -> bool:
        """Whether a class whose objects give the batches of a loader has the loader's length for its own."""
        cls = self.script.class_of(data.frame)
        lengths = [m for m in self.script.methods(cls) if m.name == "__len__"] if cls is not None else []
        return any(self.script.reads(one, written(data.node)) for one in lengths)

    def _only_trains(self, frame: Frame, text: str, use: ast.AST, given: set[int]) -> bool:
        """Whether a frame reads a loader's variable for its use, its length and its attributes alone."""
        inside = given | set(map(id, walk(use.iter if isinstance(use, ast.For | ast.AsyncFor) else use)))
        frames = [frame]
        if text.startswith("self."):
            cls = self.script.class_of(frame)
            frames = [*self.script.methods(cls)] if cls is not None else frames
        elif isinstance(frame, ast.Module):
            frames = [
                one
                for one in self.script.frames
                if self.script.module(one) is frame
                and not (one is not frame and self.script.binds(one, text))
            ]
        training = {
            id(n)
            for d in self.roles.data
            if d.loop is not None and isinstance(d.loop, ast.For)
            for n in walk(d.loop.iter)
        }
        own = self._above_lengths(frame, text, self._anchor(Held("loader", text, frame, use)))
        first = min(map(place_of, (own, *self._begins[frame])))
        for one in frames:
            for read in self.script.reads(one, text):
                if id(read) in inside or id(read) in training or id(read) in self._trained:
                    continue
                parent = self.script.parent(read)
                if one is frame and place_of(read) < first and self._is_looked_at(text, parent):
                    continue  # the variable is bound anew below
                is_length = isinstance(parent, ast.Call) and last_name(parent.func) == "len"
                if (
                    not is_length
                    and not isinstance(parent, ast.Attribute)
                    and not self._is_for_no_one(parent)
                ):
                    return False
        return True

    def _is_looked_at(self, text: str, parent: ast.AST | None) -> bool:
        """Whether a variable is read by no function of the project, which might train with it too: `next(iter(loader))`."""
        is_given = isinstance(parent, ast.Call) and self.script.functions(self.script.last(parent.func))
        return text.isidentifier() and not is_given

    @cached_property
    def _begins(self) -> dict[Frame, list[ast.AST]]:
        """Where each frame begins to train: what is prepared may be prepared there together."""
        used = [Held("optimizer", one.text, one.frame, one.call) for one in self.roles.optimizers]
        found: dict[Frame, list[ast.AST]] = defaultdict(list)
        for one in (above for held in used for above in self.holders.lifted(held)):
            found[one.frame].append(self._anchor(one))
        for loop in (one.loop for one in self.roles.data if one.loop is not None):
            found[self.script.frame(loop)].append([loop, *self.script.loops_around(loop)][-1])
        return found

    def _is_for_no_one(self, parent: ast.AST | None) -> bool:
        """Whether a read is a test for None, or a print."""
        return isinstance(parent, ast.Compare | ast.If) or (
            isinstance(parent, ast.Call) and last_name(parent.func) == "print"
        )

    # -- one scope ---------------------------------------------------------------------------------------------

    def _where_made(self, those: list[Held]) -> list[Held]:
        """Prepares what may not be there elsewhere where it is made; the rest of `those`."""
        found = [(one, place) for one in those for place in made_under_condition(self.script, one)]
        suites: dict[int, list[tuple[Held, tuple[Frame, ast.stmt]]]] = defaultdict(list)
        for one, place in found:
            suites[id(self.script.suite_of(place[1]))].append((one, place))
        for group in suites.values():
            home, last = max((place for _, place in group), key=lambda place: place_of(place[1]))
            self._write(home, last, [one for one, _ in group], behind=True)
        done = {one for one, _ in found}
        return [one for one in those if one not in done]

    def _in_init(self, frame: Frame, those: list[Held]) -> list[Held]:
        """Prepares attributes that `__init__` alone binds where it has bound them; the rest of `those`."""
        cls = self.script.class_of(frame)
        methods = self.script.methods(cls) if cls is not None else []
        init = next((m for m in methods if m.name == "__init__"), None)
        if init is None or frame is init:
            return those
        places: dict[Held, ast.stmt] = {}
        for one in those:
            stores = [(m, store) for m in methods for store in self.script.stores(m, one.text)]
            statements = [self.script.statement(store) for _, store in stores]
            is_bound = stores and not _binds_none(statements[-1])  # else another file binds it later
            if is_bound and all(m is init for m, _ in stores) and all(s in init.body for s in statements):
                places[one] = statements[-1]
        texts = {one.text for one in places}
        last = max(places.values(), key=place_of, default=None)
        reads = [n for n in self.script.within(init) if isinstance(n, ast.Attribute) and written(n) in texts]
        if last is None or any(self._is_iterated(read) for read in reads):
            return those
        together = [one for one in places if not self._is_counted(init, one, last)]
        for one in (one for one in places if one not in together):
            self._write(init, places[one], [one], behind=True)
        self._write(init, last, together, behind=True)
        return [one for one in those if one not in places]

    def _is_counted(self, init: Frame, one: Held, last: ast.stmt) -> bool:
        """Whether the length of a loader counts batches above the place where the others are prepared."""
        counted = counted_lengths(self.script, init, one.text, self._with_lengths)
        return one.kind == "loader" and any(place_of(read) < place_of(last) for read in counted)

    def _is_iterated(self, node: ast.AST) -> bool:
        parent = self.script.parent(node)
        return isinstance(parent, ast.Call) and last_name(parent.func) in ("iter", "cycle")

    def _prepare_in(self, frame: Frame, those: list[Held]) -> None:
        anchors = [(self._place(one), one) for one in those]
        by_suite: dict[int, list[tuple[ast.stmt, Held]]] = defaultdict(list)
        for anchor, one in anchors:
            by_suite[id(self.script.suite_of(anchor))].append((anchor, one))
        for group in by_suite.values():
            self._prepare_group(frame, group)

    def _prepare_group(self, frame: Frame, group: list[tuple[ast.stmt, Held]]) -> None:
        group = sorted(group, key=lambda pair: place_of(pair[0]))
        first = group[0][0]
        together = [one for _, one in group if self._is_bound_before(frame, one, first)]
        alone = [(anchor, one) for anchor, one in group if one not in together]
        self._write(frame, first, together)
        if alone:
            self._prepare_group(frame, alone)

    def _is_bound_before(self, frame: Frame, one: Held, anchor: ast.stmt) -> bool:
        own = place_of(self._anchor(one))
        return not any(place_of(anchor) <= place_of(s) < own for s in self.script.stores(frame, one.text))

    def _write(self, frame: Frame, anchor: ast.stmt, those: list[Held], behind: bool = False) -> None:
        if not those:
            return
        ordered = sorted(dict.fromkeys(those), key=lambda one: _ORDER[one.kind])
        texts = list(dict.fromkeys(one.text for one in ordered))
        named = [text for text in texts if self._is_variable(frame, text)]
        others = [self._all_of(frame, text) for text in texts if text not in named]
        accelerator = self.accelerators.at(anchor)
        self.plan.prepared |= {(frame, text): anchor for text in texts}
        insert = self.plan.after if behind else self.plan.before
        if named:
            listed = ", ".join(named)
            insert(anchor, RULE, REASON, f"{listed} = {accelerator}.prepare({listed})")
        if others:
            insert(anchor, RULE, REASON, f"{accelerator}.prepare({', '.join(others)})")

    def _all_of(self, frame: Frame, text: str) -> str:
        """`*optimizers` for `optimizers[i]`, where a list or a dictionary is written out."""
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Constant):
            return text
        container = written(node.value)
        made = self.script.values(frame, container)
        if any(isinstance(value, ast.List | ast.ListComp) for value in made):
            return f"*{container}"
        return f"*{container}.values()" if any(isinstance(v, ast.Dict | ast.DictComp) for v in made) else text

    def _is_variable(self, frame: Frame, text: str) -> bool:
        if text.isidentifier():
            return self.script.binds(frame, text)
        head, _, tail = text.partition(".")
        return head == "self" and tail.isidentifier()

    def _place(self, one: Held) -> ast.stmt:
        """The statement above which an object is prepared, a loader also above what counts with its length."""
        anchor = self._anchor(one)
        if one.kind != "loader":
            return anchor
        self.lengths += counted_lengths(self.script, one.frame, one.text, self._with_lengths)
        return self._above_lengths(one.frame, one.text, anchor)

    def _above_lengths(self, frame: Frame, text: str, anchor: ast.stmt) -> ast.stmt:
        """The same place, or above what counts with the length of the loader that is prepared."""
        read = counted_lengths(self.script, frame, text, self._with_lengths)
        suite = self._run_through(anchor)
        stores = list(map(place_of, self.script.stores(frame, text)))
        if is_function_frame(frame) and text in self.script.parameters(frame):
            stores.append(place_of(frame))
        around = (next((s for s in self.script.around(n) if s in suite), None) for n in read)
        statements = [s for s in around if isinstance(s, ast.stmt) and any(b < place_of(s) for b in stores)]
        return min([anchor, *statements], key=place_of)

    def _run_through(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements beside one, and beside each `try` or `with` that it stands in."""
        found = list(self.script.suite_of(statement))
        block = self.script.parent(statement)
        while isinstance(block, ast.Try | ast.With) and statement in block.body:
            found += [one for one in self.script.suite_of(block) if one is not block]
            statement, block = block, self.script.parent(block)
        return found

    def _anchor(self, one: Held) -> ast.stmt:
        """The statement above which an object is prepared: the outermost loop around its use that does not bind it."""
        root = one.text.partition(".")[0].partition("[")[0]
        is_element = self._all_of(one.frame, one.text) == one.text
        index = names_in(ast.parse(one.text)) - {root} if is_element else set()
        loops = self.script.loops_around(one.use)
        if isinstance(one.use, ast.For | ast.AsyncFor | ast.While):
            loops = [one.use, *loops]
        for loop in reversed(loops):
            inside = set(map(id, walk(loop)))
            stores = [
                *self.script.stores(one.frame, one.text),
                *(self.script.stores(one.frame, root) if root != "self" else ()),
                *(store for name in index for store in self.script.stores(one.frame, name)),
            ]
            if not any(id(store) in inside for store in stores):
                return loop
        statement = self.script.statement(one.use)
        bound = [name for name in (root, one.text) if self.script.stores(one.frame, name)]
        if not loops and is_function_frame(one.frame) and not bound:
            return self.script.first_statement(one.frame)
        return statement


def _binds_none(statement: ast.stmt) -> bool:
    """`self.optimizer = None`"""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and value.value is None
