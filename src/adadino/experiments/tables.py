"""The paper's tables: which rows, which configurations, which published figures, as printed."""

from __future__ import annotations

from adadino import paper
from adadino.evaluation import PROTOCOLS, Protocol
from adadino.experiments.dinov2 import DINOV2_TABLES
from adadino.experiments.peers import PEER_TABLE, PEERS_CURVE, PEERS_FULL
from adadino.experiments.small import BUILD_UP, SMALL_ABLATION, WHY
from adadino.experiments.table import (
    BSCS,
    NO_CGLA,
    NO_PRIOR,
    OURS,
    RANDOM_NOTE,
    Metric,
    Row,
    Table,
    budget,
)


def _scores(f1: float, iou: float, **more: float) -> dict[Metric, float]:
    return {"f1": f1, "iou": iou, **more}  # type: ignore[dict-item]


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
    footer=(RANDOM_NOTE,),
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
        PEERS_FULL,
        PEERS_CURVE,
        *DINOV2_TABLES,
    )
}
