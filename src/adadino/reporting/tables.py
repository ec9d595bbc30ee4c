"""A header and rows as text: Markdown for people, CSV for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows)]


def name_cell(name: str) -> str:
    """A name of somebody's file for a cell: spreadsheets would compute one that begins with =."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object] | Mapping[str, object]]) -> str:
    """A table as CSV; a row may name its cells, and a cell that it does not name is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        if isinstance(row, Mapping):
            row = [row.get(name, "") for name in header]
        writer.writerow(row)
    return text.getvalue()
