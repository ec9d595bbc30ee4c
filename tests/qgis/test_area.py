"""*Detect change in an area of interest* in a real QGIS."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
from rasterio.warp import transform_bounds

pytestmark = pytest.mark.slow


def test_a_layer_without_a_file_is_an_area(qgis, command, model, dates, tmp_path):
    with rasterio.open(dates[0]) as raster:
        left, bottom, right, top = raster.bounds
        middle = (left + right) / 2
        box = transform_bounds(raster.crs, "EPSG:4326", left, bottom, middle, top)
    mask = tmp_path / "mask.tif"
    words = ",".join(map(str, box))
    said = qgis.inside("area.py", command, *dates, model, mask, words)
    assert "has no polygons to look in" in said["empty"]
    assert any(line.startswith("area of interest: area.gpkg") for line in said["infos"])
    with rasterio.open(mask) as raster:
        square_metres = (raster.read(1) != 255).sum() * abs(raster.transform.determinant)
    assert square_metres == pytest.approx((middle - left) * (top - bottom), rel=0.08)


def test_bad_areas_are_sentences(qgis, command, model, dates, tmp_path):
    qgis.use(command)
    far = tmp_path / "far.geojson"
    far.write_text('{"type": "Polygon", "coordinates": [[[100, 1], [101, 1], [101, 2], [100, 1]]]}')
    given = {"BEFORE": dates[0], "AFTER": dates[1], "MODEL": model, "MASK": tmp_path / "m.tif"}
    done = qgis.algorithm("detectchangeinarea", **given, AREA=far)
    assert done.returncode
    assert "Traceback" not in done.stdout + done.stderr
    assert "area of interest" in done.stderr
    assert not (tmp_path / "m.tif").exists()


def test_clouds_are_left_out(qgis, command, model, dates, tmp_path):
    qgis.use(command)
    with rasterio.open(dates[0]) as raster:
        profile = {**raster.profile, "count": 1, "dtype": "uint8", "nodata": None}
    clouds = np.full((profile["height"], profile["width"]), 4, np.uint8)
    clouds[:20] = 9
    with rasterio.open(tmp_path / "SCL.tif", "w", **profile) as raster:
        raster.write(clouds, 1)
    everywhere = tmp_path / "all.geojson"
    with rasterio.open(dates[0]) as raster:
        w, s, e, n = transform_bounds(raster.crs, "EPSG:4326", *raster.bounds)
    ring = [[w, s], [e, s], [e, n], [w, n], [w, s]]
    everywhere.write_text(f'{{"type": "Polygon", "coordinates": [{ring}]}}')
    done = qgis.algorithm(
        "detectchangeinarea",
        BEFORE=dates[0],
        AFTER=dates[1],
        MODEL=model,
        AREA=everywhere,
        CLOUDS=tmp_path / "SCL.tif",
        CLOUD_CODES="scl",
        MASK=tmp_path / "m.tif",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with rasterio.open(tmp_path / "m.tif") as raster:
        found = raster.read(1)
    assert (found[:16] == 255).all()
    assert (found[24:-4, 4:-4] != 255).all()
