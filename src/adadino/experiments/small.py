"""Tables on a small frozen backbone and real pairs, which the paper does not have.

The build-up, the ablation, and what CGLA would need; `peers.py` has the comparators.
"""

from __future__ import annotations

from adadino.experiments.table import (
    BSCS,
    NO_CGLA,
    NO_PRIOR,
    OURS,
    RANDOM,
    RANDOM_NOTE,
    REAL_PAIRS,
    Row,
    Study,
    Table,
    budget,
)

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
    split="val",
    checkpoint="final",
    recorded=True,
)
"""A small frozen backbone on real pairs: one model for LEVIR scenes 1-24 and CLCD's training split,
scored on each one's validation part. The recipe was set before any row was run."""


def _small(name: str, *overrides: str, ranked: bool = False) -> Row:
    return Row(name, "levir,clcd", overrides, {}, study=SMALL, ranked_by=BSCS if ranked else None)


BUILD_UP = Table(
    "small-build-up",
    f"A small frozen backbone {REAL_PAIRS}: the build-up",
    ("f1_levir", "f1_clcd"),
    (
        _small("Frozen baseline", *OURS, *NO_CGLA),
        _small("+ Pair-blind", *OURS, *NO_PRIOR, "model.cgla.mode=blind"),
        _small("+ CGLA", *OURS, *NO_PRIOR),
        _small("+ CGLA + CPGR", *OURS),
        _small("+ CGLA + CPGR, order-invariant", *OURS, "model.order_invariant=true"),
    ),
    seeds=(0, 1, 2),
)

SMALL_ABLATION = Table(
    "small-ablation",
    f"A small frozen backbone {REAL_PAIRS}: the ablation",
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
        _small("Random-6", *BSCS, RANDOM),
        _small("Bottom-6", *BSCS, "model.bscs.selection=bottom", ranked=True),
        _small("8/16, w/o CGLA", *budget(8), *NO_CGLA),
        _small("8/16, w/ CGLA", *budget(8), *NO_PRIOR),
        _small("4/16, w/o CGLA", *budget(4), *NO_CGLA),
        _small("4/16, w/ CGLA", *budget(4), *NO_PRIOR),
    ),
    footer=(RANDOM_NOTE,),
)

WHY = Table(
    "small-why",
    f"A small frozen backbone {REAL_PAIRS}: what CGLA would need",
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
        _small("Frozen baseline, float32", *OURS, *NO_CGLA, "train.precision=32"),
        _small("+ CGLA, float32", *OURS, *NO_PRIOR, "train.precision=32"),
        _small("+ CGLA in 12 blocks", *OURS, *NO_PRIOR, f"model.cgla.depths={[*range(12)]}"),
        _small("+ CGLA in the first 4", *OURS, *NO_PRIOR, "model.cgla.depths=[0,1,2,3]"),
    ),
)
"""CGLA begins as almost nothing (0.05 x 0.05 of a gated update), and a small budget has a hundredth
of the paper's steps in which it can grow. In bf16 the first of them are rounded away, in float32
none. Other depths also move the taps."""
