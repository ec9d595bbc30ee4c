"""Pictures of what changed into what: bands from classes to classes, and maps with a legend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from adadino.files import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR, GAP = 0.06, 0.03
"""The width of a class's bar, and the gap between two, as shares of the picture."""
LINE = 0.05
"""The height of a line of text, likewise."""
SMALLEST = 0.002
"""The share of all change from which a band is drawn: less is thinner than a line."""


def draw_sankey(
    path: Path | str,
    *,
    amount: NDArray[np.float64],
    names: Sequence[str],
    colours: Sequence[str],
    unit: str,
) -> None:
    """Draw what went from each class (left) to each other (right), as a PNG.

    Args:
        path: The file.
        amount: (from, to) in the unit.
        names: The classes.
        colours: Of the classes, as #rrggbb.
        unit: What the numbers beside the names are in.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.axis("off")
    total = float(amount.sum())
    if not total:
        axes.text(0.5, 0.5, "nothing changed", ha="center", va="center", size=14)
        _save(figure, path)
        return
    left = _stack(amount.sum(axis=1) / total)
    right = _stack(amount.sum(axis=0) / total)
    start, end = left.copy(), right.copy()
    for one, other in np.argwhere(amount > 0).tolist():
        share = float(amount[one, other]) / total
        if share >= SMALLEST:
            _band(axes, start[one], end[other], share, colours[one], colours[other])
        start[one], end[other] = start[one] - share, end[other] - share
    lowest = 0.0
    for x, tops, sums, side in (
        (0.0, left, amount.sum(axis=1), "right"),
        (1.0, right, amount.sum(axis=0), "left"),
    ):
        below = float("inf")
        for index, value in enumerate(sums.tolist()):
            if value:
                bar = x - BAR if side == "right" else x
                height = value / total
                low = tops[index] - height
                axes.bar(
                    bar, height, BAR, low, align="edge", color=colours[index], edgecolor="black",
                    linewidth=0.5,
                )  # fmt: skip
                at = bar - 0.02 if side == "right" else bar + BAR + 0.02
                below = min(low + height / 2, below - LINE)  # thin bars have their names in a list
                text = f"{names[index]}, {value:,.3g} {unit}"
                axes.text(at, below, text, ha=side, va="center", size=9)
                lowest = min(lowest, below - LINE)
    axes.set_xlim(-0.45, 1.45)
    axes.set_ylim(bottom=min(lowest, axes.get_ylim()[0]))
    axes.set_title(f"What changed into what: {total:,.4g} {unit}", size=12)
    _save(figure, path)


def draw_classes(
    path: Path | str,
    *,
    images: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    maps: tuple[NDArray[np.uint8], NDArray[np.uint8]],
    names: Sequence[str],
    colours: Sequence[str],
) -> None:
    """Draw both dates, and the classes of changed places over each, as a PNG.

    Args:
        path: The file.
        images: Both dates (h, w, 3).
        maps: The classes (h, w) of both: 0 no change, 255 no data.
        names: The classes.
        colours: Of the classes, as #rrggbb.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    height, width = maps[0].shape
    figure = Figure(figsize=(9, max(3.0, 8.4 * height / width) + 1), layout="constrained")
    panels: Any = figure.subplots(2, 2)
    titles = (("before", "after"), ("changed from", "changed to"))
    table = np.zeros((256, 4), np.uint8)
    for value, colour in enumerate(colours, 1):
        table[value] = (*bytes.fromhex(colour[1:]), 255)
    for column, (image, values) in enumerate(zip(images, maps, strict=True)):
        grey = (0.45 * image.mean(axis=2) + 140).astype(np.uint8)
        panels[0, column].imshow(image)
        panels[1, column].imshow(grey, cmap="gray", vmin=0, vmax=255)
        panels[1, column].imshow(table[values], interpolation="nearest")
    for row, texts in enumerate(titles):
        for column, text in enumerate(texts):
            panels[row, column].set_title(text, size=11)
            panels[row, column].axis("off")
    drawn = np.unique(np.concatenate([values.ravel() for values in maps]))
    shown = [i for i in range(len(names)) if i + 1 in drawn]
    if shown:
        patches = [Patch(color=colours[i], label=names[i]) for i in shown]
        figure.legend(handles=patches, loc="outside lower center", ncols=min(6, len(patches)))
    _save(figure, path)


def _stack(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The top of each class's bar, the first class highest."""
    gaps = GAP * np.cumsum(shares > 0)
    top = 1 + GAP * np.count_nonzero(shares) / 2
    stacked: NDArray[np.float64] = top - gaps - np.concatenate([[0], np.cumsum(shares)[:-1]])
    return stacked


def _band(axes: Axes, start: float, end: float, share: float, colour: str, other: str) -> None:
    """A band that bends from one bar to the other and fades from one colour to the other."""
    steps = np.linspace(0, 1, 40)
    bend = 3 * steps**2 - 2 * steps**3
    tops = start + (end - start) * bend
    ends = np.array([list(bytes.fromhex(text[1:])) for text in (colour, other)]) / 255
    for i in range(len(steps) - 1):
        mixed = ends[0] + (ends[1] - ends[0]) * steps[i]
        axes.fill_between(
            steps[i : i + 2], tops[i : i + 2] - share, tops[i : i + 2], color=mixed, alpha=0.55,
            linewidth=0,
        )  # fmt: skip


def _save(figure: Any, path: Path | str) -> None:
    with atomic(Path(path)) as part:
        figure.savefig(part, format="png", dpi=110, metadata={"Software": None})
