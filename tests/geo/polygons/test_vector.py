"""Polygons: against scipy's labels, pixel counts, the ellipsoid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import rasterio
import shapely
from affine import Affine
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pyproj import Geod
from rasterio import warp
from rasterio.crs import CRS
from rasterio.features import rasterize
from scipy import ndimage

from adadino.errors import ConfigError, InputError
from adadino.geo.grid import Grid
from adadino.geo.polygons import vector
from adadino.geo.polygons.components import label_bands
from adadino.geo.polygons.vector import measures, polygons, sieved

FIELDS = ["id", "area_m2", "perimeter_m", "prob_mean", "prob_max"]
UTM = CRS.from_epsg(32633)
NORTH_UP = Affine(0.5, 0, 500_000, 0, -0.5, 5_800_000)

masks = st.integers(0, 2**31).map(
    lambda seed: (
        np.random.default_rng(seed).random((14, 11)) < np.random.default_rng(seed).random()
    ).astype(np.uint8)
)


def grid_of(mask: NDArray[np.uint8], crs: CRS | None = UTM, transform: Affine = NORTH_UP) -> Grid:
    return Grid(crs, transform, mask.shape[1], mask.shape[0])


def some(
    seed: int = 0, shape: tuple[int, int] = (40, 50)
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    mask = (rng.random(shape) < 0.55).astype(np.uint8)
    mask[rng.random(shape) < 0.03] = 255
    return mask, rng.random(shape, np.float32)


def by_scipy(mask: NDArray[np.uint8], probability: NDArray[np.float32]) -> list[tuple[float, ...]]:
    labels, n = ndimage.label(mask == 1)
    index = np.arange(1, n + 1)
    values = probability.astype(np.float64)
    rows = zip(
        ndimage.sum_labels(np.ones(mask.shape), labels, index),
        ndimage.mean(values, labels, index),
        ndimage.maximum(values, labels, index),
        strict=True,
    )
    return sorted(tuple(map(float, row)) for row in rows)


# --- components ------------------------------------------------------------------------------


@settings(max_examples=40)
@given(masks, st.integers(1, 15))
def test_components_in_bands_equal_those_of_the_whole(mask: NDArray[np.uint8], rows: int) -> None:
    probability = np.random.default_rng(1).random(mask.shape, np.float32)
    bands = [(r, mask[r : r + rows], probability[r : r + rows]) for r in range(0, 14, rows)]
    got = label_bands(bands, width=11).components
    triples = zip(got.count, got.prob_mean, got.prob_max, strict=True)
    assert np.array(sorted(triples)) == pytest.approx(np.array(by_scipy(mask, probability)))
    assert (mask[got.row, got.col] == 1).all()


def test_a_spiral_across_every_band_is_one_component() -> None:
    mask = np.zeros((9, 9), np.uint8)
    mask[0] = mask[:, 8] = mask[8] = mask[2:, 0] = mask[2, :7] = mask[2:7, 6] = mask[6, 2:7] = 1
    bands = [(r, mask[r : r + 1], mask[r : r + 1].astype(np.float32)) for r in range(9)]
    got = label_bands(bands, width=9).components
    assert got.count.tolist() == [mask.sum()]
    assert (got.row[0], got.col[0]) == (0, 0)


# --- polygons --------------------------------------------------------------------------------


def test_each_polygon_covers_its_component_and_carries_its_numbers() -> None:
    mask, probability = some()
    frame = polygons(mask, probability, grid_of(mask))
    assert frame.crs == UTM
    assert frame["id"].tolist() == list(range(1, len(frame) + 1))
    drawn = rasterize(
        zip(frame.geometry, frame["id"], strict=True), mask.shape, transform=NORTH_UP, dtype="int32"
    )
    assert ((drawn > 0) == (mask == 1)).all()
    index = frame["id"].to_numpy()
    values = probability.astype(np.float64)
    pixels = ndimage.sum_labels(np.ones(mask.shape), drawn, index)
    assert frame["area_m2"].to_numpy() == pytest.approx(pixels * 0.25, rel=1e-12)
    assert frame["area_m2"].to_numpy() == pytest.approx(frame.area.to_numpy(), rel=1e-9)
    assert frame["perimeter_m"].to_numpy() == pytest.approx(frame.length.to_numpy(), rel=1e-9)
    assert frame["prob_mean"].to_numpy() == pytest.approx(ndimage.mean(values, drawn, index))
    assert frame["prob_max"].tolist() == ndimage.maximum(values, drawn, index).tolist()
    assert len(frame) == len(by_scipy(mask, probability))


@settings(max_examples=40)
@given(masks, st.sampled_from([0.0, 0.3, 0.5, 1.0, 2.5, 20.0]))
def test_geometries_are_valid_apart_and_keep_their_holes(
    mask: NDArray[np.uint8], simplify: float
) -> None:
    probability = np.ones(mask.shape, np.float32)
    grid = grid_of(mask)
    exact = polygons(mask, probability, grid)
    frame = polygons(mask, probability, grid, simplify=simplify)
    assert frame.is_valid.all()
    assert (frame.area > 0).all()
    assert [holes(g) for g in frame.geometry] == [holes(g) for g in exact.geometry]
    assert shapely.union_all(frame.geometry).area == pytest.approx(frame.area.sum())
    # The numbers are those of the pixels, whatever the drawing.
    assert frame[FIELDS].equals(exact[FIELDS])
    corners, chosen = (set(map(tuple, f.get_coordinates().to_numpy())) for f in (exact, frame))
    assert chosen <= corners


def holes(geometry: shapely.Geometry) -> int:
    return sum(len(part.interiors) for part in shapely.get_parts(geometry))


def test_simplify_straightens_a_staircase_in_metres_on_any_grid() -> None:
    mask = np.tri(30, dtype=np.uint8)
    ones = np.ones(mask.shape, np.float32)
    degrees = Affine(1e-5, 0, 13, 0, -1e-5, 52)  # 0.7 x 1.1 m
    for crs, transform in ((UTM, Affine(1, 0, 5e5, 0, -1, 5.8e6)), (CRS.from_epsg(4326), degrees)):
        grid = grid_of(mask, crs, transform)
        (exact,) = polygons(mask, ones, grid).geometry
        (untouched,) = polygons(mask, ones, grid, simplify=0.3).geometry
        (simple,) = polygons(mask, ones, grid, simplify=1.2).geometry
        assert untouched.equals(exact)
        assert len(simple.exterior.coords) < 12 < len(exact.exterior.coords)
        assert simple.area == pytest.approx(exact.area, rel=0.05)


def test_order_is_by_area_then_position_and_min_area_comes_before_ids() -> None:
    mask = np.zeros((9, 9), np.uint8)
    mask[0, 7] = mask[8, 0:2] = mask[2, 1] = mask[2, 5:9] = mask[5, 4:6] = 1
    probability = np.zeros(mask.shape, np.float32)
    grid = grid_of(mask, None, Affine.identity())
    frame = polygons(mask, probability, grid, min_area=2)
    assert frame["id"].tolist() == [1, 2, 3]
    assert frame["area_px"].tolist() == [4, 2, 2]
    assert frame.bounds[["minx", "miny"]].to_numpy().tolist() == [[5, 2], [4, 5], [0, 8]]


def test_nothing_changed_gives_an_empty_frame_with_its_columns() -> None:
    full, _ = some()
    empty = np.where(full == 1, 0, full)
    kinds = polygons(full, full.astype(np.float32), grid_of(full)).dtypes
    for simplify in (0.0, 1.0):
        frame = polygons(empty, empty.astype(np.float32), grid_of(empty), simplify=simplify)
        assert len(frame) == 0
        assert frame.crs == UTM
        assert frame.dtypes.astype(str).to_dict() == kinds.astype(str).to_dict()
        assert list(frame.columns) == [*FIELDS, "geometry"]


def test_datasets_stream_to_the_same_polygons_as_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask, probability = some(3)
    grid = grid_of(mask)
    for name, array in (("mask", mask), ("probability", probability)):
        with rasterio.open(
            tmp_path / f"{name}.tif", "w", driver="GTiff", count=1, dtype=array.dtype,
            height=grid.height, width=grid.width, crs=grid.crs, transform=grid.transform,
            nodata=255 if name == "mask" else np.nan,
        ) as raster:  # fmt: skip
            raster.write(array, 1)
    whole = polygons(mask, probability, grid)
    monkeypatch.setattr(vector, "ROWS", 7)
    with (
        rasterio.open(tmp_path / "mask.tif") as m,
        rasterio.open(tmp_path / "probability.tif") as p,
    ):
        banded = polygons(m, p, grid)
    assert (banded.geometry == whole.geometry).all()
    assert banded[FIELDS].to_numpy() == pytest.approx(whole[FIELDS].to_numpy())


LOCAL = CRS.from_wkt('LOCAL_CS["site",UNIT["metre",1],AXIS["x",EAST],AXIS["y",NORTH]]')
SYSTEMS = {
    "projected": (UTM, NORTH_UP),
    "geographic": (CRS.from_epsg(4326), Affine(1e-5, 0, 13, 0, -1e-5, 52)),
    "Web Mercator": (CRS.from_epsg(3857), Affine(0.5, 0, 1.4e6, 0, -0.5, 6.8e6)),
    "local": (LOCAL, NORTH_UP),
    "none": (None, Affine.identity()),
}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("rows", [3, 512])
def test_the_sieved_mask_is_what_the_kept_polygons_cover(
    system: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector, "ROWS", rows)
    mask, probability = some(5)
    crs, transform = SYSTEMS[system]
    grid = grid_of(mask, crs, transform)
    areas = polygons(mask, probability, grid)[measures(grid)[0]].to_numpy()
    for least in (0.0, float(np.median(areas)), areas.max(), areas.max() * 1.01):
        kept = polygons(mask, probability, grid, min_area=least)
        got = np.concatenate([block for _, block in sieved(mask, grid, min_area=least)])
        drawn = np.zeros(mask.shape, np.uint8)
        if len(kept):
            drawn = rasterize(kept.geometry, mask.shape, transform=transform, dtype="uint8")
        assert (got == np.where(mask == 1, drawn, mask)).all()
    assert not (got == 1).any(), "the last limit leaves nothing"


def test_a_local_system_is_measured_on_its_plane() -> None:
    foot = 0.3048
    feet = CRS.from_wkt(f'LOCAL_CS["site",UNIT["foot",{foot}],AXIS["x",EAST],AXIS["y",NORTH]]')
    for crs, unit in ((LOCAL, 1.0), (feet, foot)):
        frame = polygons(RING, RING.astype(np.float32), grid_of(RING, crs), simplify=0.1)
        assert frame["area_m2"].tolist() == pytest.approx([PIXELS * (0.5 * unit) ** 2])
        assert frame["perimeter_m"].tolist() == pytest.approx([EDGES * 0.5 * unit])
        assert frame.crs.name == "site"


# --- measures --------------------------------------------------------------------------------

RING = np.zeros((20, 20), np.uint8)
RING[2:18, 3:15] = 1
RING[5:9, 6:10] = 0
PIXELS, EDGES = 16 * 12 - 16, 2 * (16 + 12) + 16


@pytest.mark.parametrize(
    "transform",
    [
        Affine(0.5, 0, 5e5, 0, -0.5, 5.8e6),
        Affine(0.5, 0, 5e5, 0, 0.5, 5.8e6),
        Affine.translation(5e5, 5.8e6) * Affine.rotation(30) * Affine.scale(0.5, -0.5),
    ],
    ids=["north-up", "south-up", "rotated"],
)
def test_projected_measures_are_pixel_counts(transform: Affine) -> None:
    frame = polygons(RING, RING.astype(np.float32), grid_of(RING, UTM, transform))
    assert frame["area_m2"].tolist() == pytest.approx([PIXELS * 0.25], rel=1e-9)
    assert frame["perimeter_m"].tolist() == pytest.approx([EDGES * 0.5], rel=1e-7)
    assert frame.area.tolist() == pytest.approx([PIXELS * 0.25], rel=1e-7)


def test_feet_become_metres() -> None:
    foot = 1200 / 3937
    new_york = CRS.from_epsg(2263)  # US survey feet
    frame = polygons(
        RING, RING.astype(np.float32), grid_of(RING, new_york, Affine(2, 0, 1e6, 0, -2, 2e5))
    )
    assert frame["area_m2"].tolist() == pytest.approx([PIXELS * (2 * foot) ** 2], rel=1e-9)
    assert frame["perimeter_m"].tolist() == pytest.approx([EDGES * 2 * foot], rel=1e-9)


@pytest.mark.parametrize("latitude", [0, 52, -75])
def test_square_metres_of_web_mercator_are_those_of_the_ground(latitude: float) -> None:
    mercator = CRS.from_epsg(3857)
    (x,), (y,) = warp.transform("EPSG:4326", mercator, [13.0], [latitude])
    grid = grid_of(RING, mercator, Affine(0.5, 0, x, 0, -0.5, y))
    frame = polygons(RING, RING.astype(np.float32), grid)
    geod = Geod(ellps="WGS84")
    ground = frame.to_crs("EPSG:4326").geometry[0]
    area = abs(geod.geometry_area_perimeter(ground)[0])
    length = geod.geometry_length(ground.boundary)
    assert frame["area_m2"].tolist() == pytest.approx([area], rel=1e-2 if latitude == 0 else 1e-6)
    assert frame["perimeter_m"].tolist() == pytest.approx([length], rel=1e-2)
    # Simplified by ground metres, too: a metre takes the staircase of pixels of half a metre.
    tight = polygons(RING, RING.astype(np.float32), grid, min_area=area * 1.02)
    assert tight.empty


@pytest.mark.parametrize("south_up", [False, True])
def test_geographic_areas_are_those_of_the_ellipsoid(south_up: bool) -> None:
    step = 1e-4
    transform = Affine(step, 0, 13, 0, step if south_up else -step, 52)
    frame = polygons(RING, RING.astype(np.float32), grid_of(RING, CRS.from_epsg(4326), transform))

    def zone(row: int) -> float:
        """The ellipsoid's area from the equator to a row's edge, for one column (closed form)."""
        geod = Geod(ellps="WGS84")
        e, sin = geod.es**0.5, np.sin(np.radians((transform * (0, row))[1]))
        slice_ = sin / (1 - geod.es * sin**2) + np.log((1 + e * sin) / (1 - e * sin)) / (2 * e)
        return float(np.radians(step) * geod.b**2 / 2 * slice_)

    expected = sum(abs(zone(r) - zone(r + 1)) * int(RING[r].sum()) for r in range(20))
    assert frame["area_m2"].tolist() == pytest.approx([expected], rel=1e-6)
    outer = Geod(ellps="WGS84").geometry_length(frame.geometry[0].exterior)
    inner = Geod(ellps="WGS84").geometry_length(frame.geometry[0].interiors[0])
    assert frame["perimeter_m"].tolist() == pytest.approx([outer + inner], rel=1e-12)


def test_grads_are_not_degrees() -> None:
    paris = CRS.from_epsg(4807)  # NTF (Paris), in grads
    step = 1e-4
    grads = grid_of(RING, paris, Affine(step, 0, 0, 0, -step, 54))
    degrees = grid_of(RING, CRS.from_epsg(4275), Affine(0.9 * step, 0, 0, 0, -0.9 * step, 48.6))
    areas = [polygons(RING, RING.astype(np.float32), g)["area_m2"][0] for g in (grads, degrees)]
    assert areas[0] == pytest.approx(areas[1], rel=1e-9)


def test_without_a_crs_everything_is_in_pixels() -> None:
    frame = polygons(RING, RING.astype(np.float32), grid_of(RING, None, Affine.identity()))
    assert frame.crs is None
    assert frame["area_px"].tolist() == [PIXELS]
    assert frame["perimeter_px"].tolist() == [EDGES]
    assert not {"area_m2", "perimeter_m"} & set(frame.columns)
    assert frame.total_bounds.tolist() == [3, 2, 15, 18]


def test_without_a_crs_polygons_lie_on_the_raster_they_come_from() -> None:
    grid = grid_of(RING, None, Affine(0.5, 0, 100, 0, -0.5, 200))
    frame = polygons(RING, RING.astype(np.float32), grid)
    assert frame["area_px"].tolist() == [PIXELS]
    assert frame.total_bounds.tolist() == [101.5, 191, 107.5, 199]


def test_wrong_settings_say_what_to_do() -> None:
    mask, probability = some()
    with pytest.raises(ConfigError, match="min_area is -1"):
        polygons(mask, probability, grid_of(mask), min_area=-1)
    with pytest.raises(ConfigError, match="simplify is nan"):
        polygons(mask, probability, grid_of(mask), simplify=float("nan"))
    with pytest.raises(InputError, match=r"probability is \(3, 3\) pixels and the grid \(40, 50\)"):
        polygons(mask, np.zeros((3, 3)), grid_of(mask))
