from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import rasterio
from affine import Affine
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rasterio.warp import transform as reproject
from rasterio.windows import Window

from adadino.errors import GridWarning, InputError
from adadino.geo.read.raster import open_pair
from tests.geo.rasters import NORTH_UP, UTM, H, W, bilinear, everything, noise, read, write


def with_hole(kind: str, path: Path, transform: Affine = NORTH_UP) -> Path:
    """Write an image of ones to 254 whose rows 10 to 20, columns 20 to 40 are not valid."""
    hole = np.s_[10:20, 20:40]
    values = noise(3, H, W)
    mask = np.full((H, W), 255, dtype=np.uint8)
    mask[hole] = 0
    if kind in ("nodata", "nan", "undeclared nan", "inf"):
        values = values.astype("float32")
        fill = {"nodata": -9999.0, "inf": np.inf}.get(kind, np.nan)
        values[:, *hole] = fill
        nodata = {"nodata": -9999.0, "nan": np.nan}.get(kind)
        return write(path, values, nodata=nodata, transform=transform)
    if kind == "alpha":
        rgba = np.concatenate([values, mask[None]])
        return write(path, rgba, photometric="RGB", alpha="YES", transform=transform)
    values = values.astype("float32")
    return write(
        path, values, mask=mask, internal_mask=kind == "internal mask", transform=transform
    )


HOLES = ["nodata", "nan", "undeclared nan", "inf", "alpha", "internal mask", "msk sidecar"]


class TestValid:
    @pytest.mark.parametrize("kind", HOLES)
    @pytest.mark.parametrize("date", ["before", "after"])
    def test_every_kind_of_hole(self, kind: str, date: str, tmp_path: Path) -> None:
        holed = with_hole(kind, tmp_path / "holed.tif")
        full = write(tmp_path / "full.tif", noise(3, H, W))
        paths = (holed, full) if date == "before" else (full, holed)
        pair = read(*paths, scale=(0, 255))
        expected = np.ones((H, W), dtype=bool)
        expected[10:20, 20:40] = False
        np.testing.assert_array_equal(pair.valid, expected)
        assert not pair.before[:, ~expected].any()
        assert not pair.after[:, ~expected].any()
        np.testing.assert_allclose(pair.before[:, expected], pair.after[:, expected])
        assert (tmp_path / "holed.tif.msk").exists() == (kind == "msk sidecar")

    @pytest.mark.parametrize("kind", HOLES)
    def test_holes_stay_where_they_are_under_a_warp_and_do_not_bleed(
        self, kind: str, tmp_path: Path
    ) -> None:
        moved = NORTH_UP * Affine.translation(0.25, 0.25)
        holed = with_hole(kind, tmp_path / "holed.tif", moved)
        full = write(tmp_path / "full.tif", noise(3, H, W))
        with pytest.warns(GridWarning):
            pair = read(full, holed, scale=(0, 255))
        assert pair.valid.shape == (H - 1, W - 1)  # the overlap starts at pixel 1 of before
        expected = np.ones((H - 1, W - 1), dtype=bool)
        # The centre of result pixel i lies at i + 1.25 of after: within its pixel i + 1.
        expected[9:19, 19:39] = False
        if kind == "inf":  # no rule of GDAL's: neighbours that would mix with it go as well
            assert not pair.valid[~expected].any()
            assert pair.valid[:8].all()
        else:
            np.testing.assert_array_equal(pair.valid, expected)
        assert pair.after[:, pair.valid].min() >= 1 / 255 - 1e-6

    def test_valid_means_on_both_dates(self, tmp_path: Path) -> None:
        values = noise(3, H, W, dtype="uint16")
        before, after = values.copy(), values.copy()
        before[:, :5] = 0
        after[:, -5:] = 9
        pair = read(
            write(tmp_path / "a.tif", before, nodata=0), write(tmp_path / "b.tif", after, nodata=9)
        )
        assert not pair.valid[:5].any()
        assert not pair.valid[-5:].any()
        assert pair.valid[5:-5].all()

    def test_nodata_in_one_band_is_a_dark_pixel_and_not_a_hole(self, tmp_path: Path) -> None:
        values = noise(3, H, W)
        values[1] = 0
        values[:, 3, 4] = 0
        path = write(tmp_path / "a.tif", values, nodata=0)
        copy = write(tmp_path / "copy.tif", values, nodata=0)
        moved = write(tmp_path / "b.tif", values, nodata=0, transform=NORTH_UP * Affine.scale(1.01))
        assert (~read(path, copy).valid).sum() == 1
        with pytest.warns(GridWarning):
            assert read(path, moved).valid.mean() > 0.99

    @pytest.mark.parametrize("dtype", ["uint8", "float32"])
    def test_all_nodata(self, dtype: str, tmp_path: Path) -> None:
        before = write(tmp_path / "a.tif", noise(3, H, W, dtype=dtype))
        after = write(tmp_path / "b.tif", np.zeros((3, H, W), dtype=dtype), nodata=0)
        with pytest.raises(InputError, match="nothing to compare: none of the 60 x 40"):
            open_pair(before, after)

    def test_one_valid_pixel_between_the_samples_is_found(self, tmp_path: Path) -> None:
        values = np.zeros((3, 2000, 1600), dtype="uint16")
        values[:, 0, 0] = 7
        options = {"nodata": 0, "compress": "deflate", "tiled": True}
        before = write(tmp_path / "a.tif", values, **options)
        after = write(tmp_path / "b.tif", values, **options)
        with open_pair(before, after) as reader:
            assert reader.read(Window(0, 0, 10, 10)).valid.sum() == 1


def smooth(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A surface over metres whose second derivatives are below 0.5 / 40**2."""
    return 0.5 + 0.25 * np.sin(x / 40) + 0.25 * np.cos(y / 40)


def paint(path: Path, transform: Affine, width: int, height: int, crs: str = UTM) -> Path:
    """Write the surface, sampled at the pixel centres of a grid."""
    rows, columns = np.mgrid[:height, :width] + 0.5
    t = tuple(transform)[:6]
    x, y = t[0] * columns + t[1] * rows + t[2], t[3] * columns + t[4] * rows + t[5]
    if crs != UTM:
        points = reproject(crs, UTM, x.ravel(), y.ravel())
        x, y = (np.reshape(axis, (height, width)) for axis in points)
    values = smooth(x - NORTH_UP.c, y - NORTH_UP.f).astype(np.float32)
    return write(path, np.stack([values] * 3), transform=transform, crs=crs)


UTM_TO_DEGREES = reproject(UTM, "EPSG:4326", [NORTH_UP.c - 20], [NORTH_UP.f + 20])
DEGREES = Affine(3e-5, 0, UTM_TO_DEGREES[0][0], 0, -2e-5, UTM_TO_DEGREES[1][0])

GRIDS: dict[str, tuple[Affine, int, int, str]] = {
    "half a pixel": (NORTH_UP * Affine.translation(0.5, 0.5), W, H, UTM),
    "whole pixels": (NORTH_UP * Affine.translation(-3, 4), W, H, UTM),
    "coarser": (NORTH_UP * Affine.translation(-9, -9) * Affine.scale(1.7), W, H, UTM),
    "south-up": (NORTH_UP * Affine.translation(0.2, H) * Affine.scale(1, -1), W, H, UTM),
    "rotated": (NORTH_UP * Affine.translation(5, -15) * Affine.rotation(30), 70, 60, UTM),
    "degrees": (DEGREES, 200, 160, "EPSG:4326"),
    "other zone": (Affine(2, 0, 0, 0, -2, 0), 200, 160, "EPSG:32632"),
}


@pytest.fixture(scope="module")
def on_grid(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """Paint the surface on before's grid and on another, once for all tests."""

    @cache
    def make(name: str) -> tuple[Path, Path]:
        transform, width, height, crs = GRIDS[name]
        if name == "other zone":
            (x,), (y,) = reproject(UTM, crs, [NORTH_UP.c], [NORTH_UP.f])
            transform = Affine.translation(x - 50, y + 80) * transform
        folder = tmp_path_factory.mktemp("grids")
        before = paint(folder / "before.tif", NORTH_UP, W, H)
        return before, paint(folder / "after.tif", transform, width, height, crs)

    return make


class TestWarp:
    @pytest.mark.parametrize("name", GRIDS)
    def test_agrees_with_numpy(
        self, name: str, on_grid: Callable[[str], tuple[Path, Path]]
    ) -> None:
        before, after = on_grid(name)
        with pytest.warns(GridWarning), open_pair(before, after, scale=(0, 1)) as reader:
            pair = everything(reader)
        with rasterio.open(after) as file:
            source, transform, crs = file.read(1).astype("float64"), file.transform, file.crs
        rows, columns = np.nonzero(pair.valid)
        x, y = rasterio.transform.xy(reader.grid.transform, rows, columns)
        if crs != reader.grid.crs:
            x, y = reproject(reader.grid.crs, crs, x, y)
        t = tuple(~transform)[:6]
        x, y = np.asarray(x), np.asarray(y)
        at_columns, at_rows = t[0] * x + t[1] * y + t[2], t[3] * x + t[4] * y + t[5]
        height, width = source.shape
        inner = (at_columns > 0.51) & (at_columns < width - 0.51)
        inner &= (at_rows > 0.51) & (at_rows < height - 0.51)  # half a pixel in: four neighbours
        assert inner.sum() > 0.3 * W * H
        expected = bilinear(source, at_columns[inner], at_rows[inner])
        got = pair.after[0][pair.valid][inner]
        # 0.001 pixels of GDAL's tolerance on a slope of 0.0125 a pixel, and float32.
        np.testing.assert_allclose(got, expected, atol=2e-5)
        # The surface itself: 1/8 h^2 f'' for each axis, with pixels of at most 3.4 m.
        np.testing.assert_allclose(got, pair.before[0][pair.valid][inner], atol=1e-3)

    def test_a_finer_after_is_averaged_and_not_picked(self, tmp_path: Path) -> None:
        before = write(tmp_path / "a.tif", np.full((3, H, W), 0.5, dtype="f4"))
        checker = (np.indices((4 * H, 4 * W)).sum(axis=0) % 2).astype("f4")
        fine = NORTH_UP * Affine.scale(0.25)
        after = write(tmp_path / "b.tif", np.stack([checker] * 3), transform=fine)
        with pytest.warns(GridWarning, match=r"after's pixels are 0\.25 times before's"):
            pair = read(before, after, scale=(0, 1))
        np.testing.assert_allclose(pair.after[:, 2:-2, 2:-2], 0.5, atol=0.02)

    def test_corners_that_a_rotated_after_leaves_empty_are_invalid(
        self, on_grid: Callable[[str], tuple[Path, Path]]
    ) -> None:
        with pytest.warns(GridWarning), open_pair(*on_grid("rotated")) as reader:
            valid = everything(reader).valid
        assert 0.5 < valid.mean() < 1

    @pytest.mark.parametrize("name", GRIDS)
    @settings(
        max_examples=15,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(data=st.data())
    def test_a_window_does_not_change_its_pixels(
        self, name: str, on_grid: Callable[[str], tuple[Path, Path]], data: st.DataObject
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GridWarning)
            reader, fresh = (open_pair(*on_grid(name)) for _ in range(2))
        with reader, fresh:
            whole = everything(reader)
            left = data.draw(st.integers(0, reader.grid.width - 1))
            top = data.draw(st.integers(0, reader.grid.height - 1))
            width = data.draw(st.integers(1, reader.grid.width - left))
            height = data.draw(st.integers(1, reader.grid.height - top))
            part = fresh.read(Window(left, top, width, height))
            for got, expected in zip(part, whole, strict=True):
                rows, columns = slice(top, top + height), slice(left, left + width)
                np.testing.assert_array_equal(got, expected[..., rows, columns])

    @pytest.mark.parametrize("bands", [1, 3, 4])
    def test_no_seams_where_gdal_changes_block(self, bands: int, tmp_path: Path) -> None:
        size = 700  # GDAL warps in blocks of 512 x 128
        values = noise(bands, size, size)
        before = write(tmp_path / "a.tif", values)
        turned = NORTH_UP * Affine.translation(0.3, 0.7) * Affine.rotation(1) * Affine.scale(0.7)
        after = write(tmp_path / "b.tif", values, transform=turned, tiled=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            first, reader = (open_pair(before, after) for _ in range(2))
        with first, reader:  # two, so that no block of the first is at hand for the second
            whole = everything(first)
            step = 77
            for top in reversed(range(0, reader.grid.height - step, step)):
                for left in range(0, reader.grid.width - step, step):
                    part = reader.read(Window(left, top, step, step)).after
                    expected = whole.after[:, top : top + step, left : left + step]
                    np.testing.assert_array_equal(part, expected)


class TestShift:
    def test_whole_pixels_move_down_and_right(self, rgb: Path, tmp_path: Path) -> None:
        copy = write(tmp_path / "copy.tif", noise(3, H, W))
        pair = read(rgb, copy, shift=(2.0, 3.0))
        full = noise(3, H, W).astype("f4") / 255
        np.testing.assert_allclose(pair.after[:, 2:, 3:], full[:, :-2, :-3], atol=1e-6)
        assert not pair.valid[:2].any()
        assert not pair.valid[:, :3].any()
        assert pair.valid[2:, 3:].all()

    def test_half_a_pixel_is_interpolated(self, rgb: Path, tmp_path: Path) -> None:
        copy = write(tmp_path / "copy.tif", noise(3, H, W))
        pair = read(rgb, copy, shift=(0.0, -0.5))
        full = noise(3, H, W).astype("f4") / 255
        expected = (full[:, :, :-1] + full[:, :, 1:]) / 2
        np.testing.assert_allclose(pair.after[:, :, :-1], expected, atol=1e-6)

    def test_a_shift_undoes_an_error_of_the_georeferencing(self, tmp_path: Path) -> None:
        before = paint(tmp_path / "a.tif", NORTH_UP, W, H)
        with rasterio.open(paint(tmp_path / "b.tif", DEGREES, 200, 160, "EPSG:4326")) as file:
            values = file.read()
        (x0, x1), (y0, y1) = reproject(
            UTM, "EPSG:4326", [NORTH_UP.c, NORTH_UP.c + 3], [NORTH_UP.f, NORTH_UP.f - 1]
        )
        wrong = Affine.translation(x1 - x0, y1 - y0) * DEGREES  # 1.5 columns and 0.5 rows off
        after = write(tmp_path / "c.tif", values, transform=wrong, crs="EPSG:4326")
        with pytest.warns(GridWarning):
            pair = read(before, after, scale=(0, 1), shift=(-0.5, -1.5))
        np.testing.assert_allclose(pair.after[:, pair.valid], pair.before[:, pair.valid], atol=1e-3)

    def test_pixel_mode_can_be_shifted(self, tmp_path: Path) -> None:
        paths = [
            write(tmp_path / name, noise(3, H, W), transform=None, driver="PNG")
            for name in ("a.png", "b.png")
        ]
        pair = read(*paths, shift=(1.0, 0.0))
        full = noise(3, H, W).astype("f4") / 255
        np.testing.assert_allclose(pair.after[:, 1:], full[:, :-1], atol=1e-6)


def test_many_threads_read_the_same_pixels(on_grid: Callable[[str], tuple[Path, Path]]) -> None:
    with pytest.warns(GridWarning):
        pair = open_pair(*on_grid("degrees"))
    with pair as reader:
        whole = everything(reader)
        windows = [Window(left, top, 7, 5) for top in range(0, 35, 5) for left in range(0, 49, 7)]
        with ThreadPoolExecutor(4) as pool:
            for window, part in zip(windows, pool.map(reader.read, windows), strict=True):
                rows, columns = window.toslices()
                np.testing.assert_array_equal(part.after, whole.after[:, rows, columns])
