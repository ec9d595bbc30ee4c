"""The paper's tables: which rows, which configurations, which published figures.

A row is a model (a dataset and overrides of the paper's recipe) and, for App. B, a protocol under
which it is scored. Rows that share a model share its training. The paper's figures are quoted as
printed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from adadino import paper
from adadino.errors import ConfigError
from adadino.evaluation import PROTOCOLS, Protocol
from adadino.peers import ABSENT, PEERS, PeerSpec

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
"""What a model costs, whatever it was trained from."""

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
    split: Literal["val", "test"] = "test"
    checkpoint: Literal["best", "final"] = "best"
    """`best` was chosen on the validation split; `final` is the last epoch, chosen by nothing."""
    recorded: bool = False
    """Time a CUDA graph, where there is one to record: eager, as the paper measures, a small model
    is as fast as Python issues its kernels, whatever they compute."""


PAPER = Study()
SMALL = Study(
    "tiny",
    (
        "data.tile=256",
        "data.roam=true",
        "data.cache=true",
        "train.batch=32",
        "train.accumulate=1",
        "train.schedule=step",
        "train.lr=1e-3",
        "train.weight_decay=0.05",
        "train.dice=foreground",
        "train.epochs=20",
        "train.validate_every=20",
        "train.precision=bf16",
        "train.cuda_graph=true",
    ),
    "val",
    "final",
    recorded=True,
)
"""A small frozen backbone on real pairs: one model for LEVIR scenes 1-24 and CLCD's training split,
scored on each one's validation part. The recipe was set before any row was run."""


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


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    name: str
    title: str
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    plot: Literal["bars", "speed"] = "bars"
    """`speed`: accuracy against pairs per second instead of bars."""
    footer: tuple[str, ...] = ()
    """What stands below the table."""


def _scores(f1: float, iou: float, **more: float) -> dict[Metric, float]:
    return {"f1": f1, "iou": iou, **more}  # type: ignore[dict-item]


OURS, BSCS = budget(16), budget(6)

TABLE1 = Table(
    "table1",
    "Table 1: four benchmarks",
    ("f1", "iou"),
    (
        Row("SYSU-CD, ours", "sysu-cd", OURS, _scores(86.12, 75.62)),
        Row("SYSU-CD, ours + BSCS", "sysu-cd", BSCS, _scores(85.29, 74.35)),
        Row("WHU-CD, ours", "whu-cd", OURS, _scores(95.30, 91.02)),
        Row("WHU-CD, ours + BSCS", "whu-cd", BSCS, _scores(94.31, 89.24)),
        Row("LEVIR-CD, ours", "levir-cd", OURS, _scores(92.35, 85.79)),
        Row("LEVIR-CD, ours + BSCS", "levir-cd", BSCS, _scores(91.90, 85.01)),
        Row("LEVIR-CD+, ours", "levir-cd-plus", OURS, _scores(87.78, 78.21)),
        Row("LEVIR-CD+, ours + BSCS", "levir-cd-plus", BSCS, _scores(86.60, 76.36)),
    ),
)


def _sysu(name: str, overrides: tuple[str, ...], f1: float, iou: float) -> Row:
    return Row(name, "sysu-cd", overrides, _scores(f1, iou))


def _fixed(name: str, selection: str, f1: float, iou: float, *, ranked: bool) -> Row:
    overrides = (*BSCS, f"model.bscs.selection={selection}")
    ranked_by = BSCS if ranked else None
    return Row(name, "sysu-cd", overrides, _scores(f1, iou), ranked_by=ranked_by)


ABLATION = Table(
    "ablation",
    "Table 2: ablation on SYSU-CD",
    ("f1", "iou"),
    (
        _sysu("Frozen baseline", (*OURS, *NO_CGLA), 83.77, 72.07),
        _sysu("+ Pair-blind", (*OURS, *NO_PRIOR, "model.cgla.mode=blind"), 84.64, 73.37),
        _sysu("+ CGLA", (*OURS, *NO_PRIOR), 85.61, 74.84),
        _sysu("+ CGLA + CPGR", OURS, 86.12, 75.62),
        _sysu("w/o delta injection", (*OURS, "model.cgla.delta=none"), 85.18, 74.19),
        _sysu("symmetric delta", (*OURS, "model.cgla.delta=symmetric"), 85.48, 74.65),
        _sysu("BSCS Top-6", BSCS, 85.29, 74.35),
        _fixed("Static Top-6", "static", 84.58, 73.28, ranked=True),
        _fixed("Random-6", "random", 83.26, 71.32, ranked=False),
        _fixed("Bottom-6", "bottom", 82.77, 70.61, ranked=True),
    ),
)


def _cost(name: str, k: int, f1: float) -> Row:
    cost: dict[Metric, float] = {"gflops": paper.GFLOPS[k], "pairs_per_s": paper.PAIRS_PER_S[k]}
    return Row(name, "sysu-cd", budget(k), {"f1": f1, **cost})


EFFICIENCY = Table(
    "efficiency",
    "Table 3: accuracy and cost on SYSU-CD (the paper's speed: A800, fp32, batch 16)",
    ("f1", "gflops", "pairs_per_s"),
    (
        Row(
            "DINO baseline",
            "sysu-cd",
            (*OURS, *NO_CGLA),
            {"f1": 83.77, "gflops": paper.GFLOPS_BASELINE, "pairs_per_s": 11.38},
        ),
        _cost("Ours", 16, 86.12),
        _cost("Ours + BSCS (k=10)", 10, 85.75),
        _cost("Ours + BSCS (k=8)", 8, 85.60),
        _cost("Ours + BSCS (k=6)", 6, 85.29),
        _cost("Ours + BSCS (k=4)", 4, 84.71),
    ),
    footer=(
        "The paper's row of ChangeDINO (84.70 F1, 1269.10 GFLOPs, 11.32 pairs/s) is not run: see "
        "the table of peers. FFN time and speed-up are in `adadino benchmark`.",
    ),
)


def _prune(dataset: str, k: int, without: float, with_: float) -> tuple[Row, Row]:
    name = dataset.upper()
    return (
        Row(f"{name}, {k}/16, w/o CGLA", dataset, (*budget(k), *NO_CGLA), {"f1": without}),
        Row(f"{name}, {k}/16, w/ CGLA", dataset, (*budget(k), *NO_PRIOR), {"f1": with_}),
    )


PRUNABILITY = Table(
    "prunability",
    "Table 4: FFN prunability without and with CGLA, no prior",
    ("f1",),
    (
        *_prune("sysu-cd", 16, 83.77, 85.59),
        *_prune("sysu-cd", 8, 82.88, 85.45),
        *_prune("sysu-cd", 4, 81.01, 84.80),
        *_prune("levir-cd", 16, 91.85, 92.19),
        *_prune("levir-cd", 8, 90.98, 91.72),
        *_prune("levir-cd", 4, 90.13, 91.38),
    ),
)

PRIORS = Table(
    "priors",
    "Table S2: priors of CPGR on SYSU-CD",
    ("f1", "iou"),
    (
        _sysu("CGLA only", (*OURS, *NO_PRIOR), 85.61, 74.84),
        _sysu("Spatial only", (*OURS, "model.cpgr.prior=spatial"), 85.94, 75.35),
        _sysu("Delta only", (*OURS, "model.cpgr.prior=delta"), 86.01, 75.45),
        _sysu("Spatial + delta", OURS, 86.12, 75.62),
    ),
)


def _scored(name: str, protocol: Protocol, paper: dict[Metric, float]) -> Row:
    return Row(name, "sysu-cd", BSCS, paper, (protocol,))


SHUFFLED = tuple(protocol for _, protocol in PROTOCOLS["ordering"][1:])


BATCH_SIZE = Table(
    "batch-size",
    "Table S3: one Top-6 checkpoint at four batch sizes (the paper's speed: A800)",
    ("f1", "iou", "pairs_per_s"),
    tuple(
        _scored(f"batch size {b}", Protocol(batch=b), _scores(f1, iou, pairs_per_s=speed))
        for b, f1, iou, speed in (
            (1, 85.24, 74.28, 7.33),
            (4, 85.27, 74.32, 12.30),
            (8, 85.25, 74.29, 13.91),
            (16, 85.29, 74.35, 15.48),
        )
    ),
)

ROBUSTNESS = Table(
    "robustness",
    "Table S4: one Top-6 checkpoint under other orders of the pairs and of the dates",
    ("f1", "iou"),
    (
        _scored("Default ordering", Protocol(), _scores(85.29, 74.35)),
        Row("Shuffled, mean of five", "sysu-cd", BSCS, _scores(85.23, 74.26), SHUFFLED),
        Row("Shuffled, worst of five", "sysu-cd", BSCS, _scores(85.20, 74.22), SHUFFLED, "worst"),
        _scored("Temporal swap", Protocol(swap=True), _scores(85.15, 74.14)),
    ),
)


def _small(name: str, *overrides: str, ranked: bool = False) -> Row:
    return Row(name, "levir,clcd", overrides, {}, study=SMALL, ranked_by=BSCS if ranked else None)


BUILD_UP = Table(
    "small-build-up",
    "A small frozen backbone on real pairs: the build-up",
    ("f1_levir", "f1_clcd"),
    (
        _small("Frozen baseline", *OURS, *NO_CGLA),
        _small("+ Pair-blind", *OURS, *NO_PRIOR, "model.cgla.mode=blind"),
        _small("+ CGLA", *OURS, *NO_PRIOR),
        _small("+ CGLA + CPGR", *OURS),
        _small("+ CGLA + CPGR, order-invariant", *OURS, "model.order_invariant=true"),
    ),
)

SMALL_ABLATION = Table(
    "small-ablation",
    "A small frozen backbone on real pairs: the ablation",
    ("f1_levir", "f1_clcd"),
    (
        _small("w/o delta injection", *OURS, "model.cgla.delta=none"),
        _small("symmetric delta", *OURS, "model.cgla.delta=symmetric"),
        _small("prior: spatial only", *OURS, "model.cpgr.prior=spatial"),
        _small("prior: delta only", *OURS, "model.cpgr.prior=delta"),
        _small("BSCS k=10", *budget(10)),
        _small("BSCS k=8", *budget(8)),
        _small("BSCS Top-6", *BSCS),
        _small("BSCS k=4", *budget(4)),
        _small("Static Top-6", *BSCS, "model.bscs.selection=static", ranked=True),
        _small("Random-6", *BSCS, "model.bscs.selection=random"),
        _small("Bottom-6", *BSCS, "model.bscs.selection=bottom", ranked=True),
        _small("8/16, w/o CGLA", *budget(8), *NO_CGLA),
        _small("8/16, w/ CGLA", *budget(8), *NO_PRIOR),
        _small("4/16, w/o CGLA", *budget(4), *NO_CGLA),
        _small("4/16, w/ CGLA", *budget(4), *NO_PRIOR),
    ),
)

WHY = Table(
    "small-why",
    "A small frozen backbone on real pairs: what CGLA would need",
    ("f1_levir", "f1_clcd"),
    (
        _small("+ CGLA, eta from 0.5", *OURS, *NO_PRIOR, "model.cgla.eta=0.5"),
        _small(
            "+ CGLA, eta and gamma from 0.5",
            *OURS,
            *NO_PRIOR,
            "model.cgla.eta=0.5",
            "model.cgla.gamma_delta=0.5",
        ),
        _small("+ CGLA, full width", *OURS, *NO_PRIOR, "model.cgla.ratio=1.0"),
        _small("+ CGLA in 12 blocks", *OURS, *NO_PRIOR, f"model.cgla.depths={[*range(12)]}"),
        _small("+ CGLA in the first 4", *OURS, *NO_PRIOR, "model.cgla.depths=[0,1,2,3]"),
    ),
)
"""CGLA begins as almost nothing (0.05 x 0.05 of a gated update), and a small budget has a hundredth
of the paper's steps to grow it. Depths move the taps with them."""

IMAGENET = "model.stream.weights=imagenet"
STREAM = ("model.stream.name=lite0", IMAGENET, "model.order_invariant=true")
"""As in the bundled model."""


def _peer(spec: PeerSpec) -> Row:
    """A comparator in the one budget: same steps, data, augmentation and loss.

    The optimiser with its learning rate is the published one, because neither means anything
    without the other; the schedule is everybody's. What was published without one has the study's.
    """
    overrides = [f"model.peer={spec.name}"]
    if spec.trunk:
        overrides.append(IMAGENET)
    recipe = spec.recipe
    if recipe is not None:
        overrides += [f"train.optimizer={recipe.optimizer}", f"train.lr={recipe.learning_rate}"]
        overrides.append(f"train.momentum={recipe.momentum}")
        if recipe.weight_decay is not None:
            overrides.append(f"train.weight_decay={recipe.weight_decay}")
    paper: dict[Metric, float] = {}
    if spec.parameters is not None:
        paper["parameters"] = spec.parameters / 1e6
    return Row(spec.title, "levir,clcd", tuple(overrides), paper, study=SMALL)


def _quotation(f1: dict[str, float]) -> str:
    return f"F1 as the paper quotes it: {', '.join(f'{n} {v:.2f}' for n, v in f1.items())}."


PEER_TABLE = Table(
    "peers",
    "AdaDINO and its peers on real pairs, one budget for all",
    (
        "f1_levir",
        "iou_levir",
        "f1_clcd",
        "iou_clcd",
        "parameters",
        "gflops",
        "pairs_per_s",
        "fast_pairs_per_s",
        "minutes",
    ),
    (
        *(_peer(spec) for spec in PEERS.values()),
        _small("AdaDINO", *OURS),
        _small("AdaDINO, k=6", *BSCS),
        _small("AdaDINO + stream", *OURS, *STREAM),
        _small("AdaDINO + stream, k=6", *BSCS, *STREAM),
    ),
    plot="speed",
    footer=(
        *(
            f"{spec.title.removesuffix('-style')}, the original: {_quotation(spec.f1)}"
            for spec in PEERS.values()
            if spec.f1
        ),
        *(
            f"{absent.title} ({absent.citation}) is not run: {absent.reason}. "
            f"{_quotation(absent.f1)}"
            for absent in ABSENT.values()
        ),
    ),
)
"""Parameters in millions, as published in their own column; minutes of training on one device."""

PAPER_TABLES = tuple(
    table.name
    for table in (TABLE1, ABLATION, EFFICIENCY, PRUNABILITY, PRIORS, BATCH_SIZE, ROBUSTNESS)
)
TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        TABLE1,
        ABLATION,
        EFFICIENCY,
        PRUNABILITY,
        PRIORS,
        BATCH_SIZE,
        ROBUSTNESS,
        BUILD_UP,
        SMALL_ABLATION,
        WHY,
        PEER_TABLE,
    )
}


def only(table: Table, names: Sequence[str]) -> Table:
    """The rows of a table that are called so, or have one of these in their name.

    Raises:
        ConfigError: None has.
    """
    whole = {row.name for row in table.rows} & set(names)
    parts = [name for name in names if name not in whole]
    rows = tuple(
        row for row in table.rows if row.name in whole or any(part in row.name for part in parts)
    )
    if not rows:
        there = "; ".join(row.name for row in table.rows)
        raise ConfigError(
            f"{table.name} has no row with {' or '.join(map(repr, names))} in its name; it has: "
            f"{there}."
        )
    # Under a name of its own: a whole table that was written before stays.
    return dataclasses.replace(table, name=f"{table.name}-rows", rows=rows)
