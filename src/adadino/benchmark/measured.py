"""What a benchmark found: its rows, and the speed-ups that follow from them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One measurement."""

    mode: str
    k: int
    batch: int
    size: int
    gflops: float
    """One pair, by the paper's counting."""
    pairs_per_s: float
    speedup: float | None
    """Over k = C of the same mode, batch and size; None where that was not measured."""
    over_fp32: float | None
    """Over `paper` at k = C: the plain model, eager; None where that was not measured."""
    ffn_ms: float
    """All feed-forward layers, per pair; the engine gathers beside the attention, not in it."""
    memory_gb: float | None
    """Peak of the device's memory, weights included; an engine's without the plain model that it
    was made from. None on a CPU."""
    first_call_s: float
    """The first batch: compilation and recording."""


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

    rows: list[Row] = field(default_factory=list)
    reference: list[Reference] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """What was asked for and not measured, each with its reason."""


@dataclass(frozen=True)
class Protocol:
    """How many batches run."""

    warmup: int = 5
    measured: int = 20


def fill_speedups(report: Report, full: int) -> None:
    """Set every row's speed-ups, where what they are relative to was measured, too."""
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
