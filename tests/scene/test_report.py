"""The report of a scene: what it shows, and that names in it are only names."""

from __future__ import annotations

import base64
import html
import io
import re
from pathlib import Path

import numpy as np
import pytest
from affine import Affine
from PIL import Image
from rasterio.crs import CRS

from adadino.geo.grid import Grid
from adadino.scene import predict_scene
from adadino.scene.report import chip_window, north_of
from tests.geo import rasters

HOSTILE = "<img src=x onerror=alert(1)>.tif"


def pair(folder: Path, *, crs: str | None = "EPSG:32633") -> tuple[Path, Path]:
    """Two dates of 96 x 96 pixels; the second has two new bright roofs."""
    rng = np.random.default_rng(0)
    before = rng.integers(60, 120, (3, 96, 96)).astype(np.uint8)
    after = before.copy()
    after[:, 10:40, 10:40] = 250
    after[:, 60:80, 55:85] = 250
    paths = folder / HOSTILE, folder / "after.tif"
    for path, pixels in zip(paths, (before, after), strict=True):
        rasters.write(path, pixels, crs=crs)
    return paths


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("report")
    before, after = pair(folder)
    path = folder / "out" / "report.html"
    result = predict_scene(before, after, output=folder / "out" / "change.tif", report=path)
    assert path in result.outputs
    return path.read_text(encoding="utf-8")


def test_it_says_what_was_compared_and_how(report):
    text = html.unescape(re.sub(r"<[^>]+>", "\n", report))
    for words in (HOSTILE, "after.tif", "EPSG:32633", "threshold", "0.5", "of the valid area"):
        assert words in text


def test_a_hostile_name_is_no_markup(report):
    assert "<img src=x" not in report
    assert html.escape(HOSTILE) in report


def test_every_polygon_has_its_chips(report):
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", report)
    chips = [caption for caption in captions if ": outline" in caption]
    assert len(captions) == 3 + 3 * len(chips)
    assert chips


def test_the_outline_lies_on_the_change(report):
    figures = re.findall(r'base64,([^"]+)" alt="1: (before|after|outline)"', report)
    shown = {
        name: np.asarray(Image.open(io.BytesIO(base64.b64decode(code)))).astype(int)
        for code, name in figures
    }
    drawn = np.abs(shown["outline"] - shown["after"]).max(2) > 60
    assert 0 < drawn.mean() < 0.3
    rows, columns = np.nonzero(drawn)
    inside = shown["after"][rows.min() : rows.max(), columns.min() : columns.max()]
    grown = inside - shown["before"][rows.min() : rows.max(), columns.min() : columns.max()]
    assert (grown.mean(2) > 80).mean() > 0.3  # what the outline surrounds is a new roof


def test_pixels_without_coordinates_have_chips_and_no_north(tmp_path):
    before, after = pair(tmp_path, crs=None)
    path = tmp_path / "out" / "report.pdf"
    predict_scene(before, after, output=tmp_path / "out" / "change.tif", report=path)
    assert path.read_bytes().startswith(b"%PDF-")
    assert north_of(Grid(None, Affine.identity(), 9, 9)) is None


@pytest.mark.parametrize(
    ("crs", "transform", "expected"),
    [
        (32633, Affine(1, 0, 500_000, 0, -1, 5_000_000), (0, -1)),
        (32633, Affine(1, 0, 500_000, 0, 1, 5_000_000), (0, 1)),  # rows run north
        (32633, Affine(0, -1, 500_000, -1, 0, 5_000_000), (-1, 0)),  # turned by a quarter
        (4326, Affine(1e-5, 0, 10, 0, -1e-5, -40), (0, -1)),
        (3031, Affine(1, 0, 1_000_000, 0, -1, 0), (1, 0)),  # away from the south pole
    ],
)
def test_north_is_where_the_map_has_it(crs, transform, expected):
    grid = Grid(CRS.from_epsg(crs), transform, 100, 100)
    assert north_of(grid) == pytest.approx(expected, abs=2e-3)


def test_a_chip_stays_inside_the_scene():
    grid = Grid(CRS.from_epsg(32633), Affine(1, 0, 0, 0, -1, 100), 100, 80)
    for bounds in ((0, 90, 10, 100), (95, 20, 100, 25), (0, 20, 100, 100)):
        window = chip_window(bounds, grid)
        assert grid.holds(window)
        assert max(window.width, window.height) >= 24


def test_a_report_of_another_kind_is_refused_before_work():
    from adadino.errors import WriteError
    from adadino.scene.outputs import Targets

    targets = Targets.named("change.tif", None, None, None, None, "report.docx")
    with pytest.raises(WriteError, match=r"end its name in \.html, \.pdf"):
        targets.check((), overwrite=False)
