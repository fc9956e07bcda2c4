"""A report on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from crosstrain_verify.records.journal import summary
from crosstrain_verify.report.curves import bounds, sparkline
from crosstrain_verify.report.report import Report, Run, meaning_of
from crosstrain_verify.running.runs import Progress as Told

QUANTITIES = {
    "loss": "loss",
    "gradient norm": "grad",
    "weights": "weights",
}  # by quantity, the column's heading
CURVE_WIDTH = 60


def render(report: Report, console: Console) -> None:
    """Print the table, the loss curves, and each run's difference, cause, error and notes."""
    names = dict.fromkeys((report.original_path.name, report.migrated_path.name))
    title = f"{' and '.join(names)}: largest errors, relative"
    table = Table(title=title, title_justify="left", padding=(0, 1, 0, 0), box=None)
    for heading in ("run", "verdict"):
        table.add_column(heading, no_wrap=True)
    for heading in ("steps", *QUANTITIES.values(), "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("original", _verdict(report.original), *_numbers(report.original))
    for run in report.runs:
        table.add_row(_name(run), _verdict(run), *_numbers(run))
    console.print(table)
    _curves(report, console)
    for name, run in [("original", report.original), *((_name(run), run) for run in report.runs)]:
        _explain(name, run, console)
    _conclude(report, console)


def _curves(report: Report, console: Console) -> None:
    found = report.curves
    if not found or len(found[0].losses) < 3:
        return
    low, high = bounds([curve.losses for curve in found])
    width = max(len(curve.name) for curve in found)
    _say(console, f"loss, {low:.4g} to {high:.4g}:")
    for curve in found:
        line = sparkline(curve.losses, min(CURVE_WIDTH, console.width - width - 4), low, high)
        _say(console, f"  {curve.name:<{width}} {line}")


def _explain(name: str, run: Run, console: Console) -> None:
    if run.difference:
        _say(console, f"[red]{name}[/red]: {escape(str(run.difference))}")
    if run.cause:
        _say(console, escape(f"  probably because {run.cause.text}"))
        for line in run.cause.lines:
            _say(console, f"    {escape(line)}")
    if run.error:
        _say(console, f"[red]{name}[/red]: {run.verdict.value}")
        console.print(run.error.rstrip(), markup=False, highlight=False, soft_wrap=True)
    if run.against and run.verdict.ok:
        _say(console, f"{name}: compared with {escape(run.against)}")
    if run.compiled:
        _say(console, f"{name}: graphs compiled by step: {_counts(run.compiled)}")
    for note in run.notes:
        _say(console, f"{name}: {escape(note)}")


def _counts(compiled: Sequence[int]) -> str:
    """Such as "2 1 0 0 0"; a long tail of zeros is abbreviated."""
    last = max((step for step, count in enumerate(compiled) if count), default=-1)
    shown = " ".join(map(str, compiled[: last + 3]))
    return f"{shown} ... 0" if len(compiled) > last + 3 else shown


def _conclude(report: Report, console: Console) -> None:
    """Print the launch that each verdict holds for, the meaning of each verdict once, the checks and the notes."""
    said = set()
    for run in report.runs:
        if run.launch:
            _say(console, f"{run.verdict.value}: [bold]{escape(run.launch)}[/bold]")
        meaning = meaning_of(run)
        if meaning and meaning not in said:
            said.add(meaning)
            _say(console, f"  {meaning}")
    if report.checks:
        _say(console, f"checks at run time: {summary(report.checks)}")
    for check in report.checks:
        _say(console, f"  {escape(str(check))}")
    for note in report.notes:
        _say(console, escape(note))


def _say(console: Console, text: str) -> None:
    """Print a text with markup as one line, which the terminal wraps."""
    console.print(text, highlight=False, soft_wrap=True)


def _name(run: Run) -> str:
    return run.name or f"{run.processes} process{'es' if run.processes > 1 else ''}"


def _verdict(run: Run) -> str:
    return f"[{'green' if run.verdict.ok else 'red'}]{run.verdict.value}[/]"


def _numbers(run: Run) -> list[str]:
    errors = [f"{run.largest[name]:.1e}" if name in run.largest else "" for name in QUANTITIES]
    return [str(run.steps), *errors, f"{run.seconds:.0f}"]


@contextmanager
def live(console: Console, steps: int | None) -> Iterator[Told | None]:
    """A progress bar during the runs; yields None where the console is no terminal. steps: the limit of each run."""
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}
        total: list[int | None] = [steps]
        starting = bar.add_task("starting: importing torch", total=None)

        def told(name: str, done: int) -> None:
            if name not in tasks:
                bar.update(starting, visible=False)
                for task in bar.tasks:
                    if total[0] is None and task.completed:
                        total[0] = int(task.completed)  # the original has run: its number of steps is known
                    bar.stop_task(task.id)
                tasks[name] = bar.add_task(name, total=total[0])
            bar.update(tasks[name], completed=done)

        yield told
