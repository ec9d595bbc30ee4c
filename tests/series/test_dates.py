"""Which image is of which date: by what the user, STAC, tags and names say."""

from __future__ import annotations

import json

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin

from adadino.errors import ConfigError, InputError
from adadino.geo.read.dates import named
from adadino.series.dates import masks_by_date, read_series


def image(path, seed=0, *, left=400_000, tags=None, crs="EPSG:32633"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with rasterio.open(
        path, "w", driver="GTiff", width=40, height=40, count=3, dtype="uint8", crs=crs,
        transform=from_origin(left, 5_000_000, 0.5, 0.5),
    ) as raster:  # fmt: skip
        raster.write(np.random.default_rng(seed).integers(0, 256, (3, 40, 40), dtype="uint8"))
        raster.update_tags(**(tags or {}))
    return path


@pytest.mark.parametrize(
    ("name", "day"),
    [
        ("2019-06-01.tif", "2019-06-01"),
        ("S2A_MSIL1C_20190601T101031_N0207_R022_T33UUP.tif", "2019-06-01"),
        ("site_2019_06_01_rgb.tif", "2019-06-01"),
        ("2019.tif", "2019-01-01"),
        ("before_2048x2048_2019.tif", None),  # two years, perhaps
        ("2019-06-01_2020-06-01.tif", None),
        ("2019-02-31.tif", None),
        ("tile_120190601.tif", None),
        ("a.tif", None),
    ],
)
def test_a_date_in_a_name(name, day):
    found = named(name)
    assert (None if found is None else found.day) == day


def test_images_are_ordered_by_date_whoever_says_it(tmp_path):
    image(tmp_path / "b" / "c_2021-05-03.tif", 1)
    image(tmp_path / "b" / "2020.tif", 2, tags={"TIFFTAG_DATETIME": "2024:01:01 00:00:00"})
    image(tmp_path / "b" / "x.tif", 3, tags={"ACQUISITIONDATETIME": "2018-07-01T10:00:00Z"})
    image(tmp_path / "i.tif", 4)
    item = {
        "type": "Feature", "id": "i", "properties": {"datetime": "2019-03-02T09:00:00Z"},
        "assets": {"visual": {"href": "i.tif"}},
    }  # fmt: skip
    (tmp_path / "items.json").write_text(
        json.dumps({"type": "FeatureCollection", "features": [item]})
    )
    shots = read_series([tmp_path / "b", tmp_path / "items.json"], None)
    assert [shot.label for shot in shots] == [
        "2018-07-01",
        "2019-03-02",
        "2020-01-01",
        "2021-05-03",
    ]
    assert [shot.moment.source for shot in shots] == ["ACQUISITIONDATETIME", "STAC", "name", "name"]


def test_two_images_of_a_day_have_their_times(tmp_path):
    a, b = (image(tmp_path / f"{n}.tif", i) for i, n in enumerate("ab"))
    shots = read_series([a, b], ("2020-01-02T09:00:00", "2020-01-02T11:30:00"))
    assert [shot.label for shot in shots] == ["2020-01-02T090000", "2020-01-02T113000"]


@pytest.mark.parametrize(
    ("names", "dates", "kind", "says"),
    [
        (["2019.tif"], None, InputError, "there is only .*2019.tif; give more"),
        (["a.tif", "b.tif"], None, InputError, "nothing says when .*a.tif was taken.*--dates"),
        (["x/2019-01-02.tif", "y/2019-01-02.tif"], None, InputError, "have the same date, 2019"),
        (["a.tif", "b.tif"], ("2020-01-01", "2020-01-01"), InputError, "have the same date"),
        (["a.tif", "b.tif"], ("2021-01-01", "2020-01-01"), ConfigError, "oldest to the newest"),
        (["a.tif", "b.tif"], ("2021-01-01", "soon"), ConfigError, "'soon' is no date; write"),
        (["a.tif", "b.tif"], ("2021-01-01",), ConfigError, "1 dates for 2 images; give one"),
    ],
)
def test_dates_that_make_no_series_are_refused(tmp_path, names, dates, kind, says):
    images = [image(tmp_path / name, number) for number, name in enumerate(names)]
    with pytest.raises(kind, match=says):
        read_series(images, dates)


def test_an_unreadable_image_is_told_as_that(tmp_path):
    image(tmp_path / "2019.tif")
    (tmp_path / "b.tif").write_text("no image")
    with pytest.raises(InputError, match=r"cannot open .*b.tif as an image"):
        read_series([tmp_path / "2019.tif", tmp_path / "b.tif"], None)


def test_grids_that_do_not_meet_are_refused_by_name(tmp_path):
    images = [image(tmp_path / f"{2019 + n}.tif", n, left=400_000 + n * 15) for n in range(3)]
    with pytest.raises(InputError, match=r"2021.tif \(after\) does not lie on .*2019.tif"):
        read_series(images, None)
    assert len(read_series(images, None, pairs="consecutive")) == 3


def test_a_folder_without_images_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no image"):
        read_series([tmp_path], None)


def test_a_mask_belongs_to_its_date(tmp_path):
    shots = read_series([image(tmp_path / f"{2019 + n}-05-01.tif", n) for n in range(3)], None)
    masks = ("c/2020-05-01_clouds.tif=1", "2019-05-01=other.tif=scl", "always.tif")
    assert masks_by_date(masks, shots) == {
        "2019-05-01": ("other.tif=scl", "always.tif"),
        "2020-05-01": ("c/2020-05-01_clouds.tif=1", "always.tif"),
        "2021-05-01": ("always.tif",),
    }
    with pytest.raises(ConfigError, match="2018-05-01, when no image was taken"):
        masks_by_date(("2018-05-01.tif",), shots)
