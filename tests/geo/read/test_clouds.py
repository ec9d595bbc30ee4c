"""Masks of clouds: the archives' rules, another grid, and masks that are not what they seem."""

from __future__ import annotations

import numpy as np
import pytest
from affine import Affine
from rasterio.windows import Window

from adadino.errors import ConfigError, InputError
from adadino.geo.read.clouds import RULES, read_rule
from adadino.geo.read.raster import open_pair
from tests.geo.rasters import NORTH_UP, H, W, everything, noise, write


def test_rules_are_those_of_the_archives():
    scl = np.arange(12)
    assert np.flatnonzero(~RULES["scl"].excludes(scl)).tolist() == [2, 4, 5, 6, 7]
    assert RULES["qa60"].excludes(np.array([0, 1 << 10, 1 << 11])).tolist() == [False, True, True]
    clear, cloud, shadow = 21824, 22280, 23888  # as USGS gives them for Landsat 8
    assert RULES["qa_pixel"].excludes(np.array([clear, cloud, shadow])).tolist() == [
        False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "file", "rule"),
    [
        ("clouds.tif", "clouds.tif", "everything but 0"),
        ("T32_20200101_SCL_20m.jp2", "T32_20200101_SCL_20m.jp2", "scl"),
        ("LC08_QA_PIXEL.TIF", "LC08_QA_PIXEL.TIF", "qa_pixel"),
        ("a=b.tif=QA60", "a=b.tif", "qa60"),
        ("x.tif=3,8", "x.tif", "3,8"),
    ],
)
def test_a_mask_is_told_by_its_name_or_by_the_user(text, file, rule):
    path, found = read_rule(text)
    assert (path, found.name) == (file, rule)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ConfigError, match="'clouds' is no rule; give scl"):
        read_rule("x.tif=clouds")


@pytest.fixture
def pair(tmp_path):
    values = noise(3, H, W)
    first = write(tmp_path / "a.tif", values, photometric="RGB")
    values[0, 0, 0] += 1
    return first, write(tmp_path / "b.tif", values, photometric="RGB")


def test_a_coarser_mask_takes_its_nearest_pixel(pair, tmp_path):
    scl = np.full((1, H // 2, W // 2), 4, np.uint8)
    scl[0, 3, 5] = 9
    mask = write(tmp_path / "m.tif", scl, transform=NORTH_UP * Affine.scale(2))
    with open_pair(*pair, masks=[f"{mask}=scl"]) as reader:
        valid = everything(reader).valid
        assert reader.masks[0].share == pytest.approx(4 / (H * W))
    expected = np.ones((H, W), bool)
    expected[6:8, 10:12] = False
    assert (valid == expected).all()


def test_what_a_mask_does_not_cover_is_left_out(pair, tmp_path):
    mask = write(tmp_path / "m.tif", np.zeros((1, H, W // 2), np.uint8))
    with open_pair(*pair, masks=[str(mask)]) as reader:
        valid = everything(reader).valid
    assert valid[:, : W // 2].all()
    assert not valid[:, W // 2 :].any()
    assert reader.masks[0].covered == 0.5


@pytest.mark.parametrize(
    ("values", "rule", "place", "message"),
    [
        (37, "scl", NORTH_UP, "holds 37, which scl does not know.*=3,8,9"),
        (5, "qa60", NORTH_UP, "holds 5, which qa60"),
        (0, "scl", NORTH_UP * Affine.translation(999, 0), "lies elsewhere"),
        (0, "scl", None, "has no coordinate system"),
    ],
)
def test_a_mask_that_cannot_be_is_refused(pair, tmp_path, values, rule, place, message):
    mask = write(tmp_path / "m.tif", np.full((1, H, W), values, np.uint8), transform=place)
    with pytest.raises(InputError, match=message):
        open_pair(*pair, masks=[f"{mask}={rule}"])


def test_pixels_without_a_place_need_a_mask_of_their_size(tmp_path):
    values = noise(3, H, W)
    names = [write(tmp_path / f"{n}.tif", values + i, transform=None, photometric="RGB")
             for i, n in enumerate("ab")]  # fmt: skip
    good = write(tmp_path / "m.tif", (noise(1, H, W) > 99).astype("u1"), transform=None)
    with open_pair(*names, masks=[str(good)]) as reader:
        assert (reader.read(Window(3, 4, 5, 6)).valid == (noise(1, H, W)[0] <= 99)[4:10, 3:8]).all()
    bad = write(tmp_path / "n.tif", np.zeros((1, H, W - 1), np.uint8), transform=None)
    with pytest.raises(InputError, match=f"is {W - 1} x {H} pixels and the scene {W} x {H}"):
        open_pair(*names, masks=[str(bad)])
