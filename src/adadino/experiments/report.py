"""A filled table for people: Markdown, CSV, a picture; ours beside the published, never mixed."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from adadino.experiments.runner import Filled
from adadino.experiments.table import Metric, Table
from adadino.files import write_atomic
from adadino.reporting.pictures import figure
from adadino.reporting.tables import csv_text, markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABELS: dict[Metric, str] = {
    "f1": "F1, %",
    "iou": "IoU, %",
    "gflops": "GFLOPs",
    "pairs_per_s": "pairs/s",
    "fast_pairs_per_s": "pairs/s in bf16",
    "f1_levir": "F1 on LEVIR, %",
    "iou_levir": "IoU on LEVIR, %",
    "f1_clcd": "F1 on CLCD, %",
    "iou_clcd": "IoU on CLCD, %",
    "parameters": "params, M",
    "minutes": "training, min",
}
_QUICK = (
    "Not a reproduction: a tiny model with a random backbone, a few steps on synthetic tiles. "
    "It shows that the machinery runs from end to end; the figures mean nothing."
)


def caption(table: Table, seeds: Sequence[int], *, jobs: int, quick: bool) -> str:
    """How a table's own figures were made, in a line or two."""
    if quick:
        return _QUICK
    study = table.rows[0].study
    text = f"Ours: seeds {','.join(map(str, seeds))}, {study.split} split, {study.checkpoint} epoch"
    text += ", one matrix."
    if len(seeds) > 1:
        text += " ± is half the range over the seeds."
    if jobs > 1 and "minutes" in table.metrics:
        text += f" Minutes of training while {jobs} models shared the device."
    return text


def header(table: Table) -> list[str]:
    """Column names: for each metric ours, then what was published, if anything was."""
    names = [""]
    for metric in table.metrics:
        who = ("ours:", "paper:") if quoted(table, metric) else ("ours:",)
        names += [f"{one} {LABELS[metric]}" for one in who]
    return names


def quoted(table: Table, metric: Metric) -> bool:
    """Whether there are published figures of a metric."""
    return any(metric in row.paper for row in table.rows)


def lines(table: Table, filled: Sequence[Filled]) -> list[list[str]]:
    """The cells as text; several seeds as mean and half the range."""
    rows = []
    for item in filled:
        cells = [item.row.name]
        for metric in table.metrics:
            values = item.ours[metric]
            digits = 3 if metric == "parameters" else 2  # TinyCD has 0.285 M
            mean = f"{sum(values) / len(values):.{digits}f}"
            spread = f" ± {(max(values) - min(values)) / 2:.2f}" if len(values) > 1 else ""
            cells.append(mean + spread)
            if quoted(table, metric):
                figure = item.row.paper.get(metric)
                cells.append("" if figure is None else f"{figure:.{digits}f}")
        rows.append(cells)
    return rows


def write(table: Table, filled: Sequence[Filled], folder: Path, *, note: str) -> list[Path]:
    """Save the table as Markdown, CSV and PNG; returns the files."""
    names, body = header(table), lines(table, filled)
    markdown = [f"## {table.title}", "", note, "", *markdown_table(names, body), ""]
    if table.footer:
        markdown += [*(f"- {line}" for line in table.footer), ""]
    paths = [folder / f"{table.name}.{suffix}" for suffix in ("md", "csv", "png")]
    write_atomic(paths[0], "\n".join(markdown))
    # A CSV travels alone: the note is in every row.
    write_atomic(paths[1], csv_text([*names, "note"], ([*row, note] for row in body)))
    drawings = {"points": _picture, "speed": _speed_picture, "curve": _curve_picture}
    drawings[table.plot](table, filled, paths[2], note)
    return paths


def _picture(table: Table, filled: Sequence[Filled], path: Path, note: str) -> None:
    """Our first metric beside the paper's, or our metrics, in panels that share only the rows."""
    panels: list[tuple[str, Metric, list[list[float]], str]] = []
    compared = quoted(table, table.metrics[0])
    shown = table.metrics[:1] if compared else table.metrics[:2]
    for metric in shown:
        panels.append(("ours", metric, [item.ours[metric] for item in filled][::-1], "#2f6f9f"))
    if compared:
        theirs = [[item.row.paper[shown[0]]] for item in filled][::-1]
        panels.append(("paper", shown[0], theirs, "#9a9a9a"))
    names = [item.row.name for item in filled][::-1]
    size = 10, 1.6 + 0.32 * len(names)
    with figure(path, len(panels), size=size, share_rows=True) as (drawn, axes):
        for axis, (who, metric, values, colour) in zip(axes, panels, strict=True):
            means = [fmean(v) for v in values]
            error = [[m - min(v) for m, v in zip(means, values, strict=True)]]
            error.append([max(v) - m for m, v in zip(means, values, strict=True)])
            # Points and not bars: the rows are close together, and a bar that does not begin at
            # zero shows ratios that are not there.
            axis.errorbar(means, names, xerr=error, fmt="o", color=colour, capsize=3)
            axis.set(title=who, xlabel=LABELS[metric])
            axis.margins(x=0.15)
            axis.grid(axis="x", alpha=0.3)
        drawn.suptitle(_heading(table, note), fontsize=9)


def _speed_picture(table: Table, filled: Sequence[Filled], path: Path, note: str) -> None:
    """Each F1 against pairs per second, with the range over the seeds; up and right is better.

    The speed is that of every model's fastest form, where it was measured.
    """
    scores = [metric for metric in table.metrics if metric.startswith("f1")]
    fast: Metric = "fast_pairs_per_s"
    across: Metric = fast if fast in table.metrics else "pairs_per_s"
    with figure(path, len(scores), size=(7 * len(scores), 6)) as (drawn, axes):
        for axis, metric in zip(axes, scores, strict=True):
            for number, item in enumerate(filled, start=1):
                _point(axis, number, item, metric, across)
            axis.set(xlabel=LABELS[across], ylabel=LABELS[metric], xscale="log")
            _label_decades(axis)
            axis.grid(alpha=0.3)
        handles, labels = axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside right upper", fontsize=8)
        drawn.suptitle(_heading(table, note), fontsize=9)


def _curve_picture(table: Table, filled: Sequence[Filled], path: Path, note: str) -> None:
    """Each F1 against the training pairs, a line for each model, with the range over the seeds."""
    scores = [metric for metric in table.metrics if metric.startswith("f1")]
    models = dict.fromkeys(item.row.name.rpartition(",")[0] for item in filled)
    with figure(path, len(scores), size=(7 * len(scores), 6)) as (drawn, axes):
        for axis, metric in zip(axes, scores, strict=True):
            for model in models:
                line = [item for item in filled if item.row.name.rpartition(",")[0] == model]
                values = [item.ours[metric] for item in line]
                means = [fmean(v) for v in values]
                spread = [[m - min(v) for m, v in zip(means, values, strict=True)]]
                spread.append([max(v) - m for m, v in zip(means, values, strict=True)])
                pairs = [item.row.pairs for item in line]
                axis.errorbar(pairs, means, spread, fmt="o-", capsize=2, label=model)
            axis.set(xlabel="training pairs", ylabel=LABELS[metric], xscale="log")
            _label_decades(axis)
            axis.grid(alpha=0.3)
        handles, labels = axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside right upper", fontsize=8)
        drawn.suptitle(_heading(table, note), fontsize=9)


def _point(axis: Axes, number: int, item: Filled, metric: Metric, across: Metric) -> None:
    """One model, with its number beside it; its name is in the legend, where it has room."""
    values, speed = item.ours[metric], item.ours[across][0]
    mean = fmean(values)
    spread = [[mean - min(values)], [max(values) - mean]]
    marker = "s" if item.row.name.startswith("AdaDINO") else "o"
    axis.errorbar(speed, mean, spread, fmt=marker, capsize=2, label=f"{number}  {item.row.name}")
    axis.annotate(str(number), (speed, mean), xytext=(5, 4), textcoords="offset points", fontsize=8)


def _label_decades(axis: Axes) -> None:
    """Write numbers at a logarithmic axis that covers less than a decade, too."""
    from matplotlib.ticker import LogFormatter

    for formatter in (axis.xaxis.set_major_formatter, axis.xaxis.set_minor_formatter):
        formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))


def _heading(table: Table, note: str) -> str:
    return "\n".join([table.title, *textwrap.wrap(note, 120)])
