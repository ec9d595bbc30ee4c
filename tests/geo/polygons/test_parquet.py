"""GeoParquet: read by geopandas, DuckDB and GDAL, and only where one looks."""

from __future__ import annotations

import json
from pathlib import Path

import geopandas as gpd
import numpy as np
import pyarrow.parquet as pq
import pyogrio
import pytest
from affine import Affine
from rasterio.crs import CRS

from adadino.geo.grid import Grid
from adadino.geo.polygons import parquet
from adadino.geo.polygons.parquet import write_parquet
from adadino.geo.polygons.vector import rows, trace

GRID = Grid(CRS.from_epsg(32633), Affine(0.5, 0, 500_000, 0, -0.5, 5_800_000), 90, 70)


@pytest.fixture(scope="module")
def frame():
    random = np.random.default_rng(2)
    mask = (random.random(GRID.shape) < 0.35).astype(np.uint8)
    return rows(trace(mask, random.random(GRID.shape, np.float32)), GRID)


@pytest.fixture
def file(tmp_path, frame, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP", 100)
    write_parquet(tmp_path / "change.parquet", frame, GRID.bounds)
    return tmp_path / "change.parquet"


def test_geopandas_reads_what_was_written_and_only_where_it_looks(file, frame, tmp_path):
    back = gpd.read_parquet(file).sort_values(["row", "col"]).reset_index(drop=True)
    known = frame.sort_values(["row", "col"]).reset_index(drop=True)
    assert back.crs == known.crs
    assert back.geometry.to_wkb().equals(known.geometry.to_wkb())
    assert back.drop(columns="geometry").equals(known.drop(columns="geometry"))
    west, _, _, north = GRID.bounds
    corner = gpd.read_parquet(file, bbox=(west, north - 6, west + 6, north))
    assert set(corner.index) < set(back.index)
    assert len(corner) == frame.cx[west : west + 6, north - 6 : north].shape[0]

    said = json.loads(pq.read_schema(file).metadata[b"geo"])
    assert said["version"] == "1.1.0"
    assert said["columns"]["geometry"]["covering"]["bbox"]["xmin"] == ["bbox", "xmin"]
    write_parquet(tmp_path / "again.parquet", frame.sample(frac=1, random_state=1), GRID.bounds)
    assert (tmp_path / "again.parquet").read_bytes() == file.read_bytes()


def test_neighbours_lie_side_by_side_so_that_readers_skip_groups(file):
    found = pq.ParquetFile(file).metadata
    names = [found.row_group(0).column(i).path_in_schema for i in range(found.num_columns)]
    boxes = np.array([
        [
            getattr(found.row_group(g).column(names.index(f"bbox.{name}")).statistics, side)
            for name, side in (("xmin", "min"), ("ymin", "min"), ("xmax", "max"), ("ymax", "max"))
        ]
        for g in range(found.num_row_groups)
    ])  # fmt: skip
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    assert found.num_row_groups > 5
    assert np.median(areas) < 0.3 * 45 * 35  # in an unsorted file each group has the whole scene


def test_duckdb_reads_it_with_its_spatial_extension(file, frame):
    duckdb = pytest.importorskip("duckdb")
    spatial = pytest.importorskip("duckdb_extension_spatial")
    extension = next(Path(spatial.__file__).parent.rglob("spatial.duckdb_extension"), None)
    if extension is None:
        pytest.skip("duckdb-extension-spatial holds no extension for this platform")
    con = duckdb.connect()
    con.execute(f"LOAD '{extension}'")
    count, area = con.execute(
        f"SELECT count(*), sum(ST_Area(geometry)) FROM '{file}' WHERE bbox.xmin < 500010"
    ).fetchone()
    west = frame[frame.bounds["minx"] < 500_010]
    assert count == len(west)
    assert area == pytest.approx(west.area.sum())


def test_gdal_reads_it_where_it_was_built_with_parquet(file, frame):
    if "Parquet" not in pyogrio.list_drivers():
        pytest.skip("this GDAL was built without Parquet")
    assert len(gpd.read_file(file)) == len(frame)
