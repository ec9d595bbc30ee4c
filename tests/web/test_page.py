"""The page beyond a result: addresses, phones, busy servers, jobs on their way."""

from __future__ import annotations

import json
import re

import pytest

from adadino.data.synthetic import World, write_geotiff_pair
from tests.web.browsing import PHONE, Watched, alter, api, slide, upload

pytestmark = pytest.mark.slow  # a browser and a server for each; `make test-all` has them
JOBS, INFO, POLYGONS = re.compile("/api/jobs$"), "**/api/info", "**/polygons?*"


@pytest.fixture
def phone(browser, server, demo):
    found = Watched(browser, server, **PHONE)
    yield found
    found.close()


def test_a_link_brings_back_threshold_smallest_polygon_and_place(browser, server, watched):
    page = watched.page
    slide(page, "#threshold", 0.35)
    slide(page, "#min-area", 3)
    page.locator("#rows tr").nth(1).click()
    page.wait_for_url(re.compile(r"#job=[\w-]+&threshold=0.35&smallest=[\d.]+&map=[-\d.,]+$"))
    smallest = page.locator("#min-area-value").inner_text()
    page.wait_for_load_state("networkidle")
    link = page.locator("a[data-file='mask.tif']").get_attribute("href")
    with server.client() as client:
        shown = client.get(link.replace("mask.tif", "polygons")).json()["count"]
    api.expect(page.locator("#count")).to_have_text(str(shown))
    wanted = page.url, shown, watched.resolution
    other = Watched(browser, server)  # somebody else
    other.page.goto("about:blank")
    other.page.goto(page.url)
    page.reload()
    for opened in (watched, other):
        opened.ready()
        api.expect(opened.page.locator("#count")).to_have_text(str(shown))
        assert opened.page.locator("#threshold-value").inner_text() == "0.35"
        assert opened.page.locator("#min-area-value").inner_text() == smallest
        opened.page.wait_for_timeout(400)  # the address is written with a delay
        url, count, resolution = wanted
        assert (opened.page.url, opened.count) == (url, count)
        assert opened.resolution == pytest.approx(resolution, rel=1e-4)
    other.close()


def test_back_and_forward_go_between_jobs_as_they_were(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 31, 128, World(plan="organic", empty=0.0))
    slide(page, "#threshold", 0.3)
    slide(page, "#min-area", 2)
    smallest = page.locator("#min-area-value").inner_text()
    page.wait_for_url(re.compile("smallest="))
    upload(page, before, after)
    api.expect(page.locator("#scene-name")).to_have_text("before → after")
    api.expect(page.locator("#share")).not_to_have_text("–")
    slide(page, "#threshold", 0.6)
    page.wait_for_url(re.compile("threshold=0.6$"))
    page.go_back()
    api.expect(page.locator("#scene-name")).to_contain_text("Demo")
    api.expect(page.locator("#threshold-value")).to_have_text("0.30")
    api.expect(page.locator("#min-area-value")).to_have_text(smallest)
    page.go_forward()
    api.expect(page.locator("#scene-name")).to_have_text("before → after")
    api.expect(page.locator("#threshold-value")).to_have_text("0.60")
    api.expect(page.locator("#min-area-value")).to_have_text("all")


def test_an_address_whose_job_is_gone_says_so(watched):
    page = watched.page
    page.goto(f"{watched.server.address}/#job=there-is-no-such-job")
    api.expect(page.locator("#gone")).to_contain_text("no longer there")
    watched.ready()
    watched.forgive(404)


def test_the_link_past_the_map_leaves_the_address_as_it_is(page):
    slide(page, "#threshold", 0.4)
    page.wait_for_url(re.compile("threshold=0.4$"))
    address = page.url
    page.get_by_role("link", name="Skip to the result").press("Enter")
    api.expect(page.locator("#panel")).to_be_focused()
    assert page.url == address


def test_the_map_goes_back_to_the_whole_scene(watched):
    page, whole = watched.page, watched.resolution
    page.locator("#rows tr").first.click()
    page.wait_for_url(re.compile("map="))
    assert watched.resolution < whole
    page.get_by_role("button", name="Show the whole scene").click()
    assert watched.resolution == pytest.approx(whole)
    page.wait_for_url(re.compile(r"#job=[\w-]+$"))


def test_escape_closes_the_popup(page):
    page.locator("#rows tr").first.click()
    api.expect(page.locator("#popup")).to_contain_text("Polygon 1")
    page.keyboard.press("Escape")
    api.expect(page.locator("#popup")).to_be_empty()
    assert page.locator("#rows tr[aria-selected='true']").count() == 0


def test_on_a_phone_a_tap_on_a_row_brings_the_map_and_zooms_it(phone):
    page, whole = phone.page, phone.resolution
    row = page.locator("#rows tr").nth(2)
    page.evaluate("() => scrollTo(0, 600)")
    api.expect(page.locator("#map")).not_to_be_in_viewport(ratio=0.5)
    row.tap()
    api.expect(page.locator("#map")).to_be_in_viewport(ratio=1)
    api.expect(page.locator("#popup")).to_be_in_viewport(ratio=1)
    assert phone.resolution < whole


@pytest.mark.parametrize("screen", [PHONE, {}])
def test_large_numbers_stay_in_their_cards(browser, server, demo, screen):
    opened = Watched(browser, server, **screen)
    page = opened.page
    large = {"count": 1_234_567, "area": 98_765.43e6, "change_fraction": 0.9999}
    alter(page, POLYGONS, lambda found: found | large)
    page.reload()
    api.expect(page.locator("#count")).to_have_text("1,234,567")
    api.expect(page.locator("#area")).to_have_text("98,765.43 km²")
    inside = """box => { const edge = box.parentElement.getBoundingClientRect().right;
      const range = document.createRange(); range.selectNodeContents(box);
      return range.getBoundingClientRect().right <= edge && edge <= innerWidth; }"""
    for name in ("count", "area", "share"):
        assert page.locator(f"#{name}").evaluate(inside)
    opened.close()


def test_figures_and_downloads_are_of_the_smallest_polygon_that_is_set(watched, client, demo):
    page = watched.page
    assert "at threshold 0.50, with all polygons" in page.locator("#contents").inner_text()
    with page.expect_response(re.compile(r"min_area=[1-9]")) as waiting:
        slide(page, "#min-area", 4)
    found = waiting.value.json()
    least = f"{found['min_area']:g} m²"
    api.expect(page.locator("#min-area-value")).to_have_text(f"from {least}")
    api.expect(page.locator("#share")).to_have_text(f"{100 * found['change_fraction']:.1f} %")
    api.expect(page.locator("#count")).to_have_text(str(found["count"]))
    assert f"without polygons below {least}" in page.locator("#contents").inner_text()
    for name in ("mask.tif", "result.gpkg", "result.geojson", "overview.png"):
        link = page.locator(f"a[data-file='{name}']").get_attribute("href")
        assert link.endswith(f"min_area={found['min_area']:g}")


PHASES = {
    "opening": "Opening the images (step 1 of 4)",
    "preparing": "Preparing the images (step 2 of 4)",
    "predicting": "Comparing (step 3 of 4): 3 of 9 tiles · 1.5 tiles/s, 0.10 MP/s · 4 s left",
    "writing": "Writing the result (step 4 of 4)",
}


def on_its_way(jobs, **changes):
    """The list with one more job, a copy of the demo that has not come far."""
    progress = {"phase": "opening", "done": 0, "total": 9, "tiles_per_s": 0.0, "mp_per_s": 0.0}
    job = jobs["jobs"][-1] | {
        "id": "on-its-way", "name": "New", "source": "upload", "own": True, "state": "running",
        "result": None, "view": None, "progress": progress | {"eta_s": None},
    }  # fmt: skip
    return {"jobs": [job | changes, *jobs["jobs"]]}


@pytest.mark.parametrize("phase", PHASES)
def test_a_job_tells_its_phase_and_is_cancelled_beside_the_bar(page, phase):
    asked = []
    tiles = {"tiles_per_s": 1.5, "mp_per_s": 0.1, "eta_s": 4.0} if phase == "predicting" else {}
    progress = {"done": 3, "total": 9, "tiles_per_s": None, "mp_per_s": None, "eta_s": None}
    alter(page, JOBS, lambda jobs: on_its_way(
        jobs, state="cancelled" if asked else "running",
        progress=None if asked else progress | tiles | {"phase": phase},
    ))  # fmt: skip

    def cancel(route):
        asked.append(route.request.method)
        route.fulfill(json={})

    page.route("**/api/jobs/on-its-way/cancel", cancel)
    page.goto(f"{page.url.split('#')[0]}#job=on-its-way")
    page.reload()
    status = page.locator("#status")
    api.expect(status).to_contain_text(PHASES[phase])
    api.expect(page.locator("#announce")).to_contain_text(PHASES[phase].split(" (")[0].lower())
    bar = status.get_by_role("progressbar")
    assert bar.get_attribute("value") == ("3" if phase == "predicting" else None)
    if phase != "predicting":
        assert "left" not in status.inner_text()
    status.get_by_role("button", name="Cancel New").click()
    api.expect(status).to_have_text("Cancelled.", use_inner_text=True)
    assert asked == ["POST"]


def test_the_former_map_stays_until_the_new_one_is_there(watched, demo):
    page, here = watched.page, {"view": None}
    alter(page, JOBS, lambda jobs: on_its_way(jobs, **here))
    page.route("**/on-its-way/tiles/**", lambda route: route.fulfill(status=204))
    page.locator("#tab-jobs").click()
    page.get_by_role("button", name="New", exact=True).click()
    api.expect(page.locator("#scene-name")).to_have_text("New")
    api.expect(page.locator("#former")).to_contain_text("The map still shows “Demo")
    assert page.locator("#veil").is_hidden()
    assert page.locator("#swipe").is_visible()
    assert "map=" not in page.url
    here["view"] = demo["view"]
    api.expect(page.locator("#former")).to_be_hidden()
    assert page.locator("#veil").is_hidden()


def test_a_busy_server_is_asked_again(watched):
    page, answers = watched.page, []

    def busy(route):
        answers.append(route.request.url)
        if len(answers) < 3:
            sentence = json.dumps({"error": "too much is going on; try again."})
            route.fulfill(status=503, body=sentence, headers={"retry-after": "0"})
        else:
            route.continue_()

    page.route(POLYGONS, busy)
    slide(page, "#threshold", 0.31)
    api.expect(page.locator("#note")).to_contain_text("busy; asking again")
    api.expect(page.locator("#note")).not_to_contain_text("busy")
    assert len(answers) == 3
    watched.forgive(503)


def test_a_server_that_stays_busy_is_left_alone_with_its_sentence_shown(watched):
    page, answers = watched.page, []

    def busy(route):
        answers.append(route.request.url)
        sentence = json.dumps({"error": "too much is going on; try again."})
        route.fulfill(status=429, body=sentence, headers={"retry-after": "0"})

    page.route("**/overview.png?*", busy)
    page.locator("a[data-file='overview.png']").click()
    api.expect(page.locator("#download-note")).to_have_text("Too much is going on; try again.")
    assert len(answers) == 5
    watched.forgive(429)


def test_who_is_signed_in_is_told_and_can_leave(page):
    assert page.locator("#account").is_hidden()
    alter(page, INFO, lambda info: info | {"tokens": True, "who": "anna"})
    page.reload()
    api.expect(page.locator("#who")).to_have_text("anna")
    page.route("**/logout", lambda route: route.fulfill(status=204))
    with page.expect_request("**/logout") as asked:
        page.get_by_role("button", name="Log out").click()
    assert asked.value.method == "POST"


def test_remove_asks_first_and_names_the_job(page, tmp_path):
    before, after, _ = write_geotiff_pair(tmp_path, 32, 64)
    after.rename(tmp_path / "june.tif")
    upload(page, before, tmp_path / "june.tif")
    api.expect(page.locator("#scene-name")).to_have_text("before → june")
    api.expect(page.locator("#status")).to_be_hidden()
    page.locator("#tab-jobs").click()
    remove = page.get_by_role("button", name="Remove before → june")
    item = page.locator("#jobs li", has=remove)
    remove.click()
    dialog = page.get_by_role("dialog", name="Remove this job?")
    api.expect(dialog).to_contain_text("“before → june”")
    api.expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
    page.keyboard.press("Escape")
    api.expect(dialog).to_be_hidden()
    api.expect(remove).to_be_focused()
    remove.click()
    dialog.get_by_role("button", name="Remove").click()
    api.expect(item).to_have_count(0)
    api.expect(page.locator("#scene-name")).not_to_have_text("before → june")
    api.expect(page.locator("#jobs-title")).to_be_focused()
