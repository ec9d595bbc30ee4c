"""The least area in a region: the mask, the figures and the polygons of one scene."""

from __future__ import annotations

import dataclasses
import json

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin
from skimage.filters import gaussian

from adadino.area.ledger import Ledger
from adadino.area.polygons import join_region, read_polygons
from adadino.area.sieve import save_kept, sieve_pair
from adadino.area.store import Folder
from adadino.area.units import Dates, PlacedDates, cut
from adadino.files import write_atomic
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import polygons, sieved
from adadino.scene import SceneOptions, predict_scene
from adadino.scene.outputs import Targets, change_flags, write_rasters
from tests.area.regions import OPTIONS, area, tree

GROUNDS = {
    "EPSG:32633": from_origin(500_000, 5_000_000, 0.5, 0.5),
    "EPSG:4326": from_origin(13, 52, 5e-6, 5e-6),
    None: rasterio.Affine.identity(),
}


def write_unit(ledger, unit, probability, scene, min_area, threshold):
    """What a worker leaves of a unit."""
    block = probability[unit.part]
    part = rasterio.windows.Window(unit.col, unit.row, unit.width, unit.height)
    raw = ledger.store.path(ledger.file(unit, "raw"))
    changed, valid = write_rasters(
        [(0, block)], Targets(mask=raw), scene.grid.part(part), threshold=threshold, tags={}
    )
    kept = save_kept(change_flags(block, threshold), block, scene.grid, min_area)
    write_atomic(ledger.store.path(ledger.file(unit, "kept")), kept)
    return ledger.finish(unit, ("raw", "kept"), changed=changed, valid=valid, min_area=min_area)


def a_probability(seed, shape=(150, 210)):
    """Blotches of every size, with holes, islands in holes, diagonals and some nodata."""
    draw = np.random.default_rng(seed)
    rough = gaussian(draw.random(shape), 1.5) + 0.05 * draw.random(shape)
    rank = rough.argsort(axis=None).argsort().reshape(shape) / rough.size
    rank[40:43, 100:104] = np.nan
    return rank.astype(np.float32)


def read(path):
    with rasterio.open(path) as raster:
        return raster.read(1)


@pytest.mark.parametrize("crs", GROUNDS)
@pytest.mark.parametrize("side", [64, 128])
def test_units_give_what_one_scene_gives(tmp_path, crs, side):
    system = None if crs is None else rasterio.crs.CRS.from_string(crs)
    for seed in range(3):
        chance = a_probability(seed)
        scene = PlacedDates(
            Dates(f"s{seed}", "b", "a"), Grid(system, GROUNDS[crs], chance.shape[1], len(chance))
        )
        min_area = {"EPSG:32633": 8.0, "EPSG:4326": 6.0, None: 30.0}[crs]
        ledger = Ledger(Folder(tmp_path / f"{seed}"))
        raw = {
            unit: write_unit(ledger, unit, chance, scene, min_area, 0.45)
            for unit in cut(scene, side)
        }
        records = sieve_pair(ledger, scene, raw, side, min_area, map)
        found = np.empty(chance.shape, np.uint8)
        for unit in records:
            found[unit.part] = read(ledger.store.path(ledger.file(unit, "mask")))

        flags = change_flags(chance, 0.45)
        bands = sieved(flags, scene.grid, min_area=min_area, fill=True)
        expected = np.concatenate([band for _, band in bands])
        assert (expected != flags).sum() > 300
        assert ((expected == 1) & (flags == 0)).any()  # some holes are filled
        assert np.array_equal(found, expected)
        assert sum(record["changed"] for record in records.values()) == (expected == 1).sum()

        options = SceneOptions(min_area=min_area)
        joined = join_region(ledger, [scene], {scene.dates: records}, side, options, map)
        ours = read_polygons(ledger, joined.files, several=False)
        theirs = polygons(expected, chance, scene.grid, min_area=min_area)
        assert ours.drop(columns="geometry").equals(theirs.drop(columns="geometry"))
        assert ours.geometry.to_wkb().tolist() == theirs.geometry.to_wkb().tolist()


def test_a_hole_beside_a_missing_unit_stays(tmp_path):
    chance = np.zeros((64, 128), np.float32)
    chance[20:40, 54:74] = 0.9
    chance[28:32, 60:68] = 0.1  # half of the hole lies in each unit
    scene = PlacedDates(Dates("s", "b", "a"), Grid(None, rasterio.Affine.identity(), 128, 64))
    ledger = Ledger(Folder(tmp_path))
    raw = {unit: write_unit(ledger, unit, chance, scene, 40, 0.5) for unit in cut(scene, 64)}
    left, right = raw
    both = sieve_pair(ledger, scene, raw, 64, 40, map)
    assert sum(record["changed"] for record in both.values()) == 400
    alone = sieve_pair(ledger, scene, {left: raw[left]}, 64, 40, map)
    assert alone[left]["changed"] == 200 - 16
    assert alone[left] != both[left]
    # Without a least area it is the mask as it was.
    plain = sieve_pair(ledger, scene, raw, 64, 0, map)
    assert [plain[unit]["changed"] for unit in (left, right)] == [184, 184]


def test_a_region_agrees_with_the_scene(dates, model, tmp_path):
    options = dataclasses.replace(OPTIONS, min_area=20.0)
    alone = predict_scene(
        dates.before, dates.after, model, output=tmp_path / "c.tif", options=options, device="cpu",
        vector=tmp_path / "c.gpkg",
    )  # fmt: skip
    out = tmp_path / "out"
    result = area([dates], out, model, options=options)
    assert np.array_equal(read(out / "change.vrt"), alone.mask)
    assert result.change_fraction == alone.change_fraction
    assert 0 < result.polygon_count == len(alone.polygons)
    ours, theirs = gpd.read_file(out / "change.gpkg"), gpd.read_file(tmp_path / "c.gpkg")
    assert ours.equals(theirs[list(ours.columns)])
    # The figures are the pixels': nothing is left in one that is missing in another.
    assert result.polygons["area_m2"].sum() == pytest.approx((alone.mask == 1).sum() * 0.25)
    with rasterio.open(next((out / "pairs" / "town" / "mask").iterdir())) as raster:
        assert raster.tags()["ADADINO_MIN_AREA"] == "20.0"

    before = tree(out)
    again = area([dates], out, model, options=options)
    assert again.predicted == 0
    assert tree(out) == before
    # A smaller one, or none, needs nothing predicted again; a larger one does.
    none = area([dates], out, model)
    assert none.predicted == 0
    plain = area([dates], tmp_path / "plain", model)
    assert none.change_fraction == plain.change_fraction > result.change_fraction
    assert none.polygons.equals(plain.polygons)
    larger = dataclasses.replace(OPTIONS, min_area=40.0)
    assert area([dates], out, model, options=larger).predicted == 6
    assert json.loads((out / "manifest.json").read_text())["options"]["min_area"] == 40
