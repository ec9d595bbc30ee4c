"""The report of a scene: what an analyst mails to a client, as one HTML page or a PDF.

A map with scale bar, north arrow and legend; the figures; the inputs and settings; every warning;
and chips of the polygons that matter most: the largest, and those the model is least sure of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyproj
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rasterio.windows import Window

from adadino.errors import AdaDINOError
from adadino.geo.grid import Grid, crs_name
from adadino.geo.polygons.vector import measures
from adadino.geo.read.small import read_pair
from adadino.geo.write.cog import CHANGE_COLOUR
from adadino.geo.write.overview import ground_span, highlighted, length_text, round_length
from adadino.reporting.document import (
    Block,
    Facts,
    Notes,
    Pictures,
    Section,
    Table,
    Text,
    write_document,
)

if TYPE_CHECKING:
    from adadino.scene.result import SceneResult

Picture = NDArray[np.uint8]
CHIPS = 6
"""Polygons that are shown of each kind: the largest, and the least certain."""
CHIP, LEAST = 260, 48
"""Side of a chip in the report, and the least side of the place that it shows, in pixels."""
FOOTER = 64


def write_report(result: SceneResult, path: Path | str, tags: Mapping[str, object]) -> None:
    """Write the report of a scene.

    Args:
        result: What was found.
        path: The file: .html or .pdf.
        tags: How the rasters came about, as they say themselves; see `scene_tags`.

    Raises:
        InputError: One of the dates can no longer be read.
        WriteError: The report cannot be written.
    """
    before, after = (PurePath(name).name for name in result.names or (result.before, result.after))
    sections = [
        Section("Map", list(_map(result))),
        Section("What was found", list(_statistics(result))),
        Section("Inputs and settings", [Facts(_inputs(result) | _settings(tags))]),
        *_chips(result),
    ]
    if result.warnings:
        sections.insert(1, Section("Warnings", [Notes(list(result.warnings))]))
    write_document(path, f"Change from {before} to {after}", sections)


def _map(result: SceneResult) -> Iterator[Block]:
    before, after, change = result.small(1600)
    yield Pictures([(draw_map(result, after, change), "Change over the second date.")])
    yield Pictures([(before, "Before."), (after, "After.")], columns=2)


def draw_map(result: SceneResult, after: Picture, change: Picture) -> Picture:
    """The change over the second date, with legend, scale bar and north arrow below."""
    shown = Image.fromarray(highlighted(after, change))
    # A small scene is enlarged: the legend needs room.
    factor = max(1, math.ceil(600 / shown.width))
    shown = shown.resize((factor * shown.width, factor * shown.height), Image.Resampling.NEAREST)
    canvas = Image.new("RGB", (shown.width, shown.height + FOOTER), "white")
    canvas.paste(shown)
    draw = ImageDraw.Draw(canvas)
    font = ImageFont.load_default(18)
    middle = shown.height + FOOTER // 2
    x = 12
    nodata = bool((change == 255).any())
    for colour, text in ((CHANGE_COLOUR, "change"), ((225, 227, 231), "no data"))[: 1 + nodata]:
        draw.rectangle((x, middle - 9, x + 26, middle + 9), fill=colour, outline="grey")
        draw.text((x + 36, middle), text, fill="black", font=font, anchor="lm")
        x += 56 + int(draw.textlength(text, font))
    span, unit = ground_span(result.grid)
    step = span / shown.width
    length = round_length(step * 200)
    right = shown.width - 90
    left = right - round(length / step)
    draw.line([(left, middle), (left, middle + 8), (right, middle + 8), (right, middle)],
              fill="black", width=3)  # fmt: skip
    text = length_text(length, unit)
    draw.text(((left + right) / 2, middle), text, fill="black", font=font, anchor="ms")
    if (north := north_of(result.grid)) is not None:
        _draw_arrow(draw, (shown.width - 40, middle), north)
    return np.asarray(canvas)


def north_of(grid: Grid) -> tuple[float, float] | None:
    """Where north is in the middle of a grid, as (right, down) of length 1; None if unknown."""
    if grid.system is None or grid.is_local:
        return None
    here = grid.transform * (grid.width / 2, grid.height / 2)
    degrees = pyproj.Transformer.from_crs(grid.system, "EPSG:4326", always_xy=True)
    try:
        east, up = degrees.transform(*here, errcheck=True)
        step = 1e-4 if up < 89.9 else -1e-4
        there = degrees.transform(east, up + step, direction="INVERSE", errcheck=True)
    except pyproj.exceptions.ProjError:
        return None
    (x1, y1), (x2, y2) = (~grid.transform * place for place in (here, there))
    right, down = (x2 - x1) * np.sign(step), (y2 - y1) * np.sign(step)
    size = math.hypot(right, down)
    return (right / size, down / size) if math.isfinite(size) and size > 0 else None


def _draw_arrow(
    draw: ImageDraw.ImageDraw, middle: tuple[int, int], north: tuple[float, float]
) -> None:
    """An arrow with an N at its tip."""
    (x, y), (right, down) = middle, north

    def at(along: float, aside: float) -> tuple[float, float]:
        return x + along * right - aside * down, y + along * down + aside * right

    draw.line([at(-22, 0), at(4, 0)], fill="black", width=3)
    draw.polygon([at(12, 0), at(0, -6), at(0, 6)], fill="black")
    draw.text(at(22, 0), "N", fill="black", font=ImageFont.load_default(16), anchor="mm")


def _statistics(result: SceneResult) -> Iterator[Block]:
    polygons, (area, _) = result.polygons, measures(result.grid)
    unit = "pixels" if result.grid.crs is None else "m²"
    yield Text(f"{result.headline}.")
    if len(polygons):
        facts: dict[str, object] = {}
        sizes = polygons[area]
        facts["their area"] = f"{sizes.sum():,.0f} {unit}"
        facts["area of one"] = (
            f"from {sizes.min():,.0f} to {sizes.max():,.0f}, median {sizes.median():,.0f} {unit}"
        )
        facts["mean probability"] = (
            f"from {polygons.prob_mean.min():.2f} to {polygons.prob_mean.max():.2f}"
        )
        yield Facts(facts)
    yield Text(
        "These are the model's findings. How right they are is known only where somebody has "
        "checked them."
    )


def _inputs(result: SceneResult) -> dict[str, object]:
    grid, names = result.grid, result.names or (result.before, result.after)
    return {
        "before": PurePath(names[0]).name,
        "after": PurePath(names[1]).name,
        "size": f"{grid.width:,} x {grid.height:,} pixels",
        "coordinate system": crs_name(grid.crs),
        "pixel": " x ".join(f"{side:.6g}" for side in grid.resolution),
        "shift between the dates": result.shift.text(applied=result.registered),
    }


def _settings(tags: Mapping[str, object]) -> dict[str, object]:
    """The rasters' tags as people name them: `ADADINO_TILE` is the tile."""
    named = {
        name.removeprefix("ADADINO_").removeprefix("TIFFTAG_").lower().replace("_", " "): (
            ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        )
        for name, value in tags.items()
    }
    return {name: value for name, value in named.items() if name not in ("before", "after")}


def _chips(result: SceneResult) -> Iterator[Section]:
    """The largest polygons, and those whose mean probability is nearest the threshold."""
    polygons = result.polygons
    if polygons.empty:
        return
    area, _ = measures(result.grid)
    largest = polygons.nlargest(CHIPS, area)
    others = polygons.drop(largest.index)
    doubt = (others.prob_mean - result.threshold).abs()
    unsure = others.loc[doubt.nsmallest(CHIPS).index]
    shown = {"The largest changes": largest, "The least certain of the others": unsure}
    for title, chosen in shown.items():
        if chosen.empty:
            continue
        unit = "px" if result.grid.crs is None else "m²"
        rows = [
            (row["id"], f"{row[area]:,.0f} {unit}", f"{row['prob_mean']:.2f}")
            for _, row in chosen.iterrows()
        ]
        pictures = [one for _, row in chosen.iterrows() for one in _chip(result, row)]
        table = Table(["polygon", "area", "mean probability"], rows)
        yield Section(title, [table, Pictures(pictures, columns=3)])


def _chip(result: SceneResult, row: Any) -> list[tuple[Picture, str]]:
    """Before, after, and after with the outline, around one polygon."""
    window = chip_window(row.geometry.bounds, result.grid)
    size = CHIP / max(window.width, window.height)
    shape = max(1, round(size * window.height)), max(1, round(size * window.width))
    shift = (result.shift.dy, result.shift.dx) if result.registered else (0.0, 0.0)
    before, after = read_pair(
        result.before, result.after, result.grid, shape,
        bands=result.bands, scale=result.scale, shift=shift, window=window,
        open_file=result.open_file,
    )  # fmt: skip
    outlined = Image.fromarray(after)
    draw = ImageDraw.Draw(outlined)
    inward = ~result.grid.transform
    for ring in _rings(row.geometry):
        points = [
            ((x - window.col_off) * size, (y - window.row_off) * size)
            for x, y in (inward * point[:2] for point in ring)
        ]
        draw.line(points, fill=(255, 255, 255), width=5)
        draw.line(points, fill=CHANGE_COLOUR, width=3)
    name = f"{row['id']}"
    return [
        (before, f"{name}: before"),
        (after, f"{name}: after"),
        (np.asarray(outlined), f"{name}: outline"),
    ]


def _rings(geometry: Any) -> Iterator[Sequence[tuple[float, ...]]]:
    for part in getattr(geometry, "geoms", [geometry]):
        yield list(part.exterior.coords)
        yield from (list(hole.coords) for hole in part.interiors)


def chip_window(bounds: tuple[float, float, float, float], grid: Grid) -> Window:
    """A square around a polygon with as much again of its surroundings, cut at the border."""
    x1, y1, x2, y2 = bounds
    corners = [~grid.transform * corner for corner in ((x1, y1), (x1, y2), (x2, y1), (x2, y2))]
    columns, rows = zip(*corners, strict=True)
    half = max(max(columns) - min(columns), max(rows) - min(rows), LEAST / 2)
    spans = []
    for ends, most in ((columns, grid.width), (rows, grid.height)):
        middle = (min(ends) + max(ends)) / 2
        begin, end = max(0, math.floor(middle - half)), min(most, math.ceil(middle + half))
        if end <= begin:
            raise AdaDINOError("a polygon lies outside its scene; predict again.")
        spans.append((begin, end - begin))
    (column, width), (row, height) = spans
    return Window(column, row, width, height)
