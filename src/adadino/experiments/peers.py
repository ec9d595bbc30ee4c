"""AdaDINO and its peers on real pairs: in a small budget, at the full one, and who learns fastest.

One model learns LEVIR scenes 1-24 and CLCD's training split and is scored on each one's validation
part. `peers` counts both sets once an epoch. `peers-full` has as many pairs as the recipe of the
bundled model: LEVIR's tiles count three times, as there, and thirty epochs are 77,760 pairs.
`peers-curve` gives the six that did best in the small budget 2, 6, 15 and 30 epochs of the same,
each with a schedule of its own.

A run is written down after every second or third epoch, so that calls of ten minutes go on with it.
"""

from __future__ import annotations

import dataclasses

from adadino.experiments.small import SMALL
from adadino.experiments.table import BSCS, OURS, REAL_PAIRS, Metric, Row, Study, Table
from adadino.peers import PEERS, PeerSpec

FULL_EPOCHS = 30
EPOCH_PAIRS = 3 * 384 + 1440
"""LEVIR's tiles of 256 pixels three times, and CLCD's."""
BUDGETS = (2, 6, 15, FULL_EPOCHS)
FAST_LEARNERS = ("lite-unet", "changedino", "ttp", "peftcd")
"""The four peers that were best in the small budget; ours is there twice."""


def _full(epochs: int) -> Study:
    every = 3 if epochs % 2 else 2
    recipe = (*SMALL.recipe, f"train.epochs={epochs}", f"train.validate_every={every}")
    return dataclasses.replace(SMALL, recipe=recipe)


IMAGENET = "model.stream.weights=imagenet"
STREAM = ("model.stream.name=lite0", IMAGENET, "model.order_invariant=true")
"""The stream of the bundled model."""


def _peer(spec: PeerSpec) -> Row:
    """A comparator in one budget: same steps, data, augmentation and loss.

    Optimiser and learning rate are the published ones, because neither means anything without the
    other; a peer that was published without them takes the study's. The schedule is one for all.
    """
    overrides = [f"model.peer={spec.name}"]
    if spec.trunk == "lite0":
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


def _ours() -> tuple[Row, ...]:
    def row(name: str, *overrides: str) -> Row:
        return Row(name, "levir,clcd", overrides, {}, study=SMALL)

    return (
        row("AdaDINO", *OURS),
        row("AdaDINO, k=6", *BSCS),
        row("AdaDINO + stream", *OURS, *STREAM),
        row("AdaDINO + stream, k=6", *BSCS, *STREAM),
    )


def _at(epochs: int, row: Row) -> Row:
    """A row at a larger budget."""
    return dataclasses.replace(row, dataset="levir,levir,levir,clcd", study=_full(epochs))


def _curve() -> tuple[Row, ...]:
    rows = [*(_peer(PEERS[name]) for name in FAST_LEARNERS), *_ours()[2:]]
    return tuple(
        dataclasses.replace(
            _at(epochs, row),
            name=f"{row.name}, {epochs * EPOCH_PAIRS / 1000:.0f}k",
            paper={},
            pairs=epochs * EPOCH_PAIRS,
        )
        for row in rows
        for epochs in BUDGETS
    )


_ROWS = (*(_peer(spec) for spec in PEERS.values()), *_ours())

PEER_TABLE = Table(
    "peers",
    f"AdaDINO and its peers {REAL_PAIRS}, one budget for all",
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
    _ROWS,
    plot="speed",
    seeds=(0, 1, 2),
    footer=(
        *(
            f"{spec.title.removesuffix('-style')}, the original: {_quotation(spec.f1)}"
            for spec in PEERS.values()
            if spec.f1
        ),
    ),
)
"""Parameters in millions, as published in their own column; minutes of training on one device."""

PEERS_FULL = dataclasses.replace(
    PEER_TABLE,
    name="peers-full",
    title=f"AdaDINO and its peers {REAL_PAIRS}, the bundled recipe's budget for all",
    rows=tuple(_at(FULL_EPOCHS, row) for row in _ROWS),
    seeds=(0,),
)
"""One seed of every row; `--row NAME --seeds 0,1,2` adds two of the best."""

PEERS_CURVE = Table(
    "peers-curve",
    f"F1 against training pairs {REAL_PAIRS}",
    ("f1_levir", "f1_clcd"),
    _curve(),
    plot="curve",
)
