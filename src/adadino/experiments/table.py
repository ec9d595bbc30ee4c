"""What a table is made of: rows, the models behind them, and what is measured.

A row is a model (a dataset and overrides of a study's recipe) and, for App. B, a protocol under
which it is scored. Rows that share a model share its training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from adadino.errors import ConfigError
from adadino.evaluation import Protocol

Metric = Literal[
    "f1",
    "iou",
    "gflops",
    "pairs_per_s",
    "fast_pairs_per_s",
    "f1_levir",
    "iou_levir",
    "f1_clcd",
    "iou_clcd",
    "parameters",
    "minutes",
]

COSTS: tuple[Metric, ...] = ("parameters", "gflops", "pairs_per_s", "fast_pairs_per_s")
"""What a model costs, whatever it was trained on."""

NO_CGLA = ("model.cgla.mode=off", "model.cpgr.prior=none")
NO_PRIOR = ("model.cpgr.prior=none",)


def budget(k: int) -> tuple[str, ...]:
    """Overrides that execute k of the 16 chunks."""
    return (f"model.bscs.k={k}",)


@dataclass(frozen=True)
class Study:
    """What the rows of a table have in common: recipe and scoring."""

    preset: str = "vitl16"
    recipe: tuple[str, ...] = ()
    """Changes to the paper's recipe."""
    quick: tuple[str, ...] = ()
    """Further changes under --quick, whose model is `tiny`."""
    split: Literal["val", "test"] = "test"
    checkpoint: Literal["best", "final"] = "best"
    """`best` was chosen on the validation split; `final` is the last epoch, chosen by nothing."""
    recorded: bool = False
    """Time a CUDA graph where one can be recorded. Run eagerly, as the paper measures, a small
    model is only as fast as Python issues its kernels."""


PAPER = Study()


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: str
    dataset: str
    overrides: tuple[str, ...]
    paper: dict[Metric, float]
    protocols: tuple[Protocol, ...] = field(default_factory=lambda: (Protocol(),))
    """How the model is scored; of several, `pick` says which figure stands in the table."""
    pick: Literal["mean", "worst"] = "mean"
    study: Study = PAPER
    ranked_by: tuple[str, ...] | None = None
    """Overrides of the model whose mean policy scores rank the chunks (static, bottom)."""
    taught_by: tuple[str, ...] | None = None
    """Overrides of the dense model that teaches this one."""
    pairs: int = 0
    """Training pairs that it sees, all epochs together, for a curve; its name ends in them."""
    sorted_units: bool = False
    """Sort the backbone's hidden units by what they contribute before they are cut into chunks."""


@dataclass(frozen=True)
class Table:
    """A table: the paper's, or one of ours."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    plot: Literal["points", "speed", "curve"] = "points"
    """`points`: each row's first figures; `speed`: accuracy against pairs per second; `curve`:
    accuracy against the pairs that were seen in training."""
    footer: tuple[str, ...] = ()
    """Lines that stand below the table."""
    seeds: tuple[int, ...] = (0,)
    """Seeds of the training runs, unless the user names others."""


OURS, BSCS = budget(16), budget(6)

RANDOM = "model.bscs.selection=random"
RANDOM_NOTE = "Random-6 executes one subset for each block, drawn with the run's seed."
REAL_PAIRS, SYNTHETIC = "on real pairs", "on synthetic tiles"


def quickened(table: Table) -> Table:
    """A table as --quick fills it: its title says that no real pair was seen."""
    title = table.title.replace(REAL_PAIRS, SYNTHETIC)
    return dataclasses.replace(
        table, title=title if title != table.title else f"{title}, {SYNTHETIC} instead"
    )


def only(table: Table, names: Sequence[str]) -> Table:
    """A table of the rows with these names; where no name is equal, of those that contain one.

    Raises:
        ConfigError: There is no such row.
    """
    wanted: set[str] = set()
    for name in names:
        whole = {row.name for row in table.rows if row.name == name}
        found = whole or {row.name for row in table.rows if name.lower() in row.name.lower()}
        if not found:
            there = "; ".join(row.name for row in table.rows)
            raise ConfigError(
                f"{table.name} has no row with {name!r} in its name; it has: {there}."
            )
        wanted |= found
    rows = tuple(row for row in table.rows if row.name in wanted)
    # Another name, so that a whole table that was written before stays.
    return dataclasses.replace(table, name=f"{table.name}-rows", rows=rows)
