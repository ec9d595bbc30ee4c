"""From a judged map to a model of one's own, in a real browser: ask, wait, compare, use it."""

from __future__ import annotations

import re

import pytest

from adadino.data.synthetic import World, write_geotiff_pair
from tests.web.adapting import serving
from tests.web.browsing import PHONE, Watched, api, choose, upload, violations

SCREENS = {"desk": {}, "phone": PHONE}
SIDE = 512


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    world = World(plan="organic", empty=0.0)
    return write_geotiff_pair(tmp_path_factory.mktemp("pair"), 41, SIDE, world)[:2]


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    running = serving(model, tmp_path_factory.mktemp("jobs"), steps=12, anyway=True)
    running.demo()
    yield running
    running.stop()


def judge(page, pair):
    """Compare a pair and judge the first polygons."""
    page.locator("#threshold").fill("0.3")
    upload(page, *pair)
    api.expect(page.locator("#scene-name")).to_have_text("before → after")
    api.expect(page.locator("#share")).not_to_have_text("–")
    page.locator("#tab-review").click()
    page.get_by_role("button", name="Begin the review").click()
    api.expect(page.locator("#review-work")).to_be_visible()
    for number in range(12):
        page.keyboard.press("ar"[number % 2])
    api.expect(page.locator("#review-counts")).to_contain_text("6 right, 6 wrong")
    api.expect(page.locator("#review-saved")).to_have_text("All is kept on the server.")


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
def test_a_judged_map_makes_a_model(browser, server, pair, tmp_path, screen):
    opened = Watched(browser, server, **SCREENS[screen])
    page, name = opened.page, f"Roofs {screen}"
    judge(page, pair)
    start = page.get_by_role("button", name="Adapt the model")
    start.click()
    api.expect(page.locator("#adapt-problem")).to_have_text("Give the new model a name.")
    page.get_by_label("Name of the new model").fill("base")
    page.keyboard.press("Enter")
    api.expect(page.locator("#adapt-problem")).to_contain_text("There is a model 'base' already")
    opened.forgive(409)
    assert violations(page) == []
    page.screenshot(path=tmp_path / f"ask-{screen}.png")
    page.get_by_label("Name of the new model").fill(name)
    start.click()
    # It runs, says how far it is, and can be ended.
    status = page.locator("#status")
    api.expect(status).to_contain_text(re.compile(r"Adapting the model \(step 1 of 5\): \d"))
    api.expect(status).to_contain_text("left")
    api.expect(status.get_by_role("button", name="Cancel")).to_be_visible()
    page.screenshot(path=tmp_path / f"runs-{screen}.png")
    # Then both maps, and the figures of both models.
    figures = page.locator("#adapted")
    api.expect(figures).to_be_visible()
    api.expect(figures).to_contain_text(f"It is among the models as “{name}”.")
    api.expect(page.locator("#adapted-how")).to_contain_text("4 tiles that were held out in turn")
    api.expect(page.locator("#adapted-how")).to_contain_text("95 % interval")
    assert re.fullmatch(r"[+−]\d+\.\d", page.locator("#adapted-difference").inner_text())
    opened.ready()
    assert violations(page) == []
    new = (page.locator("#area").inner_text(), opened.pixels())
    page.screenshot(path=tmp_path / f"new-{screen}.png", full_page=True)
    with page.expect_response(re.compile("/polygons")):
        page.get_by_label("Old map").check()
    api.expect(page.locator("#area")).not_to_have_text(new[0])
    assert opened.pixels() != new[1]
    page.screenshot(path=tmp_path / f"old-{screen}.png", full_page=True)
    with page.expect_response(re.compile("/polygons")):
        page.get_by_label("New map").check()
    api.expect(page.locator("#area")).to_have_text(new[0])
    # The model can be chosen for the next comparison.
    choose(page, *pair)
    page.locator("#model").select_option(name)
    page.locator("#start").click()
    api.expect(page.locator("#adapted")).to_be_hidden()
    api.expect(page.locator("#area")).to_have_text(new[0])
    page.locator("#tab-layers").click()
    api.expect(page.locator("#facts")).to_contain_text(name)
    opened.close()


@pytest.mark.slow
def test_a_cancelled_adaptation_makes_no_model(browser, server, pair):
    opened = Watched(browser, server)
    page = opened.page
    judge(page, pair)
    page.get_by_label("Name of the new model").fill("never")
    page.get_by_role("button", name="Adapt the model").click()
    status = page.locator("#status")
    api.expect(status).to_contain_text("Adapting the model")
    status.get_by_role("button", name="Cancel").click()
    api.expect(status).to_contain_text("Cancelled.")
    page.locator("#tab-jobs").click()
    assert "never" not in page.locator("#model").inner_text()
    opened.close()
