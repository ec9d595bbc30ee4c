"""What every verb prints: one JSON object with --json, else text for people; progress to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

WIDEST = 10_000
"""The most columns of a table that is not shown on a terminal."""


def print_json(data: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output."""
    typer.echo(json_text(data))


def json_text(data: Mapping[str, Any]) -> str:
    """One JSON object as people and programs read it."""
    return json.dumps(data, indent=2, allow_nan=False, default=str)


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, note: str = ""
) -> None:
    """Print a table, the first column left, the others right-aligned."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    # Off a terminal rich assumes 80 columns and would cut the cells: there a table is as wide as
    # what it says.
    Console(width=None if sys.stdout.isatty() else WIDEST).print(table)


@contextmanager
def progress(label: str, *, quiet: bool = False) -> Iterator[Progress]:
    """A bar on a terminal, a plain line now and then elsewhere, both on standard error."""
    reporter = Progress(label, quiet=quiet)
    try:
        yield reporter
    finally:
        reporter.close()


class Progress:
    """Counts done of total; call it with both and an optional message."""

    def __init__(self, label: str, *, quiet: bool) -> None:
        self.label, self.quiet = label, quiet
        self.bar: Any = None
        self.shown = -1
        if not quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                TextColumn,
                TimeRemainingColumn,
            )
            from rich.progress import Progress as Bar

            self.bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task(label, total=None)
            self.bar.start()

    def __call__(self, done: int, total: int, message: str = "") -> None:
        """Report progress; a total of 0 is a phase of which nothing is counted."""
        text = message
        if total:
            message = "" if message == self.label else message
            text = f"{self.label} {message}".rstrip()
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=total or None, description=text)
        elif not total:
            return  # a phase: a line for each would be more than what there is to know
        elif not self.quiet:
            tenth = 10 * done // max(total, 1)
            if tenth != self.shown:
                self.shown = tenth
                typer.echo(f"{self.label}: {done}/{total} {message}".rstrip(), err=True)

    def close(self) -> None:
        """Stop drawing."""
        if self.bar is not None:
            self.bar.stop()
