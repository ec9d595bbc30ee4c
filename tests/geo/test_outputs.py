"""Polygons on their way to disk: sound after simplifying, measured in metres, never missing."""

from __future__ import annotations

from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import shapely
from affine import Affine
from pyproj import Geod
from rasterio.crs import CRS
from scipy import ndimage

from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import polygons
from adadino.geo.write.layers import write_layer

H, W = 160, 220
GRIDS = {
    "utm": (32633, Affine(0.5, 0, 5e5, 0, -0.5, 5.8e6)),
    "turned": (32633, Affine(0.4, -0.3, 5e5, -0.3, -0.4, 5.8e6)),
    "south-up": (32633, Affine(0.5, 0, 5e5, 0, 0.5, 5.8e6)),
    "degrees": (4326, Affine(6e-6, 0, 13, 0, -4.5e-6, 60)),  # 0.33 x 0.5 m
    "feet": (2263, Affine(1.5, 0, 1e6, 0, -1.5, 2e5)),
    "pixels": (None, Affine.identity()),
}
FIELDS = {"id": "i", "area_m2": "f", "perimeter_m": "f", "prob_mean": "f", "prob_max": "f"}
SUFFIXES = [".gpkg", ".geojson", ".fgb", ".shp"]


def grid_of(name: str, height: int = H, width: int = W) -> Grid:
    epsg, transform = GRIDS[name]
    return Grid(None if epsg is None else CRS.from_epsg(epsg), transform, width, height)


def blobs(seed: int) -> np.ndarray:
    """Smooth patches with bays, islands and lakes, many of which touch at a corner only."""
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).random((H, W)), 2.5)
    mask = (noise > np.quantile(noise, 0.55)).astype(np.uint8)
    mask[60:64, 40:44], mask[64:68, 44:48], mask[64:68, 40:44], mask[60:64, 44:48] = 1, 1, 0, 0
    return mask


def holes(geometry: shapely.Geometry) -> int:
    return sum(len(part.interiors) for part in shapely.get_parts(geometry))


# --- simplifying -----------------------------------------------------------------------------


@pytest.mark.parametrize("simplify", [0.5, 1.0, 3.0, 30.0])
@pytest.mark.parametrize("place", GRIDS)
def test_simplifying_never_breaks_topology(place, simplify):
    mask = blobs(hash_of(place, simplify))
    chance = np.ones(mask.shape, np.float32)
    grid = grid_of(place)
    exact = polygons(mask, chance, grid)
    frame = polygons(mask, chance, grid, simplify=simplify)
    assert len(frame) == len(exact) > 20
    assert frame.is_valid.all()
    assert not frame.is_empty.any()
    assert set(frame.geom_type) <= {"Polygon", "MultiPolygon"}
    assert [holes(g) for g in frame.geometry] == [holes(g) for g in exact.geometry]
    assert sum(map(holes, frame.geometry)) > 0
    assert overlaps(frame) == pytest.approx(0, abs=1e-6 * shapely.area(frame.geometry).sum())
    points, before = frame.count_coordinates().sum(), exact.count_coordinates().sum()
    assert points < before if simplify >= 1 else points <= before


def hash_of(place: str, simplify: float) -> int:
    return list(GRIDS).index(place) * 100 + int(simplify * 2)


def overlaps(frame: gpd.GeoDataFrame) -> float:
    """The area that lies in two polygons."""
    first, second = frame.sindex.query(frame.geometry, predicate="intersects")
    pairs = first < second
    shapes = frame.geometry.to_numpy()
    return float(
        shapely.area(shapely.intersection(shapes[first[pairs]], shapes[second[pairs]])).sum()
    )


def test_an_island_in_a_lake_stays_in_its_lake():
    mask = np.zeros((60, 60), np.uint8)
    mask[5:55, 5:55] = 1
    mask[20:40, 20:40] = 0
    mask[26:34, 26:34] = 1
    frame = polygons(mask, np.ones(mask.shape), grid_of("utm", 60, 60), simplify=4.0)
    land, island = frame.geometry
    assert (holes(land), holes(island)) == (1, 0)
    assert shapely.Polygon(land.interiors[0]).contains(island)
    assert not land.intersects(island)


# --- least area ------------------------------------------------------------------------------


def squares() -> np.ndarray:
    """Changes of 1, 4, 9, ... 100 pixels."""
    mask = np.zeros((30, 130), np.uint8)
    left = 1
    for side in range(1, 11):
        mask[5 : 5 + side, left : left + side] = 1
        left += side + 2
    return mask


@pytest.mark.parametrize("latitude", [0, 60])
def test_the_least_area_is_in_square_metres_on_a_geographic_grid(latitude):
    mask = squares()
    step = 1e-5
    grid = Grid(CRS.from_epsg(4326), Affine(step, 0, 13, 0, -step, latitude), 130, 30)
    everything = polygons(mask, np.ones(mask.shape), grid)
    pixel = abs(
        Geod(ellps="WGS84").geometry_area_perimeter(
            shapely.box(13, latitude - step, 13 + step, latitude)
        )[0]
    )
    assert pixel == pytest.approx(1.11**2 * np.cos(np.radians(latitude)), rel=0.02)
    assert sorted(everything["area_m2"] / pixel) == pytest.approx(
        [side**2 for side in range(1, 11)], rel=1e-3
    )
    kept = polygons(mask, np.ones(mask.shape), grid, min_area=30 * pixel)
    assert sorted(np.rint(kept["area_m2"] / pixel)) == [36, 49, 64, 81, 100]
    # One number of metres is more pixels in the north, where they are narrower: 17 and 33.
    assert len(polygons(mask, np.ones(mask.shape), grid, min_area=20.5)) == (5 if latitude else 6)


def test_the_least_area_in_feet_pixels_and_at_its_limit():
    mask = squares()
    ones = np.ones(mask.shape)
    foot = 1200 / 3937
    feet = grid_of("feet", 30, 130)
    pixel = (1.5 * foot) ** 2
    assert len(polygons(mask, ones, feet, min_area=24.9 * pixel)) == 6
    assert len(polygons(mask, ones, feet, min_area=25.1 * pixel)) == 5
    assert len(polygons(mask, ones, grid_of("pixels", 30, 130), min_area=25)) == 6  # 25 stays
    assert len(polygons(mask, ones, grid_of("utm", 30, 130), min_area=25.01)) == 0


# --- layers ----------------------------------------------------------------------------------


def names_of(suffix: str) -> list[str]:
    return ["perim_m" if name == "perimeter_m" and suffix == ".shp" else name for name in FIELDS]


@pytest.mark.parametrize("reason", ["no change", "all too small", "all nodata"])
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("place", ["utm", "degrees"])
def test_an_empty_layer_has_its_fields_and_system(tmp_path, suffix, place, reason):
    mask = {
        "no change": np.zeros((30, 130), np.uint8),
        "all too small": squares(),
        "all nodata": np.full((30, 130), 255, np.uint8),
    }[reason]
    grid = grid_of(place, 30, 130)
    frame = polygons(mask, np.zeros(mask.shape), grid, min_area=1e6, simplify=1.0)
    path = tmp_path / f"change{suffix}"
    write_layer(frame, path)
    back = gpd.read_file(path)
    assert len(back) == 0
    if suffix == ".geojson":  # without features there is nowhere to name a field
        assert '"FeatureCollection"' in path.read_text()
        return
    assert back.crs == CRS.from_epsg(GRIDS[place][0])
    assert list(back.columns) == [*names_of(suffix), "geometry"]
    assert [back[name].dtype.kind for name in names_of(suffix)] == list(FIELDS.values())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_simplified_polygons_are_as_sound_on_disk(tmp_path: Path, suffix: str) -> None:
    mask = blobs(7)
    frame = polygons(mask, np.ones(mask.shape), grid_of("utm"), simplify=2.0)
    path = tmp_path / f"change{suffix}"
    write_layer(frame, path)
    back = gpd.read_file(path).to_crs(frame.crs).sort_values("id", ignore_index=True)
    assert back.is_valid.all()
    assert [holes(g) for g in back.geometry] == [holes(g) for g in frame.geometry]
    # GeoJSON's seven decimals are a centimetre.
    assert overlaps(back) < 1e-3 * frame.area.sum()
