"""What every verb prints: one JSON object with --json, else text for people; progress to stderr."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from adadino.scene.pace import duration

WIDEST = 10_000
"""The most columns of a table that is not shown on a terminal."""
LONGEST_SILENCE = 30.0
"""Seconds after which a long piece of work says that it goes on."""


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
    """Counts done of total; call it with both and an optional message.

    Off a terminal it prints a line for every percent, but at most one a second, and one after 30
    seconds of silence, so that whoever waits knows that it is at work.
    """

    def __init__(self, label: str, *, quiet: bool) -> None:
        self.label, self.quiet = label, quiet
        self.bar: Any = None
        self.line = label
        self.percent = -1
        self.began = self.printed = time.monotonic()
        self.first: int | None = None
        self.closed = threading.Event()
        if quiet:
            return
        if sys.stderr.isatty():
            self._start_bar()
        else:
            threading.Thread(target=self._break_silence, daemon=True).start()

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self.bar = Bar(*columns, console=Console(stderr=True))
        self.task = self.bar.add_task(self.label, total=None)
        self.bar.start()

    def __call__(self, done: int, total: int, message: str = "") -> None:
        """Report progress; a total of 0 is a phase of which nothing is counted."""
        if self.quiet:
            return
        if not total:
            if self.bar is not None:
                self.bar.update(self.task, completed=0, total=None, description=message)
            self.line = f"{self.label}: {message}"  # a phase has no line of its own
            return
        message = self._with_time_left(done, total, "" if message == self.label else message)
        self.line = f"{self.label}: {done}/{total} {message}".rstrip()
        if self.bar is not None:
            text = f"{self.label} {message}".rstrip()
            self.bar.update(self.task, completed=done, total=total, description=text)
            return
        percent = 100 * done // total
        silent = time.monotonic() - self.printed
        if percent != self.percent and (silent >= 1 or percent // 10 != self.percent // 10):
            self.percent = percent
            self._print(self.line)

    def _with_time_left(self, done: int, total: int, message: str) -> str:
        """The message, with how long it will still take, if it does not say so itself."""
        if self.first is None:
            self.first, self.began = done, time.monotonic()
        rate = (done - self.first) / max(time.monotonic() - self.began, 1e-9)
        if not rate or done == total or " left" in message:
            return message
        left = f"{duration((total - done) / rate)} left"
        return f"{message}, {left}" if message else left

    def _break_silence(self) -> None:
        while not self.closed.wait(1):
            if time.monotonic() - self.printed >= LONGEST_SILENCE:
                self._print(f"{self.line} (still at work)")

    def _print(self, line: str) -> None:
        self.printed = time.monotonic()
        typer.echo(line, err=True)

    def close(self) -> None:
        """Stop drawing."""
        self.closed.set()
        if self.bar is not None:
            self.bar.stop()
