"""What was found, through the API: tiles, polygons and files at a threshold."""

from __future__ import annotations

import io
import time

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from PIL import Image


def path(demo, what):
    return f"/api/jobs/{demo['id']}/{what}"


def probability(client, demo):
    content = client.get(path(demo, "probability.tif")).content
    with rasterio.MemoryFile(content) as file, file.open() as dataset:
        return dataset.read(1), dataset.crs, dataset.transform


def test_the_demo_is_there_and_says_what_it_is(demo):
    assert demo["name"] == "demo"
    assert demo["view"]["crs"] == "EPSG:32633"
    assert demo["result"]["change_fraction"] > 0
    assert "client" not in demo


def test_polygons_follow_the_threshold_and_are_those_of_the_probability(client, demo):
    values, _, transform = probability(client, demo)
    counts = []
    for threshold in (0.3, 0.5):
        found = client.get(path(demo, "polygons"), params={"threshold": threshold}).json()
        counts.append(found["count"])
        area = (values >= np.float32(threshold)).sum() * abs(transform.determinant)
        assert found["area"] == pytest.approx(area)
        assert found["count"] == len(found["features"])
        sizes = [feature["properties"]["area_m2"] for feature in found["features"]]
        assert sizes == sorted(sizes, reverse=True)
    assert counts[0] != counts[1]


def test_small_polygons_are_left_out(client, demo):
    every = client.get(path(demo, "polygons")).json()["features"]
    least = every[len(every) // 2]["properties"]["area_m2"]
    some = client.get(path(demo, "polygons"), params={"min_area": least}).json()["features"]
    assert [f["id"] for f in some] == [
        f["id"] for f in every if f["properties"]["area_m2"] >= least
    ]
    assert 0 < len(some) < len(every)


@pytest.mark.parametrize("threshold", [0.5, 0.37])
def test_the_mask_is_the_probability_cut_at_the_threshold(client, demo, threshold):
    answer = client.get(path(demo, "mask.tif"), params={"threshold": threshold})
    values, crs, transform = probability(client, demo)
    with rasterio.MemoryFile(answer.content) as file, file.open() as dataset:
        assert dataset.crs == crs
        assert dataset.transform == transform
        assert dataset.tags()["ADADINO_THRESHOLD"] == str(threshold)
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        np.testing.assert_array_equal(dataset.read(1), values >= np.float32(threshold))
    assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.parametrize(("name", "crs"), [("result.gpkg", 32633), ("result.geojson", 4326)])
def test_polygon_files_hold_what_the_screen_shows(client, demo, tmp_path, name, crs):
    asked = {"threshold": 0.45, "min_area": 4}
    shown = client.get(path(demo, "polygons"), params=asked).json()
    file = tmp_path / name
    file.write_bytes(client.get(path(demo, name), params=asked).content)
    frame = gpd.read_file(file)
    assert frame.crs.to_epsg() == crs
    assert len(frame) == shown["count"] > 0
    assert frame["area_m2"].sum() == pytest.approx(shown["area"], rel=1e-6)


def test_the_overview_is_a_picture(client, demo):
    answer = client.get(path(demo, "overview.png"), params={"threshold": 0.4})
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert picture.format == "PNG"
        assert picture.width > 700


def test_nothing_is_left_of_a_download(client, demo, server):
    client.get(path(demo, "mask.tif"))
    until = time.monotonic() + 10
    while left := [entry for entry in server.jobs.iterdir() if entry.name.startswith(".incoming")]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def tile(client, demo, layer, z, x, y):
    answer = client.get(path(demo, f"tiles/{layer}/{z}/{x}/{y}.png"))
    assert answer.headers["content-type"] == "image/png"
    with Image.open(io.BytesIO(answer.content)) as picture:
        return np.asarray(picture.convert("RGBA"))


def test_tiles_show_the_scene_where_it_lies(client, demo, server):
    with rasterio.open(server.jobs / demo["id"] / "after.tif") as dataset:
        scene = dataset.read().transpose(1, 2, 0).astype(float)
    small = scene.reshape(256, 2, 256, 2, 3).mean((1, 3))
    last = tile(client, demo, "after", 1, 1, 0)  # the last level: a pixel is a pixel
    whole = tile(client, demo, "after", 0, 0, 0)
    for drawn, wanted in ((last, scene[:256, 256:]), (whole, small)):
        off = np.abs(drawn[..., :3] - wanted).mean()
        assert off < 6  # JPEG, but in the right place:
        assert off < 0.5 * np.abs(drawn[..., :3] - np.roll(wanted, 4, axis=0)).mean()


def test_the_probability_is_painted_by_its_value(client, demo):
    values, _, _ = probability(client, demo)
    alpha = tile(client, demo, "probability", 1, 0, 0)[..., 3].astype(float)
    near = values[:256, :256]
    assert np.corrcoef(alpha.ravel(), np.minimum(near, 0.5).ravel())[0, 1] > 0.99


@pytest.mark.parametrize(
    ("where", "status"),
    [("after/1/2/0", 404), ("after/9/0/0", 404), ("mask/0/0/0", 422), ("after/0/-1/0", 422)],
)
def test_tiles_that_are_not_there(client, demo, where, status):
    answer = client.get(path(demo, f"tiles/{where}.png"))
    assert answer.status_code == status
    assert answer.json()["error"]


@pytest.mark.parametrize("threshold", ["0", "1", "nan", "-1", "x"])
def test_thresholds_that_are_none(client, demo, threshold):
    answer = client.get(path(demo, "polygons"), params={"threshold": threshold})
    assert answer.status_code == 422
    assert answer.json()["error"].startswith("threshold")
