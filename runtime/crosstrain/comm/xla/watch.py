"""Counts what XLA does in a training loop: graphs that it compiles, values read back, operations left to the CPU."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

from crosstrain.comm.xla.api import metrics

Shapes = tuple[tuple[int, ...], ...]
SETTLED = 3  # steps that may compile: the first ones make gradients and optimizer state
READ = "aten::_local_scalar_dense"  # .item(), float(), a tensor's truth: a read, not an operation


@dataclass
class Kind:
    """The executions of one kind: those that end in an optimizer step, or those that do not.

    done: how many there were. seen: the batch shapes so far. short_allowed: no shorter last batch has been seen yet.
    """

    done: int = 0
    seen: list[Shapes] = field(default_factory=list)
    short_allowed: bool = True


@dataclass
class Source:
    """One loader: the shapes of its current batch, and its executions by whether they end in an optimizer step."""

    name: str
    batch: Shapes = ()
    kinds: dict[bool, Kind] = field(default_factory=lambda: {True: Kind(), False: Kind()})
    told: bool = False

    @property
    def seen(self) -> list[Shapes]:
        """The different shapes, in order of appearance."""
        return list(dict.fromkeys(shapes for kind in self.kinds.values() for shapes in kind.seen))


@dataclass(frozen=True)
class XlaReport:
    """Counts since the process began.

    compiled: graphs compiled. cached: executions of a known graph. reads: values read from the device one by one (.item()
    and similar). fallbacks: operations that ran on the CPU, by name. shapes: the different batch shapes of each loader.
    """

    compiled: int
    cached: int
    reads: int
    fallbacks: dict[str, int]
    shapes: dict[str, list[Shapes]]

    def __str__(self) -> str:
        lines = [
            f"{self.compiled} graphs compiled, {self.cached} executions of known ones, "
            f"{self.reads} values read one by one"
        ]
        if self.fallbacks:
            lines.append("operations that XLA leaves to the CPU (each waits for the device):")
            lines += [f"  {name}: {count}" for name, count in sorted(self.fallbacks.items())]
        for name, seen in self.shapes.items():
            lines.append(f"{name}: {len(seen)} batch shape{'s' if len(seen) > 1 else ''}")
            lines += [f"  {show(shapes)}" for shapes in seen[:5]]
            if len(seen) > 5:
                lines.append(f"  and {len(seen) - 5} more")
        return "\n".join(lines)


def show(shapes: Shapes) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)


def count(name: str) -> int:
    """One of torch_xla's counters, 0 while it does not exist."""
    return metrics.counter_value(name) or 0


class CompilationWatch:
    """Warns, once for each loader, of a training that keeps compiling, and says why."""

    def __init__(self) -> None:
        self._sources: list[Source] = []
        self._current: Source | None = None
        self._compiled = count("UncachedCompile")

    def source(self, name: str) -> Source:
        """Watch another loader; returns its record."""
        same = sum(source.name.startswith(name) for source in self._sources)
        self._sources.append(Source(f"{name} (number {same + 1})" if same else name))
        return self._sources[-1]

    def placed(self, source: Source, shapes: Shapes) -> None:
        """Called when a batch of this loader is put on the device."""
        source.batch = shapes
        self._current = source

    def executed(self, stepped: bool) -> None:
        """Called when the graph of an optimizer step, or of a batch without one, was given to XLA."""
        compiled, before = count("UncachedCompile"), self._compiled
        self._compiled = compiled
        source = self._current
        if source is None:
            return
        kind = source.kinds[stepped]
        kind.done += 1
        new = source.batch not in kind.seen
        if compiled > before and kind.done > SETTLED and not source.told:
            self._explain(source, kind, new)
        if new:
            kind.seen.append(source.batch)

    def _explain(self, source: Source, kind: Kind, new: bool) -> None:
        if new and kind.short_allowed and _shorter(source.batch, kind.seen):
            kind.short_allowed = False  # the last batch of a pass needs one more graph, only once
            return
        source.told = True
        if new:
            reason = (
                f"its batch had shapes {show(source.batch)}, after "
                f"{' / '.join(show(shapes) for shapes in kind.seen[-3:])}. XLA compiles once for each shape: "
                f"pad to a few (crosstrain.utils.pad_collate), or let the loader drop or complete the last batch."
            )
        else:
            reason = (
                f"though its batch had shapes seen before ({show(source.batch)}): something else in the step "
                f"differs from step to step, such as a slice, a loop count or a size that follows a Python "
                f"number, or a part of the step that runs only sometimes."
            )
        warnings.warn(f"step {kind.done} of {source.name} was compiled again, {reason}", stacklevel=4)

    def report(self) -> XlaReport:
        """Everything counted so far."""
        fallbacks = {
            name: count(name)
            for name in metrics.counter_names()
            if name.startswith("aten::") and name != READ
        }
        return XlaReport(
            compiled=count("UncachedCompile"),
            cached=count("CachedCompile"),
            reads=count(READ),
            fallbacks=fallbacks,
            shapes={source.name: source.seen for source in self._sources},
        )


def _shorter(batch: Shapes, seen: list[Shapes]) -> bool:
    """Whether the batch differs from an earlier one only by having fewer rows."""
    return any(
        len(other) == len(batch)
        and all(
            mine == theirs or (mine[1:] == theirs[1:] and mine[:1] < theirs[:1])
            for mine, theirs in zip(batch, other, strict=True)
        )
        for other in seen
    )
