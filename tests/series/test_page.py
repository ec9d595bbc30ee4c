"""The page of a series, in a browser: the slider, the outlines, and what may not run."""

from __future__ import annotations

import shutil

import geopandas as gpd
import numpy as np
import pytest
import shapely
from rasterio.crs import CRS
from rasterio.transform import from_origin

from adadino.geo.grid import Grid
from adadino.series.page import write_page

LABELS = ["2019-01-01", "2020-01-01", "2021-01-01"]


@pytest.fixture
def page_file(tmp_path):
    pictures = [np.full((40, 60, 3), 60 * (n + 1), np.uint8) for n in range(3)]
    evil = "lasting</title></svg><script>document.title = 'taken'</script>"
    frame = gpd.GeoDataFrame(
        {
            "id": [1, 2],
            "area_m2": [100.0, 25.0],
            "first_seen": LABELS[1:],
            "last_seen": [LABELS[2]] * 2,
            "persistence": [evil, "at the end only"],
            "confidence": [0.9, 0.7],
        },
        geometry=[shapely.box(0, 0, 1, 1)] * 2,
    )
    rings = [[[(5.0, 5.0), (20.0, 5.0), (20.0, 20.0), (5.0, 5.0)]]] * 2
    grid = Grid(CRS.from_epsg(32633), from_origin(5e5, 5e6, 0.5, 0.5), 60, 40)
    write_page(tmp_path / "series.html", pictures, LABELS, frame, rings, grid)
    return tmp_path / "series.html"


def test_nothing_of_a_polygon_is_markup(page_file):
    text = page_file.read_text()
    assert text.count("<script>") == 1
    assert "&lt;script&gt;" in text


def test_the_slider_goes_through_the_dates(page_file):
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs Chromium: apt install chromium")
    with api.sync_playwright() as playwright:
        launch = playwright.chromium.launch
        browser = launch(executable_path=chromium, args=["--no-sandbox"])
        page, problems = browser.new_page(), []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(page_file.as_uri())
        slider = page.locator("input[type=range]")
        seen = {}
        for number in range(3):
            slider.fill(str(number))
            seen[number] = (
                page.locator("output").inner_text(),
                page.locator("path:not([hidden])").count(),
            )
        assert seen == {n: (LABELS[n], n) for n in range(3)}
        page.get_by_role("checkbox").uncheck()
        assert page.locator("path:not([hidden])").count() == 0
        assert "taken" not in page.title()
        assert problems == []
        browser.close()
