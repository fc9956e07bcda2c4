"""CT601 by use: an evaluation is dealt by whole batches, and what it accumulated is merged behind its loop.

The body stays as its author wrote it (contract, decision 33). Where that is not sure, the evaluation stays whole on every
process, and one note says why.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Sequence

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import CORE, OURS, Plan
from crosstrain_migrate.core.reading.alike import counters_of
from crosstrain_migrate.core.reading.certain import Certain
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_method, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.core.training.counted_batches import stands_by_count
from crosstrain_migrate.core.training.counted_rows import is_length
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import texts_in, walk, walk_all

from .accumulators import Left, Pass
from .changes import has_start, is_read
from .dealing import Dealt, Evaluations
from .whole_counts import WholeCounts, divisor

RULE, WHOLE = "CT601", "CT603"
REASON = "each process evaluates its own batches, and the results are merged"


class Merging:
    """Plans the edits of dealt evaluations."""

    def __init__(self, plan: Plan, found: Evaluations, accelerators: Accelerators) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.found = found
        self.accelerators = accelerators
        self.loops: list[ast.For] = []  # the loops that are dealt
        self.alike: dict[tuple[Frame, str], Loop] = {}  # what is merged behind which loop
        self.of_phases: dict[ast.AST, str] = {}  # the loaders of loops whose training alone is dealt
        self.names: dict[ast.AST, str] = {}  # the loaders of all that is dealt
        self._names: dict[tuple[Frame, str], str] = {}

    def run(self) -> None:
        for one in self.found.dealt:
            if self.plan.runtime == OURS:
                self._deal(one)
            else:
                self._stays_whole(one.loop, "Accelerate cannot merge what processes have evaluated")
        for whole in self.found.whole:
            self._stays_whole(whole.loop, whole.reason)
            if whole.phase:  # its training is dealt all the same
                frame, (source, *again) = self.script.frame(whole.loop), whole.sources
                one = Dealt(whole.loop, frame, source, Left(), whole.phase, tuple(again))
                name = self._dealt_loader(one, self.accelerators.at(whole.loop), CORE, evaluates=False)
                self.of_phases[whole.loop] = name

    def _stays_whole(self, loop: ast.For, reason: str) -> None:
        remedy = "nothing needs to be done; to share it, see `merge` in the documentation"
        if Pass(self.script, self.script.frame(loop), loop).has_metric():
            remedy = "torchmetrics would count each row once for every process: make the metric with `sync_on_compute=False`"
        self.plan.note(WHOLE, loop, f"evaluated whole on every process: {reason}", remedy)

    def _deal(self, one: Dealt) -> None:
        trained = self.plan.is_replaced(one.source)
        if not one.phase and (trained or self.accelerators.is_early(one.loop)):
            reason = "it runs before the device is chosen" if not trained else "its loader is trained on too"
            self._stays_whole(one.loop, reason)
            return
        accelerator = self.accelerators.at(one.loop)
        group = f"evaluation {one.loop.lineno}"
        self.loops.append(one.loop)
        if one.phase:
            self.plan.take_back(one.source)
        name = self._dealt_loader(one, accelerator, group)
        self.names[one.loop] = name
        self._count_from_start(one, name, group)
        self._end_bars(one, name, group)
        for text in (*one.left.joins, *one.left.lasts):
            if not has_start(self.script, one.loop, text):
                self.plan.before(one.loop, RULE, REASON, f"{text} = None", group)
        means = [text for text in one.left.sums if one.phase and self._is_mean(one, text, name)]
        for texts, option in (
            (means, ""),
            ([text for text in one.left.sums if text not in means], ""),
            (one.left.joins, ", join=True"),
            (one.left.lasts, ", last=True"),
        ):
            if texts:
                self.alike |= {(one.frame, text): one.loop for text in texts}
                listed = ", ".join(texts)
                code = f"{accelerator}.merge({name}, {listed}{option})"
                if texts is means:
                    given = f"({listed})" if len(means) > 1 else listed
                    code = f'{accelerator}.reduce({given}, "mean") if {one.phase} else {code}'
                self.plan.after(one.loop, RULE, REASON, f"{listed} = {code}", group)
        for made in one.left.again:
            self.alike[one.frame, written(made.targets[0])] = one.loop
            self.plan.after(one.loop, RULE, REASON, ast.unparse(made), group)

    def _is_mean(self, one: Dealt, text: str, name: str) -> bool:
        """Whether a sum is divided behind its loop by the length of its loader or by its index: where a loader is trained on,
        these are of the process's share."""
        behind = self.script.reads_behind(one.loop, text)
        divisors = [by for read in behind if (by := divisor(self.script, read)) is not None]
        size = f"len({name})" if name == written(one.source) else ""
        index = {_index(one)}.intersection(one.left.lasts)
        own = [by for by in divisors if self._reads(one, by) == size or index & names_in(by)]
        return bool(divisors) and own == divisors

    def _reads(self, one: Dealt, by: ast.expr) -> str:
        """A divisor, or what the variable holds that is bound below the place where the loader is prepared: `n = len(loader)`."""
        values = self.script.values(one.frame, written(by)) if isinstance(by, ast.Name) else []
        below = [value for value in values if place_of(value) > place_of(self._anchor(one))]
        return ast.unparse(values[0] if len(values) == len(below) == 1 else by)

    def _dealt_loader(self, one: Dealt, accelerator: str, group: str, evaluates: bool = True) -> str:
        """Plans the loader that the loop goes over; its name. evaluates: its evaluation is dealt too."""
        text = self.script.source(one.source)
        made = f"{accelerator}.prepare_evaluation({text})" if evaluates else text
        if one.phase:
            made = f"{accelerator}.prepare({text}) if {one.phase} else {made}"
        anchor = self._anchor(one)
        if self._may_bind(one):
            self.plan.before(anchor, RULE, REASON, f"{text} = {made}", group)
            return text
        name = self._fresh_name(one.frame, text, "loader" if one.phase else "evaluation_loader")
        is_here = self.script.frame(one.source) is one.frame
        header = self.script.statement(one.source) if is_here else one.loop
        counts = self._counts(one, header) if one.phase else []
        shown = self._moved_by_hand(one)
        header = min([header, *map(self.script.statement, (*counts, *shown))], key=place_of)
        if one.again:  # above both branches
            header = self._within(self.script.suite_of(self._outwards(one, one.loop)), header)
        self.plan.before(self._outwards(one, header), RULE, REASON, f"{name} = {made}", group)
        for source in (one.source, *one.again, *counts):
            self.plan.replace(source, RULE, "", name, group)
        return name

    def _counts(self, one: Dealt, header: ast.stmt) -> list[ast.expr]:
        """Where the block of a phase's loop reads the length of what it goes over, `size = len(loaders[phase])`, to count its
        batches: `if i == size - 2:`; and where the loop reads it beside its own count."""
        length = f"len({ast.unparse(one.source)})"
        calls = [n for n in walk(one.loop) if isinstance(n, ast.Call) and ast.unparse(n) == length]
        counters = counters_of(one.loop, self.script)
        found = [
            call.args[0]
            for call in calls
            if stands_by_count(self.script, call, counters) or self._meets(call, counters)
        ]
        for statement in self.script.suite_of(header):
            if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
                continue
            reads = self.script.reads(one.frame, written(statement.targets[0]))
            is_length = ast.unparse(statement.value) == length
            if is_length and reads and all(one.loop in self.script.loops_around(read) for read in reads):
                found += statement.value.args
        return found

    def _meets(self, length: ast.Call, counters: set[str]) -> bool:
        """Whether a count is added to a length, or taken from it: `epoch * len(loaders[phase]) + i`."""
        computed = itertools.takewhile(lambda one: isinstance(one, ast.BinOp), self.script.around(length))
        return any(
            isinstance(one, ast.BinOp) and isinstance(one.op, ast.Add | ast.Sub) and names_in(one) & counters
            for one in computed
        )

    def _anchor(self, one: Dealt) -> ast.stmt:
        """Above the statement that first reads the loader in the loop's own block, or puts a bar over it."""
        text = written(one.source) if isinstance(one.source, ast.Name | ast.Attribute) else ""
        place: ast.stmt = self._outwards(one, one.loop)
        suite = self.script.suite_of(place)
        for store in self.script.stores(one.frame, text) if text else ():
            statement: ast.AST = self.script.statement(store)
            value = getattr(statement, "value", None)
            if value is None or place_of(statement) >= place_of(one.loop) or text not in texts_in(value):
                continue
            while statement not in suite:  # `if is_main: loader = tqdm(loader)`
                above = self.script.parent(statement)
                if above is None or isinstance(above, ast.Module):
                    break
                statement = above
            if statement in suite and place_of(statement) < place_of(place):
                place = statement
        named = [self._within(suite, self.script.statement(source)) for source in (one.source, *one.again)]
        if one.phase and text:  # what the loop counts to is the number of the batches that it is given
            named += [self.script.statement(read) for read in self.script.reads(one.frame, text)]
        named += [self.script.statement(total) for total in self._moved_by_hand(one)]
        bound = [place_of(store) for store in self.script.stores(one.frame, text)] if text else []
        for statement in named:
            if statement in suite and max(bound, default=(0, 0)) < place_of(statement) < place_of(place):
                place = statement
        return self._outwards(one, place)

    def _within(self, suite: Sequence[ast.stmt], statement: ast.stmt) -> ast.stmt:
        """The statement of a block in which another one stands, or that itself."""
        around = {*self.script.around(statement)}
        return next((s for s in suite if s in around), statement)

    def _outwards(self, one: Dealt, place: ast.stmt) -> ast.stmt:
        """The same place outside the blocks and loops around it that bind nothing of what is read there."""
        read = {written(n) for n in walk(one.source) if isinstance(n, ast.Name | ast.Attribute)}
        read |= {n.id for n in walk(ast.parse(one.phase)) if isinstance(n, ast.Name)}
        makes = any(isinstance(n, ast.Call) for n in walk(one.source))
        for around in self.script.around(place):
            if not isinstance(around, ast.With if makes else ast.With | ast.For) or any(
                isinstance(n, ast.Name | ast.Attribute)
                and not isinstance(n.ctx, ast.Load)
                and written(n) in read
                for n in walk(around)
            ):
                break
            place = around
        return place

    def _may_bind(self, one: Dealt) -> bool:
        """Whether the loader's variable can hold the dealt one: it is the frame's own, and no other loop reads it."""
        if not isinstance(one.source, ast.Name):
            return False
        name = one.source.id
        if not self.script.binds(one.frame, name) or (
            isinstance(one.frame, ast.Module) and self._read_in_functions(one.frame, name)
        ):
            return False
        inside = set(map(id, walk(one.loop)))
        for read in self.script.reads(one.frame, name):
            if id(read) in inside or read in (one.source, *one.again):
                continue
            parent = self.script.parent(read)
            is_length = isinstance(parent, ast.Call) and last_name(parent.func) == "len"
            statement = self.script.statement(read)
            is_bar = isinstance(statement, ast.Assign) and name in map(written, statement.targets)
            if not is_length and not is_bar and not isinstance(parent, ast.Attribute | ast.Compare):
                return False
        return True

    def _read_in_functions(self, module: ast.Module, name: str) -> bool:
        others = (one for one in self.script.frames_in(module) if one is not module)
        return any(self.script.reads(f, name) and not self.script.binds(f, name) for f in others)

    def _fresh_name(self, frame: Frame, text: str, base: str) -> str:
        """A name that the frame does not use; the same for loops over the same loader."""
        taken = {n.id for n in self.script.table.each(ast.Name)}
        taken |= {name for (other, _), name in self._names.items() if other is frame}
        name, number = base, 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        return self._names.setdefault((frame, text), name)

    def _count_from_start(self, one: Dealt, name: str, group: str) -> None:
        """`enumerate` counts as in the original, where the loop's index is read."""
        text = _index(one)
        for call in walk(one.loop.iter) if text else ():
            if not isinstance(call, ast.Call) or last_name(call.func) != "enumerate" or not call.args:
                continue
            body = walk_all(one.loop.body)
            is_counted = text in one.left.lasts or any(is_read(n, text) for n in body)
            if is_counted:
                start = self._of_loader(one, name, "start", 0)
                begins = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "start")]
                if begins and not (isinstance(begins[0], ast.Constant) and begins[0].value == 0):
                    start = f"{start} + {ast.unparse(begins[0])}"
                self.plan.replace(call, RULE, "", f"enumerate({{it}}, {start})", group, it=call.args[0])

    def _end_bars(self, one: Dealt, name: str, group: str) -> None:
        """A bar ends with the batches of its process: the loader's length is that of all."""
        ends = self._moved_by_hand(one)
        for source in (one.source, *one.again):
            bars = [*self.script.around(source), *(walk(one.loop.iter) if source is one.source else ())]
            for call in dict.fromkeys(n for n in bars if isinstance(n, ast.Call)):
                given = {k.arg: k.value for k in call.keywords}
                if (
                    not self.script.dotted(call.func).startswith("tqdm.")
                    or None in given
                    or len(call.args) > 2
                ):
                    continue
                if "total" in given:
                    ends.append(given["total"])
                elif call.args[:1] == [source] or self._iterates(one.frame, call, source):
                    code = f"total={self._of_loader(one, name, 'own_length', None)}"
                    self.plan.add(e.InsertArgument(call, RULE, REASON, transaction=group, code=code))
        counts = WholeCounts(self.plan, Data(one.source, one.frame), one.loop)
        code = self._of_loader(one, name, "own_length", f"len({name})")
        may_be_unknown = "IterableDataset" in self.script.text
        for end in ends:
            made = self.script.values(one.frame, written(end)) or [end]
            if {*map(ast.unparse, made)} == {f"len({ast.unparse(one.source)})"}:
                self.plan.replace(end, RULE, "", code, group)
            elif may_be_unknown:
                continue  # how many batches there are
            elif counts.is_of_rows(end):  # `len(rows) // size`, which may be another number on one process
                self.plan.replace(end, RULE, "", f"min({{end}}, {code})", group, end=end)
            elif is_length(self.script, one.frame, end):  # of rows: its share of them
                self.plan.replace(end, RULE, "", f"{{end}} * {code} // len({name})", group, end=end)

    def _iterates(self, frame: Frame, bar: ast.Call, source: ast.expr) -> bool:
        """`tqdm(batches)`, where `batches = iter(loader)`"""
        made = self.script.values(frame, written(bar.args[0])) if bar.args else []
        return bool(made) and all(ast.unparse(one) == f"iter({ast.unparse(source)})" for one in made)

    def _moved_by_hand(self, one: Dealt) -> list[ast.expr]:
        """`len(loader)` of `bar = tqdm(total=len(loader))`, or of `Bar(max=len(loader))`, above which the loader can be
        prepared, and which the loop moves: `bar.update()`."""
        moved = {written(n.func.value) for n in walk(one.loop) if is_method(n, "update", "next")}
        # The loop's own block, and that above which it is dealt.
        loops = (one.loop, self._outwards(one, one.loop))
        beside = [*(s for loop in loops for s in self.script.suite_of(loop)), *self.script.around(one.loop)]
        bars = [
            c for c in self.script.calls_in(one.frame) if self.script.names_of(c) & self.script.bars & moved
        ]
        return [
            k.value
            for bar in bars
            for k in (bar.keywords if self.script.statement(bar) in beside else ())
            if k.arg in ("total", "max")
        ]

    def _of_loader(self, one: Dealt, name: str, attribute: str, default: object) -> str:
        """An attribute of what is dealt; of what may be no DataLoader, a default."""
        is_loader = self._is_loader(one)
        return f"{name}.{attribute}" if is_loader else f'getattr({name}, "{attribute}", {default})'

    def _is_loader(self, one: Dealt) -> bool:
        """Whether what is dealt is a DataLoader, by its name or by what made it."""
        is_named = not isinstance(one.source, ast.Call) and bool(
            re.search(r"loader|dl\b", ast.unparse(one.source), re.I)
        )
        certain = Certain(self.script)
        is_named = is_named and not certain.gives_others(one.frame, one.source)
        return not one.phase and (is_named or certain.gives_batches(one.frame, one.source))


def _index(one: Dealt) -> str:
    """What a loop over `enumerate` counts its batches by."""
    target = one.loop.target.elts[0] if isinstance(one.loop.target, ast.Tuple) else None
    is_counted = "enumerate(" in ast.unparse(one.loop.iter)
    return target.id if isinstance(target, ast.Name) and is_counted else ""
