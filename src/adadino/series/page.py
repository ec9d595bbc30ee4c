"""A series as one page: a slider goes through its dates, and changes appear when they are seen.

The page is one file that loads nothing. Its script is the one below, named by its digest in the
page's policy, so that nothing else can run; names of files and dates from strangers are escaped.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import measures
from adadino.reporting.document import encoded
from adadino.series.maps import date_colours

if TYPE_CHECKING:
    import geopandas as gpd

    from adadino.geo.read.small import Picture

MOST = 2000
"""Polygons that are drawn, the largest."""

STYLE = """
body { font: 16px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 60rem; padding: 0 1rem;
  color: #1d1d1f; background: #fff }
.dates { position: relative; line-height: 0 }
.dates img { width: 100%; image-rendering: auto }
.dates img:not(:first-child) { position: absolute; inset: 0 }
svg { position: absolute; inset: 0; width: 100%; height: 100% }
path { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; pointer-events: all }
input[type=range] { width: 100% }
output { font-weight: 600 }
[hidden] { display: none }
"""
SCRIPT = """
const slider = document.querySelector('input[type=range]');
const outlines = document.querySelector('input[type=checkbox]');
const pictures = [...document.querySelectorAll('.dates img')];
const paths = [...document.querySelectorAll('path')];
const said = document.querySelector('output');
function show() {
  const now = Number(slider.value);
  pictures.forEach((picture, number) => { picture.hidden = number > 0 && number !== now; });
  paths.forEach((path) => {
    path.toggleAttribute('hidden', !outlines.checked || Number(path.dataset.first) > now);
  });
  said.textContent = pictures[now].alt;
  slider.setAttribute('aria-valuetext', pictures[now].alt);
}
slider.addEventListener('input', show);
outlines.addEventListener('change', show);
document.addEventListener('keydown', (event) => {
  if (event.target === slider || !['ArrowLeft', 'ArrowRight'].includes(event.key)) return;
  slider.value = Number(slider.value) + (event.key === 'ArrowRight' ? 1 : -1);
  show();
});
show();
"""


def write_page(
    path: Path,
    pictures: Sequence[Picture],
    labels: Sequence[str],
    frame: gpd.GeoDataFrame,
    rings: Sequence[list[list[tuple[float, float]]]],
    grid: Grid,
) -> None:
    """Write the page of a series.

    Args:
        path: The `.html`.
        pictures: Each date, all of one shape.
        labels: The dates.
        frame: The polygons, the largest first.
        rings: Their rings in pixels of the pictures.
        grid: Where the maps lie.
    """
    height, width = pictures[0].shape[:2]
    images = "".join(
        f'<img alt="{escape(label)}" src="data:image/jpeg;base64,'
        f'{base64.b64encode(encoded(picture)).decode()}">'
        for label, picture in zip(labels, pictures, strict=True)
    )
    drawn = "".join(_paths(frame.head(MOST), rings, labels, measures(grid)[0]))
    script = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    policy += f"script-src 'sha256-{script}'"
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Changes {escape(labels[0])} to {escape(labels[-1])}</title><style>{STYLE}</style>"
        f"</head><body><h1>What changed, {escape(labels[0])} to {escape(labels[-1])}</h1>"
        f'<div class="dates">{images}'
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">{drawn}</svg></div>'
        f'<p><label>Date <output></output><input type="range" min="0" max="{len(labels) - 1}" '
        f'value="{len(labels) - 1}" step="1"></label></p>'
        '<p><label><input type="checkbox" checked> Outlines of what has changed until then'
        "</label>; rest the pointer on one for its dates.</p>"
        f"<script>{SCRIPT}</script></body></html>\n"
    )
    write_atomic(path, text)


def _paths(
    frame: gpd.GeoDataFrame,
    rings: Sequence[list[list[tuple[float, float]]]],
    labels: Sequence[str],
    area: str,
) -> Iterator[str]:
    colours = date_colours(len(labels))
    number = {label: at for at, label in enumerate(labels)}
    unit = "pixels" if area == "area_px" else "m²"
    polygon: Any
    for polygon, lines in zip(frame.itertuples(), rings, strict=False):
        first = number[str(polygon.first_seen)]
        red, green, blue = colours[first - 1]
        corners = " ".join(
            "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in line) + "Z" for line in lines
        )
        said = (
            f"{polygon.id}: first seen {polygon.first_seen}, last seen {polygon.last_seen}, "
            f"{polygon.persistence}, {getattr(polygon, area):,.0f} {unit}, "
            f"confidence {polygon.confidence:.2f}"
        )
        yield (
            f'<path d="{corners}" stroke="rgb({red},{green},{blue})" data-first="{first}">'
            f"<title>{escape(said)}</title></path>"
        )
