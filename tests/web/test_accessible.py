"""The pages for everybody: axe-core, headings, and the table by keyboard."""

from __future__ import annotations

import pytest

from tests.web.browsing import PHONE, Watched, api, violations

pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
SCREENS = {"phone": PHONE, "desk": {}}
LOOKS = [
    pytest.param((screen, scheme), id=f"{screen}-{scheme}", marks=marks)
    for screen, scheme, marks in (
        ("phone", "light", ()), ("desk", "dark", pytest.mark.slow),
        ("desk", "light", pytest.mark.slow), ("phone", "dark", pytest.mark.slow),
    )
]  # fmt: skip
"""Widths and themes; texts stand out in all of them by `test_default`'s figures."""


@pytest.fixture(params=LOOKS)
def look(request):
    screen, scheme = request.param
    return {"color_scheme": scheme, **SCREENS[screen]}


@pytest.fixture
def watched(look, browser, server, demo):
    opened = Watched(browser, server, **look)
    yield opened
    opened.close()


def test_a_result_has_no_violations(watched):
    page = watched.page
    assert violations(page) == []
    page.locator("#rows tr").first.click()
    api.expect(page.locator("#popup")).to_contain_text("Polygon 1")
    assert violations(page) == []
    page.locator("#tab-layers").click()
    assert violations(page) == []


def test_the_form_has_no_violations_in_either_of_its_sources(watched):
    page = watched.page
    page.locator("#tab-jobs").click()
    page.get_by_text("Options", exact=True).click()
    assert violations(page) == []
    page.locator("#start").click()
    api.expect(page.locator("#problem")).to_be_visible()
    assert violations(page) == []
    page.get_by_label("On the server").check()
    api.expect(page.locator("#preview-after img")).to_be_visible()
    assert violations(page) == []


def test_a_job_that_runs_and_the_dialog_have_no_violations(watched):
    page = watched.page
    page.evaluate("""async () => {
      const { JobStatus } = await import('/static/status.js');
      const { confirm } = await import('/static/confirm.js');
      const place = document.getElementById('status');
      place.hidden = false;
      new JobStatus(place, () => {}).show({ state: 'running', own: true, name: 'one',
        progress: { phase: 'predicting', done: 3, total: 9, eta_s: 9 }});
      window.ask = () => confirm('“one” goes.', () => { throw new Error('It stays.'); });
    }""")
    assert violations(page) == []
    page.evaluate("() => { window.ask(); }")
    assert violations(page) == []
    page.locator("#confirm-yes").click()
    api.expect(page.locator("#confirm-problem")).to_have_text("It stays.")
    assert violations(page) == []


def test_the_login_and_the_list_of_routes_have_no_violations(browser, server, look):
    context = browser.new_context(**look)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append((message.type, message.text)))
    for path, part in (("/static/login.html#wrong", "#wrong"), ("/api/docs", "#routes h3")):
        page.goto(server.address + path)
        api.expect(page.locator(part).first).to_be_visible()
        assert violations(page) == []
    assert not [entry for entry in said if entry[0] in ("error", "warning")]
    context.close()


@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_has_one_first_heading_and_one_main_part(browser, server, screen):
    context = browser.new_context(**SCREENS[screen])
    page = context.new_page()
    for path in ("/", "/api/docs", "/static/login.html"):
        page.goto(server.address + path)
        api.expect(page.get_by_role("heading", level=1)).to_have_count(1)
        api.expect(page.get_by_role("main")).to_have_count(1)
    context.close()


def test_the_table_is_one_stop_of_the_tab_key_with_arrow_keys_inside(desk):
    desk.open()
    page = desk.page
    rows = page.locator("#rows tr")
    assert rows.count() > 3
    focused = "() => document.activeElement.closest('tr')?.dataset.id ?? null"
    page.locator("#min-area").focus()
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "1"
    for key, row in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", -1), ("Home", 0)):
        page.keyboard.press(key)
        assert page.evaluate(focused) == rows.nth(row).get_attribute("data-id")
    page.keyboard.press("ArrowDown")
    far = desk.resolution
    page.keyboard.press("Enter")
    api.expect(page.locator("#popup")).to_contain_text("Polygon 2")
    assert desk.resolution < far
    assert page.evaluate(focused) == "2"
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.dataset.file") == "mask.tif"
    page.keyboard.press("Shift+Tab")  # and back to where one was
    assert page.evaluate(focused) == "2"
    heights = rows.evaluate_all("all => all.map(row => row.getBoundingClientRect().height)")
    assert min(heights) >= 24
    desk.leave()
