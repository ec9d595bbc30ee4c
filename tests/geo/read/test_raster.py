from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from rasterio.windows import Window

from adadino.errors import BandWarning, ConfigError, GridWarning, InputError, SameFileWarning
from adadino.geo.read import stretch
from adadino.geo.read.raster import open_pair
from tests.geo.rasters import NORTH_UP, H, W, bilinear, everything, noise, read, write


class TestValues:
    @pytest.mark.parametrize("dtype", ["uint16", "int16", "float32", "float64", "int32"])
    def test_one_joint_stretch(self, dtype: str, tmp_path: Path) -> None:
        sign = 1 if dtype.startswith("u") else -1
        first = noise(3, H, W, low=0, high=3000).astype(dtype)
        second = (first[::-1] // 2 * sign).astype(dtype)
        before, after = write(tmp_path / "a.tif", first), write(tmp_path / "b.tif", second)
        with open_pair(before, after) as reader:
            pair = everything(reader)
            for band in range(3):
                both = np.concatenate([first[band].ravel(), second[band].ravel()])
                low, high = np.percentile(both.astype("float64"), [2, 98])
                assert reader.stretch.low[band] == pytest.approx(low)
                assert reader.stretch.high[band] == pytest.approx(high)
                for values, raw in ((pair.before, first), (pair.after, second)):
                    expected = np.clip((raw[band].astype("float64") - low) / (high - low), 0, 1)
                    np.testing.assert_allclose(values[band], expected, atol=1e-5)
        with open_pair(after, before) as swapped:
            assert swapped.stretch == reader.stretch

    def test_overviews_do_not_change_the_stretch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(stretch, "SAMPLE_PIXELS", 20_000)  # so that a small scene is sampled
        values = noise(3, 150, 150, dtype="uint16", high=4000)
        before, after = write(tmp_path / "a.tif", values), write(tmp_path / "b.tif", values)
        with open_pair(before, after) as plain, rasterio.open(after, "r+") as file:
            file.build_overviews([2, 4, 8])
        with open_pair(before, after) as reader:
            assert reader.stretch == plain.stretch

    def test_scale_overrides(self, rgb: Path, tmp_path: Path) -> None:
        wide = write(tmp_path / "wide.tif", noise(3, H, W, dtype="uint16"))
        pair = read(rgb, wide, scale=(100, 200))
        expected = np.clip((noise(3, H, W).astype("f4") - 100) / 100, 0, 1)
        np.testing.assert_array_equal(pair.before, expected)
        np.testing.assert_array_equal(pair.after, expected)

    def test_bytes_and_others_are_not_on_one_scale(self, rgb: Path, tmp_path: Path) -> None:
        wide = write(tmp_path / "wide.tif", noise(3, H, W, dtype="uint16"))
        with pytest.raises(InputError, match="--scale"):
            open_pair(rgb, wide)

    def test_equal_values_everywhere(self, tmp_path: Path) -> None:
        flat = write(tmp_path / "flat.tif", np.full((3, H, W), 1234, dtype="uint16"))
        with pytest.warns(SameFileWarning, match="same file"):
            pair = read(flat, flat)
        assert np.isfinite(pair.before).all()
        np.testing.assert_array_equal(pair.before, pair.after)


class TestFiles:
    @pytest.mark.parametrize("driver", ["PNG", "JPEG"])
    def test_pictures_without_a_place(self, driver: str, tmp_path: Path) -> None:
        paths = [
            write(
                tmp_path / f"{name}.{driver.lower()}", noise(3, H, W), transform=None, driver=driver
            )
            for name in "ab"
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # NotGeoreferencedWarning is one
            with open_pair(*paths) as reader:
                pair = everything(reader)
        assert reader.grid.crs is None
        np.testing.assert_array_equal(pair.before, pair.after)

    def test_names_only_gdal_knows(self, rgb: Path, tmp_path: Path) -> None:
        from rasterio.shutil import copy

        copy(rgb, tmp_path / "mosaic.vrt", driver="VRT")
        pair = read(f"/vsisubfile/0_{rgb.stat().st_size},{rgb}", tmp_path / "mosaic.vrt")
        np.testing.assert_array_equal(pair.before, pair.after)

    def test_one_pixel(self, tmp_path: Path) -> None:
        paths = [write(tmp_path / f"{name}.tif", noise(3, 1, 1)) for name in "ab"]
        assert read(*paths).valid.shape == (1, 1)

    def test_windows_outside_and_closed_readers(self, rgb: Path) -> None:
        with pytest.warns(SameFileWarning):
            reader = open_pair(rgb, rgb)
        with reader, pytest.raises(ValueError, match="leaves the grid of 60 x 40"):
            reader.read(Window(50, 0, 11, 1))
        with pytest.raises(ValueError, match="closed"):
            reader.read(Window(0, 0, 1, 1))

    def test_warnings_are_kept(self, tmp_path: Path) -> None:
        before = write(tmp_path / "a.tif", noise(1, H, W))
        moved = NORTH_UP * Affine.translation(0.5, 0)
        after = write(tmp_path / "b.tif", noise(3, H, W), transform=moved)
        with pytest.warns(GridWarning), pytest.warns(BandWarning):
            reader = open_pair(before, after)
        reader.close()
        assert [type(warning) for warning in reader.warnings] == [BandWarning, GridWarning]
        assert "+0.50 columns" in str(reader.warnings[1])


class TestBadInput:
    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("absent.tif", None, r"there is no file .*absent\.tif"),
            ("text.tif", b"hello", r"cannot open .*text\.tif as an image"),
            ("empty.tif", b"", r"empty\.tif is empty \(0 bytes\)"),
            ("", None, "is a folder"),
        ],
    )
    def test_no_image(
        self, name: str, content: bytes | None, message: str, rgb: Path, tmp_path: Path
    ) -> None:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=message):
            open_pair(rgb, tmp_path / name)

    @pytest.mark.parametrize("transform", [NORTH_UP, NORTH_UP * Affine.translation(0.5, 0)])
    @pytest.mark.parametrize("options", [{}, {"compress": "deflate", "tiled": True}])
    @pytest.mark.filterwarnings("ignore::adadino.errors.GridWarning")
    def test_truncated(self, transform: Affine, options: dict[str, object], tmp_path: Path) -> None:
        size = 600
        before = write(tmp_path / "a.tif", noise(3, size, size))
        after = write(tmp_path / "b.tif", noise(3, size, size), transform=transform, **options)
        after.write_bytes(after.read_bytes()[: after.stat().st_size // 2])
        # The first windows are whole, so that opening may succeed and a later read fails.
        with pytest.raises(InputError, match=r"b\.tif.*(truncated or damaged|as an image)"):
            read(before, after)

    def test_settings_that_make_no_sense(self, rgb: Path) -> None:
        with pytest.raises(ConfigError, match="scale"):
            open_pair(rgb, rgb, scale=(3, 3))
        with pytest.raises(ConfigError, match="shift"):
            open_pair(rgb, rgb, shift=(float("nan"), 0))

    def test_complex_values(self, tmp_path: Path) -> None:
        path = write(tmp_path / "sar.tif", noise(1, H, W).astype("complex64"))
        with pytest.raises(InputError, match="complex"):
            open_pair(path, path)

    def test_damage_further_on_is_met_when_it_is_read(self, tmp_path: Path) -> None:
        before = write(tmp_path / "a.tif", noise(3, 1300, 100))
        after = write(tmp_path / "b.tif", noise(3, 1300, 100))
        after.write_bytes(after.read_bytes()[: after.stat().st_size * 9 // 10])
        with open_pair(before, after) as reader:
            assert reader.read(Window(0, 0, 100, 1000)).valid.all()
            with pytest.raises(InputError, match=r"b\.tif at row 1250, column 0: it is truncated"):
                reader.read(Window(0, 1250, 100, 50))


@pytest.fixture
def scenes() -> Path:
    folder = Path(os.environ.get("ADADINO_DATA", "")) / "geotiff"
    if not folder.is_dir():
        pytest.skip("needs real image pairs; set ADADINO_DATA to their folder")
    return folder


@pytest.mark.data
class TestRealPairs:
    def test_naip_is_warped_by_two_metres_and_one(self, scenes: Path) -> None:
        with pytest.warns(GridWarning, match=r"\+0\.40 columns and -0\.20 rows"):
            reader = open_pair(scenes / "naip_2009.tif", scenes / "naip_2018.tif")
        with reader:
            pair = everything(reader)
        assert (reader.grid.width, reader.grid.height) == (933, 723)
        with rasterio.open(scenes / "naip_2018.tif") as file:
            source = file.read([1, 2, 3]).astype(np.float64) / 255
        # The result starts at before's pixel (1, 0): 0.6 columns and 0.2 rows into after.
        rows, columns = np.mgrid[1:722, 1:932]
        for band in range(3):
            expected = bilinear(source[band], columns + 1.1, rows + 0.7)
            np.testing.assert_allclose(pair.after[band, 1:722, 1:932], expected, atol=1e-4)

    def test_landsat_passes_straight_through(self, scenes: Path) -> None:
        names = scenes / "landsat_1985.tif", scenes / "landsat_2020.tif"
        with open_pair(*names, bands=(1, 2, 3)) as reader:
            pair = everything(reader)
        assert reader.warnings == ()  # the grids are equal
        assert reader.grid.is_geographic
        valid = np.ones(pair.valid.shape, dtype=bool)
        for values, name in ((pair.before, "landsat_1985.tif"), (pair.after, "landsat_2020.tif")):
            with rasterio.open(scenes / name) as file:
                raw = file.read()
            valid &= (raw != 0).any(axis=0)
            expected = np.where(pair.valid, raw[:3].astype("f4") / 255, 0)
            np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(pair.valid, valid)
