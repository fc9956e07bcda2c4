"""CT201 by use: what trains is prepared, jointly where one scope holds it, otherwise where it is used.

Each object is looked for upwards, from the place of its use to the scope that binds it, and through parameters to the
caller that gives it. A loader is bound anew only where nothing but its training loop iterates the variable; otherwise it
is prepared in the loop's header, or in the function that is given it. An attribute that `__init__` binds is prepared there.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.certain import is_array
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.ranges import moved_on
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.files.notebooks import is_linked
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.program import is_main_test
from crosstrain_migrate.syntax.walks import walk, walk_all

from .anchors import Anchors, LoaderPlaces
from .ends import epochs_by
from .holders import Held, Holders, is_of_comprehension
from .lengths import counted_lengths, lengths_of_turns
from .numbered import (
    Numbered,
    count_turns,
    deal_with_numbers,
    is_counted,
    numbered,
    say_same_batches,
    stays_whole,
    turns_read,
)
from .schedules import (
    asks_at_each_step,
    counting_optimizers,
    made_for_steps,
    own_schedules,
    say_own_schedules,
    share_counted_steps,
    shortened,
)
from .where_made import (
    is_given_kept_length,
    knows_own_length,
    made_under_condition,
    made_with_its_length,
    places_in_init,
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
        self._anchors = Anchors(self.script, roles, self._with_lengths)
        self._places = LoaderPlaces(self.script, roles, self.holders, self._anchors)

    def run(self, models: bool = True, loaders: bool = True, schedulers: bool = True) -> None:
        """models, loaders, schedulers: these too, where the script does not wrap, deal or count them by itself."""
        held = [one for one in self._optimizers() if models or one.kind != "model"]
        held += self._loaders() if loaders else []
        iterated = {one.text for one in held if one.kind == "loader"} | {
            written(d.node) for d in self.in_place
        }
        for s in shortened(self.script, self.roles, iterated) if schedulers else ():
            above = self.holders.lifted(Held("scheduler", s.text, s.frame, s.call))
            if counted := made_for_steps(self.script, self.roles, s, held, above):
                self._with_lengths.append(counted)
                continue
            if any(known(self.script, s, held) for known in (knows_own_length, is_given_kept_length)):
                continue
            held += [one for one in above if not asks_at_each_step(self.script, one, held)]
        by_frame: dict[Frame, list[Held]] = defaultdict(list)
        for one in dict.fromkeys(held):
            if is_of_comprehension(self.script, one.frame, one.text):  # `[it.step() for it in optimizers]`
                parts = (n for n in walk(one.use) if isinstance(n, ast.expr))
                of = next(part for part in parts if written(part) == one.text)
                self.plan.replace(of, RULE, REASON, f"{self.accelerators.at(of)}.prepare({{it}})", it=of)
                continue
            by_frame[one.frame].append(one)
            if one.kind == "model":
                self.plan.models.append((one.text, one.use))
        for frame, those in by_frame.items():
            self._prepare_in(frame, self._in_init(frame, self._where_made(those)))
        for data in self.in_place:
            self._prepare_in_place(data)
        if schedulers:
            say_own_schedules(self.plan, self._own_schedules, self.lengths)
            share_counted_steps(self.plan, self._counting, self.lengths, self.accelerators)

    def _prepare_in_place(self, data: Data) -> None:
        accelerator = self.accelerators.at(data.node)
        if isinstance(data.loop, ast.For):
            for code in moved_on(self.script, data.loop, data.node).values():
                self.plan.before(data.loop.body[0], RULE, REASON, code)
        names = self.script.names_of(data.node)
        if names and not self.accelerators.at_hand(data.node):  # made below, where its device is known
            made = self.accelerators.statement(self.script.frame(data.node))
            for name in sorted(names):
                self.plan.before(made, RULE, REASON, f"{name} = {accelerator}.prepare({name})")
        elif looked_up := self._numbered.get(data.node):
            deal_with_numbers(self.plan, looked_up, accelerator, RULE, REASON)
        elif reads := turns_read(self.script, data):
            count_turns(self.plan, data, reads, accelerator, RULE, REASON)
        else:
            given = "list({it})" if is_array(self.script, data.frame, data.node) else "{it}"
            self.plan.replace(data.node, RULE, REASON, f"{accelerator}.prepare({given})", it=data.node)
            for of in lengths_of_turns(self.script, data):
                self.plan.replace(of, RULE, REASON, f"{self.accelerators.at(of)}.prepare({{it}})", it=of)

    # -- which -------------------------------------------------------------------------------------------------

    def _optimizers(self) -> list[Held]:
        """The optimizers, each behind its models."""
        found: list[Held] = []
        used = [Held("optimizer", one.text, one.frame, one.call) for one in self.roles.optimizers]
        used = [held for one in used for held in self._anchors.with_pass(one) or [one]]
        for stepped, optimizer in ((one, above) for one in used for above in self.holders.lifted(one)):
            models = self.roles.models_of(optimizer.frame, optimizer.text)
            if optimizer.text.startswith("self."):
                cls = self.script.class_of(optimizer.frame)
                inits = self.script.methods(cls, "__init__")
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
                and not self._hides_parameters(optimizer.frame, text)
            ]
            found.append(optimizer)
        return found

    def _other_models(self, optimizer: Held) -> list[str]:
        """What a script that takes all GPUs asks for its `.module`, and what is put into training mode and called, or given
        to a function of a step, or that makes one, which may call its parts, or to one that is itself given."""
        cls = self.script.class_of(optimizer.frame)
        frames: list[Frame] = [optimizer.frame] if cls is None else [*self.script.methods(cls)]
        calls = [c for f in frames for c in self.script.calls_in(f)]
        called = {written(c.func) for c in calls}
        for function, call in ((f, c) for c in calls for f in self.script.functions_of(c)):
            is_step = self.script.frame(call) in self.roles.frames
            if is_step or any(self.script.table.is_inside(one, function) for one in self.roles.frames):
                called |= set(map(written, self.script.given_by(call, function).values()))
        handed = (c for c in calls if written(c.func) in self.script.parameters(self.script.frame(c)))
        called |= {written(one) for call in handed for one in call.args}  # `criterion(model, rows)`
        found: dict[str, None] = {}
        for node in (n for frame in frames for n in self.script.within(frame)):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name | ast.Attribute):
                continue
            text = written(node.value)
            mode = self.script.parent(node) or node
            trains = (
                is_method(mode, "train") and text in called and all(k.arg == "mode" for k in mode.keywords)
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
            held = None if whole else self._places.lifted(data) or self._places.given(data)
            if held is None:
                self.in_place.append(data)
            else:
                found.append(held)
        return [one for one in found if not self._places.init_has_it(one, found)]

    @cached_property
    def _numbered(self) -> dict[ast.expr, Numbered]:
        """By their data: the loops that look up by the number of the batch."""
        found = {data.node: numbered(self.script, self.roles, data) for data in self.roles.data}
        return {node: one for node, one in found.items() if one is not None}

    def _may_name(self, frame: Frame, text: str) -> bool:
        """Whether a model's variable can be bound anew in a frame; one of a comprehension is not there."""
        is_bound = text.startswith("self.") or (self.script.binds(frame, text) and text != "self")
        return is_bound and not is_of_comprehension(self.script, frame, text)

    def _is_there(self, optimizer: Held, text: str) -> bool:
        """Whether a variable is bound above the use of its optimizer: one that is bound below belongs to a later optimizer of
        the same name."""
        stores = self.script.stores(optimizer.frame, text) if not text.startswith("self.") else []
        if not stores or text in self.script.parameters(optimizer.frame):
            return True
        return any(place_of(store) < place_of(optimizer.use) for store in stores)

    def _is_part(self, frame: Frame, text: str, models: list[str]) -> bool:
        """Whether a model is a part of another one, which was made of it, and not changed: `a = renewed(a, b)`."""
        return any(
            other != text and isinstance(n, ast.Name | ast.Attribute) and written(n) == text
            for other in models
            for value in self.script.values(frame, other)
            if isinstance(value, ast.Call) and other not in map(written, value.args)
            for n in walk_all(value.args)
        )

    def _hides_parameters(self, frame: Frame, text: str) -> bool:
        """Whether a model's class has a list in the place of a method of every module: `self.parameters = list(...)`; its optimizer
        is prepared alone."""
        made = (
            self.script.class_made(value)
            for home in self.script.homes(frame, text)
            for value in self.script.values(home, text)
        )
        return any(
            self.script.stores(m, "self.parameters") for cls in made for m in self.script.all_methods(cls)
        )

    def _is_wrapped(self, optimizer: Held, text: str) -> bool:
        """Whether a model is prepared where DataParallel is applied to it, whatever the script's flags say."""
        values = self.script.values(optimizer.frame, text)
        calls = [n for n in walk_all(values) if isinstance(n, ast.Call)]
        around = set(self.script.around(optimizer.use))
        return any(
            self.script.last(call.func) == "DataParallel"
            and all(one in around for one in self.script.around(call) if isinstance(one, ast.If))
            for call in calls
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
        for one in (one for one in those if one not in done):
            for home, statement in made_with_its_length(self.script, one):
                self._write(home, statement, [one], behind=True)
                done.add(one)
        return [one for one in those if one not in done]

    def _in_init(self, frame: Frame, those: list[Held]) -> list[Held]:
        """Prepares attributes that `__init__` alone binds where it has bound them; the rest of `those`."""
        init, places = places_in_init(self.script, frame, those)
        if init is None or not places:
            return those
        last = max(places.values(), key=place_of)
        together = [one for one in places if not self._is_counted(init, one, last)]
        for one in (one for one in places if one not in together):
            self._write(init, places[one], [one], behind=True)
        self._write(init, last, together, behind=True)
        for one in (one for one in places if one.kind == "loader"):
            self._ask_attribute(init, one.text)
        return [one for one in those if one not in places]

    def _ask_attribute(self, init: Frame, text: str) -> None:
        """The length that counts batches, `len(loader)`, is that of the prepared attribute, where `__init__` binds it to its
        parameter: `self.loader = loader`."""
        for given in self.script.values(init, text):
            if isinstance(given, ast.Name) and given.id in self.script.parameters(init):
                for read in counted_lengths(self.script, init, given.id, self._with_lengths):
                    if place_of(read) > place_of(given):
                        self.plan.replace(read, RULE, REASON, text)

    def _is_counted(self, init: Frame, one: Held, last: ast.stmt) -> bool:
        """Whether the length of a loader counts batches above the place where the others are prepared."""
        counted = counted_lengths(self.script, init, one.text, self._with_lengths)
        return one.kind == "loader" and any(place_of(read) < place_of(last) for read in counted)

    def _prepare_in(self, frame: Frame, those: list[Held]) -> None:
        by_suite: dict[int, list[tuple[ast.stmt, Held]]] = defaultdict(list)
        for anchor, one in [(self._place(one), one) for one in those]:
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
        own, stores = place_of(self._anchors.of(one)), map(place_of, self.script.stores(frame, one.text))
        return not any(place_of(anchor) <= store < own for store in stores)

    def _write(self, frame: Frame, anchor: ast.stmt, those: list[Held], behind: bool = False) -> None:
        """Prepares those of a place, but what another method trains too, and has prepared above."""
        new = (one for one in those if not behind or not self._is_prepared_above(frame, one.text, anchor))
        ordered = sorted(dict.fromkeys(new), key=lambda one: _ORDER[one.kind])
        if not ordered:
            return
        texts = list(dict.fromkeys(one.text for one in ordered))
        named = [text for text in texts if self._is_variable(frame, text)]
        others = dict.fromkeys(self._anchors.all_of(frame, text) for text in texts if text not in named)
        accelerator = self.accelerators.at(anchor)
        self.plan.prepared |= {(frame, text): anchor for text in texts}
        insert = self.plan.after if behind else self.plan.before
        if named:
            listed = ", ".join(named)
            insert(anchor, RULE, REASON, f"{listed} = {accelerator}.prepare({listed})")
            for one in ordered:
                self._count_again(one, anchor, insert)
        if others:
            insert(anchor, RULE, REASON, f"{accelerator}.prepare({', '.join(others)})")

    def _is_prepared_above(self, frame: Frame, text: str, anchor: ast.stmt) -> bool:
        """Whether a block has prepared a variable, and has not bound it anew since."""
        above, suite_of = self.plan.prepared.get((frame, text)), self.script.suite_of
        if not isinstance(above, ast.stmt) or suite_of(above) is not suite_of(anchor):
            return False
        stores = map(place_of, self.script.stores(frame, text))
        end = place_of(anchor)
        return place_of(above) <= end and not any(place_of(above) < store < end for store in stores)

    def _count_again(self, one: Held, anchor: ast.stmt, insert: Callable[..., object]) -> None:
        """A number of batches that the top level asks for above the accelerator, which stands under `if __name__ ==
        "__main__":`, or in another cell, is that of one process from where its loader is prepared; and the epochs it gives."""
        is_apart = is_linked(self.script.text) or any(map(is_main_test, self.script.around(anchor)))
        if one.kind != "loader" or not is_apart:
            return
        stores = list(map(place_of, self.script.stores(one.frame, one.text)))
        for read in counted_lengths(self.script, one.frame, one.text, self._with_lengths):
            bound, above = self.script.statement(read), place_of(anchor)
            is_plain = isinstance(bound, ast.Assign) and bound.value is self.script.parent(read)
            turns = epochs_by(self.script, one.frame, bound)
            is_own = not any(place_of(read) < store < above for store in stores)
            if isinstance(self.script.parent(bound), ast.Module) and is_own and (is_plain or bound in turns):
                for statement in dict.fromkeys([bound, *turns]):
                    if place_of(statement) < above:
                        insert(anchor, RULE, REASON, ast.unparse(statement))

    def _is_variable(self, frame: Frame, text: str) -> bool:
        is_own = text.startswith("self.") and text.removeprefix("self.").isidentifier()
        return is_own or (text.isidentifier() and self.script.binds(frame, text))

    def _place(self, one: Held) -> ast.stmt:
        """The statement above which an object is prepared, a loader also above what counts with its length."""
        if one.kind != "loader":
            return self._anchors.of(one)
        self.lengths += counted_lengths(self.script, one.frame, one.text, self._with_lengths)
        return self._anchors.above_lengths(one.frame, one.text, self._anchors.of(one))
