"""A cut as the server keeps it: the polygons of a scene at a threshold and a least area."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adadino.web.view.display import Display


@dataclass(frozen=True, eq=False)
class Cut:
    """The polygons of a scene, the largest first."""

    step: int
    """Pixels of the scene for one that was traced, along a row; 1 is exact."""
    count: int
    area: float
    """Of all of them, in square metres, or pixels without a coordinate system."""
    change_fraction: float
    features: list[dict[str, Any]]
    """Of the largest."""

    def as_geojson(self, display: Display, *, threshold: float, min_area: float) -> bytes:
        """GeoJSON in map coordinates, with what the page says beside it."""
        return json.dumps(
            {
                "type": "FeatureCollection",
                "features": self.features,
                "count": self.count,
                "area": round(self.area, 3),
                "unit": "px" if display.crs is None else "m2",
                "change_fraction": self.change_fraction,
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
        step=int(found["step"]),
        count=int(found["count"]),
        area=float(found["area"]),
        change_fraction=float(found["change_fraction"]),
        features=found["features"],
    )
