"""How a result shows itself: on matplotlib's axes, and in a notebook's cell."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from affine import Affine
from PIL import Image

from adadino.errors import AdaDINOError
from adadino.geo.grid import Grid
from adadino.geo.write.cog import CHANGE_COLOUR
from adadino.geo.write.overview import LEAST_WIDTH, SIDE, draw_overview, ground_span, pale
from adadino.scene.facts import used_lines

if TYPE_CHECKING:
    from adadino.scene.result import SceneResult


def plot(result: SceneResult, ax: Any = None) -> Any:
    """Draw before, after and the change; see `SceneResult.plot`."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise AdaDINOError(
            "plot needs matplotlib, which is not installed: pip install matplotlib"
        ) from error
    before, after, change = result.small()
    extent = _extent(result.grid)
    colours = np.zeros((*change.shape, 4), np.uint8)
    colours[change == 1] = (*CHANGE_COLOUR, 255)
    colours[change == 255] = (214, 216, 220, 255)
    axes = [ax]
    if ax is None:
        wide = result.grid.width > 2 * result.grid.height
        size = (8, 7) if wide else (13, 5)
        figure, axes = plt.subplots(
            *((3, 1) if wide else (1, 3)), figsize=size, sharex=True, sharey=True
        )
        figure.set_layout_engine("compressed")
        for panel, image, name in zip(axes, (before, after), ("Before", "After"), strict=False):
            panel.imshow(image, extent=extent)
            panel.set_title(name)
    below = after if ax is not None else np.repeat(pale(after).astype(np.uint8), 3, axis=2)
    axes[-1].imshow(below, extent=extent)
    axes[-1].imshow(colours, extent=extent, interpolation="nearest")
    remark = "" if result.fit.remark is None else f"\n({result.fit.remark})"
    axes[-1].set_title(f"Change: {100 * result.change_fraction:.2f} %{remark}")
    for panel in axes:
        panel.ticklabel_format(useOffset=False, style="plain")  # coordinates as maps have them
        panel.locator_params(nbins=3)
    return axes if ax is None else ax


def as_html(result: SceneResult) -> str:
    """A notebook's view: a small picture and the numbers, in the page's own colours."""
    rows = "".join(
        f'<tr><th style="text-align:left;padding-right:1em">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in _facts(result)
    )
    notes = "".join(f"<li>{escape(text)}</li>" for text in result.warnings)
    notes = f'<ul style="opacity:0.8;margin:0.5em 0">{notes}</ul>' if notes else ""
    return (
        '<div style="max-width:760px;color:inherit;background:transparent">'
        f"{_picture_html(result)}<table>{rows}</table>{notes}</div>"
    )


def _facts(result: SceneResult) -> Iterator[tuple[str, str]]:
    unit = "pixels" if result.grid.crs is None else "m²"
    remark = "" if result.fit.remark is None else f" ({result.fit.remark})"
    yield "Change", f"{100 * result.change_fraction:.2f} % of the valid area{remark}"
    yield "Polygons", f"{len(result.polygons):,}, together {result.area:,.0f} {unit}"
    yield "Shift", result.shift.text(applied=result.registered)
    yield "Size", f"{result.grid.width:,} x {result.grid.height:,} pixels"
    yield "Threshold", f"{result.threshold:g}"


def overview(result: SceneResult, side: int = SIDE) -> Image.Image:
    """The picture of before, after and change, at most `side` pixels wide and high."""
    span, unit = ground_span(result.grid)
    title, share = result.title, result.change_fraction
    dates = cast("Sequence[str] | None", result.used.get("dates"))
    return draw_overview(
        *result.small(side), title=title, span=span, unit=unit, share=share, side=side,
        dates=dates, remark=result.fit.remark,
        used=" · ".join(used_lines(result.used)) if result.used else None,
    )  # fmt: skip


def _picture_html(result: SceneResult) -> str:
    """The overview as an embedded image; a sentence where the dates can no longer be read."""
    try:
        picture = overview(result, LEAST_WIDTH)
    except AdaDINOError as error:  # a cell that shows the numbers beats a traceback
        return f"<p>There is no picture: {escape(str(error))}</p>"
    file = io.BytesIO()
    # A palette is a third of the size, and the notebook keeps every picture.
    picture.quantize(256, Image.Quantize.MEDIANCUT).save(file, format="PNG", optimize=True)
    text = base64.b64encode(file.getvalue()).decode("ascii")
    return (
        f'<img alt="{escape(result.title)}: before, after and change" style="max-width:100%" '
        f'src="data:image/png;base64,{text}">'
    )


def _extent(grid: Grid) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of a picture in the coordinates its polygons have."""
    transform = grid.transform
    if transform.b or transform.d:
        transform = Affine.identity()
    left, top = transform * (0, 0)
    right, bottom = transform * (grid.width, grid.height)
    return left, right, bottom, top
