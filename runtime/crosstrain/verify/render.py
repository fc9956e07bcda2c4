"""A report on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crosstrain.verify.report import Report, Run

QUANTITIES = ("loss", "gradient norm", "weights")


def render(report: Report, console: Console) -> None:
    """Print the table, then each difference, error and note."""
    table = Table(title=f"{report.original_path.name} and {report.migrated_path.name}", title_justify="left")
    table.add_column("run")
    table.add_column("verdict")
    table.add_column("steps", justify="right")
    for quantity in QUANTITIES:
        table.add_column(f"{quantity} error", justify="right")
    table.add_column("seconds", justify="right")
    table.add_row("original", _verdict(report.original), *_numbers(report.original))
    for run in report.runs:
        table.add_row(_name(run), _verdict(run), *_numbers(run))
    console.print(table)
    for name, run in [("original", report.original), *((_name(run), run) for run in report.runs)]:
        _explain(name, run, console)


def _explain(name: str, run: Run, console: Console) -> None:
    if run.difference:
        console.print(f"[red]{name}[/red]: {escape(str(run.difference))}", highlight=False, soft_wrap=True)
    if run.error:
        console.print(f"[red]{name}[/red]: {run.verdict.value}", highlight=False)
        console.print(run.error.rstrip(), markup=False, highlight=False, soft_wrap=True)
    for note in run.notes:
        console.print(f"{name}: {escape(note)}", highlight=False, soft_wrap=True)


def _name(run: Run) -> str:
    return f"{run.processes} process{'es' if run.processes > 1 else ''}"


def _verdict(run: Run) -> str:
    return f"[{'green' if run.verdict.ok else 'red'}]{run.verdict.value}[/]"


def _numbers(run: Run) -> list[str]:
    errors = [f"{run.largest[name]:.1e}" if name in run.largest else "" for name in QUANTITIES]
    return [str(run.steps), *errors, f"{run.seconds:.1f}"]
