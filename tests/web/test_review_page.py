"""A whole review in a real browser: keys, drawings, undo, reload; a browser and a server killed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket

import pytest

from adadino.data.synthetic import World, write_geotiff_pair
from tests.web.browsing import PHONE, Watched, api, upload, violations
from tests.web.conftest import start

SCREENS = {"desk": {}, "phone": PHONE}
SAVED = "All is kept on the server."


def begin(page, tmp_path, seed):
    """Compare a pair of one's own and begin to review it."""
    before, after, _ = write_geotiff_pair(tmp_path, seed, 192, World(plan="organic", empty=0.0))
    page.locator("#threshold").fill("0.3")
    upload(page, before, after)
    api.expect(page.locator("#scene-name")).to_have_text("before → after")
    api.expect(page.locator("#share")).not_to_have_text("–")
    page.locator("#tab-review").click()
    page.get_by_role("button", name="Begin the review").click()
    api.expect(page.locator("#review-work")).to_be_visible()


def job_of(page):
    return re.search(r"job=([\w-]+)", page.url).group(1)


def log_of(server, page):
    path = server.jobs / job_of(page) / "review" / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def corner(page, dx, dy):
    """Click on the map, so far from its middle."""
    box = page.locator("#map").bounding_box()
    x, y = box["x"] + box["width"] / 2 + dx, box["y"] + box["height"] / 2 + dy
    if page.viewport_size["width"] < 500:
        page.touchscreen.tap(x, y)
    else:
        page.mouse.click(x, y)
    page.wait_for_timeout(300)  # two clicks at once would be one double click


def whole_review(opened, tmp_path, seed):
    page, server = opened.page, opened.server
    begin(page, tmp_path, seed)
    counts, title = page.locator("#review-counts"), page.locator("#review-title")
    facts = page.locator("#review-facts")
    api.expect(facts).to_contain_text(re.compile(r"^1 of \d+, random sample"))
    first = title.inner_text()
    # Verdicts by key; the map goes along.
    page.keyboard.press("a")
    api.expect(facts).to_contain_text("2 of ")
    api.expect(title).not_to_have_text(first)
    page.keyboard.press("r")
    page.keyboard.press("u")
    api.expect(counts).to_contain_text("1 right, 1 wrong, 1 unsure")
    api.expect(page.locator("#review-precision")).to_have_text(re.compile(r"^50 % \(\d+–\d+\)$"))
    for _ in range(3):
        page.keyboard.press("k")
    api.expect(title).to_have_text(first)
    assert page.locator("[data-do=right]").get_attribute("aria-pressed") == "true"
    page.keyboard.press("j")
    assert page.locator("[data-do=wrong]").get_attribute("aria-pressed") == "true"
    # Undo and redo.
    for count in ("1 right, 1 wrong, 0 unsure", "1 right, 0 wrong", "0 right, 0 wrong"):
        page.keyboard.press("z")
        api.expect(counts).to_contain_text(count)
    for _ in range(3):
        page.keyboard.press("y")
    api.expect(counts).to_contain_text("1 right, 1 wrong, 1 unsure")
    # A change that was missed, by corners; an area where nothing changed, by keys alone.
    page.locator("[data-do=draw]").click()
    for dx, dy in ((-60, -50), (60, -50), (60, 50)):
        corner(page, dx, dy)
    page.locator("#draw-finish").click()
    api.expect(counts).to_contain_text("1 missed, 0 unchanged")
    page.locator("#map").focus()
    page.keyboard.press("n")
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press("Space")
        page.keyboard.press(key)
        page.wait_for_timeout(250)  # the map moves
    page.keyboard.press("Enter")
    api.expect(counts).to_contain_text("1 missed, 1 unchanged")
    api.expect(page.locator("#review-saved")).to_have_text(SAVED)
    assert violations(page) == []
    # The page is loaded anew: all is as it was.
    page.wait_for_url(re.compile("review=1"))
    page.reload()
    api.expect(page.locator("#review-work")).to_be_visible()
    api.expect(counts).to_contain_text("1 right, 1 wrong, 1 unsure; drawn: 1 missed, 1 unchanged")
    lines = log_of(server, page)
    assert [line["do"] for line in lines] == (
        ["judge"] * 3 + ["undo"] * 3 + ["redo"] * 3 + ["draw", "unchanged"]
    )
    assert [line["list"] for line in lines[:3]] == ["random"] * 3
    assert len({line["by"] for line in lines}) == 1


def test_a_whole_review_at_a_desk(watched, tmp_path):
    whole_review(watched, tmp_path, 41)


@pytest.mark.slow
def test_a_whole_review_on_a_phone(browser, server, demo, tmp_path):
    opened = Watched(browser, server, **PHONE)
    whole_review(opened, tmp_path, 41)
    bar = opened.page.locator(".verdicts")
    bar.scroll_into_view_if_needed()
    for button in bar.locator("button").all():
        assert button.bounding_box()["height"] >= 44  # thumbs
    opened.page.evaluate("scrollTo(0, document.body.scrollHeight / 3)")
    box = opened.page.locator("#map").bounding_box()
    assert box["y"] >= 0  # the map stays in sight
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    opened.close()


@pytest.mark.slow
def test_outlines_are_reshaped_cut_drawn_freehand_and_erased(watched, tmp_path):
    page = watched.page
    begin(page, tmp_path, 41)
    counts = page.locator("#review-counts")
    box = page.locator("#map").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.keyboard.press("f")
    page.mouse.move(x + 60, y + 60)
    page.mouse.down()
    for dx, dy in ((160, 60), (160, 160), (60, 160), (60, 62)):
        page.mouse.move(x + dx, y + dy, steps=4)
    page.mouse.up()
    api.expect(counts).to_contain_text("1 missed")
    page.get_by_role("button", name=re.compile("^Missed change")).last.click()
    api.expect(page.locator("#review-title")).to_contain_text("Missed change")
    page.wait_for_timeout(500)  # the map has arrived
    page.locator("#map").focus()
    page.keyboard.press("c")
    for dx, dy in ((0, -200), (200, -200), (200, 200), (0, 200)):
        corner(page, dx, dy)
    page.keyboard.press("Enter")
    api.expect(page.locator("#review-saved")).to_have_text(SAVED)
    page.keyboard.press("e")
    page.mouse.move(x, y)
    page.keyboard.press("Enter")
    page.keyboard.press("g")
    for dx, dy in ((-40, -40), (40, -40), (0, 40)):
        corner(page, dx, dy)
    page.keyboard.press("Enter")
    api.expect(page.locator("#review-drawings li")).to_have_count(1)
    page.keyboard.press("x")
    api.expect(counts).to_contain_text("0 missed")
    page.keyboard.press("z")
    api.expect(counts).to_contain_text("1 missed")
    lines = log_of(watched.server, page)
    assert [line["do"] for line in lines] == ["draw", "cut", "reshape", "reshape", "erase", "undo"]
    page.keyboard.press("d")
    page.keyboard.press("Escape")  # gives it up
    assert page.locator("#drawing").is_hidden()
    assert len(log_of(watched.server, page)) == 6


@pytest.mark.slow
def test_three_ways_to_compare_and_outlines_by_a_key(watched, tmp_path):
    page = watched.page
    begin(page, tmp_path, 44)
    page.wait_for_timeout(400)  # the map has arrived
    swipe = watched.pixels()
    page.keyboard.press("o")
    assert watched.pixels() != swipe
    page.keyboard.press("o")
    page.keyboard.press("2")
    api.expect(page.locator("#twin canvas").first).to_be_visible()
    assert page.get_by_label("Side by side").is_checked()
    assert violations(page) == []
    page.keyboard.press("3")
    api.expect(page.locator("#twin")).to_be_hidden()
    api.expect(page.locator("#turn")).to_have_text("Before")
    api.expect(page.locator("#turn")).to_have_text("After")
    page.keyboard.press("1")
    api.expect(page.locator("#turn")).to_be_empty()
    page.locator("#tab-change").click()  # and out of the review
    api.expect(page.locator("#review-work")).to_be_hidden()
    page.wait_for_url(re.compile(r"^(?!.*review=1)"))


def free_port():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return str(door.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
def test_a_killed_server_and_a_closed_browser_lose_nothing(browser, model, tmp_path, screen):
    port, jobs = free_port(), tmp_path / "jobs"
    server = start(model, jobs, "--port", port)
    server.demo()
    opened = Watched(browser, server, **SCREENS[screen])
    page = opened.page
    page.locator("#tab-review").click()
    page.get_by_role("button", name="Begin the review").click()
    api.expect(page.locator("#review-work")).to_be_visible()
    for key in "aru":
        page.keyboard.press(key)
    api.expect(page.locator("#review-saved")).to_have_text(SAVED)
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait()
    page.keyboard.press("a")
    api.expect(page.locator("#review-saved")).to_contain_text("1 action is not on the server yet")
    page.keyboard.press("r")
    api.expect(page.locator("#review-saved")).to_contain_text("2 actions are not")
    address = page.url
    page.close()  # the browser goes too
    server = start(model, jobs, "--port", port)
    try:
        page = opened.page = opened.context.new_page()
        page.goto(address)
        api.expect(page.locator("#review-counts")).to_contain_text("2 right, 2 wrong, 1 unsure")
        api.expect(page.locator("#review-saved")).to_have_text(SAVED)
        lines = log_of(server, page)
        assert [line["verdict"] for line in lines] == ["right", "wrong", "unsure", "right", "wrong"]
        assert len({line["shape"] for line in lines}) == 5
    finally:
        opened.context.close()
        server.stop()
