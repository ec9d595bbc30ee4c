"""What to compare, from tables, folders and catalogues."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
import rasterio
from affine import Affine

from adadino.area.pairs import as_mosaics, read_pairs
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
