"""Calibrated probabilities: of the pixels that a model gives 0.7, seven in ten should have changed.

One temperature divides the log-odds (Guo et al. 2017, On calibration of modern neural networks). It
is the one under which the labels of judged tiles are most likely. It moves no pixel across 0.5, so
the map stays what it was; thresholds other than 0.5 mean something else afterwards. The expected
calibration error that is reported was measured on tiles that did not choose the temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.checkpoint import load, save
from adadino.errors import WriteError
from adadino.files import write_atomic
from adadino.runtime.protocol import Images
from adadino.runtime.runner import open_runner
from adadino.source import WEIGHTS, read_settings
from adadino.training.adapt.features import SAMPLE
from adadino.training.adapt.tiles import Tile, divide, read_tiles

Report = Callable[[int, int, str], None]
Values = NDArray[np.float64]
BINS = 15
RANGE = (-3.0, 3.0)
"""Natural logarithms of the temperatures that are tried: 0.05 to 20."""
LEAST_P = 1e-7
"""Probabilities nearer to 0 or 1 are taken as this: float32 has none between."""
FOLDS = 4


@dataclass(frozen=True)
class Calibration:
    """A temperature, and what it does."""

    temperature: float
    tiles: int
    error_before: float
    """Expected calibration error: the mean distance of probability and share, over all pixels."""
    error_after: float
    """The same on tiles that were held out when the temperature was chosen."""
    curve_before: list[tuple[float, float, int]]
    """Mean probability, share of change and number of pixels, for each bin that has any."""
    curve_after: list[tuple[float, float, int]]


def calibrate(
    source: str,
    data: Path | str,
    output: Path | str,
    *,
    overwrite: bool = False,
    progress: Report | None = None,
) -> Calibration:
    """Find a model's temperature on labelled tiles, and write the model with it.

    Args:
        source: The model: tiny, a checkpoint folder, a hub id.
        data: A folder with A, B and label; not the one the model was trained on.
        output: The calibrated model's folder, with `reliability.png`.
        overwrite: Replace a model that is there.
        progress: Called with tiles done, all tiles, and a message.

    Raises:
        DataError: The tiles are too few, or of one class.
        WriteError: The output exists.
    """
    output = Path(output)
    if (output / WEIGHTS).exists() and not overwrite:
        raise WriteError(f"{output} holds a model; choose another name, or --overwrite.")
    tiles = read_tiles(Path(data))
    model = load(source)
    model.temperature = 1.0
    odds, labels = _log_odds(model, tiles, progress)
    found = fit_temperature(odds, labels, divide(tiles, FOLDS))
    model.temperature = found.temperature
    kept = {k: v for k, v in read_settings(source).items() if k not in ("format", "model")}
    said = {k: v for k, v in asdict(found).items() if not k.startswith("curve")}
    save(model, output, extra={**kept, "calibration": said})
    _draw(found, output / "reliability.png")
    return found


def fit_temperature(
    odds: Sequence[Values], labels: Sequence[NDArray[np.bool_]], folds: Sequence[Sequence[int]]
) -> Calibration:
    """The temperature of log-odds, tile by tile, and its effect on folds that were held out."""
    held: list[Values] = [np.zeros(0)] * len(odds)
    for fold in folds:
        rest = [n for n in range(len(odds)) if n not in fold]
        value = _best([odds[n] for n in rest], [labels[n] for n in rest])
        for n in fold:
            held[n] = odds[n] / value
    truth = np.concatenate(list(labels))
    before = reliability(_sigmoid(np.concatenate(list(odds))), truth)
    after = reliability(_sigmoid(np.concatenate(held)), truth)
    return Calibration(
        temperature=round(_best(odds, labels), 4),
        tiles=len(odds),
        error_before=error(before),
        error_after=error(after),
        curve_before=before,
        curve_after=after,
    )


def reliability(p: Values, truth: NDArray[np.bool_]) -> list[tuple[float, float, int]]:
    """Mean probability, share of change and number of pixels of bins of equal width."""
    where = np.minimum((p * BINS).astype(int), BINS - 1)
    number = np.bincount(where, minlength=BINS)
    mean = np.bincount(where, p, BINS) / np.maximum(number, 1)
    share = np.bincount(where, truth, BINS) / np.maximum(number, 1)
    return [(float(m), float(s), int(n)) for m, s, n in zip(mean, share, number, strict=True) if n]


def error(curve: Sequence[tuple[float, float, int]]) -> float:
    """The expected calibration error of a reliability curve."""
    total = sum(number for *_, number in curve)
    return sum(number * abs(mean - share) for mean, share, number in curve) / max(total, 1)


def _best(odds: Sequence[Values], labels: Sequence[NDArray[np.bool_]]) -> float:
    """The temperature of the highest likelihood, by golden section: it has one maximum."""
    signed = np.concatenate([np.where(y, x, -x) for x, y in zip(odds, labels, strict=True)])

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, -signed / np.exp(log_temperature)).mean())

    low, high = RANGE
    ratio = (np.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = loss(left), loss(right)
    while high - low > 1e-4:
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = loss(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = loss(right)
    return float(np.exp((low + high) / 2))


def _log_odds(
    model: Any, tiles: Sequence[Tile], progress: Report | None
) -> tuple[list[Values], list[NDArray[np.bool_]]]:
    """The log-odds of the known pixels of every tile, as predict would have them."""
    images = [Images(tile.before.numpy(), tile.after.numpy(), tile.known.numpy()) for tile in tiles]
    side = max(tiles[0].label.shape)
    odds: list[Values] = []
    with (
        open_runner(model, "auto", tile=side, batch=1, selection="scene", engine="off") as runner,
        runner.inference(),
    ):
        if runner.chooses:
            runner.choose_chunks(images[:SAMPLE])
        runner.choose_batch()
        for number, (tile, image) in enumerate(zip(tiles, images, strict=True), start=1):
            p = np.concatenate([answer.wait() for answer in runner.start([image])])[0]
            p = np.clip(p[tile.known.numpy()].astype(np.float64), LEAST_P, 1 - LEAST_P)
            odds.append(np.log(p) - np.log1p(-p))
            if progress is not None:
                progress(number, len(tiles), "")
    return odds, [tile.label[tile.known].numpy() for tile in tiles]


def _sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-x)), np.float64)


def _draw(found: Calibration, path: Path) -> None:
    """Draw the reliability diagram before and after."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    curves = (
        ("before", found.curve_before, found.error_before),
        (f"after, temperature {found.temperature:.2f}", found.curve_after, found.error_after),
    )
    for number, (title, curve, mean) in enumerate(curves, start=1):
        axes = figure.add_subplot(1, 2, number)
        axes.plot([0, 1], [0, 1], color="0.7", linestyle="--")
        axes.plot([m for m, *_ in curve], [s for _, s, _ in curve], marker="o")
        axes.set(
            title=f"{title}\nmean error {100 * mean:.1f} %",
            xlabel="probability", ylabel="share that changed", xlim=(0, 1), ylim=(0, 1),
        )  # fmt: skip
    write_atomic(path, lambda part: figure.savefig(part, dpi=120))
