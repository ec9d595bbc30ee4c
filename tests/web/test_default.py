"""The server as it is started without any option: the bundled model, and the demo it comes with.

Screenshots go to the folder `ADADINO_SCREENSHOTS` names, or to pytest's own.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import geopandas as gpd
import numpy as np
import pytest
import rasterio

from adadino.data.synthetic import DEMO_SEED, DEMO_SIZE, HELD_OUT, write_geotiff_pair
from adadino.web.jobs.demo import SHIPPED, STEPS
from tests.web.browsing import Watched, api, save_downloads, slide, upload
from tests.web.conftest import start
from tests.web.contrast import contrasts

REAL = Path(os.environ.get("ADADINO_DATA", "nowhere")) / "geotiff"


@pytest.fixture(scope="module")
def default(tmp_path_factory):
    """The server, and what it said of itself and its jobs with its first words."""
    running = start(None, tmp_path_factory.mktemp("jobs"))
    with running.client() as client:
        running.first = client.get("/api/info").json(), running.demo()
    yield running
    running.stop()


def test_the_demo_is_computed_before_the_model_is_loaded(default):
    info, demo = default.first
    assert info["ready"] is False
    assert info["models"][0]["name"] == demo["model"] == "tiny"
    assert demo["result"]["ahead"] is True
    with default.client() as client:
        found = client.get(f"/api/jobs/{demo['id']}/polygons").json()
    assert found["change_fraction"] == pytest.approx(demo["result"]["change_fraction"], abs=1e-4)


def test_what_is_shipped_is_small():
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 300_000


@pytest.mark.slow
def test_the_default_model_finds_in_the_demo_what_is_shipped(browser, default, tmp_path):
    before, after, truth = write_geotiff_pair(tmp_path, DEMO_SEED, DEMO_SIZE, HELD_OUT)
    opened = Watched(browser, default)
    page = opened.page
    shown = opened.count
    page.locator("#tab-layers").click()
    api.expect(page.locator("#facts")).to_contain_text("comes with the package")
    upload(page, before, after)
    api.expect(page.locator("#scene-name")).to_have_text("before → after")
    api.expect(page.locator("#count")).to_have_text(str(shown), timeout=300_000)
    slide(page, "#threshold", 0.3)
    link = page.locator("a[data-file='mask.tif']")
    api.expect(link).to_have_attribute("href", re.compile("threshold=0.3&"))
    page.wait_for_load_state("networkidle")
    got = save_downloads(page, tmp_path)
    seen = opened.count
    opened.close()
    with rasterio.open(got["probability.tif"]) as mine, rasterio.open(truth) as true:
        chance, right = mine.read(1), true.read(1) > 0
        tags = mine.tags()
    with rasterio.open(SHIPPED / "probability.tif") as theirs:
        # Cut to steps; and processors round differently.
        np.testing.assert_allclose(theirs.read(1), chance, atol=1 / STEPS + 2e-3)
        again = "the bundled model has changed: python -m adadino.web.jobs.demo"
        assert theirs.tags()["ADADINO_MODEL"] == tags["ADADINO_MODEL"], again
    found = chance >= 0.5
    assert 2 * (found & right).sum() / (found.sum() + right.sum()) > 0.9  # F1
    with rasterio.open(got["mask.tif"]) as mask:
        assert ((mask.read(1) == 1) == (chance >= np.float32(0.3))).all()
    assert len(gpd.read_file(got["result.gpkg"])) == seen
    assert len(gpd.read_file(got["result.geojson"])) == seen


def test_the_popup_of_a_polygon_at_the_edge_is_seen_whole(browser, default):
    opened = Watched(browser, default)
    page = opened.page
    x, y = page.evaluate(
        "() => { const { map } = document.getElementById('map');"
        " const [layer] = map.getLayers().getArray().slice(-1);"
        " const shape = layer.getSource().getFeatureById(1).getGeometry();"
        " return map.getPixelFromCoordinate(shape.getInteriorPoint().getCoordinates()); }"
    )
    around = page.locator("#map").bounding_box()
    page.mouse.click(around["x"] + x, around["y"] + y)
    popup = page.locator("#popup")
    api.expect(popup).to_contain_text("Polygon 1")
    box = popup.bounding_box()
    for side, size in (("x", "width"), ("y", "height")):
        assert around[side] <= box[side]
        assert box[side] + box[size] <= around[side] + around[size]
    opened.close()


@pytest.mark.parametrize(
    ("width", "theme"),
    [(1280, "light"), (390, "dark"), pytest.param(1280, "dark", marks=pytest.mark.slow),
     pytest.param(390, "light", marks=pytest.mark.slow)],
)  # fmt: skip
def test_widths_and_themes(browser, default, tmp_path, width, theme):
    height = 800 if width > 500 else 844
    opened = Watched(
        browser, default, viewport={"width": width, "height": height}, color_scheme=theme,
        has_touch=width < 500,
    )  # fmt: skip
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
    folder = Path(os.environ.get("ADADINO_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    opened.pixels()
    page.screenshot(path=folder / f"page-{width}-{theme}.png", full_page=width < 500)
    for tab in ("change", "layers", "jobs"):
        page.locator(f"#tab-{tab}").click()
        found = contrasts(page)
        assert len(found) > 20
        assert not [entry for entry in found if entry[0] < 4.5]  # WCAG AA
    opened.close()


def test_the_layout_does_not_jump(browser, default):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(
        "window.jumps = 0; new PerformanceObserver(list => { for (const e of list.getEntries())"
        " window.jumps += e.value; }).observe({ type: 'layout-shift', buffered: true });"
    )
    page = context.new_page()
    page.goto(default.address)
    api.expect(page.locator("#rows tr").first).to_be_visible()
    slide(page, "#threshold", 0.4)
    page.wait_for_timeout(800)
    assert page.evaluate("window.jumps") < 0.1  # what browsers call good
    context.close()


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason="set ADADINO_DATA to the folder of real pairs")
def test_a_real_pair_shows_its_warnings_and_its_files_open(browser, default, tmp_path):
    opened = Watched(browser, default)
    page = opened.page
    upload(page, REAL / "naip_2009.tif", REAL / "naip_2018.tif")
    api.expect(page.locator("#scene-name")).to_have_text("naip_2009 → naip_2018")
    api.expect(page.locator("#warnings")).to_contain_text("grid", timeout=300_000)
    assert page.locator("#crs").inner_text() == "EPSG:26914"
    api.expect(page.locator("#count")).not_to_have_text("–")
    got = save_downloads(page, tmp_path)
    seen = opened.count
    opened.close()
    with rasterio.open(REAL / "naip_2009.tif") as before, rasterio.open(got["mask.tif"]) as mask:
        assert mask.crs == before.crs
        assert mask.res == before.res
    frame = gpd.read_file(got["result.gpkg"])
    assert (len(frame), frame.crs.to_epsg()) == (seen, 26914)
