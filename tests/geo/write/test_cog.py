"""Rasters as analysts get them: COGs that read back, whole or not at all, always the same."""

from __future__ import annotations

import json
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
from affine import Affine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from rasterio.crs import CRS
from rasterio.errors import RasterioIOError

from adadino.errors import WriteError
from adadino.geo.grid import Grid
from adadino.geo.write.cog import MASK, PROBABILITY, check_target, raster_writer
from adadino.geo.write.qml import write_qml

UTM = CRS.from_epsg(32633)
NORTH_UP = Affine(0.5, 0, 4e5, 0, -0.5, 5e6)


def utm(height, width, transform=NORTH_UP):
    return Grid(crs=UTM, transform=transform, width=width, height=height)


def pixels(height, width):
    return Grid(crs=None, transform=Affine.identity(), width=width, height=height)


def a_mask(height, width):
    mask = np.zeros((height, width), np.uint8)
    mask[height // 3 : height // 2, width // 4 : width // 2] = 1
    mask[: height // 8] = 255
    return mask


def a_probability(height, width):
    probability = np.random.default_rng(0).random((height, width), np.float32)
    probability[: height // 8] = np.nan
    return probability


def write(path, grid, layer, array, *, step=193, **options):
    with raster_writer(path, grid, layer, **options) as writer:
        for row in range(0, len(array), step):
            writer.write(row, array[row : row + step])


@pytest.mark.parametrize("suffix", [".tif", ".tiff"])
def test_a_mask_reads_back_with_its_meaning(tmp_path, suffix):
    path, mask = tmp_path / f"change{suffix}", a_mask(1300, 700)
    tags = {"model": "adadino-l", "threshold": 0.5, "inputs": ["a.tif", "b.tif"]}
    write(path, utm(1300, 700), MASK, mask, tags=tags)
    with rasterio.open(path) as dataset:
        np.testing.assert_array_equal(dataset.read(1), mask)
        assert (dataset.crs, dataset.transform) == (UTM, NORTH_UP)
        assert (dataset.dtypes, dataset.nodata) == (("uint8",), 255)
        assert dataset.descriptions[0].startswith("change")
        assert dataset.colormap(1)[1] == (230, 60, 30, 255)
        assert dataset.tags()["TIFFTAG_SOFTWARE"] == "adadino"
        assert dataset.tags()["model"] == "adadino-l"
        assert json.loads(dataset.tags()["inputs"]) == ["a.tif", "b.tif"]
        small = dataset.read(1, out_shape=(325, 175))
        assert set(np.unique(small)) == {0, 1, 255}  # mode: no class between classes
    assert_cog(path, overviews=True)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_probability_reads_back_exactly(tmp_path):
    path, probability = tmp_path / "p.tif", a_probability(600, 1100)
    write(path, utm(600, 1100), PROBABILITY, probability)
    with rasterio.open(path) as dataset:
        np.testing.assert_array_equal(dataset.read(1), probability)
        assert np.isnan(dataset.nodata)
        average = dataset.read(1, out_shape=(300, 550))
        expected = probability[100:].reshape(250, 2, 550, 2).mean(axis=(1, 3))
        np.testing.assert_allclose(average[50:], expected, rtol=1e-5)
    assert_cog(path, overviews=True)


def assert_cog(path, *, overviews):
    with rasterio.open(path) as dataset:
        structure = dataset.tags(ns="IMAGE_STRUCTURE")
        assert (structure["LAYOUT"], structure["COMPRESSION"]) == ("COG", "DEFLATE")
        assert dataset.block_shapes == [(512, 512)]
        assert bool(dataset.overviews(1)) == overviews
        # What a validator looks at: the overviews' blocks lie before those of the full image.
        firsts = [dataset.get_tag_item("BLOCK_OFFSET_0_0", "TIFF", bidx=1)]
        firsts += [
            dataset.get_tag_item("BLOCK_OFFSET_0_0", "TIFF", bidx=1, ovr=level)
            for level in range(len(dataset.overviews(1)))
        ]
        offsets = [int(first) for first in firsts]
        assert offsets == sorted(offsets, reverse=True)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    height=st.integers(1, 1100),
    width=st.sampled_from([1, 3, 513]),
    step=st.integers(1, 700),
)
def test_any_size_in_any_blocks_is_what_was_given(tmp_path, height, width, step):
    mask = a_mask(height, width)
    path = tmp_path / "any.tif"
    write(path, utm(height, width), MASK, mask, step=step, overwrite=True)
    with rasterio.open(path) as dataset:
        np.testing.assert_array_equal(dataset.read(1), mask)
    assert_cog(path, overviews=max(height, width) > 512)


@pytest.mark.parametrize(
    "transform",
    [Affine(0.5, 0, 4e5, 0, 0.5, 5e6), Affine(0.4, -0.3, 4e5, -0.3, -0.4, 5e6)],
    ids=["south-up", "rotated"],
)
def test_unusual_transforms_are_kept(tmp_path, transform):
    write(tmp_path / "m.tif", utm(40, 30, transform), MASK, a_mask(40, 30))
    with rasterio.open(tmp_path / "m.tif") as dataset:
        assert dataset.transform.almost_equals(transform)


@pytest.mark.parametrize(("layer", "make"), [(MASK, a_mask), (PROBABILITY, a_probability)])
@pytest.mark.parametrize("suffix", [".tif", ".png"])
def test_two_runs_give_the_same_bytes(tmp_path, layer, make, suffix):
    grid, array = pixels(700, 900), make(700, 900)
    paths = [tmp_path / f"one{suffix}", tmp_path / f"another{suffix}"]
    for path, step in zip(paths, (193, 512), strict=True):
        write(path, grid, layer, array, step=step, tags={"model": "m"})
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_pixels_become_png(tmp_path):
    mask, probability = a_mask(90, 50), a_probability(90, 50)
    write(tmp_path / "m.png", pixels(90, 50), MASK, mask)
    write(tmp_path / "p.png", pixels(90, 50), PROBABILITY, probability)
    with Image.open(tmp_path / "m.png") as picture:
        assert picture.mode == "P"
        np.testing.assert_array_equal(np.asarray(picture), mask)
        coloured = np.asarray(picture.convert("RGBA"))
    assert tuple(coloured[mask == 1][0]) == (230, 60, 30, 255)
    assert (coloured[mask == 255][:, 3] == 0).all()
    with Image.open(tmp_path / "p.png") as picture:
        stored = np.asarray(picture).astype(np.float64)
    np.testing.assert_array_equal(stored == 65535, np.isnan(probability))
    valid = ~np.isnan(probability)
    np.testing.assert_allclose(stored[valid] / 65534, probability[valid], atol=1e-5)


def test_targets_that_cannot_be_are_refused_before_any_work(tmp_path):
    existing, folder = tmp_path / "there.tif", tmp_path / "folder.tif"
    existing.write_bytes(b"precious")
    folder.mkdir()
    link = tmp_path / "link.tif"
    link.symlink_to(existing)
    refusals = [
        (existing, utm(2, 2), {}, "exists"),
        (folder, utm(2, 2), {"overwrite": True}, "folder"),
        (tmp_path / "map.jpg", utm(2, 2), {}, r"end it in \.tif"),
        (tmp_path / "map.png", utm(2, 2), {}, "coordinates"),
        (existing / "map.tif", utm(2, 2), {}, "cannot write"),
    ]
    for path, grid, options, message in refusals:
        with (
            pytest.raises(WriteError, match=message),
            raster_writer(path, grid, MASK, **options),
        ):
            pytest.fail("the writer was handed out")
    with pytest.raises(WriteError, match="is an input"):
        check_target(link, inputs=[existing], overwrite=True)
    assert existing.read_bytes() == b"precious"
    assert len(list(tmp_path.iterdir())) == 3


def test_overwriting_replaces_the_file(tmp_path):
    path = tmp_path / "m.tif"
    path.write_bytes(b"old")
    write(path, utm(20, 20), MASK, a_mask(20, 20), overwrite=True)
    assert_cog(path, overviews=False)


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RasterioIOError, ValueError])
def test_an_interrupted_run_leaves_nothing_and_keeps_its_own_error(tmp_path, problem):
    def interrupted():
        with raster_writer(tmp_path / "m.tif", utm(1200, 60), MASK) as writer:
            writer.write(0, a_mask(1000, 60))
            raise problem

    with pytest.raises(problem):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_missing_and_repeated_rows_are_noticed(tmp_path):
    with pytest.raises(ValueError, match="got 20 of 30 rows"):
        write(tmp_path / "m.tif", utm(30, 9), MASK, a_mask(20, 9))
    with raster_writer(tmp_path / "n.tif", utm(30, 9), MASK) as writer:
        with pytest.raises(ValueError, match="at row 10 does not continue"):
            writer.write(10, a_mask(20, 9))
        writer.write(0, a_mask(30, 9))
        with pytest.raises(ValueError, match="at row 0 does not continue"):
            writer.write(0, a_mask(1, 9))
    assert [file.name for file in tmp_path.iterdir()] == ["n.tif"]


@pytest.mark.parametrize("room", [500_000, 1_250_000], ids=["rows", "conversion"])
def test_a_full_disk_is_one_sentence_and_no_file(tmp_path, room):
    """The second size holds the rows but not the overviews: GDAL alone would not report it."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(WriteError, match=r"^cannot write \S+; is the disk full\?"):
            write(tmp_path / "p.tif", utm(340, 1100), PROBABILITY, a_probability(340, 1100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("gdalinfo") is None, reason="GDAL's own tools are not here")
def test_gdalinfo_agrees(tmp_path):
    write(tmp_path / "m.tif", utm(600, 600), MASK, a_mask(600, 600))
    said = subprocess.run(
        ["gdalinfo", "-json", tmp_path / "m.tif"], check=True, capture_output=True
    )
    info = json.loads(said.stdout)
    assert info["metadata"]["IMAGE_STRUCTURE"]["LAYOUT"] == "COG"
    assert info["bands"][0]["noDataValue"] == 255
    assert info["bands"][0]["colorInterpretation"] == "Palette"


def test_one_style_serves_the_raster_and_the_polygons_of_one_name(tmp_path):
    write_qml(tmp_path / "change.qml", "mask", "polygons")
    root = ElementTree.parse(tmp_path / "change.qml").getroot()
    entries = root.findall("pipe/rasterrenderer[@type='paletted']/colorPalette/paletteEntry")
    assert [(e.get("value"), e.get("alpha")) for e in entries] == [("0", "0"), ("1", "160")]
    options = {o.get("name"): o.get("value") for o in root.findall("renderer-v2//Option[@name]")}
    assert options["style"] == "no"
    assert options["outline_color"] == "122,18,0,255"
    assert root.findtext("layerGeometryType") == "2"


def test_the_style_of_a_probability_runs_from_clear_to_red(tmp_path):
    write_qml(tmp_path / "p.qml", "probability")
    items = ElementTree.parse(tmp_path / "p.qml").getroot().findall("pipe//colorrampshader/item")
    assert [items[0].get("alpha"), items[-1].get("alpha")] == ["0", "255"]
