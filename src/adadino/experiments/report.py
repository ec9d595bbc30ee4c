"""A filled table for people: Markdown, CSV and a picture, ours beside the paper's, never mixed."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path

from adadino.experiments.runner import Filled
from adadino.experiments.tables import Metric, Table
from adadino.files import write_atomic

LABELS: dict[Metric, str] = {
    "f1": "F1, %",
    "iou": "IoU, %",
    "gflops": "GFLOPs",
    "pairs_per_s": "pairs/s",
}
QUICK_NOTE = (
    "Not a reproduction: a tiny model with a random backbone, a few steps on synthetic tiles. "
    "It shows that the machinery runs from end to end; the figures mean nothing."
)


def header(table: Table) -> list[str]:
    """Column names: for each metric ours, then the paper's."""
    return ["", *(f"{who} {LABELS[m]}" for m in table.metrics for who in ("ours:", "paper:"))]


def lines(table: Table, filled: Sequence[Filled]) -> list[list[str]]:
    """The cells as text; several seeds as mean and half the range."""
    rows = []
    for item in filled:
        cells = [item.row.name]
        for metric in table.metrics:
            values = item.ours[metric]
            mean = f"{sum(values) / len(values):.2f}"
            spread = f" ± {(max(values) - min(values)) / 2:.2f}" if len(values) > 1 else ""
            quoted = item.row.paper.get(metric)
            cells += [mean + spread, "" if quoted is None else f"{quoted:.2f}"]
        rows.append(cells)
    return rows


def write(table: Table, filled: Sequence[Filled], folder: Path, *, note: str) -> list[Path]:
    """Save the table as Markdown, CSV and PNG; returns the files."""
    names, body = header(table), lines(table, filled)
    markdown = [f"## {table.title}", "", note, "", _markdown(names)]
    markdown += ["|" + "---|" * len(names), *(_markdown(row) for row in body), ""]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *body])
    paths = [folder / f"{table.name}.{suffix}" for suffix in ("md", "csv", "png")]
    write_atomic(paths[0], "\n".join(markdown))
    write_atomic(paths[1], text.getvalue())
    _picture(table, filled, paths[2], note)
    return paths


def _markdown(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _picture(table: Table, filled: Sequence[Filled], path: Path, note: str) -> None:
    """Our first metric and the paper's, in two panels that share the rows and not the axis."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    metric = table.metrics[0]
    names = [item.row.name for item in filled][::-1]
    height = 1.6 + 0.32 * len(names)
    figure, axes = plt.subplots(1, 2, figsize=(10, height), sharey=True, constrained_layout=True)
    ours = [item.ours[metric] for item in filled][::-1]
    means = [sum(v) / len(v) for v in ours]
    error = [[m - min(v) for m, v in zip(means, ours, strict=True)]]
    error.append([max(v) - m for m, v in zip(means, ours, strict=True)])
    axes[0].barh(names, means, xerr=error if len(ours[0]) > 1 else None, color="#2f6f9f")
    quoted = [item.row.paper[metric] for item in filled][::-1]
    axes[1].barh(names, quoted, color="#9a9a9a")
    for axis, title, values in zip(axes, ("ours", "paper"), (means, quoted), strict=True):
        axis.set(title=title, xlabel=LABELS[metric])
        low, high = min(values), max(values)
        if low > 0.8 * high:  # close together: show the differences, not the bars
            margin = max(0.25 * (high - low), 0.01 * high)
            axis.set_xlim(low - margin, high + margin)
        axis.grid(axis="x", alpha=0.3)
    figure.suptitle("\n".join([table.title, *textwrap.wrap(note, 120)]), fontsize=9)
    write_atomic(path, lambda part: figure.savefig(part, dpi=110))
    plt.close(figure)
