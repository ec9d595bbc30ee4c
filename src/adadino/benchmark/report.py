"""What a benchmark found, and the same for people: Markdown, CSV and a plot.

The paper's figures have columns of their own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adadino import paper
from adadino.errors import ConfigError
from adadino.files import write_atomic
from adadino.reporting.pictures import figure
from adadino.reporting.tables import csv_text, markdown_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS = ("GFLOPs", "FFN ms/pair", "pairs/s", "speed-up")
HEADER = [
    "mode",
    "k",
    "batch",
    "px",
    *(column for name in OURS for column in (name, f"paper: {name}")),
    "x eager fp32",
    "GB",
    "first call, s",
]
NOTE = (
    "Policy and gather included, data on the device, random weights. paper: fp32, TF32 off, eager; "
    "fp32: the engine in the same arithmetic, not compiled. x eager fp32: over paper's full k. "
    "first call: with compilation, if there is any. The paper's figures: A800, fp32, batch 16."
)


@dataclass(frozen=True)
class Measurement:
    """One measurement."""

    mode: str
    k: int
    batch: int
    size: int
    gflops: float
    """GFLOPs of one pair, by the paper's counting."""
    pairs_per_s: float
    speedup: float | None
    """Speed over k = C of the same mode, batch and size; None where that was not measured."""
    over_fp32: float | None
    """Speed over `paper` at k = C, the plain model, eager; None where that was not measured."""
    ffn_ms: float
    """Time of all feed-forward layers, per pair; the engine's gather is not part of it."""
    memory_gb: float | None
    """Peak of the device's memory, weights included; an engine's without the plain model that it
    was made from. None on a CPU."""
    first_call_s: float
    """Time of the first batch, with compilation and recording."""


@dataclass(frozen=True)
class Reference:
    """An encoder that is not ours, on the same images at the size that our encoder sees."""

    name: str
    batch: int
    size: int
    pairs_per_s: float


@dataclass
class Report:
    """A whole benchmark."""

    rows: list[Measurement] = field(default_factory=list)
    reference: list[Reference] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What was asked for and not measured, each with its reason."""


def fill_speedups(report: Report, full: int) -> None:
    """Set the speed-ups of every row whose base was measured too."""
    base = {
        (row.mode, row.batch, row.size): row.pairs_per_s for row in report.rows if row.k == full
    }
    for index, row in enumerate(report.rows):
        mine, plain = (base.get((mode, row.batch, row.size)) for mode in (row.mode, "paper"))
        report.rows[index] = dataclasses.replace(
            row,
            speedup=row.pairs_per_s / mine if mine else None,
            over_fp32=row.pairs_per_s / plain if plain else None,
        )


def cells(report: Report, *, published: bool) -> list[list[str]]:
    """The rows as text.

    Args:
        report: The benchmark.
        published: Whether the model is the one of the paper's Table 3.
    """
    return [_cells(row, published=published) for row in report.rows]


def quoted(row: Measurement) -> dict[str, float]:
    """The paper's Table 3 for a row: GFLOPs for its image size, times for its batch of 16 only."""
    found = {"gflops": paper.GFLOPS.get(row.k)} if row.size == 256 else {}
    if found and row.batch == 16:
        found["ffn_ms"] = paper.FFN_MS.get(row.k)
        found["pairs_per_s"] = paper.PAIRS_PER_S.get(row.k)
        found["speedup"] = paper.SPEEDUP.get(row.k)
    return {name: value for name, value in found.items() if value is not None}


def _cells(row: Measurement, *, published: bool) -> list[str]:
    theirs = quoted(row) if published else {}
    text = [row.mode, str(row.k), str(row.batch), str(row.size)]
    for name, form in (
        ("gflops", ".2f"),
        ("ffn_ms", ".3f"),
        ("pairs_per_s", ".2f"),
        ("speedup", ".2f"),
    ):
        text.append(_number(getattr(row, name), form))
        text.append(_number(theirs.get(name), ".2f"))
    rest = (row.over_fp32, ".2f"), (row.memory_gb, ".2f"), (row.first_call_s, ".1f")
    return [*text, *(_number(value, form) for value, form in rest)]


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _reference_row(one: Reference) -> list[str]:
    """A reference encoder as a row under our header."""
    found = {
        "mode": f"transformers' encoder, {one.name}",
        "batch": str(one.batch),
        "px": str(one.size),
        "pairs/s": f"{one.pairs_per_s:.2f}",
    }
    return [found.get(column, "") for column in HEADER]


def reference_cells(report: Report) -> list[list[str]]:
    """The reference encoders as text: name, batch, size, pairs/s."""
    return [
        [one.name, str(one.batch), str(one.size), f"{one.pairs_per_s:.2f}"]
        for one in report.reference
    ]


def as_dict(report: Report, published: bool) -> dict[str, Any]:
    """What `adadino benchmark --json` prints of a report."""
    return {
        "rows": [
            dataclasses.asdict(row) | {"paper": quoted(row) if published else {}}
            for row in report.rows
        ],
        "reference": [dataclasses.asdict(one) for one in report.reference],
        "skipped": report.skipped,
    }


def _files(folder: Path) -> list[Path]:
    """The files that a benchmark writes into a folder: Markdown, CSV, a plot."""
    return [folder / f"benchmark.{suffix}" for suffix in ("md", "csv", "png")]


def refuse_existing(folder: Path) -> None:
    """Refuse a folder that holds an earlier benchmark."""
    if there := [path for path in _files(folder) if path.exists()]:
        raise ConfigError(f"{there[0]} exists; give another --output, or --overwrite.")


def write(
    report: Report, folder: Path, *, title: str, published: bool, sweep: str | None
) -> list[Path]:
    """Save the three files; returns those that were written."""
    body = cells(report, published=published)
    lines = [f"# {title}", "", *markdown_table(HEADER, body), "", NOTE, ""]
    if report.reference:
        lines += ["transformers' DINOv3ViTModel, the encoder alone, in the same run:", ""]
        columns = ["encoder", "batch", "px", "pairs/s"]
        lines += [*markdown_table(columns, reference_cells(report)), ""]
    lines += [f"- not measured: {reason}" for reason in report.skipped]
    others = [_reference_row(one) for one in report.reference]
    paths = _files(folder)
    write_atomic(paths[0], "\n".join(lines).rstrip() + "\n")
    write_atomic(paths[1], csv_text(HEADER, [*body, *others]))
    return paths if plot(report, paths[2], title=title, sweep=sweep) else paths[:2]


def plot(report: Report, path: Path, *, title: str, sweep: str | None) -> bool:
    """Plot pairs/s, and on a GPU memory, against k or what was swept.

    Returns:
        Whether a plot was written; that takes rows, and matplotlib.
    """
    if not report.rows:
        return False
    if find_spec("matplotlib") is None:
        report.skipped.append("plot: matplotlib is not installed (pip install adadino[train]).")
        return False
    across = sweep or "k"
    measured = report.rows
    if sweep is None:  # one curve for each mode is one shape
        shape = measured[0].batch, measured[0].size
        measured = [row for row in measured if (row.batch, row.size) == shape]
    memory = any(row.memory_gb is not None for row in measured)
    panels = [("pairs_per_s", "pairs/s")] + ([("memory_gb", "peak memory, GB")] if memory else [])
    with figure(path, len(panels), size=(10 if memory else 5.5, 4)) as (drawn, axes):
        for (name, label), axis in zip(panels, axes, strict=True):
            _draw(axis, measured, name, across)
            axis.set_ylabel(label)
        drawn.suptitle(title, fontsize=10)
    return True


def _draw(axis: Axes, measured: Sequence[Measurement], name: str, across: str) -> None:
    """One figure of the rows against what was swept, a curve for each mode and budget."""
    for mode, k in dict.fromkeys((r.mode, None if across == "k" else r.k) for r in measured):
        rows = [r for r in measured if r.mode == mode and k in (None, r.k)]
        points = sorted((getattr(r, across), getattr(r, name)) for r in rows)
        legend = mode if k is None else f"{mode}, k={k}"
        axis.plot(*zip(*points, strict=True), marker="o", label=legend)
    axis.set_xlabel({"k": "k, executed chunks", "size": "px"}.get(across, across))
    if across == "size" and name == "pairs_per_s":
        axis.set_yscale("log")  # a pair of twice the side is at least four times the work
    else:
        axis.set_ylim(0, 1.08 * axis.dataLim.y1)
    if across != "k":
        swept = sorted({getattr(row, across) for row in measured})
        axis.set_xscale("log", base=2)
        axis.set_xticks(swept, [str(one) for one in swept])
    axis.legend()
    axis.grid(alpha=0.3)
