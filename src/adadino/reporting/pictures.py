"""Pictures for people: predictions in the paper's colours, sheets of images, and curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from adadino.files import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from adadino.metrics import PRCurve

Array = NDArray[np.uint8]

COLOURS = {
    "TP": (255, 255, 255),
    "TN": (0, 0, 0),
    "FP": (230, 50, 40),
    "FN": (40, 180, 70),
}
"""White, black, red and green: true and false positives and negatives, as in the paper's Fig. 3."""


def error_map(prediction: NDArray[np.bool_], truth: NDArray[np.bool_]) -> Array:
    """Colour every pixel by what the prediction made of it: (H, W) twice -> (H, W, 3)."""
    picture = np.zeros((*truth.shape, 3), np.uint8)
    picture[prediction & truth] = COLOURS["TP"]
    picture[prediction & ~truth] = COLOURS["FP"]
    picture[~prediction & truth] = COLOURS["FN"]
    return picture


def shown(image: NDArray[np.generic], rgb: tuple[int, int, int]) -> Array:
    """An image (N, H, W), uint8 or in 0..1, as a picture (H, W, 3) of three of its bands."""
    picture = np.moveaxis(image[list(rgb)], 0, -1)
    scale = 1 if picture.dtype == np.uint8 else 255
    return np.rint(scale * picture.astype(np.float32)).astype(np.uint8)


def contact_sheet(rows: Sequence[Sequence[Array]], path: Path | str, gap: int = 4) -> None:
    """Write a grid of pictures (H, W, 3), row by row, on a light ground."""
    height, width = rows[0][0].shape[:2]
    sheet = np.full(
        (len(rows) * (height + gap) + gap, len(rows[0]) * (width + gap) + gap, 3), 235, np.uint8
    )
    for r, row in enumerate(rows):
        for c, picture in enumerate(row):
            top, left = gap + r * (height + gap), gap + c * (width + gap)
            sheet[top : top + height, left : left + width] = picture
    write_atomic(path, lambda part: Image.fromarray(sheet).save(part))


def heat(probability: NDArray[np.float32]) -> Array:
    """Probabilities (H, W) as a picture (H, W, 3): dark is no, yellow is yes, grey is no data."""
    stops = np.array([[12, 16, 40], [96, 28, 110], [204, 70, 72], [252, 166, 54], [252, 244, 160]])
    known = np.nan_to_num(probability, nan=0.0).clip(0, 1)
    levels = np.linspace(0, 1, len(stops))
    picture = np.stack([np.interp(known, levels, stops[:, c]) for c in range(3)], axis=-1)
    picture[np.isnan(probability)] = 200
    return picture.astype(np.uint8)


def captioned_sheet(panels: Mapping[str, Array], path: Path | str, gap: int = 12) -> None:
    """Write pictures of one size side by side, each under its name, on a light ground."""
    height, width = next(iter(panels.values())).shape[:2]
    size = max(11, min(20, width // 22))
    head = size + gap
    sheet = Image.new("RGB", (len(panels) * (width + gap) + gap, head + height + 2 * gap), "white")
    draw = ImageDraw.Draw(sheet)
    for index, (name, picture) in enumerate(panels.items()):
        left = gap + index * (width + gap)
        draw.text((left, gap), name, fill=(40, 44, 52), font=ImageFont.load_default(size))
        sheet.paste(Image.fromarray(picture), (left, gap + head))
    write_atomic(path, lambda part: sheet.save(part))


@contextmanager
def figure(
    path: Path | str, panels: int = 1, *, size: tuple[float, float], share_rows: bool = False
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Draw panels side by side; the PNG is written when the block ends.

    Not with pyplot, which would switch the backend of a notebook that calls us.

    Args:
        path: The file.
        panels: How many.
        size: Width and height of the whole in inches.
        share_rows: Whether all panels have the first one's vertical axis.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    drawn = Figure(figsize=size, layout="constrained")
    axes = drawn.subplots(1, panels, squeeze=False, sharey=share_rows)[0]
    yield drawn, list(axes)
    write_atomic(path, lambda part: drawn.savefig(part, dpi=110))


def training_curves(history: Sequence[dict[str, float]], path: Path | str) -> None:
    """Loss, and validation F1 with precision and recall, over the epochs, as a PNG."""
    epochs = [row["epoch"] for row in history]
    scored = "f1" in history[-1]  # not in a run without validation
    with figure(path, 2 if scored else 1, size=(10 if scored else 5, 3.6)) as (_, axes):
        left, right = axes[0], axes[-1]
        for name, label in (
            ("loss_total", "total"),
            ("loss_focal", "focal"),
            ("loss_dice", "Dice"),
        ):
            left.plot(epochs, [row[name] for row in history], marker=".", label=label)
        left.set(title="training loss", xlabel="epoch", yscale="log")
        if scored:
            best = max(history, key=lambda row: row["f1"])
            for name in ("f1", "precision", "recall"):
                right.plot(epochs, [100 * row[name] for row in history], marker=".", label=name)
            right.set(
                title=f"validation, best F1 {100 * best['f1']:.2f} in epoch {best['epoch']:.0f}",
                xlabel="epoch",
                ylabel="%",
                ylim=(0, 100),
            )
        for axis in axes:
            axis.locator_params(axis="x", integer=True)
            axis.grid(alpha=0.3)
            axis.legend()


def label_curve(rows: Sequence[Mapping[str, float]], path: Path | str) -> None:
    """F1 against the number of training tiles, every run a point and their means a line."""
    counts = sorted({row["tiles"] for row in rows})
    means = [np.mean([100 * r["f1"] for r in rows if r["tiles"] == count]) for count in counts]
    with figure(path, size=(5, 3.6)) as (_, (axis,)):
        axis.plot(counts, means, color="tab:blue")
        axis.plot([r["tiles"] for r in rows], [100 * r["f1"] for r in rows], "o", color="tab:blue")
        axis.set(xlabel="training tiles", ylabel="F1 of the last epoch, %", xscale="log")
        axis.set_xticks(counts, [f"{count:.0f}" for count in counts], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)


def pr_curve(curve: PRCurve, path: Path | str, *, marked: float, best: bool) -> None:
    """The precision-recall curve, and F1 against the threshold, as a PNG.

    Args:
        curve: The curve.
        path: The file.
        marked: The threshold to mark.
        best: Whether it is the threshold of the highest F1.
    """
    at = int(marked * len(curve.thresholds))
    with figure(path, 2, size=(9, 3.8)) as (_, (left, right)):
        left.plot(100 * curve.recall, 100 * curve.precision)
        left.plot(
            100 * curve.recall[at], 100 * curve.precision[at], "o", label=f"threshold {marked:.3f}"
        )
        left.set(xlabel="recall, %", ylabel="precision, %", xlim=(0, 100), ylim=(0, 100))
        left.legend()
        right.plot(curve.thresholds, 100 * curve.f1)
        right.axvline(marked, linestyle=":", color="grey")
        title = f"{'best F1' if best else 'F1'} {100 * curve.f1[at]:.2f} at {marked:.3f}"
        right.set(xlabel="threshold", ylabel="F1, %", title=title)
        for axis in (left, right):
            axis.grid(alpha=0.3)
