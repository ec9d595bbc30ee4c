"""Many files as one: the same pixels at the same places, and gaps that are gaps."""

from __future__ import annotations

import numpy as np
import pytest
import rasterio
from affine import Affine

from adadino.errors import InputError
from adadino.geo.read.raster import open_pair
from adadino.geo.write.vrt import write_mosaic
from tests.geo.rasters import NORTH_UP, everything, noise, write


def quarters(folder, values, **settings):
    """A 40 x 60 image as four files, without the last."""
    folder.mkdir()
    files = []
    for row in (0, 20):
        for col in (0, 30):
            place = NORTH_UP * Affine.translation(col, row)
            part = values[:, row : row + 20, col : col + 30]
            files.append(write(folder / f"{row}-{col}.tif", part, transform=place, **settings))
    return files[:-1]


@pytest.mark.parametrize("settings", [{}, {"nodata": 0}, {"internal_mask": True}])
def test_a_mosaic_is_the_image_it_was_cut_from_and_its_gap_is_invalid(tmp_path, settings):
    values = noise(3, 40, 60)
    files = quarters(tmp_path / "parts", values, **settings)
    if "nodata" in settings:
        values[:, 3, 5] = 0  # every band: a pixel without data
        quarters_again = tmp_path / "again"
        files = quarters(quarters_again, values, **settings)
    write_mosaic(tmp_path / "m.vrt", files)
    with rasterio.open(tmp_path / "m.vrt") as mosaic:
        assert (mosaic.height, mosaic.width, mosaic.transform) == (40, 60, NORTH_UP)
        assert mosaic.crs == rasterio.open(files[0]).crs
        assert np.array_equal(mosaic.read()[:, :20], values[:, :20])
    other = write(tmp_path / "other.tif", noise(3, 40, 60)[::-1])
    with open_pair(tmp_path / "m.vrt", other) as reader:
        valid = everything(reader).valid
    expected = np.ones((40, 60), bool)
    expected[20:, 30:] = False
    if "nodata" in settings:
        expected[3, 5] = False
    assert np.array_equal(valid, expected)


def test_a_mosaic_that_says_the_same_keeps_its_date(tmp_path):
    files = quarters(tmp_path / "parts", noise(3, 40, 60))
    write_mosaic(tmp_path / "m.vrt", files)
    before = (tmp_path / "m.vrt").stat()
    write_mosaic(tmp_path / "m.vrt", files)
    after = (tmp_path / "m.vrt").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_images_that_are_no_mosaic_are_refused_by_what_differs(tmp_path):
    first = write(tmp_path / "a.tif", noise(3, 8, 8))
    second = write(tmp_path / "b.tif", noise(1, 8, 8))
    with pytest.raises(InputError, match=r"b.tif has another number or type of bands than .*a.tif"):
        write_mosaic(tmp_path / "m.vrt", [first, second])
    half = write(
        tmp_path / "c.tif", noise(3, 8, 8), transform=NORTH_UP * Affine.translation(8.5, 0)
    )
    with pytest.raises(InputError, match=r"off by \+0.00 rows and [-+]0.50 columns"):
        write_mosaic(tmp_path / "m.vrt", [first, half])
