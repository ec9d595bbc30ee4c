"""A split to scores: one confusion matrix over all its pixels, and the protocols of App. B.

Every score comes with its protocol, the number of tiles, and a fingerprint of the data: the same
model scored on whole images or tiles, at another batch size, or on a re-encoded copy gives other
figures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from adadino.config import Config
from adadino.data.disturb import DISTURBANCES, LabelledPair
from adadino.data.folder import PairFolder, fingerprint
from adadino.errors import ConfigError, WeightsError
from adadino.files import write_atomic
from adadino.metrics import Confusion, Histogram, confusion_counts
from adadino.reporting import pictures
from adadino.reporting.tables import csv_text

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Protocol:
    """How a score is made."""

    batch: int = 16
    """Pairs per batch; with learned selection the FFN mask is shared by a batch."""
    k: int | None = None
    """FFN chunks to execute; None is the model's own number."""
    threshold: float = 0.5
    """Probability from which a pixel counts as changed."""
    swap: bool = False
    """Exchange the two dates."""
    shuffle: int | None = None
    """Seed of a random order of the pairs; None is the order of their names."""
    disturbance: str | None = None
    """What is done to every pair first, by its name in `DISTURBANCES`; None leaves it as it is."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise ConfigError(f"batch is {self.batch}, must be at least 1.")
        if not 0 <= self.threshold < 1:
            raise ConfigError(f"threshold is {self.threshold}, must be at least 0 and below 1.")
        if self.disturbance not in (None, *DISTURBANCES):
            raise ConfigError(
                f"disturbance is {self.disturbance!r}, must be one of {', '.join(DISTURBANCES)}."
            )

    def prepare(self, pair: LabelledPair) -> LabelledPair:
        """A batch as the model is to see it."""
        if self.disturbance is not None:
            pair = DISTURBANCES[self.disturbance](pair)
        if self.swap:
            pair = pair._replace(before=pair.after, after=pair.before)
        return pair


class TileScore(NamedTuple):
    """One tile's confusion matrix."""

    name: str
    confusion: Confusion


@dataclass(frozen=True)
class Evaluation:
    """Scores of one model on one split under one protocol."""

    confusion: Confusion
    protocol: Protocol
    tiles: int
    tile: str
    fingerprint: str
    rows: list[TileScore] = field(repr=False)
    histogram: Histogram = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """What `adadino evaluate --json` prints."""
        return {
            **self.confusion.as_dict(),
            "pairs": self.tiles,
            "tile": self.tile,
            "fingerprint": self.fingerprint,
            "protocol": {
                "matrix": "one over all pixels of the split",
                "batch": self.protocol.batch,
                "k": self.protocol.k,
                "threshold": self.protocol.threshold,
                "swap": self.protocol.swap,
                "disturbance": self.protocol.disturbance,
                "order": "by name" if self.protocol.shuffle is None else self.protocol.shuffle,
            },
        }

    def write_rows(self, path: Path | str) -> None:
        """Write the per-tile scores as CSV."""
        rows = ({"name": one.name, **one.confusion.as_dict()} for one in sorted(self.rows))
        write_atomic(path, csv_text(["name", *Confusion().as_dict()], rows))


@torch.inference_mode()
def evaluate(
    model: nn.Module,
    dataset: PairFolder,
    protocol: Protocol | None = None,
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Evaluation:
    """Score a model on labelled pairs.

    Args:
        model: Anything with `forward(before, after, k=...)` that returns logits (B, 2, H, W).
        dataset: The pairs.
        protocol: How; by default batches of 16 by name, threshold 0.5.
        device: Where the model runs.
        progress: Called with tiles done, all tiles, and a message.
    """
    protocol = protocol or Protocol()
    model = model.to(device).eval()
    order = list(range(len(dataset)))
    if protocol.shuffle is not None:
        random.Random(protocol.shuffle).shuffle(order)
    counts: list[Tensor] = []
    histogram = Histogram(device=device)
    for start in range(0, len(order), protocol.batch):
        indices = order[start : start + protocol.batch]
        for before, after, mask in same_size(dataset, indices):
            first, second = (unit(image.to(device)) for image in (before, after))
            seen = protocol.prepare(LabelledPair(first, second, mask.to(device)))
            logits = model(seen.before, seen.after, k=protocol.k).logits
            odds = logits.float() / getattr(model, "temperature", 1.0)  # as predict writes them
            probability = odds.softmax(1)[:, 1]
            if not probability.isfinite().all():  # it would count as unchanged
                raise WeightsError(
                    f"the model has no number for one of the pairs {dataset.names[indices[0]]} to "
                    f"{dataset.names[indices[-1]]}: values overflow; give another checkpoint."
                )
            histogram.update(probability, seen.mask)
            predicted = probability >= protocol.threshold
            counts += [confusion_counts(p, t) for p, t in zip(predicted, seen.mask, strict=True)]
        if progress is not None:
            progress(min(start + protocol.batch, len(order)), len(order), "")
    table = torch.stack(counts).cpu()
    return Evaluation(
        confusion=Confusion.from_counts(table.sum(0)),
        protocol=replace(protocol, k=_executed(model, protocol.k)),
        tiles=len(dataset),
        tile=", ".join(f"{h} x {w}" for h, w in sorted(set(dataset.sizes))),
        fingerprint=fingerprint(dataset.pairs),
        rows=[
            TileScore(dataset.names[i], Confusion.from_counts(c))
            for i, c in zip(order, table, strict=True)
        ],
        histogram=histogram,
    )


def unit(image: Tensor) -> Tensor:
    """Images as a dataset holds them, as floats in 0..1."""
    return image.float() / 255 if image.dtype == torch.uint8 else image


def _executed(model: nn.Module, k: int | None) -> int | None:
    """The chunks that ran: those asked for, or the model's own; None where there are none."""
    config = getattr(model, "config", None)
    own = config.bscs.k if isinstance(config, Config) and config.peer is None else None
    return own if k is None else k


def same_size(
    dataset: PairFolder, indices: Sequence[int]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Stack pairs into batches, cutting a batch where the size of the images changes."""
    group: list[tuple[Tensor, Tensor, Tensor, int]] = []
    for index in indices:
        item = dataset[index]
        if group and item[2].shape != group[0][2].shape:
            yield _stack(group)
            group = []
        group.append(item)
    yield _stack(group)


def _stack(items: Sequence[tuple[Tensor, Tensor, Tensor, int]]) -> tuple[Tensor, Tensor, Tensor]:
    before, after, mask, _ = zip(*items, strict=True)
    return torch.stack(before), torch.stack(after), torch.stack(mask)


PROTOCOLS: dict[str, list[tuple[str, Protocol]]] = {
    "batch-size": [(f"batch size {b}", Protocol(batch=b)) for b in (1, 4, 8, 16)],
    "ordering": [("by name", Protocol())]
    + [(f"shuffled, seed {s}", Protocol(shuffle=s)) for s in range(5)],
    "swap": [("as given", Protocol()), ("dates swapped", Protocol(swap=True))],
    "robustness": [("as given", Protocol())]
    + [(name, Protocol(disturbance=name)) for name in DISTURBANCES],
}
"""App. B: stability across batch sizes, batch compositions and temporal order; and, beyond the
paper, what disturbed input costs."""


def pr_picture(evaluation: Evaluation, path: Path | str, *, suggest: bool) -> float | None:
    """Draw the precision-recall curve as a PNG.

    Args:
        evaluation: The scores.
        path: The file.
        suggest: Mark the threshold of the highest F1. On validation data only: on the test split
            it would be tuned to the answer, and the threshold that was used is marked.

    Returns:
        The threshold of the highest F1, if it is to be suggested and anything changed at all.
    """
    best = suggest and evaluation.confusion.tp + evaluation.confusion.fn > 0
    histogram = evaluation.histogram
    marked = histogram.best_threshold() if best else evaluation.protocol.threshold
    pictures.pr_curve(histogram.pr_curve(), path, marked=marked, best=best)
    return marked if best else None
