"""What an assessment says, in words and on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from adadino.accuracy.design import CLASSES
from adadino.accuracy.estimate import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from adadino.accuracy.sample import Judged

SIDE = 900
"""The most pixels of the map's picture along a side."""
COLOURS = {0: (225, 228, 232), 1: (230, 60, 30), 255: (255, 255, 255)}


def percent(found: Estimate | None) -> str:
    """An accuracy with half its interval."""
    if found is None:
        return "not known"
    return f"{100 * found.value:.1f} ± {100 * found.margin:.1f} %"


def area(found: Estimate, unit: str) -> str:
    """An area with half its interval, in a unit that people read."""
    number, name = _in_unit(found.value, unit)
    return f"{number} ± {_in_unit(found.margin, unit, found.value)[0]} {name}"


def _in_unit(value: float, unit: str, scale: float | None = None) -> tuple[str, str]:
    """A number of square metres or pixels, and the unit that suits a value (or another's)."""
    size = value if scale is None else scale
    if unit == "px":
        return f"{value:,.0f}", "pixels"
    if size < 1e4:
        return f"{value:,.0f}", "m²"
    return f"{value / 1e4:,.{0 if size >= 1e7 else 1}f}", "ha"


def sentence(judged: Judged) -> str:
    """The sentence that a reviewer of the map wants to read."""
    found, strata, unit = judged.assessment, judged.design.strata, judged.unit
    total = sum(stratum.pixels for stratum in strata) * judged.pixel_area
    numbers = judged.counts.sum(axis=1)
    names = ", ".join(f"{s.name} {int(n)}" for s, n in zip(strata, numbers, strict=True))
    unsure = f" {judged.unsure} pixels were unsure and are left out." if judged.unsure else ""
    mapped = " ".join(_in_unit(found.mapped[1] * total, unit))
    return (
        f"The area of change is {area(found.shares[1].scaled(total), unit)} (95 % interval), "
        f"estimated from a stratified random sample of {int(numbers.sum())} pixels ({names}) and "
        f"not counted from the map, which shows {mapped}. "
        f"The map's overall accuracy is {percent(found.overall)}; for change the user's accuracy "
        f"is {percent(found.users[1])} and the producer's accuracy {percent(found.producers[1])} "
        f"(estimators of Olofsson et al. 2014).{unsure}"
    )


def write_report(judged: Judged, path: Path | str, *, mask: Path | str | None = None) -> None:
    """Write the one-page report as .html or .pdf.

    Args:
        judged: The judged sample.
        path: The file.
        mask: The map, to show it.
    """
    from adadino.reporting.document import Pictures, Section, Table, Text, write_document

    found, strata = judged.assessment, judged.design.strata
    total = sum(stratum.pixels for stratum in strata) * judged.pixel_area
    design = Table(
        ("stratum", "pixels", "share of the area", "judged", "change", "no change"),
        [
            (s.name, f"{s.pixels:,}", f"{100 * s.pixels * judged.pixel_area / total:.2f} %",
             int(row.sum()), int(row[1]), int(row[0]))
            for s, row in zip(strata, judged.counts, strict=True)
        ],
    )  # fmt: skip
    matrix = Table(
        ("map \\ reference", *CLASSES, "total"),
        [
            (name, *(f"{value:.4f}" for value in row), f"{row.sum():.4f}")
            for name, row in zip(CLASSES, found.matrix, strict=True)
        ],
    )
    estimates = Table(
        ("class", "user's accuracy", "producer's accuracy", "area"),
        [
            (name, percent(found.users[k]), percent(found.producers[k]),
             area(found.shares[k].scaled(total), judged.unit))
            for k, name in enumerate(CLASSES)
        ],
    )  # fmt: skip
    around = judged.design.buffer
    buffer = f" {around} pixels around change are a stratum of their own." if around else ""
    how = Text(
        f"A stratified random sample without replacement, seed {judged.design.seed}; the unit is "
        f"the pixel.{buffer} Whoever judged did not see what the map says of a pixel."
    )
    sections = [
        Section("Result", [Text(sentence(judged)), estimates]),
        Section("Design", [how, design]),
        Section("Error matrix in shares of the area", [matrix]),
    ]
    if mask is not None:
        picture = Pictures([(_picture(mask), f"The map: {Path(mask).name}; change is red.")])
        sections.insert(1, Section("Map", [picture]))
    write_document(path, "How right is the map", sections)


def _picture(mask: Path | str) -> NDArray[np.uint8]:
    from rasterio.enums import Resampling

    from adadino.geo.read.source import open_dataset

    with open_dataset(mask) as dataset:
        step = max(1, -(-max(dataset.height, dataset.width) // SIDE))
        shape = (-(-dataset.height // step), -(-dataset.width // step))
        values = dataset.read(1, out_shape=shape, resampling=Resampling.mode)
    picture = np.full((*values.shape, 3), 255, np.uint8)
    for value, colour in COLOURS.items():
        picture[values == value] = colour
    return picture
