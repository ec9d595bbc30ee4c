"""What to compare, from tables, folders and catalogues."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio import warp
from rasterio.windows import from_bounds

from adadino.area.mosaic import as_mosaics
from adadino.area.pairs import read_pairs
from adadino.area.units import Dates
from adadino.errors import InputError
from adadino.scene import predict_scene
from tests.area.regions import OPTIONS, area
from tests.geo.rasters import NORTH_UP, noise, write


def test_a_table_names_pairs_relative_to_itself(tmp_path):
    table = tmp_path / "pairs.csv"
    table.write_text("before,after,name\na/1.tif,b/1.tif,North 1\ns3://x/2.tif,https://y/2.tif,\n")
    first, second = read_pairs(table)
    assert first == Dates("North_1", str(tmp_path / "a/1.tif"), str(tmp_path / "b/1.tif"))
    assert second == Dates("2", "s3://x/2.tif", "/vsicurl/https://y/2.tif")
    table.write_text("before,after\na.tif,b.tif\nc/a.tif,d.tif\n")
    with pytest.raises(InputError, match="two pairs of the name a,"):
        read_pairs(table)
    table.write_text("first,second\na.tif,b.tif\n")
    with pytest.raises(InputError, match=r"pairs.csv, line 2: no before or no after"):
        read_pairs(table)


@pytest.mark.parametrize("names", [("before", "after"), ("A", "B")])
def test_files_of_one_name_are_a_pair(tmp_path, names):
    for folder in names:
        (tmp_path / folder).mkdir()
        for name in ("x.tif", "y.tif"):
            (tmp_path / folder / name).touch()
    assert [dates.name for dates in read_pairs(tmp_path)] == ["x", "y"]
    (tmp_path / names[0] / "z.tif").touch()
    with pytest.raises(InputError, match=r"z is in only one of .* \(1 such\)"):
        read_pairs(tmp_path)


def item(name, when, box, **assets):
    return {
        "type": "Feature",
        "id": name,
        "bbox": box,
        "properties": {"datetime": when},
        "assets": {key: {"href": href, "type": "image/tiff"} for key, href in assets.items()},
    }


def test_stac_items_of_one_footprint_are_a_pair(tmp_path):
    west, east = [0, 0, 1, 1], [1, 0, 2, 1]
    features = [
        item("w-new", "2024-05-01T00:00:00Z", west, visual="w24.tif", thumbnail="t.tif"),
        item("e-old", "2019-05-01T00:00:00Z", east, anything="e19.tif"),
        item("w-old", "2019-05-01T00:00:00Z", west, visual="w19.tif"),
        item("e-new", "2024-05-01T00:00:00Z", east, visual="e24.tif"),
        item("both", "2024-05-01T00:00:00Z", west, before="b.tif", after="a.tif"),
    ]
    document = tmp_path / "items.json"
    document.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    found = {d.name: (d.before, d.after) for d in read_pairs(document)}
    assert found["w-old"] == (str(tmp_path / "w19.tif"), str(tmp_path / "w24.tif"))
    assert found["e-old"] == (str(tmp_path / "e19.tif"), str(tmp_path / "e24.tif"))
    assert found["both"] == (str(tmp_path / "b.tif"), str(tmp_path / "a.tif"))

    (tmp_path / "one.json").write_text(json.dumps(features[4]))
    collection = {"type": "Collection", "links": [{"rel": "item", "href": "./one.json"}]}
    document.write_text(json.dumps(collection))
    assert [dates.name for dates in read_pairs(document)] == ["both"]

    document.write_text(json.dumps({"type": "FeatureCollection", "features": features[:3]}))
    with pytest.raises(InputError, match="item e-old has 0 others of its footprint"):
        read_pairs(document)


def test_of_many_dates_the_best_pair_of_each_place_is_taken(tmp_path):
    def shot(name, when, cloud, box=(0, 0, 1, 1)):
        found = item(name, f"{when}T00:00:00Z", list(box), visual=f"{name}.tif")
        found["properties"]["eo:cloud_cover"] = cloud
        return found

    features = [
        shot("cloudy-18", "2018-06-01", 60),
        shot("clear-18", "2018-07-01", 5),
        shot("winter-18", "2018-01-05", 1),
        shot("late-18", "2018-07-01", 30),  # the same day, another satellite
        shot("summer-23", "2023-07-10", 5),
        shot("winter-23", "2023-12-20", 0),
        shot("cloudy-23", "2023-07-05", 80),
        shot("foggy-a", "2018-07-01", 90, (1, 0, 2, 1)),
        shot("foggy-b", "2023-07-01", 90, (1, 0, 2, 1)),
    ]
    document = tmp_path / "search.json"
    document.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    foggy, clear = read_pairs(document)  # the clearest last: on top of a mosaic
    assert foggy.name == "foggy-a"
    names = [Path(path).stem for path in (clear.before, clear.after)]
    # winter to winter: 1 percent of clouds and 16 days; summer to summer: 10 percent and 9 days
    assert names == ["winter-18", "winter-23"]
    features[5]["properties"]["eo:cloud_cover"] = 12
    document.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    names = [
        Path(path).stem for path in (read_pairs(document)[1].before, read_pairs(document)[1].after)
    ]
    assert names == ["clear-18", "summer-23"]


def test_a_place_is_a_cell_or_nearly_the_same_box(tmp_path):
    def shot(name, year, box, **properties):
        found = item(name, f"{year}-06-01T00:00:00Z", box, visual=f"{name}.tif")
        found["properties"] |= properties
        return found

    row = {"landsat:wrs_path": "193", "landsat:wrs_row": "024"}
    features = [
        shot("near-a", 2018, [0, 0, 1, 1]),
        shot("near-b", 2023, [0.02, -0.03, 0, 1.02, 0.97, 50]),  # with heights
        shot("beside-a", 2018, [0.5, 0, 1.5, 1]),
        shot("beside-b", 2023, [0.51, 0, 1.51, 1]),
        shot("landsat-a", 2018, [5, 5, 7, 7], **row),
        shot("landsat-b", 2023, [5.6, 5, 7.6, 7], **row),
    ]
    document = tmp_path / "search.json"
    document.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    pairs = {(Path(d.before).stem, Path(d.after).stem) for d in read_pairs(document)}
    assert pairs == {(f"{n}-a", f"{n}-b") for n in ("near", "beside", "landsat")}
    features[0]["bbox"] = [1]
    document.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with pytest.raises(InputError, match="item near-a has a bbox of 1 numbers"):
        read_pairs(document)


def ramp(path, crs, transform, shape, *, value=None):
    """An image whose red and green say where on Earth it lies."""
    rows, cols = np.mgrid[: shape[0], : shape[1]] + 0.5
    x, y = transform * (cols.ravel(), rows.ravel())
    lon, lat = (np.reshape(v, shape) for v in warp.transform(crs, "EPSG:4326", x, y))
    image = np.stack([(lon - 11.99) * 12_000, (lat - 49.995) * 20_000, np.full(shape, 99.0)])
    image = image.clip(1, 254) if value is None else np.full_like(image, value)
    profile = {"driver": "GTiff", "count": 3, "dtype": "uint8", "crs": crs, "transform": transform}
    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(path, "w", height=shape[0], width=shape[1], **profile) as raster:
        raster.write(image.astype(np.uint8))


def test_mosaics_of_two_zones_are_a_pair_for_each(model, tmp_path):
    def corner(crs, lon):
        x, y = warp.transform("EPSG:4326", crs, [lon], [50.004])
        return Affine(5, 0, round(x[0]), 0, -5, round(y[0]))

    west, east, folder = "EPSG:32632", "EPSG:32633", tmp_path / "in"
    ramp(folder / "before/w.tif", west, corner(west, 11.992), (160, 128))
    ramp(folder / "before/e.tif", east, corner(east, 12.001), (160, 128))
    # The second date is in the eastern zone alone, on another lattice, in two parts with a gap.
    ramp(folder / "after/1.tif", east, corner(east, 11.991), (90, 400))
    whole = corner(east, 11.991) * Affine.translation(0, 100)
    ramp(folder / "after/2.tif", east, whole, (110, 400))
    pairs = as_mosaics(folder, tmp_path / "out")
    assert [dates.name for dates in pairs] == ["mosaic-EPSG_32632", "mosaic-EPSG_32633"]
    with rasterio.open(pairs[0].before) as before, rasterio.open(pairs[0].after) as after:
        assert before.crs == after.crs == west
        offset = ~before.transform * (after.transform.c, after.transform.f)
        assert max(abs(value - round(value)) for value in offset) < 1e-6
        window = from_bounds(*before.bounds, after.transform)
        seen = after.read(window=window, boundless=True, masked=False)
        there = after.dataset_mask(boundless=True, window=window) > 0
        rows, cols = np.mgrid[:160, :128] + 0.5
        x, y = before.transform * (cols.ravel(), rows.ravel())
        x, y = ~corner(east, 11.991) * np.array(warp.transform(west, east, x, y))
        covered = (x > 0) & (x < 400) & (((y > 0) & (y < 90)) | ((y > 100) & (y < 210)))
        assert 0.75 < covered.mean() < 0.95  # there is a gap
        assert (covered.reshape(160, 128) != there).mean() < 0.02  # but for the rims
        apart = abs(seen[:2].astype(int) - before.read()[:2])
        assert apart[:, there].max() <= 3  # the same places, to a pixel's step of the ramp
    options = dataclasses.replace(OPTIONS, scale=(0.0, 255.0))
    result = area(pairs, tmp_path / "out", model, options=options)
    assert result.failed == {}
    names = [Path(name).name for name in result.outputs]
    assert {"change-1.vrt", "change-2.vrt"} <= set(names)
    assert result.polygons.crs == "EPSG:4326"

    ramp(folder / "before/far.tif", "EPSG:32634", Affine(5, 0, 5e5, 0, -5, 5.5e6), (64, 64))
    with pytest.raises(InputError, match=r"no image of the second date lies where .*far.tif lies"):
        as_mosaics(folder, tmp_path / "other")


def test_folders_of_tiles_are_compared_as_two_mosaics_without_seams(model, tmp_path):
    images = {"before": noise(3, 128, 192), "after": noise(3, 128, 192)[::-1]}
    cuts = {"before": (0, 64), "after": (0, 80)}  # the two dates are cut differently
    for name, values in images.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        edges = (*cuts[name], 192)
        for left, right in pairwise(edges):
            place = NORTH_UP * Affine.translation(left, 0)
            path = tmp_path / "in" / name / f"{name}-{left}.tif"
            write(path, values[:, :, left:right].copy(), transform=place)
        write(tmp_path / f"{name}.tif", values.copy())
    whole = predict_scene(
        tmp_path / "before.tif", tmp_path / "after.tif", model, options=OPTIONS, device="cpu"
    )
    out = tmp_path / "out"
    area(as_mosaics(tmp_path / "in", out), out, model)
    with rasterio.open(out / "change.vrt") as mask:
        assert np.array_equal(mask.read(1), whole.mask)
    assert area(as_mosaics(tmp_path / "in", out), out, model).predicted == 0
