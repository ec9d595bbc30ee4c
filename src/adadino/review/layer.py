"""Verdicts as a layer of polygons for QGIS; `intake` reads it again.

The columns an analyst edits are `verdict` and `note`. A polygon of the map is right, wrong or
unsure; a drawn one is `missed` (a change that the map lacks) or `unchanged` (an area where nothing
changed). `rank` is the order in which to judge: the random sample first. `review` says which map it
is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import shapely

from adadino.review.folder import Review
from adadino.review.state import State

if TYPE_CHECKING:
    import geopandas as gpd


def verdict_frame(review: Review) -> gpd.GeoDataFrame:
    """All polygons and drawings with verdict, note, who and when, in the map's coordinates."""
    import geopandas as gpd

    from adadino.geo.polygons.measure import measure, move

    state, grid = review.state(), review.grid
    rows = [*_polygon_rows(review, state), *_drawing_rows(state)]
    outlines = np.array([row.pop("geometry") for row in rows], dtype=object)
    area = measure(outlines, shapely.area(outlines), grid)[0] if rows else np.zeros(0)
    names = ("id", "verdict", "note", "judged_by", "judged_at", "list", "rank")
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    columns["rank"] = np.array(
        [np.nan if rank is None else rank for rank in columns["rank"]], float
    )
    columns[f"area_{review.facts.unit}"] = area
    for name in ("prob_mean", "prob_max"):
        columns[name] = np.array([row.get(name) or np.nan for row in rows], float)
    columns["review"] = [review.facts.map] * len(rows)
    shown: Any = move(outlines, grid.transform) if rows else []
    return gpd.GeoDataFrame(columns, geometry=shown, crs=grid.system)


def write_verdicts(review: Review, path: Path | str, *, overwrite: bool = False) -> None:
    """Write the verdicts as .gpkg, .geojson, .fgb or .shp; see `verdict_frame`."""
    from adadino.geo.write.layers import write_layer

    write_layer(verdict_frame(review), path, overwrite=overwrite)


def _polygon_rows(review: Review, state: State) -> Iterator[dict[str, Any]]:
    ranks = {p.id: (rank, p.list) for rank, p in enumerate(review.proposals, start=1)}
    for shape, polygon in review.polygons.items():
        judged, rank = state.verdicts.get(shape), ranks[shape]
        row: dict[str, Any] = {"id": shape, "rank": rank[0], "list": rank[1]}
        row |= {"prob_mean": polygon.prob_mean, "prob_max": polygon.prob_max}
        row["note"] = state.notes.get(shape)
        if judged is not None:
            row |= {"verdict": judged.verdict, "judged_by": judged.by, "judged_at": judged.at}
            if judged.disputed:
                said = "; ".join(f"{by}: {verdict}" for by, verdict in judged.others)
                row["note"] = f"disputed ({said}) {row['note'] or ''}".strip()
        drawn = state.reshaped.get(shape)
        row["geometry"] = polygon.outline if drawn is None else drawn.geometry
        yield row


def _drawing_rows(state: State) -> Iterator[dict[str, Any]]:
    for verdict, drawings in (("missed", state.missed), ("unchanged", state.unchanged)):
        for shape, drawing in drawings.items():
            yield {
                "id": shape,
                "verdict": verdict,
                "note": state.notes.get(shape),
                "judged_by": drawing.by,
                "judged_at": drawing.at,
                "geometry": drawing.geometry,
            }
