from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.enums import ColorInterp

from adadino.errors import BandWarning, GridWarning, InputError
from adadino.geo.read.raster import open_pair
from tests.geo.rasters import NORTH_UP, H, W, noise, read, write


def test_rgb_bytes_are_divided_by_255(rgb: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other.tif", noise(3, H, W)[::-1])
    pair = read(rgb, other)
    np.testing.assert_array_equal(pair.before, noise(3, H, W).astype(np.float32) / 255)
    np.testing.assert_array_equal(pair.after, pair.before[::-1])
    assert pair.valid.all()
    assert {values.dtype.name for values in pair} == {"float32", "bool"}


def test_colour_interpretation_decides(rgb: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "bgr.tif", noise(4, H, W))
    colours = [ColorInterp.blue, ColorInterp.green, ColorInterp.red, ColorInterp.undefined]
    with rasterio.open(path, "r+") as file:
        file.colorinterp = colours
    pair = read(path, rgb)
    np.testing.assert_array_equal(pair.before, noise(4, H, W)[2::-1].astype(np.float32) / 255)


def test_thirteen_bands_give_the_first_three_or_those_asked_for(tmp_path: Path) -> None:
    values = noise(13, H, W)
    path = write(tmp_path / "13.tif", values)
    copy = write(tmp_path / "13b.tif", values)
    np.testing.assert_array_equal(read(path, copy).after[0], values[0].astype("f4") / 255)
    chosen = read(path, copy, bands=(13, 2, 1))
    np.testing.assert_array_equal(chosen.after, values[[12, 1, 0]].astype("f4") / 255)


def test_one_band_repeats_and_says_so(rgb: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "grey.tif", noise(1, H, W))
    with pytest.warns(BandWarning, match=r"grey\.tif: one band"):
        pair = read(path, rgb)
    assert (pair.before == pair.before[0]).all()


def test_one_band_that_was_asked_for_needs_no_warning(rgb: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "grey.tif", noise(1, H, W))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        assert (read(path, rgb, bands=(1,)).after == read(path, rgb, bands=(1, 1, 1)).after).all()


def test_two_bands_are_a_question(rgb: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "two.tif", noise(2, H, W))
    with pytest.raises(InputError, match=r"two\.tif\) has 2 bands .*--bands"):
        open_pair(path, rgb)


def test_missing_bands_are_counted(rgb: Path, tmp_path: Path) -> None:
    six = write(tmp_path / "six.tif", noise(6, H, W))
    with pytest.raises(InputError, match=r"after .* has no band 6: it has 3"):
        open_pair(six, rgb, bands=(6, 5, 4))
    with pytest.raises(InputError, match="three band numbers or one, not 2"):
        open_pair(six, rgb, bands=(1, 2))


def test_palettes_expand(rgb: Path, tmp_path: Path) -> None:
    index = noise(1, H, W, low=0, high=3)
    colours = {0: (255, 0, 0), 1: (0, 128, 0), 2: (10, 20, 30)}
    path = write(tmp_path / "palette.tif", index, colormap=colours)
    table = np.array(list(colours.values()), dtype=np.float32) / 255
    np.testing.assert_array_equal(
        read(rgb, path).after, np.moveaxis(table[index[0]], -1, 0).astype(np.float32)
    )


def test_a_warped_palette_invents_no_colour(rgb: Path, tmp_path: Path) -> None:
    colours = {0: (255, 0, 0), 1: (0, 255, 0), 2: (0, 0, 255)}
    moved = NORTH_UP * Affine.translation(0.3, 0.3)
    index = noise(1, H, W, low=0, high=3)
    path = write(tmp_path / "palette.tif", index, colormap=colours, transform=moved)
    with pytest.warns(GridWarning):
        pair = read(rgb, path)
    assert set(np.unique(pair.after.sum(axis=0))) == {1.0}
