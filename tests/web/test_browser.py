"""The page in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import math
import re

import geopandas as gpd
import pytest
import rasterio
from PIL import Image

from adadino.data.synthetic import World, write_geotiff_pair
from adadino.web.app import create_app
from adadino.web.settings import Settings
from tests.web.browsing import Watched, api, save_downloads, slide, upload
from tests.web.conftest import listening


def test_it_opens_on_the_demo(page):
    assert "Demo" in page.locator("#scene-name").inner_text()
    assert "EPSG:32633" in page.locator("#scene-facts").inner_text()
    assert page.locator("#crs").inner_text() == "EPSG:32633"
    assert re.fullmatch(r"\d+ m", page.locator("#scale b").inner_text())
    assert "CPU" in page.locator("#device").inner_text()


def test_swipe_by_mouse_and_by_keys_changes_what_is_seen(watched):
    page, bar = watched.page, watched.page.locator("#swipe")
    middle = watched.pixels()
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] - 200, box["y"] + 200, steps=4)
    page.mouse.up()
    assert int(bar.get_attribute("aria-valuenow")) < 35
    left = watched.pixels()
    assert left != middle
    bar.focus()
    page.keyboard.press("End")
    assert bar.get_attribute("aria-valuenow") == "100"
    assert watched.pixels() not in (left, middle)
    page.keyboard.press("ArrowLeft")
    assert bar.get_attribute("aria-valuenow") == "98"


def test_swipe_by_touch(browser, server, demo):
    opened = Watched(browser, server, viewport={"width": 390, "height": 844}, has_touch=True)
    bar = opened.page.locator("#swipe")
    box = bar.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 120
    finger = opened.context.new_cdp_session(opened.page)
    for kind, at in (("touchStart", x), ("touchMove", x + 60), ("touchMove", x + 117)):
        points = [{"x": at, "y": y}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert int(bar.get_attribute("aria-valuenow")) == pytest.approx(80, abs=2)
    opened.close()


def test_the_threshold_redraws_polygons_without_running_the_model(watched, demo):
    page, before = watched.page, watched.count
    drawn = watched.pixels()
    with page.expect_response(lambda answer: "threshold=0.3" in answer.url):
        slide(page, "#threshold", 0.3)
    api.expect(page.locator("#count")).not_to_have_text(str(before))
    assert page.locator("#threshold-value").inner_text() == "0.30"
    assert watched.pixels() != drawn
    assert "threshold=0.3" in page.locator("a[data-file='mask.tif']").get_attribute("href")


def test_the_smallest_area_leaves_polygons_out(watched):
    page, before = watched.page, watched.count
    slide(page, "#min-area", 4)
    api.expect(page.locator("#count")).not_to_have_text(str(before))
    assert 0 < watched.count < before
    assert page.locator("#rows tr").count() == watched.count
    assert "min_area=" in page.locator("a[data-file='result.gpkg']").get_attribute("href")


def test_a_polygon_is_clicked_on_the_map_and_in_the_table(watched, client, demo):
    page = watched.page
    page.locator("#rows tr").nth(0).click()
    api.expect(page.locator("#popup")).to_contain_text("Polygon 1")
    assert page.locator("#rows tr").nth(0).get_attribute("aria-selected") == "true"
    # Click where polygon 2 lies.
    feature = client.get(f"/api/jobs/{demo['id']}/polygons").json()["features"][1]
    frame = gpd.GeoDataFrame.from_features([feature])
    inside = frame.representative_point()[0]
    page.locator("#rows tr").nth(1).click()
    page.mouse.move(0, 0)
    page.locator("#swipe").focus()
    page.keyboard.press("Home")  # out of the way
    x, y = page.evaluate(
        "at => document.getElementById('map').map.getPixelFromCoordinate(at)", [inside.x, inside.y]
    )
    box = page.locator("#map").bounding_box()
    page.locator("#rows tr").nth(0).click()
    page.locator("#rows tr").nth(1).click()
    watched.drawn()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] - 5)  # outside: nothing is chosen
    page.wait_for_timeout(400)
    page.mouse.click(box["x"] + x, box["y"] + y)
    api.expect(page.locator("#popup")).to_contain_text("Polygon 2")
    area = f"{math.floor(feature['properties']['area_m2'] + 0.5):,} m²"  # as browsers round
    api.expect(page.locator("#popup")).to_contain_text(area)
    assert page.locator("#rows tr").nth(1).get_attribute("aria-selected") == "true"


def test_layers_fade_and_probability_shows(watched):
    page = watched.page
    page.locator("#tab-layers").click()
    plain = watched.pixels()
    page.locator("#seen-probability").check()
    assert watched.pixels() != plain
    assert page.locator("#legend").is_visible()
    page.locator("#seen-probability").uncheck()
    slide(page, "#opacity-polygons", 0)
    assert watched.pixels() != plain


def test_an_uploaded_pair_is_computed_shown_and_downloaded(watched, tmp_path):
    page = watched.page
    before, after, _ = write_geotiff_pair(tmp_path, 5, 300, World(plan="organic", empty=0.0))
    upload(page, before, after)
    api.expect(page.locator("#scene-name")).to_have_text("before → after")
    api.expect(page.locator("#share")).not_to_have_text("–")
    slide(page, "#threshold", 0.35)
    api.expect(page.locator("#threshold-value")).to_have_text("0.35")
    got = save_downloads(page, tmp_path)
    with rasterio.open(got["mask.tif"]) as mask, rasterio.open(got["probability.tif"]) as chance:
        assert mask.shape == chance.shape == (300, 300)
        assert mask.tags()["ADADINO_THRESHOLD"] == "0.35"
        assert {f.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] for f in (mask, chance)} == {"COG"}
        assert ((mask.read(1) == 1) == (chance.read(1) >= 0.35)).all()
    frames = [gpd.read_file(got[name]) for name in ("result.gpkg", "result.geojson")]
    assert [frame.crs.to_epsg() for frame in frames] == [32633, 4326]
    assert [len(frame) for frame in frames] == [watched.count] * 2
    with Image.open(got["overview.png"]) as picture:
        assert picture.format == "PNG"
    page.reload()
    api.expect(page.locator("#scene-name")).to_have_text("before → after")  # from the address


def test_addresses_for_qgis_are_copied_at_the_threshold_that_is_set(watched, client, demo):
    page = watched.page
    watched.context.grant_permissions(["clipboard-read", "clipboard-write"])
    slide(page, "#threshold", 0.4)
    page.get_by_text("Open in QGIS").click()
    page.get_by_role("button", name="Copy the address for WFS / OGC API Features").click()
    api.expect(page.locator("#copied")).to_contain_text("is copied")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == f"{watched.server.address}/api/jobs/{demo['id']}/features/0.4/0"
    assert client.get(copied).json()["links"]
    shown = page.locator("#addresses code").all_inner_texts()
    assert [address.rsplit("/", 1)[1] for address in shown] == ["0", "wmts", "{y}.png", "stac.json"]
    watched.context.clear_permissions()


def test_a_wrong_file_is_refused_before_it_is_sent(page, tmp_path):
    (tmp_path / "fake.tif").write_text("this is no image at all")
    page.locator("#tab-jobs").click()
    page.locator("#file-before").set_input_files(tmp_path / "fake.tif")
    api.expect(page.locator("#problem")).to_contain_text("fake.tif is no GeoTIFF, PNG or JPEG")


def test_a_running_job_is_cancelled(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 6, 960)
    upload(page, before, after)
    api.expect(page.locator("#status")).to_be_visible()
    page.locator("#tab-jobs").click()
    item = page.locator("#jobs li").first
    api.expect(item).to_have_attribute("data-state", re.compile("queued|running"))
    item.get_by_role("button", name="Cancel").click()
    api.expect(item).to_have_attribute("data-state", "cancelled")
    item.get_by_role("button", name="Remove").click()
    page.locator("#confirm-yes").click()
    api.expect(page.locator("#jobs li[data-state='cancelled']")).to_have_count(0)


def test_all_is_reached_by_keyboard_with_a_visible_focus(page):
    page.evaluate("document.activeElement?.blur()")
    seen = set()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("() => document.activeElement === document.body"):
            break  # once round
        name, outline = page.evaluate(
            "() => { const e = document.activeElement; const s = getComputedStyle(e);"
            " const g = e.querySelector('.grip') ? getComputedStyle(e.querySelector('.grip')) : s;"
            " return [e.id || e.className || e.dataset.file || e.textContent,"
            " parseFloat(g.outlineWidth) > 0 && g.outlineStyle !== 'none']; }"
        )
        seen.add(name)
        assert outline, f"no focus is seen on {name}"
    wanted = {"map", "fit", "swipe", "theme", "tab-change", "threshold", "min-area", "overview.png"}
    assert wanted <= seen


def test_the_token_opens_the_page(browser, tmp_path):
    secret = "correct horse battery"
    app = create_app(Settings(jobs=tmp_path / "jobs", demo=False, tokens=(secret,)))
    with listening(app) as (host, port), browser.new_context() as context:
        page, said = context.new_page(), []
        page.on("console", lambda message: said.append((message.type, message.text)))
        page.goto(f"http://{host}:{port}")
        page.locator("#token").fill("wrong")
        page.get_by_role("button").click()
        api.expect(page.locator("#wrong")).to_be_visible()
        page.locator("#token").fill(secret)
        page.get_by_role("button").click()
        api.expect(page.locator("#veil")).to_contain_text("Nothing to show yet")
        assert not [entry for entry in said if entry[0] in ("error", "warning")]
