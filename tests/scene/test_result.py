"""A scene's result: read when asked for, drawn, saved whole or not at all, shown in a notebook."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
import subprocess
import sys
import tempfile
import warnings
from html.parser import HTMLParser
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio
from affine import Affine
from PIL import Image
from rasterio.windows import Window

from adadino.data.synthetic import make_pair
from adadino.errors import AdaDINOError, AdaDINOWarning, InputError, VectorWarning, WriteError
from adadino.geo.grid import Grid
from adadino.geo.polygons.vector import polygons
from adadino.geo.read.register import Shift
from adadino.geo.read.small import read_pair
from adadino.geo.write.cog import CHANGE_COLOUR, MASK, PROBABILITY, raster_writer
from adadino.scene.result import SceneResult
from tests.geo.rasters import write

H, W = 120, 170
UTM = rasterio.CRS.from_epsg(32633)
NORTH_UP = Affine(0.5, 0, 5e5, 0, -0.5, 5.8e6)
NAMES = {
    "mask.tif", "mask.qml", "probability.tif", "probability.qml", "polygons.gpkg", "polygons.qml",
    "overview.png",
}  # fmt: skip


def result_in(
    folder: Path,
    *,
    size: tuple[int, int] = (H, W),
    crs: rasterio.CRS | None = UTM,
    transform: Affine = NORTH_UP,
    change: bool = True,
    nodata: bool = True,
    suffix: str = ".tif",
    **fields: object,
) -> SceneResult:
    """Write a pair and its result with the product's own writers; no model is needed."""
    pair = make_pair(4, size)
    grid = Grid(crs, transform if crs else Affine.identity(), size[1], size[0])
    for name in ("before", "after"):
        place = None if crs is None else transform
        values = np.moveaxis(getattr(pair, name), -1, 0)
        driver = "GTiff" if suffix == ".tif" else "PNG"
        write(folder / f"{name}{suffix}", values, transform=place, crs=crs, driver=driver)
    mask = (pair.mask > 0).astype(np.uint8) if change else np.zeros(size, np.uint8)
    probability = np.random.default_rng(0).random(size, np.float32) / 2 + mask / np.float32(2)
    if nodata:
        mask[:10, :20], probability[:10, :20] = 255, np.nan
    paths = folder / f"m{suffix}", folder / f"p{suffix}"
    for path, layer, values in zip(paths, (MASK, PROBABILITY), (mask, probability), strict=True):
        with raster_writer(path, grid, layer) as writer:
            writer.write(0, values)
    known = {
        "grid": grid,
        "change_fraction": float((mask == 1).sum() / (mask != 255).sum()),
        "polygons": polygons(mask, probability, grid),
        "shift": Shift(0.25, -1.5, 0.9, 12, 1.0),
        "registered": False,
        "outputs": paths,
        "warnings": (),
        "mask_path": paths[0],
        "probability_path": paths[1],
        "before": str(folder / f"before{suffix}"),
        "after": str(folder / f"after{suffix}"),
        "threshold": 0.5,
    }
    return SceneResult(**(known | fields))  # type: ignore[arg-type]


@pytest.fixture
def result(tmp_path: Path) -> SceneResult:
    return result_in(tmp_path)


# --- reading ---------------------------------------------------------------------------------


def test_arrays_are_those_of_the_files_and_are_read_when_asked_for(result):
    assert "mask" not in vars(result)
    with rasterio.open(result.mask_path) as m, rasterio.open(result.probability_path) as p:
        np.testing.assert_array_equal(result.mask, m.read(1))
        np.testing.assert_array_equal(result.probability, p.read(1))
    assert (result.mask.dtype, result.probability.dtype) == (np.uint8, np.float32)
    assert result.mask is result.mask
    np.testing.assert_array_equal(np.isnan(result.probability), result.mask == 255)
    assert result.area == pytest.approx((result.mask == 1).sum() * 0.25)


def test_a_window_and_fewer_pixels(result):
    window = Window(30, 20, 50, 40)
    np.testing.assert_array_equal(result.read(window=window), result.mask[20:60, 30:80])
    small = result.read("probability", shape=(60, 85))
    expected = result.probability.reshape(60, 2, 85, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(small, expected, rtol=1e-5)
    assert set(np.unique(result.read(shape=(30, 43)))) <= {0, 1, 255}


def test_what_cannot_be_read_is_said(result):
    without = dataclasses.replace(result, probability_path=None)
    with pytest.raises(InputError, match=r"the probability was not written; .*probability="):
        _ = without.probability
    with pytest.raises(InputError, match="leaves the grid of 170 x 120"):
        result.read(window=Window(160, 0, 20, 5))
    result.mask_path.unlink()
    with pytest.raises(InputError, match=r"no file .*m\.tif"):
        _ = result.mask


def test_pngs_give_the_same_numbers(tmp_path):
    result = result_in(tmp_path, crs=None, suffix=".png")
    assert result.probability.dtype == np.float32
    np.testing.assert_array_equal(np.isnan(result.probability), result.mask == 255)
    changed = result.probability[result.mask == 1]
    assert 0.5 <= changed.min() < 0.51
    assert 0.99 < changed.max() <= 1
    assert result.area == (result.mask == 1).sum()


def test_files_live_as_long_as_the_result(tmp_path):
    keep = tempfile.TemporaryDirectory(dir=tmp_path)
    result = result_in(Path(keep.name), keep=keep)
    folder = Path(keep.name)
    assert "keep" not in repr(result)
    del keep
    assert (result.mask == 1).any()
    with pytest.warns(ResourceWarning, match="Implicitly cleaning up"):
        del result
    assert not folder.exists()


# --- pictures --------------------------------------------------------------------------------


@pytest.mark.parametrize("scene", ["square", "tall", "wide", "pixels", "empty", "rotated"])
def test_an_overview_of_any_scene(tmp_path, scene):
    special = {
        "tall": {"size": (400, 30)},
        "wide": {"size": (30, 400)},
        "pixels": {"crs": None, "suffix": ".png"},
        "empty": {"change": False},
        "rotated": {"transform": Affine(0.4, -0.3, 5e5, -0.3, -0.4, 5.8e6)},
    }
    result = result_in(tmp_path, **special.get(scene, {}))
    for name in ("one.png", "two.png"):
        result.write_overview(tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    with Image.open(tmp_path / "one.png") as picture:
        shown = np.asarray(picture).astype(int)
    reddish = (abs(shown[90:-62] - CHANGE_COLOUR).max(axis=2) < 30).sum()
    assert (reddish > 100) == ((result.mask == 1).sum() > 0)


def test_the_dates_are_shown_where_the_result_lies(result):
    before, after, change = result.small()
    assert before.shape == (H, W, 3)
    for name, shown in (("before", before), ("after", after)):
        with rasterio.open(getattr(result, name)) as file:
            np.testing.assert_array_equal(np.moveaxis(shown, -1, 0), file.read())
    np.testing.assert_array_equal(change, result.mask)


def test_a_part_of_the_grid_and_a_shift_are_followed(result):
    part = result.grid.part(Window(20, 10, 100, 80))
    shift = (3.0, -5.0)
    shown = read_pair(result.before, result.after, part, (80, 100), shift=shift)
    for path, image, (rows, columns) in (
        (result.before, shown[0], (slice(10, 90), slice(20, 120))),
        (result.after, shown[1], (slice(7, 87), slice(25, 125))),
    ):
        with rasterio.open(path) as file:
            expected = np.moveaxis(file.read(), 0, -1)[rows, columns]
        np.testing.assert_array_equal(image, expected)


def test_a_change_smaller_than_a_pixel_of_the_picture_is_still_there(tmp_path):
    result = result_in(tmp_path, size=(650, 750), change=False)
    mask = result.mask.copy()
    mask[350:351, 450:451] = 1
    with raster_writer(tmp_path / "n.tif", result.grid, MASK) as writer:
        writer.write(0, mask)
    frame = polygons(mask, mask.astype(np.float32), result.grid)
    one = dataclasses.replace(result, mask_path=tmp_path / "n.tif", polygons=frame)
    _, _, change = one.small()
    assert change.shape < mask.shape
    rows, columns = np.nonzero(change == 1)
    assert 1 <= len(rows) <= 4
    scale = change.shape[0] / 650
    assert abs(rows.mean() - 350.5 * scale) < 1
    assert abs(columns.mean() - 450.5 * scale) < 1
    assert (change[: int(9 * scale), : int(19 * scale)] == 255).all()


def test_sixteen_bits_are_stretched_together(tmp_path):
    result = result_in(tmp_path)
    values = np.linspace(200, 3000, 3 * H * W).reshape(3, H, W)
    write(tmp_path / "a.tif", values.astype(np.uint16), transform=NORTH_UP, crs="EPSG:32633")
    write(
        tmp_path / "b.tif", (values + 500).astype(np.uint16), transform=NORTH_UP, crs="EPSG:32633"
    )
    deep = dataclasses.replace(
        result, before=str(tmp_path / "a.tif"), after=str(tmp_path / "b.tif")
    )
    before, after, _ = deep.small()
    assert before.min() == 0
    assert after.max() == 255
    assert after.mean() > before.mean() + 20  # each date on its own scale would look alike
    fixed = dataclasses.replace(deep, scale=(0.0, 65535.0))
    assert fixed.small()[0].max() < 15


def test_plot_draws_three_panels_in_the_grids_coordinates(result):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = result.plot()
    assert [ax.get_title() for ax in axes][:2] == ["Before", "After"]
    assert f"{100 * result.change_fraction:.2f} %" in axes[2].get_title()
    left, bottom, right, top = result.grid.bounds
    for ax in axes:
        assert (ax.get_xlim(), ax.get_ylim()) == ((left, right), (bottom, top))
    overlay = np.asarray(axes[2].images[-1].get_array())
    np.testing.assert_array_equal(overlay[..., 3] == 255, result.mask != 0)
    figure, ax = plt.subplots()
    assert result.plot(ax) is ax
    assert len(figure.axes) == 1
    axes[0].figure.savefig(io.BytesIO())
    plt.close("all")


def test_without_matplotlib_plot_says_what_to_install(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(AdaDINOError, match="pip install matplotlib"):
        result.plot()


# --- saving ----------------------------------------------------------------------------------


def test_save_writes_everything(result, tmp_path):
    folder = tmp_path / "new" / "folder"
    written = result.save(folder)
    assert {path.name for path in written} == NAMES == {path.name for path in folder.iterdir()}
    assert (folder / "mask.tif").read_bytes() == result.mask_path.read_bytes()
    assert (folder / "probability.tif").read_bytes() == result.probability_path.read_bytes()
    read = gpd.read_file(folder / "polygons.gpkg")
    assert len(read) == len(result.polygons) > 0
    assert read.crs == result.polygons.crs
    assert b"paletted" in (folder / "mask.qml").read_bytes()
    assert b"pseudocolor" in (folder / "probability.qml").read_bytes()
    with Image.open(folder / "overview.png") as picture:
        assert max(picture.size) <= 1600


def test_save_replaces_only_on_request(result, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "polygons.qml").write_text("mine")
    with pytest.raises(WriteError, match=r"polygons\.qml exists"):
        result.save(folder)
    assert [path.name for path in folder.iterdir()] == ["polygons.qml"]
    result.save(folder, overwrite=True)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert first["polygons.qml"] != b"mine"
    # Onto itself: the rasters are both source and target.
    saved = dataclasses.replace(
        result, mask_path=folder / "mask.tif", probability_path=folder / "probability.tif"
    )
    saved.save(folder, overwrite=True)
    assert first == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_save_never_replaces_an_input(result, tmp_path):
    (tmp_path / "mask.tif").write_bytes(Path(result.before).read_bytes())
    odd = dataclasses.replace(result, before=str(tmp_path / "mask.tif"))
    with pytest.raises(WriteError, match="is an input"):
        odd.save(tmp_path, overwrite=True)


def test_a_save_that_fails_leaves_nothing(result, tmp_path):
    result.probability_path.unlink()
    with pytest.raises(WriteError, match=r"cannot copy .*p\.tif"):
        result.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="cannot write to"):
        result.save(tmp_path / "file" / "out")


def test_save_without_a_probability_or_the_dates(result, tmp_path):
    without = dataclasses.replace(result, probability_path=None)
    names = {path.name for path in without.save(tmp_path / "out")}
    assert names == NAMES - {"probability.tif", "probability.qml"}
    Path(result.after).unlink()
    with pytest.warns(AdaDINOWarning, match=r"no overview\.png: there is no file .*after\.tif"):
        written = result.save(tmp_path / "blind")
    assert {path.name for path in written} == NAMES - {"overview.png"}


def test_pixels_are_saved_as_pngs_and_a_warning_says_that_polygons_are_in_pixels(tmp_path):
    result = result_in(tmp_path, crs=None, suffix=".png")
    with pytest.warns(VectorWarning, match=r"out/polygons\.gpkg has no coordinate") as caught:
        written = result.save(tmp_path / "out")
    assert sum(w.category is VectorWarning for w in caught) == 1
    names = {"mask.png", "probability.png", "polygons.gpkg", "polygons.qml", "overview.png"}
    assert {path.name for path in written} == names


def test_an_empty_result_is_saved_too(tmp_path):
    result_in(tmp_path, change=False).save(tmp_path / "out")
    assert len(gpd.read_file(tmp_path / "out" / "polygons.gpkg")) == 0


# --- notebooks -------------------------------------------------------------------------------


class Balance(HTMLParser):
    """Whether every tag that opens also closes, in order; and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def parsed(html: str) -> Balance:
    reader = Balance()
    reader.feed(html)
    assert reader.open == []
    return reader


def test_a_notebook_shows_picture_and_numbers(result):
    html = result._repr_html_()
    page = parsed(html)
    assert f"{100 * result.change_fraction:.2f} % of the valid area" in page.text
    assert f"{len(result.polygons):,}, together {result.area:,.0f} m²" in page.text
    assert "+0.25 rows and -1.50 columns" in page.text
    assert "not applied" in page.text
    (encoded,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as picture:
        assert max(picture.size) <= 760
        shown = np.asarray(picture.convert("RGB")).astype(int)
    assert (abs(shown - CHANGE_COLOUR).max(axis=2) < 30).sum() > 50
    assert len(html) < 400_000
    assert "http" not in html.replace(encoded, "")  # nothing is fetched
    assert html == result._repr_html_()


def test_names_and_warnings_cannot_break_the_page(tmp_path):
    folder = tmp_path / "a"
    folder.mkdir()
    result = result_in(folder, warnings=("<script>alert(1)</script> & more",))
    nasty = folder / '"><script>x.tif'
    Path(result.before).rename(nasty)
    for before in (str(nasty), str(tmp_path / "<b>gone.tif")):
        html = dataclasses.replace(result, before=before)._repr_html_()
        page = parsed(html)
        assert "script" not in page.tags
        assert "b" not in page.tags
        assert "<script>alert(1)</script> & more" in page.text
    assert "There is no picture: there is no file" in page.text


def test_pixels_and_an_unsure_shift_are_named(tmp_path):
    shift = Shift(0.0, 0.0, 0.0, 1, 0.0)
    result = result_in(tmp_path, crs=None, suffix=".png", shift=shift)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        text = parsed(result._repr_html_()).text
    assert f"{result.area:,.0f} pixels" in text
    assert "only 1 tiles are valid" in text


def test_results_do_not_need_torch():
    code = "import sys, adadino.scene.result; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
