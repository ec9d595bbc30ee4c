"""A cut as the server keeps it: the polygons of a scene at a threshold, ready to be filtered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adadino.web.view.display import Display


@dataclass(frozen=True, eq=False)
class Cut:
    """The polygons of a scene at a threshold, the largest first."""

    step: int
    """Pixels of the scene for one that was traced, along a row; 1 is exact."""
    valid: int
    """Pixels that were traced and hold data."""
    areas: NDArray[np.float64]
    pixels: NDArray[np.int64]
    features: list[dict[str, Any]]
    """Of the largest."""

    def as_geojson(self, display: Display, *, threshold: float, min_area: float) -> bytes:
        """GeoJSON in map coordinates, with what the page says beside it."""
        kept = int((self.areas >= min_area).sum())  # they are sorted: the first ones
        return json.dumps(
            {
                "type": "FeatureCollection",
                "features": self.features[:kept],
                "count": kept,
                "area": round(float(self.areas[:kept].sum()), 3),
                "unit": "px" if display.crs is None else "m2",
                "change_fraction": float(self.pixels[:kept].sum() / max(1, self.valid)),
                "step": self.step,
                "threshold": threshold,
                "min_area": min_area,
                "coordinates": (display.crs if display.native else None)
                or "pixels, x right, y down",
            }
        ).encode()


def read_cut(path: Path) -> Cut:
    """Read what `view.change.write_cut` wrote."""
    found = json.loads(path.read_bytes())
    return Cut(
        step=found["step"],
        valid=found["valid"],
        areas=np.array(found["areas"], np.float64),
        pixels=np.array(found["pixels"], np.int64),
        features=found["features"],
    )
